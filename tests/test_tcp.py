"""Clients and servers over TCP, as applications write them."""

import asyncio
import socket

import pytest
from helpers import BufferedRecorder, Recorder, listener, pattern, recv_exactly, within


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


@pytest.mark.parametrize("size", [0, 1, 1000, 65536, 1 << 20])
async def test_protocol_echo(loop, size):
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    async with server:
        transport, client = await loop.create_connection(Recorder, *server.sockets[0].getsockname())
        data = pattern(size)
        transport.write(data)
        assert await client.got(size) == data
        transport.close()
        await client.seen("lost")


async def test_streams_echo(loop):
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for number in range(100):
            writer.write(b"line %d\n" % number)
            assert await reader.readline() == b"LINE %d\n" % number
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_many_clients(loop):
    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=300)
    address = server.sockets[0].getsockname()

    async def client(number):
        reader, writer = await asyncio.open_connection(*address)
        for turn in range(3):
            message = pattern(200 + number, seed=number * 1000 + turn)
            writer.write(message)
            assert await reader.readexactly(len(message)) == message
        writer.close()
        await writer.wait_closed()

    async with server:
        await asyncio.gather(*(client(number) for number in range(100)))


async def test_bulk_both_ways_at_once(loop):
    size = 8 << 20
    server_got = loop.create_future()

    async def serve(reader, writer):
        reading = asyncio.ensure_future(reader.readexactly(size))
        writer.write(pattern(size, seed=7))
        await writer.drain()
        server_got.set_result(await reading)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        reading = asyncio.ensure_future(reader.readexactly(size))
        writer.write(pattern(size, seed=9))
        await writer.drain()
        assert await reading == pattern(size, seed=7)
        assert await server_got == pattern(size, seed=9)
        writer.close()
        await writer.wait_closed()


async def test_proxy(loop):
    """Two transports that write into each other, with a pause for back-pressure."""

    class Side(asyncio.Protocol):
        other = None

        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.other.transport.write(data)

        def pause_writing(self):
            self.other.transport.pause_reading()

        def resume_writing(self):
            self.other.transport.resume_reading()

        def connection_lost(self, exc):
            self.other.transport.close()

    upstream = await loop.create_server(Echo, "127.0.0.1", 0)

    class Front(Side):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()
            self.connecting = loop.create_task(self.connect())

        async def connect(self):
            _, self.other = await loop.create_connection(Side, *upstream.sockets[0].getsockname())
            self.other.other = self
            self.transport.resume_reading()

    proxy = await loop.create_server(Front, "127.0.0.1", 0)
    async with upstream, proxy:
        transport, client = await loop.create_connection(Recorder, *proxy.sockets[0].getsockname())
        data = pattern(4 << 20)
        transport.write(data)
        assert await client.got(len(data)) == data
        transport.close()
        await client.seen("lost")


async def test_connect_accepted_socket(loop):
    with listener() as server, socket.create_connection(server.getsockname()) as peer:
        peer.settimeout(5)
        accepted, address = server.accept()
        transport, protocol = await loop.connect_accepted_socket(Recorder, accepted)
        assert transport.get_extra_info("peername") == address
        peer.send(b"hello")
        assert await protocol.got(5) == b"hello"
        transport.write(b"answer")
        assert recv_exactly(peer, 6) == b"answer"
        transport.close()
        await protocol.seen("lost")
        assert accepted.fileno() == -1


async def test_connect_accepted_socket_refuses_datagrams(loop):
    with (
        socket.socket(type=socket.SOCK_DGRAM) as sock,
        pytest.raises(ValueError, match="A Stream Socket was expected"),
    ):
        await loop.connect_accepted_socket(Recorder, sock)


async def test_nodelay_is_set(loop):
    with listener() as peer:
        transport, protocol = await loop.create_connection(Recorder, *peer.getsockname())
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        transport.abort()
        await protocol.seen("lost")
    seen = loop.create_future()

    class Server(asyncio.Protocol):
        def connection_made(self, transport):
            sock = transport.get_extra_info("socket")
            seen.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async with await loop.create_server(Server, "127.0.0.1", 0) as server:
        with socket.create_connection(server.sockets[0].getsockname()):
            assert await within(seen)


async def test_order_of_the_calls_on_both_sides(loop):
    sides = []

    def make():
        sides.append(Recorder())
        return sides[-1]

    server = await loop.create_server(make, "127.0.0.1", 0)
    transport, client = await loop.create_connection(Recorder, *server.sockets[0].getsockname())
    transport.write(b"one")
    transport.write_eof()
    await client.seen("lost")
    (other,) = sides
    await other.seen("lost")
    assert other.events == ["made", "data", "eof", "lost"]
    assert client.events == ["made", "eof", "lost"]
    assert client.exc is None
    assert other.exc is None
    server.close()
    await server.wait_closed()


async def test_connection_made_has_run_when_create_connection_returns(loop):
    with listener() as server:
        transport, protocol = await loop.create_connection(Recorder, *server.getsockname())
        assert protocol.events == ["made"]
        assert protocol.transport is transport
        transport.abort()
        await protocol.seen("lost")


async def test_data_that_came_before_connection_made_is_not_lost(loop):
    with listener() as server:
        with socket.create_connection(server.getsockname()) as peer:
            peer.send(b"early bird")
            accepted, _ = server.accept()
            transport, protocol = await loop.connect_accepted_socket(Recorder, accepted)
            assert await protocol.got(10) == b"early bird"
            assert protocol.events[0] == "made"
        await protocol.seen("lost")
        assert transport.is_closing()


async def test_buffered_server(loop):
    class Echo(BufferedRecorder):
        def buffer_updated(self, nbytes):
            self.transport.write(bytes(self.buffer[:nbytes]))

    async with await loop.create_server(Echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        data = pattern(500_000)
        writer.write(data)
        assert await reader.readexactly(500_000) == data
        writer.close()
        await writer.wait_closed()


async def test_ipv6(loop):
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        server = await loop.create_server(Echo, "::1", 0)
    except OSError as exc:
        pytest.skip(f"no IPv6 loopback: {exc}")
    async with server:
        address = server.sockets[0].getsockname()
        transport, client = await loop.create_connection(Recorder, *address[:2])
        assert transport.get_extra_info("peername") == address
        assert len(transport.get_extra_info("sockname")) == 4
        transport.write(b"six")
        assert await client.got(3) == b"six"
        transport.close()
        await client.seen("lost")


async def test_urgent_connect_and_close(loop):
    """Clients that connect and leave at once, many times."""
    lost = 0
    done = loop.create_future()

    class Server(Recorder):
        def connection_lost(self, exc):
            nonlocal lost
            lost += 1
            if lost == 200:
                done.set_result(None)

    async with await loop.create_server(Server, "127.0.0.1", 0, backlog=200) as server:
        address = server.sockets[0].getsockname()
        for _ in range(200):
            socket.create_connection(address).close()
            await asyncio.sleep(0)
        await within(done)


async def test_reader_limits_pause_the_transport(loop):
    """A StreamReader pauses reading at twice its limit and goes on later."""
    with listener() as server:
        reader, writer = await asyncio.open_connection(*server.getsockname(), limit=1000)
        peer, _ = server.accept()
        with peer:
            data = pattern(100_000)
            sending = loop.run_in_executor(None, peer.sendall, data)
            got = bytearray()
            while len(got) < len(data):
                got += await reader.read(777)
            assert got == data
            await sending
            writer.close()
            await writer.wait_closed()
