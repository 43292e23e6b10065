"""Water marks: pause_writing and resume_writing, once per crossing; and writing to the dead."""

import asyncio
import sys

import pytest
from helpers import (
    Recorder,
    beyond_asyncio,
    beyond_asyncio_before,
    recv_exactly,
    recv_to_end,
    reset,
    settle,
    socket_pair,
)

SMALL = {"sndbuf": 8192, "rcvbuf": 8192}
MIB = 1 << 20


async def test_the_default_marks(pair, kind):
    transport, _ = await pair(Recorder(), kind)
    assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)


async def test_setting_the_marks(pair, kind):
    transport, _ = await pair(Recorder(), kind)
    transport.set_write_buffer_limits(high=400)
    assert transport.get_write_buffer_limits() == (100, 400)
    transport.set_write_buffer_limits(low=200)
    assert transport.get_write_buffer_limits() == (200, 800)
    transport.set_write_buffer_limits(high=10, low=10)
    assert transport.get_write_buffer_limits() == (10, 10)
    transport.set_write_buffer_limits(high=0)
    assert transport.get_write_buffer_limits() == (0, 0)
    transport.set_write_buffer_limits()
    assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
    for wrong in ({"high": 1, "low": 2}, {"high": -1}, {"high": 5, "low": -1}):
        with pytest.raises(ValueError, match="must be >= low"):
            transport.set_write_buffer_limits(**wrong)
    assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)


async def test_one_pause_and_one_resume_per_crossing(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind, **SMALL)
    for crossing in range(1, 4):
        total = 0
        while "pause" not in protocol.events[-1:]:
            transport.write(bytes(10_000))
            total += 10_000
            assert total < 10 * MIB
        assert transport.get_write_buffer_size() > 64 * 1024
        for _ in range(5):
            transport.write(bytes(10_000))
            total += 10_000
        assert protocol.events.count("pause") == crossing
        assert protocol.events.count("resume") == crossing - 1
        await loop.run_in_executor(None, recv_exactly, peer, total)
        await protocol.until(lambda crossing=crossing: protocol.events.count("resume") == crossing)
        assert transport.get_write_buffer_size() <= 16 * 1024
    assert protocol.events == ["made", *["pause", "resume"] * 3]


async def test_no_pause_at_the_mark_itself(pair, kind):
    protocol = Recorder()
    transport, _ = await pair(protocol, kind, **SMALL)
    transport.write(bytes(MIB))
    assert protocol.events[-1] == "pause"
    protocol = Recorder()
    transport, _ = await pair(protocol, kind, **SMALL)
    transport.set_write_buffer_limits(high=4 * MIB)
    transport.write(bytes(MIB))
    queued = transport.get_write_buffer_size()
    transport.set_write_buffer_limits(high=queued + 10)
    transport.write(bytes(10))
    assert transport.get_write_buffer_size() == queued + 10
    assert "pause" not in protocol.events
    transport.write(b"x")
    assert protocol.events[-1] == "pause"


