"""connect_read_pipe and connect_write_pipe: pipes, sockets, terminals, and one descriptor for both."""

import asyncio
import contextlib
import contextvars
import errno
import gc
import logging
import os
import pty
import socket
import tty
import weakref

import pytest
from helpers import (
    ON_ASYNCIO,
    Recorder,
    beyond_asyncio,
    new_loop,
    open_fds,
    pattern,
    settle,
    within,
)

OS_PIPE_SIZE = 1 << 16


@pytest.fixture
def ends(loop):
    """A pipe's two file objects; what a transport has not closed is closed here."""
    reading, writing = os.pipe()
    with open(reading, "rb", 0) as reader, open(writing, "wb", 0) as writer:
        yield reader, writer


def open_terminal():
    """The two descriptors of a pty in raw mode."""
    try:
        master, slave = pty.openpty()
    except OSError as exc:
        pytest.skip(f"no terminals here: {exc}")
    tty.setraw(slave)
    return master, slave


@pytest.fixture
def terminal(loop):
    """A pty in raw mode: the descriptor of the master, and the slave's file object."""
    master, slave = open_terminal()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(OSError))
        stack.callback(os.close, master)
        yield master, stack.enter_context(open(slave, "r+b", 0))


async def reading(loop, pipe, protocol=None):
    transport, protocol = await loop.connect_read_pipe(lambda: protocol or Recorder(), pipe)
    return transport, protocol


async def writing(loop, pipe, protocol=None):
    transport, protocol = await loop.connect_write_pipe(lambda: protocol or Recorder(), pipe)
    return transport, protocol


# -- reading -----------------------------------------------------------------------------------------


async def test_read(loop, ends):
    reader, writer = ends
    transport, protocol = await reading(loop, reader)
    assert isinstance(transport, asyncio.ReadTransport)
    assert protocol.events == ["made"] and protocol.transport is transport
    assert transport.get_protocol() is protocol and transport.get_extra_info("pipe") is reader
    assert transport.get_extra_info("nothing", "default") == "default"
    assert transport.is_reading() and not transport.is_closing()
    writer.write(b"one")
    assert await protocol.got(3) == b"one"
    writer.write(b"two")
    assert await protocol.got(6) == b"onetwo"
    writer.close()
    await protocol.seen("lost")
    assert protocol.events[-2:] == ["eof", "lost"] and protocol.exc is None
    assert reader.closed and transport.is_closing() and not transport.is_reading()


async def test_read_a_lot(loop, ends):
    reader, writer = ends
    transport, protocol = await reading(loop, reader)
    data = pattern(2 << 20)

    def feed():
        view = memoryview(data)
        while view:
            view = view[writer.write(view) :]
        writer.close()

    await loop.run_in_executor(None, feed)
    await protocol.seen("lost")
    assert protocol.data == data


async def test_pause_and_resume(loop, ends):
    reader, writer = ends
    transport, protocol = await reading(loop, reader)
    transport.pause_reading()
    transport.pause_reading()
    assert not transport.is_reading()
    writer.write(b"waits")
    await settle()
    assert protocol.data == b""
    transport.resume_reading()
    transport.resume_reading()
    assert await protocol.got(5) == b"waits"
    transport.pause_reading()
    writer.close()
    await settle()
    assert "eof" not in protocol.events
    transport.resume_reading()
    await protocol.seen("lost")


