"""Datagrams in batches: `sendto_many`, `datagrams_received`, and what leaves together; beyond asyncio."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap

import pytest
from helpers import ON_ASYNCIO, Datagrams, settle, udp_socket
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(ON_ASYNCIO, reason="asyncio sends and receives one at a time")


class Lists(Datagrams):
    """A protocol that takes batches."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def datagrams_received(self, datagrams):
        self.batches.append(list(datagrams))
        self.datagrams += datagrams
        self.note("batch")


async def endpoint(loop, protocol=None, **options):
    return await loop.create_datagram_endpoint(lambda: protocol or Datagrams(), **options)


# -- sendto_many --------------------------------------------------------------------------------


async def test_sendto_many_to_one_peer(loop):
    with udp_socket() as peer:
        transport, _ = await endpoint(loop, family=socket.AF_INET)
        sent = [b"%3d" % number for number in range(100)]
        assert transport.sendto_many((data, peer.getsockname()) for data in sent) == 100
        assert [peer.recv(10, socket.MSG_DONTWAIT) for _ in sent] == sent, "they are with the kernel"
        assert transport.sendto_many([]) == 0
        transport.close()


async def test_sendto_many_of_all_sorts(loop):
    with udp_socket() as one, udp_socket() as two:
        transport, _ = await endpoint(loop, family=socket.AF_INET)
        named = ("localhost", two.getsockname()[1])
        datagrams = [
            (b"1", one.getsockname()),
            [bytearray(b"2"), two.getsockname()],
            (b"", one.getsockname()),
            (memoryview(b"3"), named),
            (b"4", two.getsockname()),
        ]
        assert transport.sendto_many(datagrams) == 5
        assert [one.recv(10) for _ in range(2)] == [b"1", b""]
        assert [two.recv(10) for _ in range(3)] == [b"2", b"3", b"4"]
        transport.close()


async def test_sendto_many_with_a_remote_address(loop):
    with udp_socket() as peer:
        transport, _ = await endpoint(loop, remote_addr=peer.getsockname())
        assert transport.sendto_many([(b"1", None), (b"2", peer.getsockname())]) == 2
        with pytest.raises(ValueError, match="Invalid address"):
            transport.sendto_many([(b"3", None), (b"4", ("127.0.0.1", 9))])
        assert [peer.recv(10) for _ in range(2)] == [b"1", b"2"]
        peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            peer.recv(10)
        transport.close()


@pytest.mark.parametrize(
    "datagrams",
    [None, 7, [b"x"], [(b"x",)], [(b"x", None, 1)], [("x", ("127.0.0.1", 9))], [(b"x", ("127.0.0.1", "9"))]],
    ids=repr,
)
async def test_sendto_many_of_nonsense(loop, datagrams):
    transport, _ = await endpoint(loop, family=socket.AF_INET)
    with pytest.raises(TypeError):
        transport.sendto_many(datagrams)
    transport.close()
    transport.abort()
    assert transport.sendto_many([(b"x", ("127.0.0.1", 9))]) == 0


async def test_sendto_many_tells_of_each_that_fails(loop):
    with udp_socket() as peer:
        transport, protocol = await endpoint(loop, family=socket.AF_INET)
        good = peer.getsockname()
        datagrams = [(b"1", good), (b"x" * 66_000, good), (b"2", ("127.0.0.1", 0)), (b"3", good)]
        assert transport.sendto_many(datagrams) == 4
        assert len(protocol.errors) == 2 and all(isinstance(error, OSError) for error in protocol.errors)
        assert [peer.recv(10) for _ in range(2)] == [b"1", b"3"]
        transport.close()


async def test_sendto_many_stops_at_the_high_mark(loop):
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with peer:
        transport, protocol = await endpoint(loop, sock=ours)
        transport.set_write_buffer_limits(high=1000)
        datagrams = [(b"%4d" % number, None) for number in range(2000)]
        taken = transport.sendto_many(datagrams)
        assert 0 < taken < 2000 and "pause" in protocol.events
        assert 1000 < transport.get_write_buffer_size() < 1000 + 64 * 12 + 12
        assert transport.sendto_many(datagrams) == 0
        received = []
        while taken < 2000:
            while len(received) < taken:
                received.append(peer.recv(10))
                await asyncio.sleep(0)
            await protocol.until(lambda: protocol.events[-1] == "resume")
            taken += transport.sendto_many(datagrams[taken:])
        transport.close()
        peer.settimeout(5)
        while len(received) < 2000:
            received.append(await loop.run_in_executor(None, peer.recv, 10))
        assert received == [data for data, _ in datagrams]


# -- datagrams_received -------------------------------------------------------------------------


async def test_batches_come_as_lists(loop):
    transport, protocol = await endpoint(loop, Lists(), local_addr=("127.0.0.1", 0))
    address = transport.get_extra_info("sockname")
    with udp_socket() as one, udp_socket() as two:
        expected = []
        for number in range(100):
            sender = (one, two)[number % 3 == 2]
            sender.sendto(b"%d" % number, address)
            expected.append((b"%d" % number, sender.getsockname()))
        assert await protocol.got(100) == expected
    assert len(protocol.batches) < 50 and "datagram" not in protocol.events
    transport.close()


async def test_a_list_of_one(loop):
    transport, protocol = await endpoint(loop, Lists(), local_addr=("127.0.0.1", 0))
    with udp_socket() as peer:
        peer.sendto(b"", transport.get_extra_info("sockname"))
        await protocol.got(1)
        assert protocol.batches == [[(b"", peer.getsockname())]]
    transport.close()


