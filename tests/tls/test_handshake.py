"""The handshake: both ways, what is agreed on, and every way in which it can fail."""

import asyncio
import socket
import ssl

import pytest
from helpers import (
    PATIENCE,
    SLOWDOWN,
    Recorder,
    beyond_asyncio,
    listener,
    recv_to_end,
    reset,
    settle,
    socket_pair,
    within,
)
from tlshelpers import HOST, TLS12, TLS13, TlsPeer, failure_of, same_failure

# -- that succeed ----------------------------------------------------------------------------------


async def test_both_ways(tls_pair, kind, side, version):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, kind=kind, version=version)
    assert protocol.events == ["made"]
    assert protocol.transport is transport
    transport.write(b"to the peer")
    assert await peer.recv_exactly(11) == b"to the peer"
    await peer.send(b"from the peer")
    assert await protocol.got(13) == b"from the peer"
    assert transport.get_extra_info("ssl_object").version() == {TLS12: "TLSv1.2", TLS13: "TLSv1.3"}[version]


async def test_what_a_transport_tells(tls_pair, contexts, kind, side, version):
    ours, theirs = contexts(side, version)
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, kind=kind, version=version, ours=ours, theirs=theirs)
    tls = transport.get_extra_info("ssl_object")
    assert isinstance(tls, ssl.SSLObject)
    assert tls.context is ours
    assert tls.server_side is (side == "server")
    assert tls.server_hostname == (HOST if side == "client" else None)
    assert transport.get_extra_info("sslcontext") is ours
    assert transport.get_extra_info("cipher") == tls.cipher() == peer.tls.cipher()
    assert transport.get_extra_info("compression") is None
    certificate = transport.get_extra_info("peercert")
    assert certificate == tls.getpeercert()
    if side == "client":
        assert ("DNS", HOST) in certificate["subjectAltName"]
    else:
        assert certificate is None
    family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
    assert transport.get_extra_info("socket").family == family
    if kind == "tcp":
        assert transport.get_extra_info("peername") == peer.carrier.getsockname()
        assert transport.get_extra_info("sockname") == peer.carrier.getpeername()
    assert transport.get_extra_info("nothing of the kind", 7) == 7
    assert tls.get_channel_binding("tls-unique") is not None or version is TLS13
    assert transport.get_protocol() is protocol
    # CPython's own tests know a TLS transport by the name of its class.
    assert "ssl" in type(transport).__name__.lower()


async def test_application_protocols(tls_pair, contexts, side, version):
    ours, theirs = contexts(side, version)
    ours.set_alpn_protocols(["h2", "http/1.1"])
    theirs.set_alpn_protocols(["http/1.1", "spdy"])
    transport, peer = await tls_pair(Recorder(), side, ours=ours, theirs=theirs)
    assert transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    assert peer.tls.selected_alpn_protocol() == "http/1.1"


async def test_no_application_protocol_in_common(tls_pair, contexts, side):
    ours, theirs = contexts(side)
    ours.set_alpn_protocols(["h2"])
    theirs.set_alpn_protocols(["imap"])
    transport, _ = await tls_pair(Recorder(), side, ours=ours, theirs=theirs)
    assert transport.get_extra_info("ssl_object").selected_alpn_protocol() is None


async def test_client_certificates(tls_pair, authority, side, version):
    client, server = authority.certified_client(version), authority.demanding_server(version)
    ours, theirs = (client, server) if side == "client" else (server, client)
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, ours=ours, theirs=theirs)
    shown = transport.get_extra_info("peercert") if side == "server" else peer.tls.getpeercert()
    assert ("DNS", "client.example") in shown["subjectAltName"]
    await peer.send(b"still talking")
    assert await protocol.got(13) == b"still talking"


async def test_a_server_and_a_client_of_the_loop(loop, authority, kind, tmpdir_short):
    protocols = []

    class Echo(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            protocols.append(self)

        def data_received(self, data):
            self.transport.write(data)

    server_context, client_context = authority.server(), authority.client()
    if kind == "tcp":
        server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=server_context)
        made = loop.create_connection(Recorder, *server.sockets[0].getsockname(), ssl=client_context)
    else:
        path = f"{tmpdir_short}/s"
        server = await loop.create_unix_server(Echo, path, ssl=server_context)
        made = loop.create_unix_connection(Recorder, path, ssl=client_context, server_hostname=HOST)
    transport, protocol = await made
    transport.write(b"x" * 100_000)
    assert await protocol.got(100_000) == b"x" * 100_000
    transport.close()
    await protocol.seen("lost")
    await protocols[0].seen("lost")
    assert (protocol.exc, protocols[0].exc) == (None, None)
    server.close()
    await within(server.wait_closed())


