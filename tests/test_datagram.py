"""create_datagram_endpoint: sending, receiving, addresses and the life of an endpoint, as asyncio documents it."""

import asyncio
import errno
import os
import socket
import struct
import warnings

import pytest
from helpers import (
    ON_ASYNCIO,
    Datagrams,
    beyond_asyncio,
    beyond_asyncio_before,
    pattern,
    settle,
    udp_socket,
    within,
)

FAMILIES = {"ipv4": (socket.AF_INET, "127.0.0.1"), "ipv6": (socket.AF_INET6, "::1")}


@pytest.fixture(params=FAMILIES)
def family(request):
    return FAMILIES[request.param]


async def endpoint(loop, protocol=None, **options):
    transport, protocol = await loop.create_datagram_endpoint(lambda: protocol or Datagrams(), **options)
    return transport, protocol


async def pair_of(loop, host="127.0.0.1"):
    """Two endpoints, the second of which has the first as its remote address."""
    server, served = await endpoint(loop, local_addr=(host, 0))
    client, asked = await endpoint(loop, remote_addr=server.get_extra_info("sockname")[:2])
    return server, served, client, asked


# -- there and back -----------------------------------------------------------------------------


async def test_echo(loop, family):
    class Echo(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            self.transport.sendto(data.upper(), addr)

    server, served = await endpoint(loop, Echo(), local_addr=(family[1], 0))
    address = server.get_extra_info("sockname")
    client, asked = await endpoint(loop, remote_addr=address[:2])
    free, answered = await endpoint(loop, family=family[0])
    client.sendto(b"one")
    free.sendto(b"two", address)
    free.sendto(b"three", addr=address)
    assert await asked.got(1) == [(b"ONE", address)]
    assert await answered.got(2) == [(b"TWO", address), (b"THREE", address)]
    assert [data for data, _ in served.datagrams] == [b"one", b"two", b"three"]
    assert served.datagrams[0][1] == client.get_extra_info("sockname")
    for transport in (server, client, free):
        transport.close()


async def test_calls_come_in_their_order(loop):
    server, served, client, asked = await pair_of(loop)
    client.sendto(b"x")
    await served.got(1)
    server.close()
    client.close()
    assert server.is_closing() and not served.exc
    await served.seen("lost")
    await asked.seen("lost")
    assert (served.events, asked.events) == (["made", "datagram", "lost"], ["made", "lost"])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_data_of_all_kinds(loop, kind):
    server, served, client, _ = await pair_of(loop)
    data = kind(pattern(1000))
    for _ in range(3):
        client.sendto(data)
    if kind is bytearray:
        data[:4] = b"????"  # what was given is what goes, also if it was held
    assert [got for got, _ in await served.got(3)] == [pattern(1000)] * 3
    client.close()
    server.close()


@beyond_asyncio_before(3, 13, "https://github.com/python/cpython/issues/113812")
async def test_empty_datagrams(loop):
    server, served, client, _ = await pair_of(loop)
    for data in (b"", b"x", b"", b"", b"y"):
        client.sendto(data)
    assert [data for data, _ in await served.got(5)] == [b"", b"x", b"", b"", b"y"]
    client.close()
    server.close()


async def test_many_in_one_callback_keep_their_order(loop):
    server, served, client, _ = await pair_of(loop)
    sent = [struct.pack("I", number) * (1 + number % 7) for number in range(150)]
    for data in sent:
        client.sendto(data)
    assert [data for data, _ in await served.got(len(sent))] == sent
    client.close()
    server.close()


async def test_the_first_one_goes_at_once(loop):
    with udp_socket() as peer:
        transport, _ = await endpoint(loop, family=socket.AF_INET)
        transport.sendto(b"now", peer.getsockname())
        assert peer.recv(100, socket.MSG_DONTWAIT) == b"now"
        transport.close()


async def test_the_largest_datagram(loop):
    server, served, client, _ = await pair_of(loop)
    client.sendto(pattern(65507))
    [(data, _)] = await served.got(1)
    assert data == pattern(65507)
    client.close()
    server.close()


# -- addresses ----------------------------------------------------------------------------------


async def test_equal_addresses_are_one_peer(loop):
    with udp_socket() as peer:
        host, port = peer.getsockname()
        transport, _ = await endpoint(loop, family=socket.AF_INET)
        for address in [(host, port), ("127." + "0.0.1", int(str(port))), (str(host), port), ("127.1", port)]:
            transport.sendto(b"x", address)
            await asyncio.sleep(0)
            assert peer.recv(10, socket.MSG_DONTWAIT) == b"x"
        transport.close()


async def test_a_host_name_is_looked_up(loop):
    with udp_socket() as peer:
        transport, protocol = await endpoint(loop, family=socket.AF_INET)
        transport.sendto(b"1", peer.getsockname())
        transport.sendto(b"2", ("localhost", peer.getsockname()[1]))
        transport.sendto(b"3", peer.getsockname())
        await asyncio.sleep(0)
        assert [peer.recv(10) for _ in range(3)] == [b"1", b"2", b"3"]
        transport.sendto(b"x", ("no-such-host.invalid", 9))
        await protocol.seen("error")
        assert isinstance(protocol.errors[0], socket.gaierror)
        assert not transport.is_closing()
        transport.close()


@pytest.mark.parametrize("address", [("::1", 9), ("255.255.255.255.1", 9), ("1.2.3", -0)])
async def test_addresses_that_cannot_be_reached_are_told(loop, address):
    transport, protocol = await endpoint(loop, family=socket.AF_INET)
    transport.sendto(b"x", address)
    await protocol.seen("error")
    assert isinstance(protocol.errors[0], OSError) and not transport.is_closing()
    transport.close()


BAD_ADDRESSES = [
    ((), TypeError),
    (("127.0.0.1",), TypeError),
    (("127.0.0.1", 9, 0, 0), TypeError),
    (("127.0.0.1", "9"), TypeError),
    (("127.0.0.1", 9.0), TypeError),
    (("127.0.0.1", 65536), OverflowError),
    (("127.0.0.1", -1), OverflowError),
    (("127.0.0.1", 1 << 70), OverflowError),
    ((9, 9), TypeError),
    ("127.0.0.1:9", TypeError),
    (9, TypeError),
    (None, TypeError),
]


@beyond_asyncio("a bad address ends asyncio's endpoint")
@pytest.mark.parametrize(("address", "error"), BAD_ADDRESSES, ids=repr)
async def test_bad_addresses_raise_and_change_nothing(loop, address, error):
    with udp_socket() as peer, udp_socket() as plain:
        transport, protocol = await endpoint(loop, family=socket.AF_INET)
        with pytest.raises(error) as expected:
            plain.sendto(b"x", address)
        with pytest.raises(error) as raised:
            transport.sendto(b"x", address)
        assert str(raised.value) == str(expected.value)
        with pytest.raises(error):
            transport.sendto_many([(b"x", peer.getsockname()), (b"x", address)])
        assert not transport.is_closing() and not protocol.errors
        transport.sendto(b"fine", peer.getsockname())
        assert peer.recv(100) == b"fine", "and nothing of what was refused"
        transport.close()


async def test_the_remote_address_and_no_other(loop):
    server, served, client, _ = await pair_of(loop)
    remote = server.get_extra_info("sockname")
    client.sendto(b"1", remote)
    client.sendto(b"2", tuple(remote))
    client.sendto(b"3", (str(remote[0]), remote[1]))
    for wrong in [("127.0.0.1", 9), ("127.0.0.2", remote[1]), "x", 1]:
        with pytest.raises(ValueError, match=r"Invalid address: must be None or \('127.0.0.1', \d+\)"):
            client.sendto(b"x", wrong)
    assert [data for data, _ in await served.got(3)] == [b"1", b"2", b"3"]
    client.close()
    server.close()


@pytest.mark.parametrize("data", ["text", 1, None, [b"x"]])
async def test_data_that_is_no_bytes(loop, data):
    transport, _ = await endpoint(loop, family=socket.AF_INET)
    with pytest.raises(TypeError, match=f"data argument must be a bytes-like object, not '{type(data).__name__}'"):
        transport.sendto(data, ("127.0.0.1", 9))
    transport.close()


async def test_ipv6_addresses_have_four_parts(loop):
    server, served = await endpoint(loop, local_addr=("::1", 0))
    port = server.get_extra_info("sockname")[1]
    for address in [("::1", port), ("::1", port, 0), ("::1", port, 0, 0), ("0:0::1", port)]:
        client, _ = await endpoint(loop, family=socket.AF_INET6)
        client.sendto(b"x", address)
        client.close()
    for _, sender in await served.got(4):
        assert sender[0] == "::1" and len(sender) == 4
    server.close()


async def test_ipv4_through_an_ipv6_socket(loop):
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("::", 0))
    server, served = await endpoint(loop, sock=sock)
    with udp_socket() as peer:
        peer.sendto(b"hello", ("127.0.0.1", sock.getsockname()[1]))
        [(data, sender)] = await served.got(1)
        assert sender == ("::ffff:127.0.0.1", peer.getsockname()[1], 0, 0)
        server.sendto(b"you", sender)
        assert peer.recv(100) == b"you"
    server.close()


