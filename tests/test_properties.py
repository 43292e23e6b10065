"""Whatever two transports do to each other, the bytes arrive as they were sent."""

import asyncio
import socket
import threading

import pytest
from helpers import Recorder, new_loop

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import strategies as st  # noqa: E402

QUIET = hypothesis.settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
SIDES = st.integers(0, 1)
SIZES = st.one_of(st.integers(0, 20), st.integers(0, 5000), st.sampled_from([16384, 65535, 65536, 65537, 300_000]))
STEPS = st.one_of(
    st.tuples(st.just("write"), SIDES, SIZES),
    st.tuples(st.just("writelines"), SIDES, st.lists(st.integers(1, 3000), min_size=1, max_size=30)),
    st.tuples(st.just("pause"), SIDES),
    st.tuples(st.just("resume"), SIDES),
    st.tuples(st.just("limits"), SIDES, st.integers(0, 100_000)),
    st.tuples(st.just("turn")),
)
ENDS = st.sampled_from(["close", "write_eof", "close both"])


class Side(Recorder):
    """One end; it knows what it sent, and checks that its callbacks come in a legal order."""

    def __init__(self, number):
        super().__init__(keep_open=True)
        self.number = number
        self.sent = bytearray()
        self.paused = False

    def next_bytes(self, size):
        start = len(self.sent)
        data = bytes((start + index * 7 + self.number) % 251 for index in range(min(size, 251)))
        data = (data * (size // 251 + 1))[:size] if size else b""
        self.sent += data
        return data

    def data_received(self, data):
        assert self.transport.is_reading(), "data while paused"
        assert "eof" not in self.events
        assert "lost" not in self.events
        super().data_received(data)

    def pause_writing(self):
        assert not self.paused
        self.paused = True

    def resume_writing(self):
        assert self.paused
        self.paused = False

    def step(self, name, *args):
        transport = self.transport
        if name == "write":
            transport.write(self.next_bytes(*args))
        elif name == "writelines":
            transport.writelines([self.next_bytes(size) for size in args[0]])
        elif name == "pause":
            transport.pause_reading()
        elif name == "resume":
            transport.resume_reading()
        elif name == "limits":
            transport.set_write_buffer_limits(high=args[0])


async def play(steps, end, small):
    loop = asyncio.get_running_loop()
    sockets = socket.socketpair()
    if small:
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sides = [Side(0), Side(1)]
    for side, sock in zip(sides, sockets, strict=True):
        await loop.create_connection(lambda side=side: side, sock=sock)
    for step in steps:
        if step[0] == "turn":
            await asyncio.sleep(0)
        else:
            sides[step[1]].step(step[0], *step[2:])
    for side in sides:
        side.transport.resume_reading()
    left, right = sides
    await right.got(len(left.sent))
    await left.got(len(right.sent))
    if end == "close both":
        left.transport.close()
        right.transport.close()
    elif end == "close":
        left.transport.close()
        await right.seen("eof")
        right.transport.close()
    else:
        left.transport.write_eof()
        await right.seen("eof")
        right.transport.write(right.next_bytes(1000))
        right.transport.write_eof()
        await left.seen("eof")
        left.transport.close()
        right.transport.close()
    for side, other in ((left, right), (right, left)):
        await side.seen("lost")
        assert side.exc is None
        assert side.data == bytes(other.sent)
        assert side.events.count("lost") == 1
        assert side.transport.get_write_buffer_size() == 0


@QUIET
@hypothesis.given(st.lists(STEPS, max_size=40), ENDS, st.booleans())
def test_two_transports(steps, end, small):
    run(play(steps, end, small))


def run(coroutine):
    loop = new_loop()
    failures = []
    loop.set_exception_handler(lambda loop, context: failures.append(context))
    try:
        loop.run_until_complete(asyncio.wait_for(coroutine, 10))
    finally:
        loop.close()
    assert not failures


@QUIET
@hypothesis.given(
    st.lists(
        st.tuples(st.sampled_from(["soon", "later", "at", "threadsafe", "cancel"]), st.integers(0, 30)),
        max_size=60,
    )
)
def test_scheduling_keeps_every_order(steps):
    """call_soon in FIFO order; timers by deadline; cancelled ones never."""
    loop = new_loop()
    try:
        soon, timers, handles = [], [], []
        base = loop.time() - 1
        expected_soon, expected_timers = [], []
        for index, (name, number) in enumerate(steps):
            if name == "soon":
                handles.append((loop.call_soon(soon.append, index), expected_soon, index))
                expected_soon.append(index)
            elif name == "threadsafe":
                handles.append((loop.call_soon_threadsafe(soon.append, index), expected_soon, index))
                expected_soon.append(index)
            elif name in ("later", "at"):
                due = base + number / 1000
                handles.append((loop.call_at(due, timers.append, (due, index)), expected_timers, (due, index)))
                expected_timers.append((due, index))
            elif handles:
                handle, expected, entry = handles.pop(number % len(handles))
                handle.cancel()
                expected.remove(entry)
        for _ in range(2):
            loop.call_soon(loop.stop)
            loop.run_forever()
        assert soon == expected_soon
        assert [due for due, _ in timers] == sorted(due for due, _ in expected_timers)
        assert sorted(timers) == sorted(expected_timers)
    finally:
        loop.close()


@QUIET
@hypothesis.given(st.lists(st.integers(1, 200_000), min_size=1, max_size=25), st.booleans())
def test_any_sizes_from_a_plain_socket(sizes, close_early):
    """Chunks of any size, sent with no regard for the reader, arrive whole and in order."""

    async def receive():
        loop = asyncio.get_running_loop()
        ours, peer = socket.socketpair()
        protocol = Side(0)
        sent = b"".join(bytes([index % 256]) * size for index, size in enumerate(sizes))

        def send():
            with peer:
                for index, size in enumerate(sizes):
                    peer.sendall(bytes([index % 256]) * size)

        await loop.create_connection(lambda: protocol, sock=ours)
        thread = threading.Thread(target=send)
        thread.start()
        if not close_early:
            await protocol.got(len(sent))
        await protocol.seen("eof")
        thread.join()
        protocol.transport.close()
        await protocol.seen("lost")
        assert protocol.data == sent

    run(receive())
