"""write(), writelines(), write_eof(): what reaches the kernel, when, and what stays behind."""

import array
import asyncio
import gc
import sys

import pytest
from helpers import (
    Recorder,
    beyond_asyncio,
    beyond_asyncio_before,
    pattern,
    recv_exactly,
    recv_now,
    recv_to_end,
    settle,
)

SMALL = {"sndbuf": 8192, "rcvbuf": 8192}
MIB = 1 << 20


async def test_a_write_is_in_the_kernel_at_once(loop, pair, kind):
    """Inside the very callback that writes, a blocking peer can already read it."""
    transport, peer = await pair(Recorder(), kind)
    transport.write(b"from a task")
    assert recv_now(peer) == b"from a task"
    future = loop.create_future()

    def in_a_callback():
        transport.write(b"from a callback")
        future.set_result(recv_now(peer))

    loop.call_soon(in_a_callback)
    assert await future == b"from a callback"
    assert transport.get_write_buffer_size() == 0


async def test_writelines_is_in_the_kernel_before_the_next_callback(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind)
    future = loop.create_future()
    loop.call_soon(transport.writelines, [b"one", b"two", b"three"])
    loop.call_soon(lambda: future.set_result(recv_now(peer)))
    assert await future == b"onetwothree"


async def test_several_writes_are_in_the_kernel_before_the_next_callback(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind)
    future = loop.create_future()

    def write_pieces():
        for number in range(100):
            transport.write(b"%d," % number)

    loop.call_soon(write_pieces)
    loop.call_soon(lambda: future.set_result(recv_now(peer)))
    assert await future == b"".join(b"%d," % number for number in range(100))


async def test_an_answer_is_sent_without_waiting_for_another_event(loop, pair, kind):
    class Echo(Recorder):
        def data_received(self, data):
            self.transport.write(data[:5])
            self.transport.write(data[5:])
            loop.call_soon(lambda: self.chunks.append(recv_now(peer)))
            super().data_received(data)

    protocol = Echo()
    _, peer = await pair(protocol, kind)
    peer.send(b"header body")
    await protocol.until(lambda: len(protocol.chunks) == 2)
    assert protocol.chunks == [b"header body"] * 2


async def test_order_of_all_sorts_of_writes(pair, kind):
    transport, peer = await pair(Recorder(), kind)
    transport.write(b"1")
    transport.writelines([b"2", bytearray(b"3"), memoryview(b"4")])
    transport.write(bytearray(b"5"))
    transport.write(memoryview(b"678")[1:])
    transport.writelines(piece for piece in (b"a", b"b"))
    transport.writelines((b"c",))
    transport.write(b"d")
    await asyncio.sleep(0)
    assert recv_exactly(peer, 11) == b"1234578abcd"