# -- unix datagrams and other families ----------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
async def test_unix_names(loop, tmpdir_short, abstract):
    name = f"\0pelton-{os.getpid()}" if abstract else f"{tmpdir_short}/server"
    spelled = name.encode() if abstract else name
    server, served = await endpoint(loop, family=socket.AF_UNIX, local_addr=name)
    assert server.get_extra_info("sockname") == spelled
    client, asked = await endpoint(loop, family=socket.AF_UNIX, local_addr=f"{name}-client", remote_addr=name)
    free, _ = await endpoint(loop, family=socket.AF_UNIX)
    client.sendto(b"from a name")
    free.sendto(b"from nobody", name)
    free.sendto(b"by bytes", os.fsencode(name))
    expected = spelled + (b"-client" if abstract else "-client")
    assert await served.got(3) == [(b"from a name", expected), (b"from nobody", None), (b"by bytes", None)]
    server.sendto(b"back", expected)
    assert await asked.got(1) == [(b"back", spelled)]
    for transport in (server, client, free):
        transport.close()


async def test_a_path_that_is_not_ascii(loop, tmpdir_short):
    name = f"{tmpdir_short}/gr\u00fc\u00dfe"
    server, served = await endpoint(loop, family=socket.AF_UNIX, local_addr=name)
    assert server.get_extra_info("sockname") == name
    free, errors = await endpoint(loop, family=socket.AF_UNIX)
    free.sendto(b"x", name)
    await served.got(1)
    free.sendto(b"x", tmpdir_short + "/nobody")
    free.sendto(b"x", tmpdir_short + "/" + "long" * 40)
    await errors.until(lambda: len(errors.errors) == 2)
    assert isinstance(errors.errors[0], FileNotFoundError) and "too long" in str(errors.errors[1])
    server.close()
    free.close()


