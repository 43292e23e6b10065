"""data_received: sizes, bulk, pausing, switching of protocols, ends and faults."""

import asyncio
import contextvars
import threading
import zlib

import pytest
from helpers import (
    BufferedRecorder,
    Recorder,
    beyond_asyncio,
    pattern,
    recv_exactly,
    recv_to_end,
    reset,
    settle,
    socket_pair,
)

MIB = 1 << 20


def sender(peer, data, *, close=False):
    """Send from a thread of its own, so that neither side waits for the other."""

    def run():
        try:
            peer.sendall(data)
            if close:
                peer.close()
        except OSError:
            pass

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 4095, 4096, 16384, 65535, 65536, 65537, 262144, 262145, MIB])
async def test_every_size_arrives_exactly(pair, kind, size):
    protocol = Recorder()
    _, peer = await pair(protocol, kind)
    data = pattern(size, seed=size)
    thread = sender(peer, data)
    assert await protocol.got(size) == data
    thread.join()
    assert all(type(chunk) is bytes for chunk in protocol.chunks)
    assert all(chunk for chunk in protocol.chunks), "an empty chunk was delivered"


async def test_small_messages_one_by_one(pair, kind):
    protocol = Recorder()
    _, peer = await pair(protocol, kind)
    for number in range(300):
        message = pattern(1 + number * 7, seed=number)
        peer.sendall(message)
        await protocol.until(lambda number=number: len(protocol.chunks) > number)
        assert protocol.chunks[number] == message


async def test_what_was_delivered_never_changes(pair, kind):
    """All chunks of a bulk transfer are kept; none may change when the read buffer is used again."""

    class Keeper(Recorder):
        def data_received(self, data):
            self.sums.append(zlib.crc32(data))
            super().data_received(data)

    protocol = Keeper()
    protocol.sums = []
    _, peer = await pair(protocol, kind)
    data = pattern(32 * MIB)
    thread = sender(peer, data, close=True)
    await protocol.seen("lost")
    thread.join()
    assert [zlib.crc32(chunk) for chunk in protocol.chunks] == protocol.sums
    assert protocol.data == data


async def test_two_connections_never_mix(pair, kind):
    protocols = [Recorder() for _ in range(4)]
    threads = []
    expected = []
    for number, protocol in enumerate(protocols):
        _, peer = await pair(protocol, kind)
        expected.append(pattern(3 * MIB, seed=number << 24))
        threads.append(sender(peer, expected[-1], close=True))
    for protocol, data in zip(protocols, expected, strict=True):
        await protocol.seen("lost")
        assert protocol.data == data
    for thread in threads:
        thread.join()


async def test_a_flood_does_not_starve_the_loop(pair, kind):
    """One peer that sends without end gets its share of a turn and no more."""
    flooded = Recorder()
    flooded.data_received = lambda data: None
    _, peer = await pair(flooded, kind)
    quiet = Recorder()
    _, other = await pair(quiet, kind)
    thread = sender(peer, bytes(64 * MIB))
    turns = 0
    for number in range(50):
        other.send(b"x")
        while len(quiet.data) <= number:
            await asyncio.sleep(0)
            turns += 1
            assert turns < 100_000
    flooded.transport.abort()
    await flooded.seen("lost")
    thread.join(10)
    assert not thread.is_alive()


