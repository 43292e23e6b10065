"""What the tests share: the loop under test, peers made of plain sockets, protocols that remember."""

import asyncio
import contextlib
import os
import select
import socket
import struct
import sys
import tempfile

import pytest

ON_ASYNCIO = os.environ.get("PELTON_TEST_LOOP", "pelton") == "asyncio"
# Above 1 where everything is slow, as under valgrind: waits are as much longer before they fail.
SLOWDOWN = float(os.environ.get("PELTON_TEST_SLOWDOWN", "1"))
PATIENCE = 5.0 * SLOWDOWN


def new_loop():
    """A fresh loop of the kind under test (PELTON_TEST_LOOP=asyncio proves the tests themselves)."""
    if ON_ASYNCIO:
        return asyncio.SelectorEventLoop()
    import pelton

    return pelton.new_event_loop()


def beyond_asyncio(reason):
    """Mark a test of behaviour that asyncio itself lacks; `reason` names the report or the demand."""
    return pytest.mark.skipif(ON_ASYNCIO, reason=f"asyncio is known to differ: {reason}")


def beyond_asyncio_before(major, minor, reason):
    """The same where newer versions of asyncio have it right."""
    return pytest.mark.skipif(
        ON_ASYNCIO and sys.version_info < (major, minor),
        reason=f"asyncio before {major}.{minor} is known to differ: {reason}",
    )


def since(major, minor, micro=0):
    """Mark a test of what only newer Pythons promise."""
    return pytest.mark.skipif(sys.version_info < (major, minor, micro), reason=f"new in Python {major}.{minor}.{micro}")


def open_fds():
    """The descriptors of this process and what each of them is."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return {fd: what for fd, what in found.items() if "/proc/" not in what}


async def settle(rounds=2):
    """Return once the loop has polled again, so that all that was ready before has been delivered."""
    loop = asyncio.get_running_loop()
    for _ in range(rounds):
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            seen = loop.create_future()
            loop.add_reader(left, lambda seen=seen: seen.done() or seen.set_result(None))
            try:
                right.send(b"x")
                await seen
            finally:
                loop.remove_reader(left)
        await asyncio.sleep(0)


async def within(awaitable, seconds=PATIENCE):
    return await asyncio.wait_for(awaitable, seconds)


def listener(family=socket.AF_INET, *, rcvbuf=None):
    """A listening blocking socket on a free port of the loopback."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if rcvbuf is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        sock.listen(64)
        sock.settimeout(PATIENCE)
    except BaseException:
        sock.close()
        raise
    return sock


def free_port():
    """A port on which nobody listens (and nobody was given by the kernel a moment ago)."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def socket_pair(kind, *, sndbuf=None, rcvbuf=None):
    """Two connected stream sockets; `kind` is "tcp" or "unix"."""
    if kind == "unix":
        ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        with listener(rcvbuf=rcvbuf) as server:
            ours = socket.socket()
            ours.connect(server.getsockname())
            peer, _ = server.accept()
    for sock, option, value in (
        (ours, socket.SO_SNDBUF, sndbuf),
        (peer, socket.SO_RCVBUF, rcvbuf),
    ):
        if value is not None:
            sock.setsockopt(socket.SOL_SOCKET, option, value)
    peer.settimeout(PATIENCE)
    return ours, peer


def reset(sock):
    """Close a TCP socket so that the other side sees ECONNRESET."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def recv_exactly(sock, count):
    """Read `count` bytes from a blocking socket; fewer only at the end of the stream."""
    parts = []
    while count:
        part = sock.recv(min(count, 1 << 18))
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def recv_to_end(sock):
    parts = []
    while part := sock.recv(1 << 18):
        parts.append(part)
    return b"".join(parts)


def recv_now(sock, grace=0.02):
    """What the kernel holds for this socket; the loop cannot send meanwhile, as we do not return to it."""
    parts = []
    while select.select([sock], [], [], grace)[0]:
        part = sock.recv(1 << 18)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def pattern(size, seed=0):
    """`size` bytes in which every 4-byte word tells its place, so that no mix-up goes unseen."""
    words = (size + 3) // 4
    return struct.pack(f"<{words}I", *range(seed, seed + words))[:size]


class Waitable:
    """Remembers the names of the calls it got, and can be awaited for a condition."""

    def __init__(self):
        self.events = []
        self._waiters = set()

    def note(self, name):
        self.events.append(name)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE):
            while not condition():
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.add(waiter)
                try:
                    await waiter
                finally:
                    self._waiters.discard(waiter)

    async def seen(self, name):
        await self.until(lambda: name in self.events)


class Recorder(Waitable, asyncio.Protocol):
    """A protocol that keeps every chunk and every call."""

    def __init__(self, keep_open=None):
        super().__init__()
        self.transport = None
        self.chunks = []
        self.exc = None
        self.keep_open = keep_open

    @property
    def data(self):
        return b"".join(self.chunks)

    def connection_made(self, transport):
        self.transport = transport
        self.note("made")

    def data_received(self, data):
        self.chunks.append(data)
        self.note("data")

    def eof_received(self):
        self.note("eof")
        return self.keep_open

    def pause_writing(self):
        self.note("pause")

    def resume_writing(self):
        self.note("resume")

    def connection_lost(self, exc):
        self.exc = exc
        self.note("lost")

    async def got(self, count):
        await self.until(lambda: sum(map(len, self.chunks)) >= count)
        return self.data


class BufferedRecorder(Waitable, asyncio.BufferedProtocol):
    """The same for asyncio.BufferedProtocol, with one buffer of `size` bytes."""

    def __init__(self, size=65536):
        super().__init__()
        self.transport = None
        self.buffer = bytearray(size)
        self.data = bytearray()
        self.hints = []
        self.exc = None

    def connection_made(self, transport):
        self.transport = transport
        self.note("made")

    def get_buffer(self, sizehint):
        self.hints.append(sizehint)
        return self.buffer

    def buffer_updated(self, nbytes):
        self.data += memoryview(self.buffer)[:nbytes]
        self.note("data")

    def eof_received(self):
        self.note("eof")

    def connection_lost(self, exc):
        self.exc = exc
        self.note("lost")

    async def got(self, count):
        await self.until(lambda: len(self.data) >= count)
        return bytes(self.data)


class Datagrams(Waitable, asyncio.DatagramProtocol):
    """A datagram protocol that keeps every datagram, error and call."""

    def __init__(self):
        super().__init__()
        self.transport = None
        self.datagrams = []
        self.errors = []
        self.exc = None

    def connection_made(self, transport):
        self.transport = transport
        self.note("made")

    def datagram_received(self, data, addr):
        self.datagrams.append((data, addr))
        self.note("datagram")

    def error_received(self, exc):
        self.errors.append(exc)
        self.note("error")

    def pause_writing(self):
        self.note("pause")

    def resume_writing(self):
        self.note("resume")

    def connection_lost(self, exc):
        self.exc = exc
        self.note("lost")

    async def got(self, count):
        await self.until(lambda: len(self.datagrams) >= count)
        return self.datagrams


def udp_socket(host="127.0.0.1", *, rcvbuf=None, reuse=False):
    """A bound UDP socket; its calls fail after PATIENCE seconds."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    if reuse:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if rcvbuf is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    sock.bind((host, 0))
    sock.settimeout(PATIENCE)
    return sock


@contextlib.contextmanager
def short_tmpdir():
    """A directory whose path is short enough for unix socket names."""
    with tempfile.TemporaryDirectory(prefix="pt", dir="/tmp") as path:
        yield path