@beyond_asyncio("asyncio takes an unnamed peer for none")
async def test_unnamed_pair(loop):
    ends = [await endpoint(loop, sock=sock) for sock in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)]
    (left, left_got), (right, right_got) = ends
    for number in range(3):
        left.sendto(b"right %d" % number)
        right.sendto(b"left %d" % number)
    assert [data for data, _ in await right_got.got(3)] == [b"right 0", b"right 1", b"right 2"]
    assert [data for data, _ in await left_got.got(3)] == [b"left 0", b"left 1", b"left 2"]
    left.close()
    right.close()


async def test_netlink(loop):
    try:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 0)
        sock.bind((0, 0))
    except OSError as error:
        pytest.skip(f"no netlink here: {error}")
    transport, protocol = await endpoint(loop, sock=sock)
    get_link, dump = 18, 0x301
    request = struct.pack("=IHHII", 17, get_link, dump, 1, 0) + b"\0"
    transport.sendto(request, (0, 0))
    [(data, sender), *_] = await protocol.got(1)
    assert len(data) > 16 and sender == (0, 0)
    seen = len(protocol.datagrams)
    transport.sendto(request)
    await protocol.got(seen + 1)
    transport.close()


async def test_a_stream_socket_is_refused(loop):
    with socket.socket() as sock, pytest.raises(ValueError, match="A datagram socket was expected"):
        await endpoint(loop, sock=sock)


async def test_a_socket_with_a_transport_is_refused(loop):
    transport, _ = await endpoint(loop, local_addr=("127.0.0.1", 0))
    descriptor = transport.get_extra_info("socket").fileno()
    with pytest.raises(RuntimeError, match="is used by transport"):
        loop.add_reader(descriptor, print)
    transport.close()


# -- how an endpoint is made --------------------------------------------------------------------


async def test_what_is_known_of_an_endpoint(loop):
    server, _, client, _ = await pair_of(loop)
    assert isinstance(server, asyncio.DatagramTransport) and isinstance(server, asyncio.Transport)
    sock = client.get_extra_info("socket")
    assert client.get_extra_info("sockname") == sock.getsockname()
    assert client.get_extra_info("peername") == server.get_extra_info("sockname")
    assert server.get_extra_info("peername", "default") is None
    assert server.get_extra_info("nothing") is None and server.get_extra_info("nothing", 7) == 7
    assert (client.get_write_buffer_limits(), client.get_write_buffer_size()) == ((16384, 65536), 0)
    assert f"fd={sock.fileno()} read=polling write=<idle, bufsize=0>" in repr(client)
    client.close()
    assert "closing" in repr(client)
    server.close()
    await settle()
    assert "closed" in repr(client)
    assert client.get_extra_info("sockname") is not None