async def test_ssl_true_verifies(loop, authority):
    """`ssl=True` is the default context: it does not know our authority."""
    server = await loop.create_server(Recorder, "127.0.0.1", 0, ssl=authority.server())
    with pytest.raises(ssl.SSLCertVerificationError):
        await loop.create_connection(Recorder, *server.sockets[0].getsockname(), ssl=True, server_hostname=HOST)
    server.close()
    await within(server.wait_closed())


async def test_data_behind_the_handshake(loop, authority, attach, side, version):
    """The last flight and the first data in one segment."""
    client, server = authority.client(version), authority.server(version)
    ours, theirs = (client, server) if side == "client" else (server, client)
    sock, far = socket_pair("tcp")
    far.setblocking(False)
    with far:
        peer = TlsPeer(far, theirs, server_side=side == "client", server_hostname=HOST)
        held = []
        raw_send = peer.raw_send

        async def hold(data):
            held.append(data)

        protocol = Recorder()
        task = loop.create_task(attach(protocol, sock, side, ours))
        while True:
            try:
                peer.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if data := peer.outgoing.read():
                    await raw_send(data)
                peer.incoming.write(await peer.raw_recv())
        await raw_send(peer.outgoing.read() + peer.seal(b"at once"))
        transport = await within(task)
        assert await protocol.got(7) == b"at once"
        assert protocol.events == ["made", "data"]
        transport.abort()
        await protocol.seen("lost")


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1, -0.5])
async def test_a_handshake_timeout_is_positive(loop, authority, timeout):
    sock, far = socket_pair("tcp")
    with sock, far:
        with pytest.raises(ValueError, match="ssl_handshake_timeout should be a positive number, got"):
            await loop.create_connection(
                Recorder, sock=sock, ssl=authority.client(), server_hostname=HOST, ssl_handshake_timeout=timeout
            )
    with pytest.raises(ValueError):
        await loop.create_connection(Recorder, "127.0.0.1", 1, ssl_handshake_timeout=1)


@pytest.mark.parametrize("timeout", [-1, -0.5])
async def test_a_shutdown_timeout_is_not_negative(loop, authority, timeout):
    sock, far = socket_pair("tcp")
    with sock, far:
        with pytest.raises(ValueError, match="ssl_shutdown_timeout should be a positive number, got"):
            await loop.create_connection(
                Recorder, sock=sock, ssl=authority.client(), server_hostname=HOST, ssl_shutdown_timeout=timeout
            )


async def test_wrong_arguments(loop, authority):
    with pytest.raises(ValueError, match="server_hostname is only meaningful with ssl"):
        await loop.create_connection(Recorder, "127.0.0.1", 1, server_hostname=HOST)
    sock, far = socket_pair("tcp")
    with sock, far:
        with pytest.raises(ValueError, match="You must set server_hostname when using ssl without a host"):
            await loop.create_connection(Recorder, sock=sock, ssl=authority.client())
        with pytest.raises((TypeError, AttributeError)):
            await loop.create_connection(Recorder, sock=sock, ssl="yes", server_hostname=HOST)
    with pytest.raises(TypeError):
        await loop.create_server(Recorder, "127.0.0.1", 0, ssl=True)


async def test_a_context_for_the_other_side(loop, authority, errors):
    sock, far = socket_pair("tcp")
    with sock, far:
        with pytest.raises(ssl.SSLError, match="Cannot create a client socket with a PROTOCOL_TLS_SERVER context"):
            await loop.create_connection(Recorder, sock=sock, ssl=authority.server(), server_hostname=HOST)


# -- that fail: certificates -----------------------------------------------------------------------


async def fail(loop, attach, ours, theirs, side, hostname=HOST, kind="tcp"):
    """Try a handshake that must fail; what our side raised."""
    sock, far = socket_pair(kind)
    far.setblocking(False)
    protocol = Recorder()
    with far:
        peer = TlsPeer(far, theirs, server_side=side == "client", server_hostname=hostname)

        async def other():
            await peer.handshake()
            await peer.recv()  # in TLS 1.3 the refusal comes after the client's handshake

        found, _ = await within(
            asyncio.gather(attach(protocol, sock, side, ours, hostname=hostname), other(), return_exceptions=True)
        )
    assert protocol.events == [], "a protocol heard of a connection that never was"
    assert isinstance(found, BaseException), f"the handshake succeeded: {found!r}"
    return found


@pytest.mark.parametrize(
    "hostname", ["elsewhere.example", "127.0.0.2", "localhost.example"], ids=["name", "address", "longer"]
)
async def test_a_wrong_name(loop, authority, attach, version, hostname):
    client, server = authority.client(version), authority.server(version)
    expected = failure_of(client, server, server_side=False, server_hostname=hostname)
    found = await fail(loop, attach, client, server, "client", hostname)
    assert isinstance(found, ssl.SSLCertVerificationError)
    assert found.verify_code in (ssl_code("HOSTNAME"), ssl_code("ADDRESS"))
    same_failure(found, expected)