async def test_connection_made_may_write(pair, kind):
    class Greeter(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.write(b"hello ")
            transport.write(b"there")

    _, peer = await pair(Greeter(), kind)
    assert recv_exactly(peer, 11) == b"hello there"


@pytest.mark.parametrize("empty", [b"", bytearray(), memoryview(b"")], ids=["bytes", "bytearray", "memoryview"])
async def test_empty_writes_do_nothing(pair, kind, empty):
    transport, peer = await pair(Recorder(), kind)
    transport.write(empty)
    transport.writelines([])
    assert transport.get_write_buffer_size() == 0
    transport.write(b"x")
    assert recv_now(peer) == b"x", "an empty write held the next one up"
    assert transport.get_write_buffer_size() == 0


@beyond_asyncio("D40, cpython#155888: an empty chunk keeps the socket open for ever")
@pytest.mark.parametrize("chunks", [[b""], [b"", b""], [b"", b"a", b"", b"b", b""]])
async def test_empty_chunks_never_enter_the_queue(pair, kind, chunks):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    transport.writelines(chunks)
    assert transport.get_write_buffer_size() == 0
    transport.close()
    await protocol.seen("lost")
    assert recv_to_end(peer) == b"".join(chunks)


@beyond_asyncio("D40: the same while a queue exists")
async def test_empty_chunks_behind_a_queue(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.write(bytes(MIB))
    size = transport.get_write_buffer_size()
    transport.writelines([b"", b""])
    transport.write(b"")
    assert transport.get_write_buffer_size() == size > 0
    transport.writelines([b"", b"end", b""])
    assert transport.get_write_buffer_size() == size + 3
    transport.close()
    assert await loop.run_in_executor(None, recv_to_end, peer) == bytes(MIB) + b"end"
    await protocol.seen("lost")


async def test_a_big_write_arrives_whole(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    data = pattern(16 * MIB)
    transport.write(data)
    transport.close()
    assert await loop.run_in_executor(None, recv_to_end, peer) == data
    await protocol.seen("lost")
    assert protocol.exc is None


async def test_partial_writes_keep_the_order(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind, **SMALL)
    expected = bytearray()
    for number in range(400):
        piece = pattern(1 + number * 37 % 9000, number << 16)
        transport.write(piece if number % 3 else memoryview(piece))
        expected += piece
    assert transport.get_write_buffer_size() > 0
    assert await loop.run_in_executor(None, recv_exactly, peer, len(expected)) == expected
    while transport.get_write_buffer_size():
        await asyncio.sleep(0)


async def test_more_chunks_than_one_call_can_take(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind)
    chunks = [b"%06d" % number for number in range(5000)]
    transport.writelines(chunks)
    assert await loop.run_in_executor(None, recv_exactly, peer, 30000) == b"".join(chunks)


async def test_many_small_writes_behind_a_queue(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind, **SMALL)
    expected = bytearray(bytes(200_000))
    transport.write(bytes(200_000))
    for number in range(5000):
        piece = b"%d;" % number
        transport.write(piece)
        expected += piece
    assert await loop.run_in_executor(None, recv_exactly, peer, len(expected)) == expected


async def test_buffer_size_is_what_the_kernel_did_not_take(pair, kind):
    transport, peer = await pair(Recorder(), kind, **SMALL)
    transport.write(bytes(300_000))
    transport.write(bytes(77))
    queued = transport.get_write_buffer_size()
    assert 0 < queued < 300_077
    assert len(recv_exactly(peer, 300_077 - queued)) == 300_077 - queued
    assert recv_now(peer) == b""
    while transport.get_write_buffer_size() == queued:
        await asyncio.sleep(0)
    assert transport.get_write_buffer_size() < queued


@beyond_asyncio_before(3, 12, "it copied what it queued")
async def test_bytes_are_queued_without_a_copy(pair, kind):
    transport, _ = await pair(Recorder(), kind, **SMALL)
    transport.write(bytes(MIB))  # A queue, so that nothing of what follows is sent.
    data = bytes(range(256)) * 4096
    before = sys.getrefcount(data)
    transport.write(data)
    assert sys.getrefcount(data) == before + 1
    transport.writelines([data, data])
    assert sys.getrefcount(data) > before + 1
    transport.abort()
    await settle()
    assert sys.getrefcount(data) == before


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@beyond_asyncio_before(3, 12, "it copied what it queued")
async def test_a_big_write_does_not_double_the_memory(pair, kind):
    transport, _ = await pair(Recorder(), kind, **SMALL)
    data = b"x" * (48 * MIB)
    before = resident()
    transport.write(data)
    assert transport.get_write_buffer_size() > 47 * MIB
    assert resident() - before < 12 * MIB


@beyond_asyncio("D41, python/asyncio#389: asyncio keeps a live view of what the caller may change")
@pytest.mark.parametrize("how", ["write", "writelines", "view"])
async def test_a_bytearray_may_be_reused_at_once(loop, pair, kind, how):
    transport, peer = await pair(Recorder(), kind, **SMALL)
    data = bytearray(b"A" * MIB)
    if how == "write":
        transport.write(data)
    elif how == "writelines":
        transport.writelines([data])
    else:
        with memoryview(data) as view:
            transport.write(view)
    assert transport.get_write_buffer_size() > 0
    data[:] = b"B" * MIB
    data.clear()  # Not even its size is pinned.
    assert await loop.run_in_executor(None, recv_exactly, peer, MIB) == b"A" * MIB


@beyond_asyncio("D39, cpython#135862: wide items corrupt the stream after a partial write")
@pytest.mark.parametrize("how", ["write", "writelines"])
async def test_wide_memoryviews_are_sent_as_their_bytes(loop, pair, kind, how):
    transport, peer = await pair(Recorder(), kind, **SMALL)
    wide = memoryview(array.array("I", range(100_000)))
    grid = memoryview(bytes(range(256)) * 1000).cast("B", (1000, 256))
    for view in (wide, grid):
        if how == "write":
            transport.write(view)
        else:
            transport.writelines([view])
    expected = wide.tobytes() + grid.tobytes()
    assert await loop.run_in_executor(None, recv_exactly, peer, len(expected)) == expected
    while transport.get_write_buffer_size():
        await asyncio.sleep(0)
    assert transport.get_write_buffer_size() == 0


async def test_small_wide_memoryviews(pair, kind):
    transport, peer = await pair(Recorder(), kind)
    view = memoryview(array.array("Q", [1, 2, 3]))
    transport.write(view)
    assert recv_now(peer) == view.tobytes()


@beyond_asyncio("D39: the transport dies of it")
@pytest.mark.parametrize("queued", [False, True])
async def test_views_with_gaps_are_sent_whole_or_refused(loop, pair, kind, queued):
    transport, peer = await pair(Recorder(), kind, **SMALL)
    expected = b""
    if queued:
        expected = bytes(MIB)
        transport.write(expected)
    view = memoryview(bytes(range(100)))[::2]
    for send in (transport.write, lambda data: transport.writelines([b"", data])):
        try:
            send(view)
        except (BufferError, ValueError, TypeError):
            pass
        else:
            expected += view.tobytes()
    transport.write(b"still alive")
    expected += b"still alive"
    assert await loop.run_in_executor(None, recv_exactly, peer, len(expected)) == expected


@pytest.mark.parametrize("data", ["text", None, 5, [1, 2], array.array("B", b"x")])
async def test_other_types_are_refused(pair, kind, data):
    transport, peer = await pair(Recorder(), kind)
    with pytest.raises(TypeError) as caught:
        transport.write(data)
    wanted = "bytes-like" if sys.version_info < (3, 14) else "bytes, bytearray, or memoryview"
    assert str(caught.value) == f"data argument must be a {wanted} object, not {type(data).__name__!r}"
    transport.write(b"fine")
    assert recv_now(peer) == b"fine"


async def test_writelines_refuses_before_anything_is_sent(pair, kind):
    transport, peer = await pair(Recorder(), kind)
    with pytest.raises(TypeError):
        transport.writelines([b"a", "b"])
    with pytest.raises(TypeError):
        transport.writelines(5)
    with pytest.raises(TypeError):
        transport.writelines([b"a", 5])

    def broken():
        yield b"a"
        raise LookupError

    with pytest.raises(LookupError):
        transport.writelines(broken())
    transport.write(b"fine")
    assert recv_now(peer) == b"fine"


async def test_calls_with_a_wrong_number_of_arguments(pair):
    transport, _ = await pair(Recorder())
    for call in (transport.write, transport.writelines):
        with pytest.raises(TypeError):
            call()
        with pytest.raises(TypeError):
            call(b"a", b"b")


async def test_a_subclass_of_bytes(pair, kind):
    class Own(bytes):
        pass

    transport, peer = await pair(Recorder(), kind)
    transport.write(Own(b"own"))
    assert recv_now(peer) == b"own"


async def test_write_eof(pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    assert transport.can_write_eof() is True
    transport.write(b"last words")
    transport.write_eof()
    transport.write_eof()
    assert recv_to_end(peer) == b"last words"
    with pytest.raises(RuntimeError, match=r"Cannot call write\(\) after write_eof\(\)"):
        transport.write(b"more")
    with pytest.raises(RuntimeError, match=r"Cannot call write(lines)?\(\) after write_eof\(\)"):
        transport.writelines([b"more"])
    peer.send(b"answer")
    assert await protocol.got(6) == b"answer"
    assert not transport.is_closing()


async def test_write_eof_waits_for_the_queue(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind, **SMALL)
    data = pattern(MIB)
    transport.write(data)
    transport.write_eof()
    assert transport.get_write_buffer_size() > 0
    assert await loop.run_in_executor(None, recv_to_end, peer) == data
    assert not transport.is_closing()


async def test_close_flushes(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind, **SMALL)
    data = pattern(2 * MIB)
    transport.write(data)
    transport.close()
    transport.close()
    assert transport.is_closing()
    await settle()
    assert "lost" not in protocol.events
    assert await loop.run_in_executor(None, recv_to_end, peer) == data
    await protocol.seen("lost")
    assert protocol.exc is None
    assert protocol.events.count("lost") == 1


async def test_close_after_small_writes_in_one_callback(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)

    def write_and_close():
        transport.write(b"head")
        transport.write(b"body")
        transport.close()

    loop.call_soon(write_and_close)
    await protocol.seen("lost")
    assert recv_to_end(peer) == b"headbody"


async def test_close_in_data_received_flushes(pair, kind):
    class Server(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.write(b"head")
            self.transport.write(b"body")
            self.transport.close()

    protocol = Server()
    _, peer = await pair(protocol, kind)
    peer.send(b"request")
    await protocol.seen("lost")
    assert recv_to_end(peer) == b"headbody"
    assert protocol.events == ["made", "data", "lost"]


async def test_abort_does_not_flush(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.write(bytes(4 * MIB))
    transport.abort()
    assert transport.is_closing()
    await protocol.seen("lost")
    assert protocol.exc is None
    assert transport.get_write_buffer_size() == 0

    def rest():
        count = 0
        try:
            while part := peer.recv(65536):
                count += len(part)
        except ConnectionResetError:
            pass
        return count

    assert await loop.run_in_executor(None, rest) < 4 * MIB
    assert protocol.events.count("lost") == 1


async def test_abort_after_close_ends_the_flush(pair, kind):
    protocol = Recorder()
    transport, _ = await pair(protocol, kind, **SMALL)
    transport.write(bytes(4 * MIB))
    transport.close()
    await settle()
    assert "lost" not in protocol.events
    transport.abort()
    await protocol.seen("lost")
    transport.abort()
    transport.close()
    await settle()
    assert protocol.events.count("lost") == 1


async def test_connection_lost_comes_in_a_later_callback(pair, kind):
    protocol = Recorder()
    transport, _ = await pair(protocol, kind)
    transport.close()
    assert "lost" not in protocol.events
    await protocol.seen("lost")


async def test_the_queue_is_given_back_when_everything_is_sent(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind, **SMALL)
    data = b"z" * MIB
    before = sys.getrefcount(data)
    transport.write(data)
    transport.write(data)
    await loop.run_in_executor(None, recv_exactly, peer, 2 * MIB)
    while transport.get_write_buffer_size():
        await asyncio.sleep(0)
    gc.collect()
    assert sys.getrefcount(data) == before