async def test_reuse_port_and_broadcast(loop):
    one, _ = await endpoint(loop, local_addr=("127.0.0.1", 0), reuse_port=True)
    address = one.get_extra_info("sockname")
    two, _ = await endpoint(loop, local_addr=address, reuse_port=True, allow_broadcast=True)
    option = two.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
    assert option and two.get_extra_info("sockname") == address
    one.close()
    two.close()


async def test_a_remote_address_with_broadcast_is_not_connected(loop):
    with udp_socket() as peer:
        remote = peer.getsockname()
        transport, _ = await endpoint(loop, remote_addr=remote, allow_broadcast=True)
        assert transport.get_extra_info("peername") is None
        transport.sendto(b"1")
        transport.sendto(b"2", remote)
        with pytest.raises(ValueError, match="Invalid address"):
            transport.sendto(b"3", ("127.0.0.1", 9))
        await asyncio.sleep(0)
        assert (peer.recv(10), peer.recv(10)) == (b"1", b"2")
        transport.close()


async def test_multicast_by_the_socket(loop):
    group = "224.0.0.251"
    sock = udp_socket("", reuse=True)
    member = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
    try:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    except OSError as error:
        sock.close()
        pytest.skip(f"no multicast on the loopback here: {error}")
    transport, protocol = await endpoint(loop, sock=sock)
    transport.sendto(b"all", (group, sock.getsockname()[1]))
    assert [data for data, _ in await protocol.got(1)] == [b"all"]
    transport.close()


async def test_a_connected_socket_ignores_addresses(loop):
    with udp_socket() as peer:
        sock = udp_socket()
        sock.connect(peer.getsockname())
        transport, _ = await endpoint(loop, sock=sock)
        transport.sendto(b"1")
        transport.sendto(b"2", ("127.0.0.1", 9))
        await asyncio.sleep(0)
        assert (peer.recv(10), peer.recv(10)) == (b"1", b"2")
        transport.close()


async def test_connection_made_that_raises_is_reported(loop, errors):
    class Broken(Datagrams):
        def connection_made(self, transport):
            super().connection_made(transport)
            raise KeyError("made")

    transport, protocol = await endpoint(loop, Broken(), local_addr=("127.0.0.1", 0))
    assert [type(context["exception"]) for context in errors] == [KeyError]
    errors.clear()
    with udp_socket() as peer:
        peer.sendto(b"x", transport.get_extra_info("sockname"))
        await protocol.got(1)
    transport.close()


async def test_callbacks_have_the_context_of_the_endpoint(loop):
    import contextvars

    variable = contextvars.ContextVar("variable", default="none")
    seen = []

    class Watching(Datagrams):
        def datagram_received(self, data, addr):
            seen.append(variable.get())
            super().datagram_received(data, addr)

    variable.set("mine")
    transport, protocol = await endpoint(loop, Watching(), local_addr=("127.0.0.1", 0))
    variable.set("another")
    with udp_socket() as peer:
        peer.sendto(b"x", transport.get_extra_info("sockname"))
        await protocol.got(1)
    transport.close()
    assert seen == ["mine"]


async def test_set_protocol(loop):
    server, first, client, _ = await pair_of(loop)
    second = Datagrams()
    server.set_protocol(second)
    assert server.get_protocol() is second
    client.sendto(b"x")
    await second.got(1)
    assert not first.datagrams
    client.close()
    server.close()


# -- reading stops and goes on ------------------------------------------------------------------


@beyond_asyncio_before(3, 12, "resume_reading() reads a datagram endpoint as if it were a stream")
async def test_pause_and_resume(loop):
    server, served, client, _ = await pair_of(loop)
    assert server.is_reading()
    server.pause_reading()
    server.pause_reading()
    assert not server.is_reading()
    client.sendto(b"1")
    client.sendto(b"2")
    await settle()
    assert not served.datagrams
    server.resume_reading()
    server.resume_reading()
    assert server.is_reading()
    assert [data for data, _ in await served.got(2)] == [b"1", b"2"]
    server.close()
    client.close()
    assert not server.is_reading()
    server.resume_reading()
    assert not server.is_reading()