async def test_pause_and_resume(pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    assert transport.is_reading()
    transport.pause_reading()
    transport.pause_reading()
    assert not transport.is_reading()
    peer.send(b"while paused")
    await settle()
    assert protocol.chunks == []
    transport.resume_reading()
    transport.resume_reading()
    assert transport.is_reading()
    assert await protocol.got(12) == b"while paused"


async def test_pause_inside_data_received(pair, kind):
    class OneAtATime(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    protocol = OneAtATime()
    transport, peer = await pair(protocol, kind)
    data = pattern(2 * MIB)
    thread = sender(peer, data)
    received = 0
    while received < len(data):
        count = len(protocol.chunks)
        await protocol.until(lambda count=count: len(protocol.chunks) > count)
        await settle(1)
        assert len(protocol.chunks) == count + 1, "data was delivered while reading was paused"
        received += len(protocol.chunks[-1])
        transport.resume_reading()
    thread.join()
    assert protocol.data == data


async def test_pause_and_resume_inside_data_received(pair, kind):
    class Both(Recorder):
        def data_received(self, data):
            self.transport.pause_reading()
            super().data_received(data)
            self.transport.resume_reading()

    protocol = Both()
    _, peer = await pair(protocol, kind)
    data = pattern(3 * MIB)
    thread = sender(peer, data)
    assert await protocol.got(len(data)) == data
    thread.join()


async def test_pause_inside_connection_made(pair, kind):
    class Shy(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

    protocol = Shy()
    transport, peer = await pair(protocol, kind)
    peer.send(b"early")
    await settle()
    assert protocol.chunks == []
    transport.resume_reading()
    assert await protocol.got(5) == b"early"


async def test_the_end_waits_while_reading_is_paused(pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    transport.pause_reading()
    peer.send(b"last words")
    peer.close()
    await settle()
    assert protocol.events == ["made"]
    transport.resume_reading()
    await protocol.seen("lost")
    assert protocol.events == ["made", "data", "eof", "lost"]
    assert protocol.data == b"last words"


async def test_pausing_a_closed_transport_is_harmless(pair, kind):
    protocol = Recorder()
    transport, _ = await pair(protocol, kind)
    transport.close()
    transport.pause_reading()
    transport.resume_reading()
    assert not transport.is_reading()
    await protocol.seen("lost")
    transport.pause_reading()
    transport.resume_reading()
    assert not transport.is_reading()


async def test_switching_the_protocol(pair, kind):
    first, second = Recorder(), Recorder()
    transport, peer = await pair(first, kind)
    assert transport.get_protocol() is first
    transport.set_protocol(second)
    assert transport.get_protocol() is second
    peer.send(b"for the second")
    assert await second.got(14) == b"for the second"
    assert first.chunks == []
    peer.close()
    await second.seen("lost")
    assert second.events == ["data", "eof", "lost"]
    assert first.events == ["made"]


@pytest.mark.parametrize("following", [Recorder, BufferedRecorder])
async def test_switching_inside_data_received(pair, kind, following):
    second = following()

    class First(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.set_protocol(second)

    first = First()
    _, peer = await pair(first, kind)
    peer.send(b"one")
    await first.got(3)
    peer.send(b"two")
    assert await second.got(3) == b"two"
    assert first.data == b"one"
    data = pattern(MIB)
    thread = sender(peer, data)
    assert await second.got(3 + MIB) == b"two" + data
    thread.join()


async def test_after_eof_the_transport_closes(pair, kind):
    protocol = Recorder(keep_open=False)
    transport, peer = await pair(protocol, kind)
    peer.close()
    await protocol.seen("lost")
    assert protocol.events == ["made", "eof", "lost"]
    assert protocol.exc is None
    assert transport.is_closing()


async def test_after_eof_writing_may_go_on(pair, kind):
    protocol = Recorder(keep_open=True)
    transport, peer = await pair(protocol, kind)
    peer.send(b"question")
    peer.shutdown(1)
    await protocol.seen("eof")
    await settle()
    assert protocol.events == ["made", "data", "eof"]
    assert not transport.is_closing()
    transport.write(b"answer")
    assert recv_exactly(peer, 6) == b"answer"
    transport.close()
    await protocol.seen("lost")
    assert recv_to_end(peer) == b""


async def test_after_eof_a_big_answer_may_follow(loop, pair, kind):
    class Answer(Recorder):
        def eof_received(self):
            super().eof_received()
            self.transport.write(self.data * 200)
            self.transport.close()
            return True

    protocol = Answer()
    _, peer = await pair(protocol, kind, sndbuf=8192, rcvbuf=8192)
    data = pattern(5000)
    peer.sendall(data)
    peer.shutdown(1)
    assert await loop.run_in_executor(None, recv_to_end, peer) == data * 200
    await protocol.seen("lost")


async def test_eof_closes_after_the_queue_is_flushed(loop, pair, kind):
    protocol = Recorder(keep_open=None)
    transport, peer = await pair(protocol, kind, sndbuf=8192, rcvbuf=8192)
    transport.write(bytes(MIB))
    peer.shutdown(1)
    await protocol.seen("eof")
    assert await loop.run_in_executor(None, recv_to_end, peer) == bytes(MIB)
    await protocol.seen("lost")


async def test_a_reset_is_told_once(pair):
    protocol = Recorder()
    _, peer = await pair(protocol)
    reset(peer)
    await protocol.seen("lost")
    await settle()
    assert isinstance(protocol.exc, ConnectionResetError)
    assert protocol.events == ["made", "lost"]


async def test_a_reset_after_data(pair):
    protocol = Recorder()
    _, peer = await pair(protocol)
    peer.send(b"data")
    await protocol.got(4)
    reset(peer)
    await protocol.seen("lost")
    assert isinstance(protocol.exc, ConnectionResetError)


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_leaving_inside_data_received(pair, kind, how):
    class Leaver(Recorder):
        def data_received(self, data):
            super().data_received(data)
            getattr(self.transport, how)()

    protocol = Leaver()
    _, peer = await pair(protocol, kind)
    thread = sender(peer, pattern(8 * MIB))
    await protocol.seen("lost")
    await settle()
    peer.close()
    thread.join(10)
    assert not thread.is_alive()
    assert protocol.events == ["made", "data", "lost"]
    assert protocol.exc is None


async def test_no_data_after_close(pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    peer.send(b"too late")
    transport.close()
    await protocol.seen("lost")
    await settle()
    assert protocol.events == ["made", "lost"]


async def test_an_error_in_data_received_ends_the_connection(pair, kind, errors):
    failure = LookupError("in data_received")

    class Broken(Recorder):
        def data_received(self, data):
            raise failure

    protocol = Broken()
    transport, peer = await pair(protocol, kind)
    peer.send(b"x")
    await protocol.seen("lost")
    assert protocol.exc is failure
    (context,) = errors
    assert context["message"] == "Fatal error: protocol.data_received() call failed."
    assert context["exception"] is failure
    assert context["transport"] is transport
    assert context["protocol"] is protocol
    errors.clear()


async def test_an_error_in_eof_received_ends_the_connection(pair, kind, errors):
    failure = LookupError("in eof_received")

    class Broken(Recorder):
        def eof_received(self):
            raise failure

    protocol = Broken()
    _, peer = await pair(protocol, kind)
    peer.close()
    await protocol.seen("lost")
    assert protocol.exc is failure
    (context,) = errors
    assert context["message"] == "Fatal error: protocol.eof_received() call failed."
    errors.clear()


async def test_an_error_in_connection_made_is_reported(pair, kind, errors):
    failure = LookupError("in connection_made")

    class Broken(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            raise failure

    protocol = Broken()
    _, peer = await pair(protocol, kind)
    (context,) = errors
    assert context["exception"] is failure
    errors.clear()
    peer.send(b"still alive")
    assert await protocol.got(11) == b"still alive"


async def test_an_error_in_connection_lost_is_reported_and_the_socket_closed(pair, kind, errors):
    failure = LookupError("in connection_lost")

    class Broken(Recorder):
        def connection_lost(self, exc):
            super().connection_lost(exc)
            raise failure

    protocol = Broken()
    transport, peer = await pair(protocol, kind)
    transport.close()
    await protocol.seen("lost")
    await settle()
    assert [context["exception"] for context in errors] == [failure]
    errors.clear()
    assert recv_to_end(peer) == b""


@pytest.mark.parametrize("leave", [KeyboardInterrupt, SystemExit])
def test_an_exit_in_data_received_comes_through(loop, pair, kind, leave):
    class Leaver(Recorder):
        def data_received(self, data):
            super().data_received(data)
            if data == b"leave":
                raise leave

    protocol = Leaver()
    _, peer = loop.run_until_complete(pair(protocol, kind))
    peer.send(b"leave")
    with pytest.raises(leave):
        loop.run_forever()
    peer.send(b"more")
    assert loop.run_until_complete(protocol.got(9)) == b"leavemore"


class ContextRecorder(Recorder):
    """Notes the value of a context variable in each call."""

    variable = contextvars.ContextVar("variable", default="default")

    def note(self, name):
        self.events.append((name, self.variable.get()))
        super().note(name)


@beyond_asyncio("D35, cpython#140947: resume_reading() moved the callbacks into its caller's context")
async def test_each_transport_keeps_its_context(loop, kind):
    protocol = ContextRecorder(keep_open=True)
    ours, peer = socket_pair(kind)
    with peer:
        context = contextvars.copy_context()
        context.run(protocol.variable.set, "maker")
        await loop.create_task(loop.create_connection(lambda: protocol, sock=ours), context=context)
        protocol.variable.set("somebody else")
        protocol.transport.pause_reading()
        protocol.transport.resume_reading()
        peer.send(b"x")
        await protocol.seen("data")
        peer.shutdown(1)
        await protocol.seen("eof")
        protocol.transport.close()
        await protocol.seen("lost")
    for name in ("made", "data", "eof"):
        assert (name, "maker") in protocol.events


async def test_the_context_of_a_transport_is_that_of_its_maker(loop, kind):
    protocol = ContextRecorder(keep_open=True)
    ours, peer = socket_pair(kind)
    with peer:
        context = contextvars.copy_context()
        context.run(protocol.variable.set, "maker")
        await loop.create_task(loop.create_connection(lambda: protocol, sock=ours), context=context)
        peer.send(b"x")
        await protocol.seen("data")
        peer.shutdown(1)
        await protocol.seen("eof")
        protocol.transport.abort()
        await protocol.seen("lost")
    for name in ("made", "data", "eof"):
        assert (name, "maker") in protocol.events
