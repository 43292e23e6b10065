"""start_tls(): over plain and TLS transports, in any state of theirs."""

import asyncio
import socket
import ssl

import pytest
from helpers import BufferedRecorder, Recorder, beyond_asyncio, pattern, recv_exactly, settle, within
from tlshelpers import HOST, TLS13, TlsPeer

SMALL = {"sndbuf": 8192, "rcvbuf": 8192}
MIB = 1 << 20


@pytest.fixture
def upgrade(loop, contexts):
    """`transport, peer = await upgrade(plain, protocol, carrier, side)`."""

    async def make(plain, protocol, carrier, side, *, version=None, **options):
        ours, theirs = contexts(side, version)
        if isinstance(carrier, socket.socket):
            carrier.setblocking(False)
        peer = TlsPeer(carrier, theirs, server_side=side == "client", server_hostname=HOST)
        transport, _ = await within(
            asyncio.gather(
                loop.start_tls(
                    plain,
                    protocol,
                    ours,
                    server_side=side == "server",
                    server_hostname=HOST if side == "client" else None,
                    **options,
                ),
                peer.handshake(),
            ),
            10,
        )
        return transport, peer

    return make


async def test_upgrade(pair, upgrade, side, kind, version):
    protocol = Recorder()
    plain, far = await pair(protocol, kind)
    plain.write(b"in the clear")
    assert recv_exactly(far, 12) == b"in the clear"
    transport, peer = await upgrade(plain, protocol, far, side, version=version)
    assert transport is not plain
    assert transport.get_protocol() is protocol
    assert protocol.events == ["made"], "connection_made() is not called again"
    assert transport.get_extra_info("socket").fileno() == plain.get_extra_info("socket").fileno()
    assert isinstance(transport.get_extra_info("ssl_object"), ssl.SSLObject)
    transport.write(b"in secret")
    assert await peer.recv_exactly(9) == b"in secret"
    await peer.send(pattern(100_000))
    assert await protocol.got(100_000) == pattern(100_000)
    transport.close()
    assert await peer.recv_to_end() == (b"", "notify")
    await peer.unwrap()
    await protocol.seen("lost")
    assert protocol.events.count("lost") == 1
    assert protocol.exc is None


async def test_upgrade_of_a_buffered_protocol(pair, upgrade, side):
    protocol = BufferedRecorder(100)
    protocol.buffer = memoryview(protocol.buffer)
    plain, far = await pair(protocol)
    transport, peer = await upgrade(plain, protocol, far, side)
    await peer.send(pattern(1000))
    assert await protocol.got(1000) == pattern(1000)


async def test_tls_in_tls(tls_pair, upgrade, side, version):
    protocol = Recorder()
    outer, outer_peer = await tls_pair(protocol, side, version=version)
    transport, peer = await upgrade(outer, protocol, outer_peer, "client")
    data = pattern(300_000)
    transport.write(data)
    assert await peer.recv_exactly(len(data)) == data
    await peer.send(data)
    assert await protocol.got(len(data)) == data
    inner, outermost = transport.get_extra_info("ssl_object"), outer.get_extra_info("ssl_object")
    assert inner is not outermost
    transport.close()
    assert await peer.recv_to_end() == (b"", "notify")
    await peer._flush()
    await peer.raw_send(peer.farewell())
    outer_peer.close()
    await protocol.seen("lost")
    assert protocol.events.count("lost") == 1


async def test_tls_in_tls_in_tls(tls_pair, upgrade):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol)
    for side in ("server", "client"):
        transport, peer = await upgrade(transport, protocol, peer, side)
    transport.write(b"deep down")
    assert await peer.recv_exactly(9) == b"deep down"
    await peer.send(b"and up again")
    assert await protocol.got(12) == b"and up again"
    transport.abort()
    await protocol.seen("lost")


async def test_streams(loop, authority, version):
    async def serve(reader, writer):
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"go\n")
        await writer.drain()
        await writer.start_tls(authority.server(version))
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"STARTTLS\n")
    assert await reader.readline() == b"go\n"
    await writer.start_tls(authority.client(version), server_hostname=HOST)
    writer.write(b"hello\n")
    assert await reader.readline() == b"HELLO\n"
    assert await reader.read() == b""
    writer.close()
    await within(writer.wait_closed())
    server.close()
    await within(server.wait_closed())


# -- in any state ----------------------------------------------------------------------------------


@beyond_asyncio("D6, cpython#142352: bytes already in the reader are lost, and the handshake hangs")
@pytest.mark.parametrize("cut", [None, 0, 1, 5, 50])
async def test_bytes_already_read_go_along(loop, authority, cut):
    """Case 08: a proxy header and (part of) the ClientHello in one segment."""
    done = loop.create_future()

    async def serve(reader, writer):
        try:
            line = await reader.readline()
            await settle()
            await writer.start_tls(authority.server())
            done.set_result((line, await reader.readexactly(5)))
        except BaseException as exc:
            done.set_exception(exc)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as far:
        far.setblocking(False)
        peer = TlsPeer(far, authority.client(), server_side=False, server_hostname=HOST)
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        hello = peer.outgoing.read()
        await peer.raw_send(b"PROXY\r\n" + hello[:cut])
        if cut is not None:
            await settle(4)
            await peer.raw_send(hello[cut:])
        await peer.handshake()
        await peer.send(b"hello")
        assert await within(done) == (b"PROXY\r\n", b"hello")
        await peer.recv_to_end()
    server.close()
    await within(server.wait_closed())