async def test_a_write_that_fits_does_not_pause(pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    transport.set_write_buffer_limits(high=0)
    transport.write(b"fits")
    assert protocol.events == ["made"]
    assert recv_exactly(peer, 4) == b"fits"


async def test_high_zero_pauses_at_the_first_queued_byte(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.set_write_buffer_limits(high=0)
    transport.write(bytes(MIB))
    assert protocol.events == ["made", "pause"]
    await loop.run_in_executor(None, recv_exactly, peer, MIB)
    await protocol.seen("resume")
    assert transport.get_write_buffer_size() == 0
    assert protocol.events == ["made", "pause", "resume"]


@beyond_asyncio("D38, cpython#127655: writelines() ignored the mark, a security advisory")
async def test_writelines_counts_too(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.writelines([bytes(10_000)] * 100)
    assert protocol.events == ["made", "pause"]
    transport.writelines([bytes(10_000)])
    assert protocol.events == ["made", "pause"]
    await loop.run_in_executor(None, recv_exactly, peer, 1_010_000)
    await protocol.seen("resume")
    assert protocol.events == ["made", "pause", "resume"]


async def test_resume_writing_may_write_again(loop, pair, kind):
    class Producer(Recorder):
        left = 5

        def resume_writing(self):
            super().resume_writing()
            while self.left and self.events[-1] != "pause":
                self.left -= 1
                self.transport.write(bytes(200_000))

    protocol = Producer()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.write(bytes(MIB))
    size = MIB + 5 * 200_000
    assert await loop.run_in_executor(None, recv_exactly, peer, size) == bytes(size)
    await protocol.until(lambda: protocol.events[-1] == "resume")
    crossings = protocol.events.count("pause")
    assert crossings >= 1
    assert protocol.events == ["made", *["pause", "resume"] * crossings]
    assert protocol.left == 0


async def test_pause_writing_may_write(loop, pair, kind):
    class Stubborn(Recorder):
        def pause_writing(self):
            super().pause_writing()
            self.transport.write(b"the end")

    protocol = Stubborn()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.write(bytes(MIB))
    got = await loop.run_in_executor(None, recv_exactly, peer, MIB + 7)
    assert got == bytes(MIB) + b"the end"
    assert protocol.events.count("pause") == 1


@beyond_asyncio("D42, cpython#156512: the connection was torn down twice")
@pytest.mark.parametrize("how", ["close", "abort"])
async def test_closing_inside_resume_writing(loop, pair, kind, how):
    class Closer(Recorder):
        def resume_writing(self):
            super().resume_writing()
            getattr(self.transport, how)()

    protocol = Closer()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.write(bytes(MIB))
    await loop.run_in_executor(None, recv_to_end, peer)
    await protocol.seen("lost")
    await settle()
    assert protocol.events == ["made", "pause", "resume", "lost"]
    assert protocol.exc is None


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_closing_inside_pause_writing(loop, pair, kind, how):
    class Closer(Recorder):
        def pause_writing(self):
            super().pause_writing()
            getattr(self.transport, how)()

    protocol = Closer()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.write(bytes(MIB))
    assert transport.is_closing()
    if how == "close":
        assert len(await loop.run_in_executor(None, recv_to_end, peer)) == MIB
    await protocol.seen("lost")
    assert protocol.events.count("lost") == 1


async def test_errors_in_the_flow_callbacks_are_reported(loop, pair, kind, errors):
    class Broken(Recorder):
        def pause_writing(self):
            super().pause_writing()
            raise LookupError("in pause_writing")

        def resume_writing(self):
            super().resume_writing()
            raise LookupError("in resume_writing")

    protocol = Broken()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.write(bytes(MIB))
    assert await loop.run_in_executor(None, recv_exactly, peer, MIB) == bytes(MIB)
    await protocol.seen("resume")
    await settle()
    assert [context["message"] for context in errors] == [
        "protocol.pause_writing() failed",
        "protocol.resume_writing() failed",
    ]
    for context in errors:
        assert isinstance(context["exception"], LookupError)
        assert context["transport"] is transport
        assert context["protocol"] is protocol
    errors.clear()
    assert not transport.is_closing()


@beyond_asyncio_before(3, 12, "it copied what it queued")
async def test_the_queue_is_released_when_the_peer_goes(pair):
    """uvloop#548: the unsent data must not live as long as the transport object."""
    protocol = Recorder()
    transport, peer = await pair(protocol, "tcp", **SMALL)
    data = b"q" * MIB
    before = sys.getrefcount(data)
    transport.write(bytes(MIB))
    for _ in range(8):
        transport.write(data)
    assert sys.getrefcount(data) == before + 8
    held = []
    protocol.connection_lost = lambda exc: (
        held.append(sys.getrefcount(data)),
        Recorder.connection_lost(protocol, exc),
    )
    reset(peer)
    await protocol.seen("lost")
    assert held == [before], "the queue must be empty before connection_lost() is called"
    assert sys.getrefcount(data) == before
    assert transport.get_write_buffer_size() == 0
    assert isinstance(protocol.exc, ConnectionResetError)


async def test_late_writes_are_dropped_quietly(pair, caplog):
    """uvloop#506: nobody expects a RuntimeError from a connection that the peer has left."""
    protocol = Recorder()
    transport, peer = await pair(protocol)
    reset(peer)
    await protocol.seen("lost")
    transport.write(b"late")
    transport.write_eof()
    transport.write(b"")
    transport.writelines([])
    assert transport.get_write_buffer_size() == 0
    assert protocol.events.count("lost") == 1


@beyond_asyncio("D5, cpython#136234: writelines() raises AttributeError")
@pytest.mark.parametrize("how", ["close", "abort", "reset"])
async def test_late_writelines_is_dropped_quietly(pair, how):
    protocol = Recorder()
    transport, peer = await pair(protocol)
    if how == "reset":
        reset(peer)
    else:
        getattr(transport, how)()
        transport.writelines([b"late", b"r"])
    await protocol.seen("lost")
    transport.writelines([b"late", b"r"])
    assert transport.get_write_buffer_size() == 0
    assert protocol.events.count("lost") == 1


@beyond_asyncio("abort() after a flushed close() raises AttributeError")
async def test_abort_after_the_end_of_a_flush(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind, **SMALL)
    transport.write(bytes(MIB))
    transport.close()
    assert len(await loop.run_in_executor(None, recv_to_end, peer)) == MIB
    await protocol.seen("lost")
    transport.abort()
    transport.close()
    await settle()
    assert protocol.events.count("lost") == 1


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_writes_after_close_are_dropped_quietly(pair, kind, how):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    getattr(transport, how)()
    transport.write(b"late")
    await protocol.seen("lost")
    transport.write(b"later")
    assert recv_to_end(peer) == b""
    with pytest.raises(TypeError):
        transport.write("text")


async def test_many_late_writes_warn(pair, kind, caplog):
    protocol = Recorder()
    transport, _ = await pair(protocol, kind)
    transport.abort()
    await protocol.seen("lost")
    for _ in range(4):
        transport.write(b"late")
    assert caplog.text == ""
    for _ in range(4):
        transport.write(b"late")
    assert "socket.send() raised exception." in caplog.text


async def test_writing_to_a_peer_that_closed(pair, kind):
    protocol = Recorder(keep_open=True)
    transport, peer = await pair(protocol, kind)
    peer.close()
    await protocol.seen("eof")
    async with asyncio.timeout(5):
        while not transport.is_closing():
            transport.write(b"is there anybody")
            await asyncio.sleep(0)
    await protocol.seen("lost")
    assert isinstance(protocol.exc, (BrokenPipeError, ConnectionResetError))
    assert protocol.events == ["made", "eof", "lost"]


async def test_a_failed_write_is_told_in_a_later_callback(pair):
    protocol = Recorder(keep_open=True)
    transport, peer = await pair(protocol, "unix")
    peer.close()
    transport.write(b"nobody")
    assert "lost" not in protocol.events
    await protocol.seen("lost")
    assert isinstance(protocol.exc, BrokenPipeError)
    assert transport.is_closing()


async def test_drain_of_a_stream_writer(loop, kind):
    ours, peer = socket_pair(kind, **SMALL)
    with peer:
        _, writer = await asyncio.open_connection(sock=ours)
        writer.write(bytes(MIB))
        drained = asyncio.ensure_future(writer.drain())
        await settle()
        assert not drained.done()
        await loop.run_in_executor(None, recv_exactly, peer, MIB)
        await asyncio.wait_for(drained, 5)
        writer.close()
        await writer.wait_closed()
