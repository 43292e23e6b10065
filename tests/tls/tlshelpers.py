"""What the TLS tests share: certificates made on the spot, and a far end that a test moves by hand."""

import asyncio
import datetime
import functools
import os
import ssl

import trustme

TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
HOST = "localhost"


class Authority:
    """A certificate authority, and contexts whose certificates it has signed."""

    def __init__(self):
        self.ca = trustme.CA()

    @functools.cache
    def certificate(self, *names, expired=False):
        validity = {}
        if expired:
            now = datetime.datetime.now(datetime.UTC)
            validity = {"not_before": now - datetime.timedelta(days=9), "not_after": now - datetime.timedelta(days=2)}
        return self.ca.issue_cert(*names, **validity)

    def server(self, version=None, *, names=(HOST, "127.0.0.1", "::1"), expired=False, kind=ssl.SSLContext):
        context = kind(ssl.PROTOCOL_TLS_SERVER)
        self.certificate(*names, expired=expired).configure_cert(context)
        return only(context, version)

    def client(self, version=None, *, kind=ssl.SSLContext):
        context = kind(ssl.PROTOCOL_TLS_CLIENT)
        self.ca.configure_trust(context)
        return only(context, version)

    def certified_client(self, version=None):
        """A client that has a certificate of its own to show."""
        context = self.client(version)
        self.certificate("client.example").configure_cert(context)
        return context

    def demanding_server(self, version=None):
        """A server that asks its clients for a certificate."""
        context = self.server(version)
        self.ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def only(context, version):
    """Let the context speak this one version; None leaves it as it is."""
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


class TlsPeer:
    """The far end: a genuine SSLObject whose records go out and come in as the test says.

    `carrier` is a non-blocking socket, or another TlsPeer for TLS in TLS.
    """

    def __init__(self, carrier, context, *, server_side, server_hostname=None, session=None):
        self.carrier = carrier
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming,
            self.outgoing,
            server_side=server_side,
            server_hostname=None if server_side else server_hostname,
            session=session,
        )

    # -- raw bytes --------------------------------------------------------------------------

    async def raw_send(self, data):
        if isinstance(self.carrier, TlsPeer):
            await self.carrier.send(data)
        else:
            await asyncio.get_running_loop().sock_sendall(self.carrier, data)

    async def raw_recv(self):
        if isinstance(self.carrier, TlsPeer):
            return await self.carrier.recv()
        return await asyncio.get_running_loop().sock_recv(self.carrier, 1 << 18)

    async def _flush(self):
        if data := self.outgoing.read():
            await self.raw_send(data)

    async def _drive(self, call, *args):
        while True:
            try:
                result = call(*args)
            except ssl.SSLWantReadError:
                await self._flush()
                if data := await self.raw_recv():
                    self.incoming.write(data)
                else:
                    self.incoming.write_eof()
            except ssl.SSLZeroReturnError:  # how a read ends once both sides have said close_notify
                return b""
            except ssl.SSLError:
                await self._flush()  # the alert
                raise
            else:
                await self._flush()
                return result

    # -- TLS ----------------------------------------------------------------------------------

    async def handshake(self):
        await self._drive(self.tls.do_handshake)

    def seal(self, data):
        """The records for `data`, which are then the test's to deliver."""
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view) :]
        return self.outgoing.read()

    def farewell(self):
        """The record of a close_notify."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()

    async def send(self, data):
        await self.raw_send(self.seal(data))

    async def recv(self, count=1 << 18):
        """What comes next; empty after a close_notify; SSLEOFError after a bare end."""
        return await self._drive(self.tls.read, count)

    async def recv_exactly(self, count):
        parts = []
        while count:
            part = await self.recv(count)
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    async def recv_to_end(self):
        """All that comes, and how it ended: `notify`, `truncated` or `reset`."""
        parts = []
        try:
            while part := await self.recv():
                parts.append(part)
        except (ssl.SSLEOFError, ssl.SSLSyscallError):
            return b"".join(parts), "truncated"
        except ConnectionError:
            return b"".join(parts), "reset"
        return b"".join(parts), "notify"

    async def unwrap(self):
        """Say close_notify and wait for the other one."""
        await self._drive(self.tls.unwrap)

    def close(self):
        self.carrier.close()


class Delivery:
    """Stands between a TlsPeer and its socket, and hands over one byte at a time."""

    def __init__(self, sock, piece=1):
        self.sock = sock
        self.piece = piece

    async def __call__(self, data):
        loop = asyncio.get_running_loop()
        for start in range(0, len(data), self.piece):
            await loop.sock_sendall(self.sock, data[start : start + self.piece])
            await asyncio.sleep(0)  # the loop polls, and so reads just this
            await asyncio.sleep(0)


def failure_of(ours, theirs, *, server_side, server_hostname=HOST):
    """What CPython's own SSLObject raises when `ours` shakes hands with `theirs`, both in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = ours.wrap_bio(back, there, server_side=server_side, server_hostname=None if server_side else server_hostname)
    other = theirs.wrap_bio(
        there, back, server_side=not server_side, server_hostname=server_hostname if server_side else None
    )
    for _ in range(10):
        for end in (mine, other):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as exc:
                if end is mine:
                    return exc
    # In TLS 1.3 a client is done before the server has looked at its certificate.
    try:
        mine.read(1)
    except ssl.SSLError as exc:
        return exc
    raise AssertionError("the handshake did not fail")


def same_failure(found, expected):
    """The type, text and fields of an SSL error are CPython's."""
    assert type(found) is type(expected)
    assert str(found) == str(expected)
    for name in ("errno", "library", "reason", "verify_code", "verify_message"):
        assert getattr(found, name, None) == getattr(expected, name, None)


def resident(process="self"):
    """Bytes of a process in memory."""
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
