"""create_connection: addresses, races, failures, and the ownership of a given socket."""

import asyncio
import gc
import inspect
import os
import socket
import sys

import pytest
from helpers import (
    ON_ASYNCIO,
    Recorder,
    beyond_asyncio_before,
    free_port,
    listener,
    open_fds,
    settle,
    since,
    within,
)

V4, V6, STREAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM


def answers(monkeypatch, loop, table):
    """Make the loop's look-ups give these addresses: [(family, address), ...]."""

    async def getaddrinfo(host, port, *, family=0, type=0, proto=0, flags=0):
        return [(af, STREAM, 6, "", address) for af, address in table]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)


def bad_address():
    """An address at which a connection is refused."""
    return ("127.0.0.1", free_port())


def blocked_connects(monkeypatch, loop, blocked):
    """sock_connect() to these addresses never ends; the number of those that were tried is returned."""
    plain = loop.sock_connect
    tried = []

    async def sock_connect(sock, address):
        tried.append(address)
        if address in blocked:
            await loop.create_future()
        await plain(sock, address)

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    return tried


async def finish(transport, protocol):
    transport.abort()
    await protocol.seen("lost")


async def test_signature_is_asyncios(loop):
    for name in (
        "create_connection",
        "create_server",
        "create_unix_connection",
        "create_unix_server",
    ):
        expected = inspect.signature(getattr(asyncio.SelectorEventLoop, name))
        found = inspect.signature(getattr(type(loop), name))
        own = ["session"] if name.endswith("connection") and not ON_ASYNCIO else []
        assert list(found.parameters) == [*expected.parameters, *own]


async def test_refused(loop):
    with pytest.raises(ConnectionRefusedError, match=r"Connect call failed \('127.0.0.1', \d+\)"):
        await loop.create_connection(Recorder, *bad_address())


async def test_the_next_address_is_tried(loop, monkeypatch):
    with listener() as server:
        answers(
            monkeypatch,
            loop,
            [(V4, bad_address()), (V4, bad_address()), (V4, server.getsockname())],
        )
        transport, protocol = await loop.create_connection(Recorder, "name", 1)
        assert transport.get_extra_info("peername") == server.getsockname()
        await finish(transport, protocol)


async def test_all_refused(loop, monkeypatch):
    answers(monkeypatch, loop, [(V4, bad_address()), (V4, bad_address())])
    with pytest.raises(OSError, match=r"Multiple exceptions: .*, .*"):
        await loop.create_connection(Recorder, "name", 1)


@since(3, 12)
async def test_all_errors(loop, monkeypatch):
    answers(monkeypatch, loop, [(V4, bad_address()), (V4, bad_address())])
    with pytest.raises(ExceptionGroup) as caught:
        await loop.create_connection(Recorder, "name", 1, all_errors=True)
    assert [type(exc) for exc in caught.value.exceptions] == [ConnectionRefusedError] * 2


async def test_no_address_at_all(loop, monkeypatch):
    answers(monkeypatch, loop, [])
    with pytest.raises(OSError, match="getaddrinfo.* returned empty list"):
        await loop.create_connection(Recorder, "name", 1)


async def test_happy_eyeballs_go_round_a_dead_route(loop, monkeypatch):
    """uvloop#406: the second address is tried after the delay, and the loser is closed."""
    with listener() as dead, listener() as server:
        answers(monkeypatch, loop, [(V4, dead.getsockname()), (V4, server.getsockname())])
        tried = blocked_connects(monkeypatch, loop, {dead.getsockname()})
        before = len(open_fds())
        made = loop.create_connection(Recorder, "name", 1, happy_eyeballs_delay=0.01)
        transport, protocol = await within(made)
        assert tried == [dead.getsockname(), server.getsockname()]
        assert transport.get_extra_info("peername") == server.getsockname()
        await settle()
        assert len(open_fds()) == before + 1
        await finish(transport, protocol)


async def test_happy_eyeballs_do_not_wait_after_a_refusal(loop, monkeypatch):
    with listener() as server:
        answers(monkeypatch, loop, [(V4, bad_address()), (V4, server.getsockname())])
        made = loop.create_connection(Recorder, "name", 1, happy_eyeballs_delay=30)
        transport, protocol = await within(made)
        await finish(transport, protocol)


@pytest.mark.parametrize(
    ("interleave", "order"),
    [(None, "666644"), (1, "646466"), (2, "664646"), (3, "666464")],
)
async def test_interleave(loop, monkeypatch, interleave, order):
    table = [(V6, ("::1", 1, 0, number)) for number in range(4)] + [(V4, ("127.0.0.1", n)) for n in (1, 2)]
    answers(monkeypatch, loop, table)
    tried = []

    async def connect(exceptions, info, local=None):
        tried.append("6" if info[0] == V6 else "4")
        exceptions.append([OSError("refused")])
        raise OSError("refused")

    monkeypatch.setattr(loop, "_connect_sock", connect)
    with pytest.raises(OSError, match="refused"):
        await loop.create_connection(Recorder, "name", 1, interleave=interleave)
    assert "".join(tried) == order


async def test_local_address(loop):
    with listener() as server:
        transport, protocol = await loop.create_connection(Recorder, *server.getsockname(), local_addr=("127.0.0.2", 0))
        assert transport.get_extra_info("sockname")[0] == "127.0.0.2"
        await finish(transport, protocol)
        with pytest.raises(OSError, match="error while attempting to bind on address"):
            await loop.create_connection(Recorder, *server.getsockname(), local_addr=("192.0.2.1", 0))