async def test_pause_before_the_start(loop, ends):
    reader, writer = ends

    class Shy(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    transport, protocol = await reading(loop, reader, Shy())
    writer.write(b"x")
    await settle()
    assert protocol.data == b"" and not transport.is_reading()
    transport.resume_reading()
    assert await protocol.got(1) == b"x"
    transport.close()
    await protocol.seen("lost")


async def test_close_a_reader(loop, ends):
    reader, writer = ends
    transport, protocol = await reading(loop, reader)
    transport.close()
    transport.close()
    assert transport.is_closing() and not reader.closed
    await protocol.seen("lost")
    assert protocol.events == ["made", "lost"] and protocol.exc is None and reader.closed
    with pytest.raises(BrokenPipeError):
        writer.write(b"nobody")


async def test_set_protocol(loop, ends):
    reader, writer = ends
    transport, first = await reading(loop, reader)
    second = Recorder()
    transport.set_protocol(second)
    writer.write(b"for the second")
    assert await second.got(3) == b"for the second"
    assert first.data == b"" and transport.get_protocol() is second
    transport.close()
    await second.seen("lost")


async def test_a_protocol_that_fails_goes_on_reading(loop, ends, errors):
    reader, writer = ends

    class Failing(Recorder):
        def data_received(self, data):
            super().data_received(data)
            raise LookupError("on purpose")

    transport, protocol = await reading(loop, reader, Failing())
    writer.write(b"1")
    await protocol.got(1)
    writer.write(b"2")
    await protocol.got(2)
    await settle()
    assert [type(error["exception"]) for error in errors] == [LookupError, LookupError]
    assert "Exception in callback" in errors[0]["message"]
    errors.clear()
    transport.close()
    await protocol.seen("lost")


async def test_callbacks_run_in_the_context_of_their_maker(loop, ends):
    reader, writer = ends
    variable = contextvars.ContextVar("variable", default="none")
    seen = []

    class Looking(Recorder):
        def note(self, name):
            seen.append((name, variable.get()))
            super().note(name)

    variable.set("maker")
    transport, protocol = await reading(loop, reader, Looking())
    variable.set("another")
    transport.pause_reading()
    transport.resume_reading()
    writer.write(b"x")
    await protocol.got(1)
    writer.close()
    await protocol.seen("lost")
    expected = [(name, "maker") for name in ("made", "data", "eof", "lost")]
    if not ON_ASYNCIO:  # there resume_reading() takes the context of its caller
        assert seen == expected


# -- writing -----------------------------------------------------------------------------------------


async def test_write(loop, ends):
    reader, writer = ends
    transport, protocol = await writing(loop, writer)
    assert isinstance(transport, asyncio.WriteTransport)
    assert transport.get_extra_info("pipe") is writer and transport.can_write_eof()
    transport.write(b"bytes ")
    transport.write(bytearray(b"bytearray "))
    transport.write(memoryview(b"memoryview "))
    transport.writelines([b"some", b" ", bytearray(b"lines")])
    transport.write(b"")
    assert transport.get_write_buffer_size() == 0
    assert reader.read(100) == b"bytes bytearray memoryview some lines"
    transport.close()
    assert transport.is_closing()
    await protocol.seen("lost")
    assert protocol.events == ["made", "lost"] and protocol.exc is None
    assert writer.closed and reader.read(100) == b""


async def test_write_refuses_what_it_cannot_send(loop, ends):
    reader, writer = ends
    transport, protocol = await writing(loop, writer)
    for wrong in ("text", 5, None, [b"x"]):
        with pytest.raises(AssertionError):
            transport.write(wrong)
    os.set_blocking(reader.fileno(), False)
    assert reader.read(10) is None
    transport.close()
    await protocol.seen("lost")


async def test_back_pressure(loop, ends):
    reader, writer = ends
    transport, protocol = await writing(loop, writer)
    assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
    data = pattern(OS_PIPE_SIZE * 4)
    transport.write(data)
    assert protocol.events == ["made", "pause"]
    assert transport.get_write_buffer_size() == len(data) - OS_PIPE_SIZE
    got = await loop.run_in_executor(None, read_exactly, reader, len(data))
    assert got == data
    await protocol.seen("resume")
    assert transport.get_write_buffer_size() == 0
    assert protocol.events == ["made", "pause", "resume"]
    transport.close()
    await protocol.seen("lost")


def read_exactly(reader, count):
    got = b""
    while len(got) < count:
        got += reader.read(count - len(got))
    return got


async def test_limits(loop, ends):
    _, writer = ends
    transport, protocol = await writing(loop, writer)
    transport.set_write_buffer_limits(high=1000, low=10)
    assert transport.get_write_buffer_limits() == (10, 1000)
    transport.set_write_buffer_limits(high=0)
    assert transport.get_write_buffer_limits() == (0, 0)
    with pytest.raises(ValueError, match=r"high \(1\) must be >= low \(2\) must be >= 0"):
        transport.set_write_buffer_limits(1, 2)
    transport.write(bytes(OS_PIPE_SIZE + 1))
    assert protocol.events == ["made", "pause"]
    transport.abort()
    await protocol.seen("lost")


@beyond_asyncio("D41: it keeps a view of the caller's memory")
async def test_a_queued_write_is_a_snapshot(loop, ends):
    reader, writer = ends
    transport, protocol = await writing(loop, writer)
    data = bytearray(pattern(OS_PIPE_SIZE * 2))
    expected = bytes(data)
    transport.write(data)
    data[:] = bytes(len(data))
    assert await loop.run_in_executor(None, read_exactly, reader, len(expected)) == expected
    transport.close()
    await protocol.seen("lost")


async def test_close_sends_what_waits(loop, ends):
    reader, writer = ends
    transport, protocol = await writing(loop, writer)
    data = pattern(OS_PIPE_SIZE * 3)
    transport.write(data)
    transport.write_eof()
    transport.write(b"too late")
    assert transport.is_closing() and not writer.closed
    assert await loop.run_in_executor(None, read_exactly, reader, len(data)) == data
    await protocol.seen("lost")
    assert protocol.exc is None and reader.read(10) == b""


async def test_abort_drops_what_waits(loop, ends):
    reader, writer = ends
    transport, protocol = await writing(loop, writer)
    transport.write(bytes(OS_PIPE_SIZE * 3))
    transport.abort()
    assert transport.get_write_buffer_size() == 0
    await protocol.seen("lost")
    assert protocol.exc is None and protocol.events.count("lost") == 1


async def test_the_reader_goes(loop, ends):
    reader, writer = ends
    transport, protocol = await writing(loop, writer)
    reader.close()
    await protocol.seen("lost")
    assert protocol.exc is None and writer.closed


async def test_the_reader_goes_while_bytes_wait(loop, ends):
    reader, writer = ends
    transport, protocol = await writing(loop, writer)
    transport.write(bytes(OS_PIPE_SIZE * 3))
    reader.close()
    await protocol.seen("lost")
    assert isinstance(protocol.exc, BrokenPipeError)
    assert transport.get_write_buffer_size() == 0


async def test_writes_after_the_loss_are_dropped(loop, ends, caplog):
    reader, writer = ends
    transport, protocol = await writing(loop, writer)
    reader.close()
    with caplog.at_level(logging.WARNING, "asyncio"):
        for _ in range(10):
            transport.write(b"nobody")
    await protocol.seen("lost")
    assert isinstance(protocol.exc, BrokenPipeError)
    assert "pipe closed by peer or os.write(pipe, data) raised exception." in caplog.text


@pytest.mark.parametrize("method", ["pause_writing", "resume_writing"])
async def test_flow_control_that_raises_is_reported(loop, ends, errors, method):
    reader, writer = ends
    protocol = Recorder()
    setattr(protocol, method, lambda: 1 / 0)
    transport, _ = await writing(loop, writer, protocol)
    data = bytes(OS_PIPE_SIZE * 4)
    transport.write(data)
    await loop.run_in_executor(None, read_exactly, reader, len(data))
    await settle()
    assert [error["message"] for error in errors] == [f"protocol.{method}() failed"]
    assert errors[0]["transport"] is transport and errors[0]["protocol"] is protocol
    errors.clear()
    transport.close()
    await protocol.seen("lost")


@beyond_asyncio("it drops what resume_writing() wrote when that also closes")
async def test_write_again_from_resume_writing(loop, ends):
    reader, writer = ends

    class Eager(Recorder):
        def resume_writing(self):
            super().resume_writing()
            if self.events.count("resume") == 1:
                self.transport.write(pattern(OS_PIPE_SIZE * 3, seed=7))
                self.transport.close()

    transport, protocol = await writing(loop, writer, Eager())
    first, second = pattern(OS_PIPE_SIZE * 3), pattern(OS_PIPE_SIZE * 3, seed=7)
    transport.write(first)
    assert await loop.run_in_executor(None, read_exactly, reader, len(first + second)) == first + second
    await protocol.seen("lost")
    assert protocol.exc is None


# -- other kinds of files ------------------------------------------------------------------------------


async def test_sockets(loop):
    ours, peer = socket.socketpair()
    sender, sending = await writing(loop, ours)
    receiver, receiving = await reading(loop, peer)
    sender.write(b"through a socket")
    assert await receiving.got(16) == b"through a socket"
    sender.close()
    await receiving.seen("lost")
    await sending.seen("lost")
    assert ours.fileno() == peer.fileno() == -1


async def test_a_socket_whose_peer_goes(loop):
    ours, peer = socket.socketpair()
    transport, protocol = await writing(loop, ours)
    peer.close()
    await protocol.seen("lost")
    assert ours.fileno() == -1


@beyond_asyncio("it takes bytes from the peer for its end")
async def test_a_socket_whose_peer_talks(loop):
    ours, peer = socket.socketpair()
    with peer:
        transport, protocol = await writing(loop, ours)
        peer.send(b"a word")
        await settle()
        assert not transport.is_closing()
        transport.write(b"heard")
        assert peer.recv(10) == b"heard"
        transport.close()
        await protocol.seen("lost")


async def test_regular_files_are_refused(loop, tmp_path):
    with open(tmp_path / "file", "w+b") as file:
        with pytest.raises(ValueError, match="Pipe transport is for pipes/sockets only."):
            await loop.connect_read_pipe(Recorder, file)
        with pytest.raises(ValueError, match="Pipe transport is only for pipes, sockets and character devices"):
            await loop.connect_write_pipe(Recorder, file)
        assert not file.closed


async def test_the_null_device_takes_writes(loop):
    with open("/dev/null", "wb", 0) as null:
        transport, protocol = await writing(loop, null)
        transport.write(bytes(1000))
        assert transport.get_write_buffer_size() == 0
        transport.close()
        await protocol.seen("lost")


@beyond_asyncio("the transport that was refused trips over its own __del__")
async def test_closed_files_and_numbers(loop, ends):
    reader, writer = ends
    number = reader.fileno()
    with pytest.raises(AttributeError):
        await loop.connect_read_pipe(Recorder, number)
    reader.close()
    with pytest.raises(ValueError, match="closed file"):
        await loop.connect_read_pipe(Recorder, reader)


# -- terminals, and one descriptor for both directions -----------------------------------------------------


async def test_a_terminal_in_both_directions(loop, terminal):
    """What a console does: one file object, one descriptor, two transports (D28)."""
    master, slave = terminal
    receiver, receiving = await reading(loop, slave)
    sender, sending = await writing(loop, slave)
    os.write(master, b"typed")
    assert await receiving.got(5) == b"typed"
    sender.write(b"shown")
    assert os.read(master, 100) == b"shown"
    os.write(master, b" more")
    assert await receiving.got(10) == b"typed more"
    sender.close()
    await sending.seen("lost")
    receiver.close()
    await receiving.seen("lost")
    assert slave.closed


@beyond_asyncio("it closes the file that the other direction still uses")
@pytest.mark.parametrize("first", ["reader", "writer"])
async def test_the_last_of_two_directions_closes_the_file(loop, terminal, first):
    master, slave = terminal
    receiver, receiving = await reading(loop, slave)
    sender, sending = await writing(loop, slave)
    if first == "writer":
        sender.close()
        await sending.seen("lost")
        os.write(master, b"still")
        assert await receiving.got(5) == b"still"
        receiver.close()
        await receiving.seen("lost")
    else:
        receiver.close()
        await receiving.seen("lost")
        sender.write(b"still")
        assert os.read(master, 100) == b"still"
        sender.close()
        await sending.seen("lost")
    assert slave.closed


@beyond_asyncio("its write transport takes the place of the read transport")
async def test_a_socket_in_both_directions(loop):
    ours, peer = socket.socketpair()
    with peer:
        receiver, receiving = await reading(loop, ours)
        sender, sending = await writing(loop, ours)
        peer.send(b"in")
        assert await receiving.got(2) == b"in"
        sender.write(b"out")
        assert peer.recv(10) == b"out"
    await receiving.seen("lost")
    await sending.seen("lost")
    assert ours.fileno() == -1


async def test_a_terminal_full_of_output(loop, terminal):
    master, slave = terminal
    sender, sending = await writing(loop, slave)
    data = pattern(1 << 18)
    sender.write(data)
    assert sender.get_write_buffer_size() > 0
    got = await loop.run_in_executor(None, read_master, master, len(data))
    assert got == data
    sender.close()
    await sending.seen("lost")


def read_master(master, count):
    got = b""
    while len(got) < count:
        got += os.read(master, count - len(got))
    return got


async def test_a_terminal_that_hangs_up(loop, errors):
    master, slave = open_terminal()
    with open(slave, "rb", 0) as file:
        transport, protocol = await reading(loop, file)
        os.close(master)
        await protocol.seen("lost")
    assert protocol.exc is None or protocol.exc.errno == errno.EIO


async def test_the_master_of_a_terminal(loop):
    """Its read fails with EIO when the last slave is closed: an end, not a fault."""
    master, slave = open_terminal()
    with open(master, "r+b", 0) as file:
        transport, protocol = await reading(loop, file)
        os.write(slave, b"from the program")
        assert await protocol.got(16) == b"from the program"
        os.close(slave)
        await protocol.seen("lost")
    assert isinstance(protocol.exc, OSError) and protocol.exc.errno == errno.EIO


@beyond_asyncio("it lets add_reader() take a transport's place")
async def test_a_transports_descriptor_is_protected(loop, ends):
    reader, writer = ends
    transport, protocol = await reading(loop, reader)
    with pytest.raises(RuntimeError, match="is used by transport"):
        loop.add_reader(reader, print)
    assert loop.remove_reader(reader) is False
    writer.write(b"still read")
    assert await protocol.got(10) == b"still read"
    transport.close()
    await protocol.seen("lost")


@beyond_asyncio("it does not look")
async def test_a_connections_descriptor_is_protected(loop, pair):
    protocol = Recorder()
    transport, peer = await pair(protocol)
    with open(transport.get_extra_info("socket").fileno(), "rb", 0, closefd=False) as file:
        with pytest.raises(RuntimeError, match="is used by transport"):
            await loop.connect_read_pipe(Recorder, file)
    peer.send(b"still read")
    assert await protocol.got(10) == b"still read"


async def test_add_writer_beside_a_reading_transport(loop, terminal):
    master, slave = terminal
    transport, protocol = await reading(loop, slave)
    writable = loop.create_future()
    loop.add_writer(slave, lambda: writable.done() or writable.set_result(True))
    assert await within(writable)
    assert loop.remove_writer(slave)
    os.write(master, b"x")
    assert await protocol.got(1) == b"x"
    transport.close()
    await protocol.seen("lost")


# -- streams --------------------------------------------------------------------------------------------


async def test_stream_reader_over_a_pipe(loop, ends):
    reader, writer = ends
    stream = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), reader)
    sender, sending = await writing(loop, writer)
    sender.write(b"a line\nanother\n")
    assert await within(stream.readline()) == b"a line\n"
    sender.close()
    assert await within(stream.read()) == b"another\n"
    await sending.seen("lost")
    transport.close()
    await settle()