def ssl_code(what):
    return {"HOSTNAME": 62, "ADDRESS": 64}[what]


async def test_an_expired_certificate(loop, authority, attach, version):
    client, server = authority.client(version), authority.server(version, expired=True)
    found = await fail(loop, attach, client, server, "client")
    same_failure(found, failure_of(client, server, server_side=False))
    assert found.verify_message == "certificate has expired"


async def test_an_unknown_authority(loop, authority, attach, version):
    client, server = ssl.create_default_context(cafile=None), authority.server(version)
    found = await fail(loop, attach, client, server, "client")
    same_failure(found, failure_of(client, server, server_side=False))
    assert found.reason == "CERTIFICATE_VERIFY_FAILED"


async def test_a_client_without_certificate(loop, authority, attach, version):
    server, client = authority.demanding_server(version), authority.client(version)
    found = await fail(loop, attach, server, client, "server")
    same_failure(found, failure_of(server, client, server_side=True))
    assert found.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"


async def test_refused_by_the_peer(loop, authority, attach):
    """The other side does not like our certificate: its alert is the error here."""
    server, client = authority.server(), ssl.create_default_context()
    found = await fail(loop, attach, server, client, "server")
    same_failure(found, failure_of(server, client, server_side=True))
    assert found.reason == "TLSV1_ALERT_UNKNOWN_CA"


async def test_a_refused_client_certificate_in_tls13(tls_pair, authority):
    """The client's handshake is over before the server refuses: the refusal is connection_lost's."""
    client, server = authority.client(TLS13), authority.demanding_server(TLS13)
    protocol = Recorder()
    expected = failure_of(client, server, server_side=False)
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        await tls_pair(protocol, "client", ours=client, theirs=server)
    await protocol.seen("lost")
    same_failure(protocol.exc, expected)
    assert protocol.events == ["made", "lost"]


# -- that fail: no common ground -------------------------------------------------------------------


async def test_no_common_version(loop, authority, attach, side):
    client, server = authority.client(TLS12), authority.server(TLS13)
    ours, theirs = (client, server) if side == "client" else (server, client)
    found = await fail(loop, attach, ours, theirs, side)
    same_failure(found, failure_of(ours, theirs, server_side=side == "server"))


async def test_no_common_cipher(loop, authority, attach, side):
    client, server = authority.client(TLS12), authority.server(TLS12)
    client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    server.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    ours, theirs = (client, server) if side == "client" else (server, client)
    found = await fail(loop, attach, ours, theirs, side)
    same_failure(found, failure_of(ours, theirs, server_side=side == "server"))


# -- that fail: not TLS at all ---------------------------------------------------------------------

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(100),
    "text": b"220 ready when you are\r\n",
    "huge record": b"\x16\x03\x01\xff\xff" + bytes(5),
    "no hello": b"\x16\x03\x01\x00\x04\x0f\x00\x00\x00",
    "data first": b"\x17\x03\x03\x00\x05hello",
    "alert": b"\x15\x03\x03\x00\x02\x02\x28",
}


@pytest.mark.parametrize("what", GARBAGE)
async def test_garbage_instead_of_a_hello(loop, authority, attach, contexts, what, side):
    ours, _ = contexts(side)
    sock, far = socket_pair("tcp")
    protocol = Recorder()
    with far:
        far.sendall(GARBAGE[what])
        with pytest.raises(ssl.SSLError) as caught:
            await within(attach(protocol, sock, side, ours))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(GARBAGE[what])
    reference = ours.wrap_bio(
        incoming, outgoing, server_side=side == "server", server_hostname=HOST if side == "client" else None
    )
    with pytest.raises(ssl.SSLError) as expected:
        reference.do_handshake()
    same_failure(caught.value, expected.value)
    assert protocol.events == []


@beyond_asyncio("the alert is dropped with the connection")
async def test_the_alert_reaches_the_peer(loop, authority, attach):
    sock, far = socket_pair("tcp")
    with far:
        far.sendall(GARBAGE["no hello"])
        with pytest.raises(ssl.SSLError):
            await attach(Recorder(), sock, "server", authority.server())
        answer = await loop.run_in_executor(None, recv_to_end, far)
    assert answer[:1] == b"\x15" and len(answer) == 7, "a fatal alert was due"


# -- that fail: the peer goes away -----------------------------------------------------------------