async def test_given_socket(loop):
    with listener() as server:
        sock = socket.create_connection(server.getsockname())
        transport, protocol = await loop.create_connection(Recorder, sock=sock)
        assert transport.get_extra_info("socket").fileno() == sock.fileno()
        assert not sock.getblocking()
        await finish(transport, protocol)
        await settle()
        assert sock.fileno() == -1


async def test_wrong_arguments(loop):
    with listener() as sock, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        with pytest.raises(ValueError, match="host/port and sock can not be specified at the same time"):
            await loop.create_connection(Recorder, "127.0.0.1", 1, sock=sock)
        with pytest.raises(ValueError, match="host and port was not specified and no sock specified"):
            await loop.create_connection(Recorder)
        with pytest.raises(ValueError, match="A Stream Socket was expected"):
            await loop.create_connection(Recorder, sock=datagrams)
        with pytest.raises(ValueError, match="server_hostname is only meaningful with ssl"):
            await loop.create_connection(Recorder, "127.0.0.1", 1, server_hostname="x")
        with pytest.raises(ValueError, match="ssl_handshake_timeout is only meaningful with ssl"):
            await loop.create_connection(Recorder, "127.0.0.1", 1, ssl_handshake_timeout=1)
        with pytest.raises(ValueError, match="ssl_shutdown_timeout is only meaningful with ssl"):
            await loop.create_connection(Recorder, "127.0.0.1", 1, ssl_shutdown_timeout=1)
        with pytest.raises(ValueError, match="You must set server_hostname when using ssl without a host"):
            await loop.create_connection(Recorder, sock=sock, ssl=True)


@beyond_asyncio_before(3, 13, "nothing was checked")
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the refused socket object closes the number")
async def test_a_socket_in_use_by_a_transport_is_refused(loop, pair, kind):
    transport, _ = await pair(Recorder(), kind)
    number = transport.get_extra_info("socket").fileno()
    again = socket.socket(fileno=number)
    try:
        with pytest.raises(RuntimeError, match="is used by transport"):
            await loop.create_connection(Recorder, sock=again)
    finally:
        again.detach()
    assert not transport.is_closing()


async def test_an_error_in_the_factory_comes_out(loop):
    def factory():
        raise LookupError("in the factory")

    ours, peer = socket.socketpair()
    with ours, peer, pytest.raises(LookupError):
        await loop.create_connection(factory, sock=ours)


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("how", ["name", "literal", "sock", "unix"])
async def test_cancelled_at_every_await(loop, how, turns, tmpdir_short):
    """Whenever the caller gives up, no descriptor stays and no number is poisoned."""
    path = os.path.join(tmpdir_short, "sock")
    with listener() as server, socket.socket(socket.AF_UNIX) as unix_server:
        unix_server.bind(path)
        unix_server.listen()
        port = server.getsockname()[1]
        await loop.getaddrinfo("localhost", port)
        gc.collect()
        before = open_fds()
        protocol = Recorder()
        if how == "name":
            made = loop.create_connection(lambda: protocol, "localhost", port, family=V4)
        elif how == "literal":
            made = loop.create_connection(lambda: protocol, "127.0.0.1", port)
        elif how == "sock":
            sock = socket.create_connection(server.getsockname())
            made = loop.create_connection(lambda: protocol, sock=sock)
        else:
            made = loop.create_unix_connection(lambda: protocol, path)
        task = loop.create_task(made)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, tuple):
            outcome[0].abort()
        else:
            assert isinstance(outcome, asyncio.CancelledError)
            if how == "sock" and turns == 0:
                sock.close()  # The coroutine never started: nobody else owns it.
        del outcome, task, made
        await settle()
        assert protocol.events in ([], ["made", "lost"])
        assert open_fds().keys() <= before.keys()

        # The numbers are free for others.
        left, right = socket.socketpair()
        with left, right:
            seen = loop.create_future()
            loop.add_reader(left, lambda: seen.done() or seen.set_result(left.recv(1)))
            right.send(b"x")
            assert await within(seen) == b"x"
            loop.remove_reader(left)


async def test_a_connect_that_times_out_poisons_no_number(loop, monkeypatch):
    """uvloop#738: thousands of later requests failed since one number was taken for a dead transport's."""
    with listener() as server:
        blocked_connects(monkeypatch, loop, {server.getsockname()})
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.002):
                    await loop.create_connection(Recorder, *server.getsockname())
        monkeypatch.undo()
        for _ in range(5):
            transport, protocol = await loop.create_connection(Recorder, *server.getsockname())
            await finish(transport, protocol)


async def test_refused_connects_leave_no_descriptors(loop):
    await settle()
    before = open_fds()
    for _ in range(20):
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, *bad_address())
    assert open_fds().keys() == before.keys()


async def test_many_connects_at_once(loop):
    with listener() as server:
        made = await asyncio.gather(*(loop.create_connection(Recorder, *server.getsockname()) for _ in range(50)))
        assert len({transport.get_extra_info("sockname") for transport, _ in made}) == 50
        for transport, protocol in made:
            await finish(transport, protocol)


async def test_given_socket_closed_by_a_failure_reads_minus_one(loop):
    """After a failure past connection_made the socket belongs to the transport, which closes it."""
    ours, peer = socket.socketpair()
    with peer:
        task = loop.create_task(loop.create_connection(Recorder, sock=ours))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle()
        assert ours.fileno() == -1
        assert peer.recv(1) == b""