# -- life and death ---------------------------------------------------------------------------------------


async def test_cancelled_connect(loop, ends):
    reader, _ = ends
    connecting = loop.create_task(loop.connect_read_pipe(Recorder, reader))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await settle()
    assert reader.closed


async def test_connection_made_that_raises(loop, ends, errors):
    reader, writer = ends

    class Broken(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            raise LookupError("on purpose")

    transport, protocol = await reading(loop, reader, Broken())
    assert [type(error["exception"]) for error in errors] == [LookupError]
    errors.clear()
    writer.write(b"goes on")
    assert await protocol.got(7) == b"goes on"
    transport.close()
    await protocol.seen("lost")


async def test_repr(loop, ends):
    reader, writer = ends
    receiver, receiving = await reading(loop, reader)
    sender, sending = await writing(loop, writer)
    if not ON_ASYNCIO:
        assert repr(receiver) == f"<ReadPipeTransport fd={reader.fileno()} polling>"
        assert repr(sender) == f"<WritePipeTransport fd={writer.fileno()} idle bufsize=0>"
    receiver.close()
    assert "closing" in repr(receiver)
    await receiving.seen("lost")
    await sending.seen("lost")
    assert "closed" in repr(receiver) and "closed" in repr(sender)


@beyond_asyncio("the loop keeps asyncio's transports alive in other ways")
@pytest.mark.parametrize("make", [reading, writing])
def test_unclosed_transports_warn_and_close(make):
    before = open_fds()
    loop = new_loop()
    fds = os.pipe()
    pipe = open(fds[0], "rb", 0) if make is reading else open(fds[1], "wb", 0)
    transport, protocol = loop.run_until_complete(make(loop, pipe))
    loop.close()
    protocol.transport = None
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        del transport, protocol
        gc.collect()
    assert pipe.closed
    os.close(fds[1 if make is reading else 0])
    del pipe
    assert open_fds() == before


@beyond_asyncio("it needs a live loop to close")
@pytest.mark.parametrize("make", [reading, writing])
def test_close_after_the_loop_is_closed(make):
    loop = new_loop()
    fds = os.pipe()
    pipe = open(fds[0], "rb", 0) if make is reading else open(fds[1], "wb", 0)
    transport, _ = loop.run_until_complete(make(loop, pipe))
    loop.close()
    transport.close()
    assert pipe.closed and transport.is_closing()
    os.close(fds[1 if make is reading else 0])


@beyond_asyncio("how asyncio's own are collected is not at stake")
def test_collected_with_their_cycle():
    loop = new_loop()
    fds = os.pipe()
    reader, writer = open(fds[0], "rb", 0), open(fds[1], "wb", 0)
    receiver, receiving = loop.run_until_complete(reading(loop, reader))
    sender, sending = loop.run_until_complete(writing(loop, writer))
    receiver.close()
    sender.close()
    loop.run_until_complete(receiving.seen("lost"))
    loop.run_until_complete(sending.seen("lost"))
    seen = [weakref.ref(thing) for thing in (receiver, sender, receiving, sending)]
    receiving.transport = sending.transport = None
    del receiver, sender, receiving, sending
    assert [ref() for ref in seen] == [None] * 4
    loop.close()


@beyond_asyncio("it asks the heap for 256 KiB per read")
async def test_reads_ask_for_no_big_buffer(loop, ends):
    import tracemalloc

    reader, writer = ends
    transport, protocol = await reading(loop, reader)
    writer.write(b"warm")
    await protocol.got(4)
    tracemalloc.start()
    try:
        for _ in range(10):
            before = len(protocol.data)
            writer.write(b"x" * 100)
            await protocol.got(before + 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024
    transport.close()
    await protocol.seen("lost")