@pytest.mark.parametrize("after", ["nothing", "hello"])
async def test_the_end_in_mid_handshake(loop, contexts, attach, side, after):
    ours, theirs = contexts(side)
    sock, far = socket_pair("tcp")
    protocol = Recorder()
    with far:
        far.setblocking(False)
        task = loop.create_task(attach(protocol, sock, side, ours))
        if after == "hello":
            peer = TlsPeer(far, theirs, server_side=side == "client", server_hostname=HOST)
            if side == "client":
                peer.incoming.write(await peer.raw_recv())
            with pytest.raises(ssl.SSLWantReadError):
                peer.tls.do_handshake()
            await peer.raw_send(peer.outgoing.read()[:-20])
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionResetError):
            await within(task)
    assert protocol.events == []


async def test_a_reset_in_mid_handshake(loop, contexts, attach, side, caplog):
    ours, _ = contexts(side)
    sock, far = socket_pair("tcp")
    protocol = Recorder()
    task = loop.create_task(attach(protocol, sock, side, ours))
    await settle()
    reset(far)
    with pytest.raises(ConnectionResetError):
        await within(task)
    await settle()
    assert protocol.events == []
    assert not caplog.records, "an ordinary fault is raised, and nowhere else told"


@beyond_asyncio("D54: a reset that meets start_tls() went to the exception handler too")
async def test_a_reset_under_start_tls(loop, authority, pair, caplog):
    protocol = Recorder()
    transport, far = await pair(protocol)
    task = loop.create_task(loop.start_tls(transport, protocol, authority.client(), server_hostname=HOST))
    await settle()
    reset(far)
    with pytest.raises(ConnectionResetError):
        await within(task)
    await settle()
    assert not caplog.records


@pytest.mark.parametrize("fault", ["reset", "end", "garbage"])
async def test_a_server_outlives_bad_clients(loop, authority, fault, caplog):
    protocols = []

    class Server(Recorder):
        def __init__(self):
            super().__init__()
            protocols.append(self)

    server = await loop.create_server(Server, "127.0.0.1", 0, ssl=authority.server())
    address = server.sockets[0].getsockname()
    for _ in range(5):
        bad = socket.create_connection(address)
        await settle()
        if fault == "garbage":
            bad.sendall(GARBAGE["http"])
            bad.settimeout(PATIENCE)
            await loop.run_in_executor(None, recv_to_end, bad)
        if fault == "reset":
            reset(bad)
        else:
            bad.close()
        await settle()
    transport, _ = await loop.create_connection(Recorder, *address, ssl=authority.client(), server_hostname=HOST)
    await protocols[-1].seen("made")
    transport.abort()
    await protocols[-1].seen("lost")
    assert [p.events for p in protocols[:-1]] == [[]] * 5
    assert not caplog.records
    server.close()
    await within(server.wait_closed())


async def test_the_handshake_timeout(loop, contexts, attach, side):
    ours, _ = contexts(side)
    sock, far = socket_pair("tcp")
    protocol = Recorder()
    with far:
        before = loop.time()
        with pytest.raises(ConnectionAbortedError) as caught:
            await attach(protocol, sock, side, ours, ssl_handshake_timeout=0.05)
        assert 0.045 < loop.time() - before < 2 * SLOWDOWN
    assert str(caught.value) == "SSL handshake is taking longer than 0.05 seconds: aborting the connection"
    assert protocol.events == []


async def test_a_server_gives_up_on_a_silent_client(loop, authority):
    server = await loop.create_server(Recorder, "127.0.0.1", 0, ssl=authority.server(), ssl_handshake_timeout=0.05)
    with socket.create_connection(server.sockets[0].getsockname()) as silent:
        silent.setblocking(False)
        try:
            assert await within(loop.sock_recv(silent, 1)) == b""
        except ConnectionResetError:
            pass
    server.close()
    await within(server.wait_closed())


@pytest.mark.skipif(SLOWDOWN > 1, reason="a matter of milliseconds")
async def test_a_slow_handshake_in_time(loop, contexts, attach, side):
    """The timer of a handshake that succeeded does not go off later."""
    ours, theirs = contexts(side)
    sock, far = socket_pair("tcp")
    far.setblocking(False)
    protocol = Recorder()
    with far:
        peer = TlsPeer(far, theirs, server_side=side == "client", server_hostname=HOST)
        transport, _ = await asyncio.gather(
            attach(protocol, sock, side, ours, ssl_handshake_timeout=0.5), peer.handshake()
        )
        fired = loop.create_future()
        loop.call_later(0.55, fired.set_result, None)
        await fired
        await peer.send(b"alive")
        assert await protocol.got(5) == b"alive"
        transport.abort()
        await protocol.seen("lost")


async def test_a_refused_connection(loop, authority):
    with listener() as nobody:
        address = nobody.getsockname()
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(Recorder, *address, ssl=authority.client(), server_hostname=HOST)
