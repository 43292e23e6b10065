"""BufferedProtocol: get_buffer and buffer_updated."""

import array
import asyncio
import threading

import pytest
from helpers import BufferedRecorder, Recorder, pattern, recv_exactly, settle

MIB = 1 << 20


def sender(peer, data):
    thread = threading.Thread(target=peer.sendall, args=(data,))
    thread.start()
    return thread


@pytest.mark.parametrize("size", [1, 7, 1024, 65536, 300_000])
async def test_every_buffer_size(pair, kind, size):
    protocol = BufferedRecorder(size)
    _, peer = await pair(protocol, kind)
    data = pattern(5000 if size < 1024 else 2 * MIB)
    thread = sender(peer, data)
    assert await protocol.got(len(data)) == data
    thread.join()


async def test_small_messages(pair, kind):
    protocol = BufferedRecorder()
    _, peer = await pair(protocol, kind)
    for number in range(200):
        peer.send(b"%04d" % number)
        assert (await protocol.got(4 * number + 4))[-4:] == b"%04d" % number
    assert all(hint == -1 or hint > 0 for hint in protocol.hints)
    assert all(isinstance(hint, int) for hint in protocol.hints)


async def test_the_callers_buffer_is_filled_in_place(pair, kind):
    class Window(BufferedRecorder):
        """Hands out a window that moves on through one large buffer."""

        offset = 0

        def get_buffer(self, sizehint):
            return memoryview(self.buffer)[self.offset :]

        def buffer_updated(self, nbytes):
            self.offset += nbytes
            self.note("data")

    protocol = Window(MIB)
    _, peer = await pair(protocol, kind)
    data = pattern(MIB - 1)
    thread = sender(peer, data)
    await protocol.until(lambda: protocol.offset == MIB - 1)
    thread.join()
    assert protocol.buffer[: MIB - 1] == data
    assert protocol.buffer[MIB - 1] == 0, "the byte behind the data was touched"


async def test_nothing_is_written_outside_of_the_buffer(pair, kind):
    """The buffer is a slice in the middle of a larger one."""

    class Middle(BufferedRecorder):
        def get_buffer(self, sizehint):
            return memoryview(self.buffer)[100:200]

        def buffer_updated(self, nbytes):
            assert 0 < nbytes <= 100
            self.data += self.buffer[100 : 100 + nbytes]
            self.note("data")

    protocol = Middle(300)
    _, peer = await pair(protocol, kind)
    data = b"x" * 10_000
    thread = sender(peer, data)
    assert await protocol.got(len(data)) == data
    thread.join()
    assert protocol.buffer[:100] == bytes(100)
    assert protocol.buffer[200:] == bytes(100)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(4096),
        lambda: memoryview(bytearray(4096)),
        lambda: array.array("B", bytes(4096)),
    ],
    ids=["bytearray", "memoryview", "array"],
)
async def test_any_writable_buffer_will_do(pair, kind, make):
    protocol = BufferedRecorder()
    protocol.buffer = make()
    protocol.buffer_updated = lambda count: (
        protocol.data.extend(bytes(protocol.buffer)[:count]),
        protocol.note("data"),
    )
    _, peer = await pair(protocol, kind)
    peer.sendall(pattern(10_000))
    assert await protocol.got(10_000) == pattern(10_000)


async def test_the_buffer_is_free_between_reads(pair, kind):
    """A bytearray with exports cannot be resized: the loop must not hold on to it."""

    class Resizing(BufferedRecorder):
        def get_buffer(self, sizehint):
            self.buffer.extend(bytes(10))
            return self.buffer

        def buffer_updated(self, nbytes):
            self.data += self.buffer[:nbytes]
            self.buffer.clear()
            self.buffer.extend(bytes(50))
            self.note("data")

    protocol = Resizing(100)
    _, peer = await pair(protocol, kind)
    data = pattern(3000)
    thread = sender(peer, data)
    assert await protocol.got(3000) == data
    thread.join()
    protocol.buffer.extend(bytes(1))


async def fails_with(protocol, peer, errors, message):
    peer.send(b"x")
    await protocol.seen("lost")
    (context,) = errors
    assert context["message"] == message
    assert context["exception"] is protocol.exc
    assert context["protocol"] is protocol
    errors.clear()
    return protocol.exc


GET_BUFFER_FAILED = "Fatal error: protocol.get_buffer() call failed."


