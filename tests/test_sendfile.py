"""sendfile() on transports and sock_sendfile() on sockets."""

import asyncio
import io
import os
import socket

import pytest
from helpers import (
    PATIENCE,
    Recorder,
    pattern,
    recv_exactly,
    recv_to_end,
    settle,
    socket_pair,
    within,
)

SIZE = 3 << 20
DATA = pattern(SIZE)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with path.open("rb") as file:
        yield file


async def test_a_whole_file(loop, pair, kind, file):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    reading = loop.run_in_executor(None, recv_exactly, peer, SIZE)
    assert await within(loop.sendfile(transport, file)) == SIZE
    assert await reading == DATA
    assert file.tell() == SIZE
    assert not transport.is_closing()


async def test_from_an_accepted_connection_in_debug_mode(loop, file):
    """Debug mode checks that every socket is non-blocking: accepted ones must look so in Python too."""
    loop.set_debug(True)
    sent = loop.create_future()

    class Server(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            self.task = loop.create_task(self.send())

        async def send(self):
            try:
                sent.set_result(await loop.sendfile(self.transport, file, 0, 1000))
            except Exception as exc:
                sent.set_exception(exc)
            self.transport.close()

    async with await loop.create_server(Server, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert await within(sent) == 1000
        assert received == DATA[:1000]
    loop.set_debug(False)


@pytest.mark.parametrize(
    ("offset", "count", "expected"),
    [
        (0, 1000, DATA[:1000]),
        (5000, None, DATA[5000:]),
        (5000, 1234, DATA[5000:6234]),
        (SIZE - 10, 100, DATA[-10:]),
    ],
)
async def test_a_part_of_a_file(loop, pair, kind, file, offset, count, expected):
    transport, peer = await pair(Recorder(), kind)
    reading = loop.run_in_executor(None, recv_exactly, peer, len(expected))
    assert await within(loop.sendfile(transport, file, offset, count)) == len(expected)
    assert await reading == expected
    assert file.tell() == offset + len(expected)


async def test_an_empty_file(loop, pair, kind, tmp_path):
    path = tmp_path / "empty"
    path.touch()
    transport, peer = await pair(Recorder(), kind)
    with path.open("rb") as file:
        assert await within(loop.sendfile(transport, file)) == 0
    transport.write(b"after")
    assert recv_exactly(peer, 5) == b"after"


async def test_order_among_writes(loop, pair, kind, file):
    transport, peer = await pair(Recorder(), kind, sndbuf=8192, rcvbuf=8192)
    head = pattern(500_000, seed=1 << 24)
    reading = loop.run_in_executor(None, recv_to_end, peer)
    transport.write(head)
    assert transport.get_write_buffer_size() > 0
    assert await within(loop.sendfile(transport, file)) == SIZE
    transport.write(b"tail")
    transport.close()
    assert await reading == head + DATA + b"tail"


async def test_writing_meanwhile_is_refused(loop, pair, kind, file):
    transport, peer = await pair(Recorder(), kind, sndbuf=8192, rcvbuf=8192)
    task = loop.create_task(loop.sendfile(transport, file))
    await settle()
    assert not task.done()
    with pytest.raises(RuntimeError, match="unable to write; sendfile is in progress"):
        transport.write(b"x")
    with pytest.raises(RuntimeError, match="sendfile is in progress"):
        transport.writelines([b"x"])
    assert await loop.run_in_executor(None, recv_exactly, peer, SIZE) == DATA
    assert await within(task) == SIZE
    transport.write(b"afterwards")
    assert recv_exactly(peer, 10) == b"afterwards"


async def test_reading_goes_on_afterwards(loop, pair, kind, file):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    peer.send(b"early")
    reading = loop.run_in_executor(None, recv_exactly, peer, SIZE)
    await within(loop.sendfile(transport, file))
    await reading
    peer.send(b" and late")
    assert await protocol.got(14) == b"early and late"


async def test_fallback_for_objects_without_a_descriptor(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind)
    file = io.BytesIO(DATA)
    reading = loop.run_in_executor(None, recv_exactly, peer, SIZE)
    assert await within(loop.sendfile(transport, file)) == SIZE
    assert await reading == DATA
    assert file.tell() == SIZE


async def test_without_fallback_it_is_refused(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind)
    with pytest.raises(asyncio.SendfileNotAvailableError):
        await within(loop.sendfile(transport, io.BytesIO(DATA), fallback=False))
    transport.write(b"still alive")
    assert recv_exactly(peer, 11) == b"still alive"


async def test_a_closing_transport_is_refused(loop, pair, kind, file):
    protocol = Recorder()
    transport, _ = await pair(protocol, kind)
    transport.close()
    with pytest.raises(RuntimeError, match="Transport is closing"):
        await loop.sendfile(transport, file)
    await protocol.seen("lost")


async def test_a_transport_may_say_that_it_cannot(loop, pair, file, monkeypatch):
    transport, peer = await pair(Recorder())
    mode = asyncio.constants._SendfileMode
    assert transport._sendfile_compatible is mode.TRY_NATIVE

    class Wrapped:
        is_closing = transport.is_closing
        _sendfile_compatible = mode.UNSUPPORTED

    with pytest.raises(RuntimeError, match="sendfile is not supported for transport"):
        await loop.sendfile(Wrapped(), file)


async def test_the_peer_leaves_meanwhile(loop, pair, kind, file):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind, sndbuf=8192, rcvbuf=8192)
    task = loop.create_task(loop.sendfile(transport, file))
    await settle()
    peer.recv(5000)
    peer.close()
    with pytest.raises(OSError, match=r"."):
        await within(task)
    transport.abort()
    await protocol.seen("lost")
    assert 0 < file.tell() < SIZE


async def test_cancelled(loop, pair, kind, file):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind, sndbuf=8192, rcvbuf=8192)
    task = loop.create_task(loop.sendfile(transport, file))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
    await settle()
    transport.close()
    await protocol.seen("lost")
    received = await loop.run_in_executor(None, recv_to_end, peer)
    assert 0 < len(received) < SIZE
    assert received == DATA[: len(received)]


