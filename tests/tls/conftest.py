"""Certificates, and a transport over TLS with a far end that the test moves by hand."""

import asyncio
import contextlib

import pytest
from helpers import ON_ASYNCIO, socket_pair
from tlshelpers import HOST, TLS12, TLS13, Authority, TlsPeer


@pytest.fixture(scope="session")
def authority():
    return Authority()


@pytest.fixture(params=[TLS12, TLS13], ids=["1.2", "1.3"])
def version(request):
    """Both versions of TLS."""
    return request.param


@pytest.fixture(params=["client", "server"])
def side(request):
    """Which end of the handshake the loop under test has."""
    return request.param


@pytest.fixture
def contexts(authority):
    """`ours, theirs = contexts(side, version)`: what each end goes by."""

    def make(side, version=None):
        client, server = authority.client(version), authority.server(version)
        return (client, server) if side == "client" else (server, client)

    return make


@pytest.fixture
def attach(loop):
    """`connect(protocol, sock, side, context, **options)`: put a connected socket under TLS."""

    async def connect(protocol, sock, side, context, *, hostname=HOST, **options):
        if side == "client":
            made = loop.create_connection(lambda: protocol, sock=sock, ssl=context, server_hostname=hostname, **options)
        else:
            made = loop.connect_accepted_socket(lambda: protocol, sock, ssl=context, **options)
        return (await made)[0]

    return connect


@pytest.fixture
def tls_pair(loop, contexts, attach):
    """`transport, peer = await tls_pair(protocol)`: a TLS transport and the TlsPeer at its other end."""
    with contextlib.ExitStack() as stack:

        async def make(
            protocol,
            side="client",
            *,
            kind="tcp",
            version=None,
            ours=None,
            theirs=None,
            hostname=HOST,
            session=None,
            sizes=None,
            **options,
        ):
            ours, theirs = (given or made for given, made in zip((ours, theirs), contexts(side, version), strict=True))
            sock, far = socket_pair(kind, **(sizes or {}))
            stack.callback(far.close)
            far.setblocking(False)
            peer = TlsPeer(far, theirs, server_side=side == "client", server_hostname=hostname, session=session)
            transport, _ = await asyncio.gather(
                attach(protocol, sock, side, ours, hostname=hostname, **options), peer.handshake()
            )
            stack.callback(_abort, transport)
            return transport, peer

        yield make
        if loop.is_closed():
            stack.pop_all()


def _abort(transport):
    # asyncio's own transport trips over abort() once close() has flushed its queue.
    with contextlib.suppress(AttributeError) if ON_ASYNCIO else contextlib.nullcontext():
        transport.abort()