async def test_an_empty_buffer_is_an_error(pair, kind, errors):
    protocol = BufferedRecorder(0)
    _, peer = await pair(protocol, kind)
    exc = await fails_with(protocol, peer, errors, GET_BUFFER_FAILED)
    assert isinstance(exc, RuntimeError)
    assert str(exc) == "get_buffer() returned an empty buffer"


async def test_an_error_in_get_buffer(pair, kind, errors):
    protocol = BufferedRecorder()
    failure = LookupError("in get_buffer")

    def get_buffer(hint):
        raise failure

    protocol.get_buffer = get_buffer
    _, peer = await pair(protocol, kind)
    assert await fails_with(protocol, peer, errors, GET_BUFFER_FAILED) is failure


async def test_an_error_in_buffer_updated(pair, kind, errors):
    protocol = BufferedRecorder()
    failure = LookupError("in buffer_updated")

    def buffer_updated(count):
        raise failure

    protocol.buffer_updated = buffer_updated
    _, peer = await pair(protocol, kind)
    message = "Fatal error: protocol.buffer_updated() call failed."
    assert await fails_with(protocol, peer, errors, message) is failure


@pytest.mark.parametrize("wrong", [None, 5, "text"])
async def test_something_that_is_no_buffer(pair, kind, errors, wrong):
    protocol = BufferedRecorder()
    protocol.get_buffer = lambda hint: wrong
    _, peer = await pair(protocol, kind)
    peer.send(b"x")
    await protocol.seen("lost")
    assert isinstance(protocol.exc, TypeError)
    assert [type(context["exception"]) for context in errors] == [TypeError]
    errors.clear()


async def test_a_read_only_buffer(pair, kind, errors):
    protocol = BufferedRecorder()
    protocol.get_buffer = lambda hint: b"read only"
    _, peer = await pair(protocol, kind)
    peer.send(b"x")
    await protocol.seen("lost")
    assert isinstance(protocol.exc, (TypeError, BufferError))
    assert len(errors) == 1
    errors.clear()


async def test_pause_and_resume(pair, kind):
    protocol = BufferedRecorder(10)
    transport, peer = await pair(protocol, kind)
    transport.pause_reading()
    peer.send(b"while paused")
    await settle()
    assert "data" not in protocol.events
    transport.resume_reading()
    assert await protocol.got(12) == b"while paused"


async def test_pause_inside_buffer_updated(pair, kind):
    class OneAtATime(BufferedRecorder):
        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    protocol = OneAtATime(10)
    transport, peer = await pair(protocol, kind)
    peer.send(pattern(95))
    for _ in range(10):
        await settle(1)
        size = len(protocol.data)
        await settle(1)
        assert len(protocol.data) == size
        transport.resume_reading()
        await protocol.until(lambda size=size: len(protocol.data) > size or size == 95)
    assert protocol.data == pattern(95)


async def test_the_end(pair, kind):
    protocol = BufferedRecorder()
    _, peer = await pair(protocol, kind)
    peer.send(b"last")
    peer.close()
    await protocol.seen("lost")
    assert protocol.data == b"last"
    assert protocol.events == ["made", "data", "eof", "lost"]
    assert protocol.exc is None


async def test_switching_to_a_plain_protocol(pair, kind):
    second = Recorder()

    class First(BufferedRecorder):
        def buffer_updated(self, nbytes):
            super().buffer_updated(nbytes)
            self.transport.set_protocol(second)

    first = First(4)
    _, peer = await pair(first, kind)
    peer.send(b"onetwo")
    assert await second.got(2) == b"wo"
    assert first.data == b"onet"


async def test_closing_inside_get_buffer(pair, kind):
    class Leaver(BufferedRecorder):
        def get_buffer(self, sizehint):
            self.transport.abort()
            return super().get_buffer(sizehint)

    protocol = Leaver()
    _, peer = await pair(protocol, kind)
    peer.send(b"x")
    await protocol.seen("lost")
    await settle()
    assert protocol.events.count("lost") == 1


async def test_echo(pair, kind):
    class Echo(BufferedRecorder):
        def buffer_updated(self, nbytes):
            self.transport.write(memoryview(self.buffer)[:nbytes])

    _, peer = await pair(Echo(1000), kind)
    for size in (1, 999, 1000, 1001, 5000):
        peer.sendall(pattern(size))
        received = await asyncio.to_thread(recv_exactly, peer, size)
        assert received == pattern(size)