async def test_a_list_that_is_paused_for(loop):
    class Slow(Lists):
        def datagrams_received(self, datagrams):
            super().datagrams_received(datagrams)
            self.transport.pause_reading()
            loop.call_soon(self.transport.resume_reading)

    transport, protocol = await endpoint(loop, Slow(), local_addr=("127.0.0.1", 0))
    with udp_socket() as peer:
        for number in range(100):
            peer.sendto(b"%d" % number, transport.get_extra_info("sockname"))
        assert [data for data, _ in await protocol.got(100)] == [b"%d" % number for number in range(100)]
    transport.close()


async def test_a_protocol_that_raises(loop, errors):
    class Broken(Lists):
        def datagrams_received(self, datagrams):
            super().datagrams_received(datagrams)
            raise KeyError("batch")

    transport, protocol = await endpoint(loop, Broken(), local_addr=("127.0.0.1", 0))
    with udp_socket() as peer:
        for _ in range(2):
            peer.sendto(b"x", transport.get_extra_info("sockname"))
            await protocol.got(1)
            protocol.datagrams.clear()
    assert [type(context["exception"]) for context in errors] == [KeyError, KeyError]
    assert "datagrams_received" in errors[0]["message"] and errors[0]["transport"] is transport
    errors.clear()
    assert not transport.is_closing()
    transport.close()


async def test_an_attribute_of_the_object_is_no_method_of_its_class(loop):
    """Mocks have every attribute."""
    protocol = Datagrams()
    protocol.datagrams_received = lambda datagrams: pytest.fail("called")
    transport, _ = await endpoint(loop, protocol, local_addr=("127.0.0.1", 0))
    with udp_socket() as peer:
        peer.sendto(b"x", transport.get_extra_info("sockname"))
        await protocol.got(1)
    transport.close()


# -- joined and cut apart -----------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 7, 100, 100, 100, 1200])), max_size=90),
    st.booleans(),
)
def test_whatever_is_sent_arrives(loop, plan, many):
    """Sizes and peers in any mix, by one call or in one callback, between two endpoints with their offloads."""

    async def run():
        receivers = [await endpoint(loop, Lists(), local_addr=("127.0.0.1", 0)) for _ in range(3)]
        transport, protocol = await endpoint(loop, family=socket.AF_INET)
        addresses = [receiver.get_extra_info("sockname") for receiver, _ in receivers]
        datagrams = [((b"%d " % number * 400)[:size], addresses[peer]) for number, (peer, size) in enumerate(plan)]
        if many:
            assert transport.sendto_many(datagrams) == len(datagrams)
        else:
            for data, address in datagrams:
                transport.sendto(data, address)
        for (receiver, got), address in zip(receivers, addresses, strict=True):
            expected = [data for data, to in datagrams if to == address]
            assert [data for data, _ in await got.got(len(expected))] == expected
            receiver.close()
        transport.close()
        assert not protocol.errors
        await protocol.seen("lost")
        await settle()

    loop.run_until_complete(run())


def count_calls(script):
    """System calls of a script's `send*` and `recv*` on datagrams, by name."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("SKIPPED: strace is not installed")
    trace = "trace=sendto,sendmsg,sendmmsg,recvfrom,recvmsg,recvmmsg"
    command = [strace, "-f", "-qq", "-e", trace, sys.executable, "-c", textwrap.dedent(script)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, env=dict(os.environ))
    if "PTRACE" in ran.stderr and "not permitted" in ran.stderr:
        pytest.skip("SKIPPED: this process may not be traced")
    assert ran.returncode == 0, ran.stderr
    _, _, marked = ran.stderr.partition("begin-mark")
    marked, _, _ = marked.partition("end-mark")
    calls = re.findall(r"^(?:\[pid +\d+\] )?(\w+)\(", marked, re.MULTILINE)
    return {name: calls.count(name) for name in set(calls)}


SENDS = """
    import asyncio, pelton, socket
    async def main():
        sinks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range({peers})]
        for sink in sinks:
            sink.bind(("127.0.0.1", 0))
        to = [sink.getsockname() for sink in sinks]
        mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, family=socket.AF_INET)
        mark.sendto(b"begin-mark", to[0])
        for number in range(40):
            transport.sendto(bytes(1200), to[number % {peers}])
        await asyncio.sleep(0)
        mark.sendto(b"end-mark", to[0])
        transport.close()
    pelton.run(main())
"""


@pytest.mark.parametrize("peers", [1, 8])
def test_a_burst_is_two_system_calls(peers):
    calls = count_calls(SENDS.format(peers=peers))
    # The first at once; the other 39 together. The end mark's own call is the last one.
    assert calls == {"sendto": 2, "sendmmsg": 1}


def test_a_batch_is_answered_in_two_system_calls():
    calls = count_calls("""
        import asyncio, pelton, socket
        class Echo(asyncio.DatagramProtocol):
            count = 0
            def connection_made(self, transport):
                self.transport = transport
            def datagram_received(self, data, addr):
                self.count += 1
                self.transport.sendto(data, addr)
        async def main():
            loop = asyncio.get_running_loop()
            transport, echo = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
            peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            peer.connect(transport.get_extra_info("sockname"))
            for count in (2, 4, 8, 12):
                if count == 12:
                    peer.send(b"begin-mark")
                    count -= 1
                for _ in range(count):
                    peer.send(b"ping")
                echo.count = -count
                while echo.count < 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
            peer.send(b"end-mark")
            transport.close()
        pelton.run(main())
    """)
    # 11 pings and the end mark by the peer; the batch in one call, its answers in two.
    assert calls == {"sendto": 12 + 1, "recvmmsg": 1, "sendmmsg": 1}
