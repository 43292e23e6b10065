"""Datagram endpoints in trouble: floods, refusals, full buffers, and more peers than are remembered."""

import asyncio
import errno
import os
import socket

import pytest
from helpers import Datagrams, beyond_asyncio, settle, udp_socket

# More peers than an endpoint remembers.
MANY_PEERS = 3000


def rss_kib():
    with open(f"/proc/{os.getpid()}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


async def endpoint(loop, protocol=None, **options):
    return await loop.create_datagram_endpoint(lambda: protocol or Datagrams(), **options)


# -- refusals -----------------------------------------------------------------------------------


def nobody():
    """An address where nothing listens."""
    with udp_socket() as gone:
        return gone.getsockname()


async def test_a_refused_peer_is_told_and_the_endpoint_lives_on(loop):
    address = nobody()
    transport, protocol = await endpoint(loop, remote_addr=address)
    for count in (1, 2):
        transport.sendto(b"anyone?")
        await protocol.until(lambda count=count: len(protocol.errors) >= count)
    assert all(isinstance(error, ConnectionRefusedError) for error in protocol.errors)
    assert not transport.is_closing()
    with udp_socket() as peer:
        # Somebody moves in there.
        peer.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as late:
            late.bind(address)
            late.settimeout(5)
            transport.sendto(b"now?")
            # The last refusal may still be on its way and take this one with it.
            await settle()
            transport.sendto(b"now!")
            assert late.recv(10) in (b"now?", b"now!")
    transport.close()
    await protocol.seen("lost")
    assert protocol.exc is None


async def test_a_refusal_by_one_peer_stops_no_datagram_to_another(loop):
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    with udp_socket() as peer:
        nowhere = nobody()
        for number in range(50):
            transport.sendto(b"%d" % number, nowhere)
            transport.sendto(b"%d" % number, peer.getsockname())
        await settle()
        assert [peer.recv(10) for _ in range(50)] == [b"%d" % number for number in range(50)]
    # An unconnected socket is not told of refusals: ip(7), IP_RECVERR.
    assert protocol.errors == []
    transport.close()


async def test_a_burst_to_a_refused_peer(loop):
    """Errors of a connected socket belong to earlier datagrams; each is told, the rest goes out."""
    transport, protocol = await endpoint(loop, remote_addr=nobody())
    for _ in range(3):
        for number in range(100):
            transport.sendto(b"%d" % number)
        await asyncio.sleep(0.01)
    await protocol.seen("error")
    assert {type(error) for error in protocol.errors} == {ConnectionRefusedError}
    assert transport.get_write_buffer_size() == 0 and not transport.is_closing()
    transport.close()


# -- full buffers -------------------------------------------------------------------------------


@beyond_asyncio("its queue has no bound but the writer's patience")
async def test_a_sender_faster_than_its_receiver_is_told_to_pause(loop):
    """A unix datagram socket is reliable: what does not fit waits, and nothing taken is lost."""
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with peer:
        transport, protocol = await endpoint(loop, sock=ours)
        sent = 0
        while "pause" not in protocol.events:
            transport.sendto(b"%06d" % sent + bytes(2000))
            sent += 1
            assert sent < 10_000, "it was never told to pause"
        low, high = transport.get_write_buffer_limits()
        assert high < transport.get_write_buffer_size() < high + 3000
        peer.settimeout(5)
        got = [await loop.run_in_executor(None, peer.recv, 3000) for _ in range(sent)]
        assert [int(data[:6]) for data in got] == list(range(sent))
        await protocol.until(lambda: protocol.events[-1] == "resume")
        assert transport.get_write_buffer_size() <= low
        transport.close()
        await protocol.seen("lost")


async def test_udp_to_a_receiver_that_does_not_read_keeps_nothing(loop):
    """The kernel drops what the receiver's buffer cannot hold: the sender holds none of it."""
    with udp_socket(rcvbuf=4096) as peer:
        transport, protocol = await endpoint(loop, family=socket.AF_INET)
        await asyncio.sleep(0)
        before = rss_kib()
        for burst in range(50):
            for _ in range(200):
                transport.sendto(bytes(1400), peer.getsockname())
            await asyncio.sleep(0)
        assert transport.get_write_buffer_size() == 0 and not protocol.errors
        assert rss_kib() - before < 4096
        transport.close()


@beyond_asyncio("asyncio drops the endpoint's other datagrams")
async def test_a_datagram_that_is_too_long_takes_no_other_with_it(loop):
    with udp_socket() as peer:
        transport, protocol = await endpoint(loop, family=socket.AF_INET)
        for data in (b"1", b"2", bytes(70_000), b"3"):
            transport.sendto(data, peer.getsockname())
        await protocol.seen("error")
        await settle()
        assert [error.errno for error in protocol.errors] == [errno.EMSGSIZE]
        assert [peer.recv(10) for _ in range(3)] == [b"1", b"2", b"3"]
        transport.close()


# -- floods -------------------------------------------------------------------------------------


@beyond_asyncio("its datagram transports cannot pause")
async def test_a_flood_while_paused_stays_in_the_kernel(loop):
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    address = transport.get_extra_info("sockname")
    transport.pause_reading()
    await settle()
    before = rss_kib()
    with udp_socket() as peer:
        peer.connect(address)
        for number in range(20_000):
            peer.send(b"%08d" % number + bytes(1000))
        await settle()
        assert protocol.datagrams == [] and rss_kib() - before < 4096
        transport.resume_reading()
        await protocol.until(lambda: len(protocol.datagrams) > 20)
        await settle(10)
        # The kernel kept the first ones, in their order, and dropped what did not fit.
        numbers = [int(data[:8]) for data, _ in protocol.datagrams]
        assert numbers == list(range(len(numbers)))
        peer.send(b"%08d" % 99_999_999)
        await protocol.until(lambda: protocol.datagrams[-1][0] == b"99999999")
    transport.close()


async def test_a_flood_lets_others_have_their_turn(loop):
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    turns = 0

    def turn():
        nonlocal turns
        turns += 1
        if not transport.is_closing():
            loop.call_soon(turn)

    with udp_socket() as peer:
        peer.connect(transport.get_extra_info("sockname"))
        for _ in range(150):
            peer.send(b"flood")
        loop.call_soon(turn)
        await protocol.until(lambda: len(protocol.datagrams) == 150)
        # A turn takes a bounded number of datagrams.
        assert turns >= 2
    transport.close()


# -- peers --------------------------------------------------------------------------------------


async def test_more_peers_than_are_remembered(loop):
    """Addresses that come and go are forgotten, and found again, without a mistake or growth."""
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    address = transport.get_extra_info("sockname")
    growth = []
    with udp_socket() as peer:
        port = peer.getsockname()[1]
        for _ in range(3):
            for number in range(MANY_PEERS):
                # All of 127/8 is this host: as many addresses as one likes on one socket.
                to = f"127.{1 + number // 250}.0.{1 + number % 250}"
                transport.sendto(b"%d" % number, (to, port))
                if number % 50 == 49:
                    await asyncio.sleep(0)
            growth.append(rss_kib())
            await settle()
    assert growth[-1] - growth[0] < 2048
    for number in range(0, MANY_PEERS, 100):
        host = f"127.{1 + number // 250}.0.{1 + number % 250}"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind((host, 0))
            one.settimeout(5)
            one.sendto(b"from %d" % number, address)
            await protocol.until(lambda host=host: protocol.datagrams and protocol.datagrams[-1][1][0] == host)
            assert protocol.datagrams[-1] == (b"from %d" % number, one.getsockname())
            transport.sendto(b"to %d" % number, one.getsockname())
            await asyncio.sleep(0)
            assert one.recv(20) == b"to %d" % number
    transport.close()


@pytest.mark.parametrize("count", [1, 2])
async def test_descriptors_come_back(loop, count):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        made = [await endpoint(loop, remote_addr=nobody()) for _ in range(count)]
        for transport, _ in made:
            transport.sendto(b"x")
            transport.abort()
        for _, protocol in made:
            await protocol.seen("lost")
        await settle()
    assert len(os.listdir("/proc/self/fd")) == before