async def test_pausing_in_a_batch_loses_nothing(loop):
    class Slow(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            self.transport.pause_reading()
            loop.call_soon(self.transport.resume_reading)

    server, served = await endpoint(loop, Slow(), local_addr=("127.0.0.1", 0))
    with udp_socket() as peer:
        sent = [b"%d" % number for number in range(60)]
        for data in sent:
            peer.sendto(data, server.get_extra_info("sockname"))
        assert [data for data, _ in await served.got(60)] == sent
    server.close()


async def test_closing_in_a_batch_ends_it(loop):
    class Enough(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if len(self.datagrams) == 5:
                self.transport.close()

    server, served = await endpoint(loop, Enough(), local_addr=("127.0.0.1", 0))
    with udp_socket() as peer:
        for _ in range(20):
            peer.sendto(b"x", server.get_extra_info("sockname"))
        await served.seen("lost")
    assert len(served.datagrams) == 5


def test_system_exit_in_a_batch(loop):
    """It ends the loop; what was received is delivered when the loop runs again."""

    class Exits(Datagrams):
        def datagram_received(self, data, addr):
            super().datagram_received(data, addr)
            if data == b"3":
                raise SystemExit

    async def made():
        transport, protocol = await endpoint(loop, Exits(), local_addr=("127.0.0.1", 0))
        return transport, protocol

    transport, protocol = loop.run_until_complete(made())
    with udp_socket() as peer:
        for number in range(8):
            peer.sendto(b"%d" % number, transport.get_extra_info("sockname"))
        with pytest.raises(SystemExit):
            loop.run_forever()
        loop.run_until_complete(protocol.got(8))
    assert [data for data, _ in protocol.datagrams] == [b"%d" % number for number in range(8)]
    transport.close()
    loop.run_until_complete(protocol.seen("lost"))


# -- the end ------------------------------------------------------------------------------------


async def test_close_twice_and_send_after(loop):
    server, served, client, asked = await pair_of(loop)
    client.close()
    client.close()
    client.abort()
    await asked.seen("lost")
    assert asked.exc is None and asked.events.count("lost") == 1
    client.sendto(b"late")
    await settle()
    assert not served.datagrams
    server.abort()
    await served.seen("lost")
    assert served.exc is None


async def test_the_socket_is_closed_after_connection_lost(loop):
    class Last(Datagrams):
        def connection_lost(self, exc):
            self.number = self.transport.get_extra_info("socket").fileno()
            super().connection_lost(exc)

    transport, protocol = await endpoint(loop, Last(), local_addr=("127.0.0.1", 0))
    transport.close()
    await protocol.seen("lost")
    await asyncio.sleep(0)
    assert protocol.number >= 0 and transport.get_extra_info("socket").fileno() == -1


async def test_what_close_was_called_behind_goes_out(loop):
    with udp_socket() as peer:
        transport, protocol = await endpoint(loop, family=socket.AF_INET)
        for number in range(20):
            transport.sendto(b"%d" % number, peer.getsockname())
        transport.close()
        await protocol.seen("lost")
        assert [peer.recv(10) for _ in range(20)] == [b"%d" % number for number in range(20)]


def test_an_endpoint_that_is_forgotten(loop):
    import gc

    async def forget():
        await endpoint(loop, local_addr=("127.0.0.1", 0))

    loop.run_until_complete(forget())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.close()
        gc.collect()
    assert any("unclosed transport" in str(warning.message) for warning in caught)


def test_close_on_a_closed_loop(loop):
    async def make():
        return (await endpoint(loop, local_addr=("127.0.0.1", 0)))[0]

    transport = loop.run_until_complete(make())
    if ON_ASYNCIO:
        transport.close()
        loop.run_until_complete(settle())
        loop.close()
        return
    loop.close()
    transport.close()
    assert "closed" in repr(transport)


async def test_a_factory_that_raises_leaves_nothing(loop):
    """asyncio leaves the socket to the collector; so do we."""
    with pytest.raises(KeyError):
        await loop.create_datagram_endpoint({}["factory"], local_addr=("127.0.0.1", 0))


async def test_errno_of_an_endpoint_whose_socket_was_closed(loop):
    sock = udp_socket()
    transport, protocol = await endpoint(loop, sock=sock)
    address = sock.getsockname()
    loop_descriptor = sock.fileno()
    assert loop_descriptor >= 0
    sock.close()
    transport.sendto(b"x", address)
    await protocol.seen("error")
    assert protocol.errors[0].errno == errno.EBADF
    transport.abort()
    await within(protocol.seen("lost"))
