"""What hostile or careless use can do: an exception at the most, never a crash or a wrong byte."""

import asyncio
import gc
import socket

import pytest
from helpers import beyond_asyncio


def test_a_long_chain_of_handles_is_freed(loop):
    chain = None
    for _ in range(100_000):
        chain = loop.call_later(1000, print, chain)
    chain.cancel()
    loop.call_soon(loop.stop)
    loop.run_forever()
    del chain


def test_a_chain_of_handles_that_have_run_is_freed(loop):
    chain = None
    for _ in range(100_000):
        chain = loop.call_soon(lambda before: None, chain)
    loop.call_soon(loop.stop)
    loop.run_forever()
    del chain
    gc.collect()


@pytest.mark.parametrize("number", [99_999, 2**31 - 1])
def test_a_descriptor_that_is_not_open_is_refused(loop, number):
    with pytest.raises(OSError, match="Bad file descriptor"):
        loop.add_reader(number, print)


@beyond_asyncio("its _run_once is Python's own and may be nested")
def test_a_turn_inside_a_turn_is_refused(loop):
    refused = []

    def nested():
        try:
            loop._run_once()
        except RuntimeError as exc:
            refused.append(str(exc))
        loop.stop()

    loop.call_soon(nested)
    loop.run_forever()
    assert refused == ["This event loop is already running"]


async def test_a_socket_closed_behind_the_transport_is_not_written_to(loop, errors):
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    lost = loop.create_future()

    class Protocol(asyncio.Protocol):
        def connection_lost(self, exc):
            lost.set_result(exc)

    transport, _ = await loop.create_connection(Protocol, sock=ours)
    number = ours.fileno()
    ours.close()
    other, other_peer = socket.socketpair()
    with peer, other, other_peer:
        if number not in (other.fileno(), other_peer.fileno()):
            pytest.skip("the number was not given out again")
        transport.write(b"secret")
        assert transport.is_closing()
        for stranger in (other, other_peer):
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.recv(100)
        assert isinstance(await lost, OSError)


@beyond_asyncio("it leaves the accepted socket to the collector, which warns")
async def test_a_factory_that_closes_its_server_leaves_nothing_behind(loop):
    def factory():
        server.close()
        return asyncio.Protocol()

    server = await loop.create_server(factory, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    await writer.wait_closed()


@beyond_asyncio("it has no such checks")
def test_a_closed_loop_stays_closed(loop):
    loop.close()
    loop._closed = False
    assert loop.is_closed()
    for use in (lambda: loop.add_reader(0, print), lambda: loop._run_once()):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            use()


@beyond_asyncio("it can be closed from inside by such means")
def test_a_running_loop_cannot_be_closed_from_inside(loop):
    def close():
        loop._thread_id = None
        try:
            loop._close_core()
        finally:
            loop.stop()

    refused = []
    loop.set_exception_handler(lambda _, context: refused.append(context["exception"]))
    loop.call_soon(close)
    loop.run_forever()
    assert [str(exc) for exc in refused] == ["Cannot close a running event loop"]
    assert not loop.is_closed()


async def test_bulk_data_that_is_kept_never_changes(loop):
    """The read buffer is handed over: whoever keeps it must be the only one to have it."""
    kept = []
    done = loop.create_future()

    class Keeper(asyncio.Protocol):
        size = 0

        def data_received(self, data):
            kept.append((data, data[:1], len(data)))
            self.size += len(data)
            if self.size == 26 * 200_000:
                done.set_result(None)

    ours, peer = socket.socketpair()
    ours.setblocking(False)
    transport, _ = await loop.create_connection(Keeper, sock=ours)
    peer.setblocking(False)
    for letter in range(ord("a"), ord("z") + 1):
        await loop.sock_sendall(peer, bytes([letter]) * 200_000)
    await asyncio.wait_for(done, 10)
    assert b"".join(data for data, _, _ in kept) == b"".join(
        bytes([letter]) * 200_000 for letter in range(ord("a"), ord("z") + 1)
    )
    assert all(data[:1] == first and len(data) == size for data, first, size in kept)
    peer.close()
    transport.abort()
    for _ in range(3):  # connection_lost, and asyncio's further turns
        await asyncio.sleep(0)