@pytest.fixture
def sockets(kind):
    ours, peer = socket_pair(kind)
    ours.setblocking(False)
    peer.settimeout(PATIENCE)
    with ours, peer:
        yield ours, peer


@pytest.mark.parametrize(("offset", "count"), [(0, None), (100, None), (100, 5000), (SIZE - 5, 100)])
async def test_sock_sendfile(loop, sockets, file, offset, count):
    ours, peer = sockets
    expected = DATA[offset:] if count is None else DATA[offset : offset + count]
    reading = loop.run_in_executor(None, recv_exactly, peer, len(expected))
    assert await within(loop.sock_sendfile(ours, file, offset, count)) == len(expected)
    assert await reading == expected
    assert file.tell() == offset + len(expected)


async def test_sock_sendfile_fallback(loop, sockets):
    ours, peer = sockets
    reading = loop.run_in_executor(None, recv_exactly, peer, SIZE)
    assert await within(loop.sock_sendfile(ours, io.BytesIO(DATA))) == SIZE
    assert await reading == DATA
    with pytest.raises(asyncio.SendfileNotAvailableError):
        await loop.sock_sendfile(ours, io.BytesIO(DATA), fallback=False)


async def test_sock_sendfile_checks_its_arguments(loop, sockets, file, tmp_path):
    ours, _ = sockets
    with (tmp_path / "file").open("r") as text, pytest.raises(ValueError, match="binary mode"):
        await loop.sock_sendfile(ours, text)
    with pytest.raises(TypeError, match="count must be a positive integer"):
        await loop.sock_sendfile(ours, file, 0, "x")
    with pytest.raises(ValueError, match="count must be a positive integer"):
        await loop.sock_sendfile(ours, file, 0, -1)
    with pytest.raises(TypeError, match="offset must be a non-negative integer"):
        await loop.sock_sendfile(ours, file, "x")
    with pytest.raises(ValueError, match="offset must be a non-negative integer"):
        await loop.sock_sendfile(ours, file, -1)
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.setblocking(False)
        with pytest.raises(ValueError, match="only SOCK_STREAM type sockets are supported"):
            await loop.sock_sendfile(datagrams, file)


async def test_no_descriptor_is_left(loop, pair, file):
    transport, peer = await pair(Recorder())
    await loop.run_in_executor(None, int)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        reading = loop.run_in_executor(None, recv_exactly, peer, 1000)
        await within(loop.sendfile(transport, file, 0, 1000))
        await reading
    assert len(os.listdir("/proc/self/fd")) == before