@beyond_asyncio("D33, cpython#109051: it trips over its own assertion")
async def test_writes_still_backed_up(loop, pair, contexts):
    """Case 30: the clear text goes out first, then the handshake."""
    size = 4 * MIB
    ours, theirs = contexts("client")
    protocol = Recorder()
    plain, far = await pair(protocol, **SMALL)
    plain.write(pattern(size))
    assert protocol.events == ["made", "pause"]
    far.setblocking(False)
    upgrading = loop.create_task(loop.start_tls(plain, protocol, ours, server_hostname=HOST))
    got = bytearray()
    while len(got) < size:
        got += await within(loop.sock_recv(far, size - len(got)))
    assert got == pattern(size)
    peer = TlsPeer(far, theirs, server_side=True)
    _, transport = await within(asyncio.gather(peer.handshake(), upgrading))
    await protocol.seen("resume")
    assert protocol.events == ["made", "pause", "resume"]
    transport.write(pattern(size, seed=7))
    assert protocol.events == ["made", "pause", "resume", "pause"]
    assert await peer.recv_exactly(size) == pattern(size, seed=7)
    await protocol.until(lambda: protocol.events.count("resume") == 2)
    await peer.send(b"done")
    assert await protocol.got(4) == b"done"


async def test_while_reading_is_paused(pair, upgrade, side):
    protocol = Recorder()
    plain, far = await pair(protocol)
    plain.pause_reading()
    transport, peer = await upgrade(plain, protocol, far, side)
    await peer.send(b"reading is on")
    assert await protocol.got(13) == b"reading is on"


async def test_data_behind_the_last_flight(pair, upgrade, loop, contexts):
    """In one segment with the client's Finished comes its first data."""
    ours, theirs = contexts("server", TLS13)
    protocol = Recorder()
    plain, far = await pair(protocol)
    far.setblocking(False)
    task = loop.create_task(loop.start_tls(plain, protocol, ours, server_side=True))
    peer = TlsPeer(far, theirs, server_side=False, server_hostname=HOST)
    while True:
        try:
            peer.tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            if data := peer.outgoing.read():
                await peer.raw_send(data)
            peer.incoming.write(await peer.raw_recv())
    await peer.raw_send(peer.outgoing.read() + peer.seal(b"early bird"))
    transport = await within(task)
    assert await protocol.got(10) == b"early bird"
    assert protocol.transport is plain
    transport.abort()
    await protocol.seen("lost")


# -- failures --------------------------------------------------------------------------------------


async def test_a_handshake_that_fails(loop, pair, authority, attach):
    protocol = Recorder()
    plain, far = await pair(protocol)
    far.sendall(b"220 no TLS here\r\n")
    with pytest.raises(ssl.SSLError):
        await within(loop.start_tls(plain, protocol, authority.client(), server_hostname=HOST))
    assert plain.is_closing()
    await settle()
    assert protocol.events.count("lost") <= 1


async def test_a_handshake_that_takes_too_long(loop, pair, authority):
    protocol = Recorder()
    plain, _ = await pair(protocol)
    with pytest.raises(ConnectionAbortedError, match="SSL handshake is taking longer than 0.05 seconds"):
        await loop.start_tls(plain, protocol, authority.client(), server_hostname=HOST, ssl_handshake_timeout=0.05)
    assert plain.is_closing()


async def test_cancelling(loop, pair, authority):
    protocol = Recorder()
    plain, _ = await pair(protocol)
    task = loop.create_task(loop.start_tls(plain, protocol, authority.client(), server_hostname=HOST))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle()
    assert plain.is_closing()


async def test_arguments(loop, pair, authority):
    plain, _ = await pair(Recorder())
    protocol = plain.get_protocol()
    with pytest.raises(TypeError, match="sslcontext is expected to be an instance of ssl.SSLContext"):
        await loop.start_tls(plain, protocol, None)
    with pytest.raises(TypeError, match="is not supported by start_tls"):
        await loop.start_tls(asyncio.Transport(), protocol, authority.client())
    with pytest.raises(ValueError):
        await loop.start_tls(plain, protocol, authority.client(), server_hostname=HOST, ssl_handshake_timeout=0)


@beyond_asyncio("D59: no session can be given")
async def test_a_session(loop, pair, authority, version):
    client, server = authority.client(version), authority.server(version)
    session = None
    reused = []
    for _ in range(2):
        protocol = Recorder()
        plain, far = await pair(protocol)
        far.setblocking(False)
        peer = TlsPeer(far, server, server_side=True)
        transport, _ = await asyncio.gather(
            loop.start_tls(plain, protocol, client, server_hostname=HOST, session=session), peer.handshake()
        )
        await peer.send(b"x")
        await protocol.got(1)
        tls = transport.get_extra_info("ssl_object")
        session = tls.session
        reused.append(tls.session_reused)
        transport.close()
        await peer.recv_to_end()
        await peer.unwrap()
        await protocol.seen("lost")
    assert reused == [False, True]
