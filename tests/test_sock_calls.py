"""The sock_* calls on plain non-blocking sockets."""

import asyncio
import socket

import pytest
from helpers import (
    Recorder,
    free_port,
    listener,
    pattern,
    recv_exactly,
    reset,
    settle,
    socket_pair,
    within,
)


@pytest.fixture(params=["tcp", "unix"])
def ends(request):
    """A non-blocking socket and its blocking peer."""
    ours, peer = socket_pair(request.param)
    ours.setblocking(False)
    with ours, peer:
        yield ours, peer


@pytest.fixture
def datagrams():
    left, right = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    with left, right:
        for sock in (left, right):
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
        yield left, right


async def test_recv(loop, ends):
    ours, peer = ends
    peer.send(b"at once")
    assert await loop.sock_recv(ours, 100) == b"at once"
    task = loop.create_task(loop.sock_recv(ours, 3))
    await settle()
    assert not task.done()
    peer.send(b"later on")
    assert await within(task) == b"lat"
    assert await loop.sock_recv(ours, 100) == b"er on"
    peer.close()
    assert await loop.sock_recv(ours, 100) == b""


async def test_recv_into(loop, ends):
    ours, peer = ends
    buffer = bytearray(10)
    task = loop.create_task(loop.sock_recv_into(ours, buffer))
    await settle()
    peer.send(b"hello")
    assert await within(task) == 5
    assert buffer == b"hello\0\0\0\0\0"
    peer.send(b"world")
    assert await loop.sock_recv_into(ours, memoryview(buffer)[5:]) == 5
    assert buffer == b"helloworld"


async def test_sendall(loop, ends):
    ours, peer = ends
    await loop.sock_sendall(ours, b"")
    await loop.sock_sendall(ours, b"small")
    assert recv_exactly(peer, 5) == b"small"
    data = pattern(8 << 20)
    reading = loop.run_in_executor(None, recv_exactly, peer, len(data))
    await loop.sock_sendall(ours, data)
    assert await reading == data
    await loop.sock_sendall(ours, bytearray(b"array"))
    await loop.sock_sendall(ours, memoryview(b"views")[1:])
    assert recv_exactly(peer, 9) == b"arrayiews"


async def test_both_directions_at_once(loop, ends):
    ours, peer = ends
    data = pattern(4 << 20)
    reading = loop.create_task(loop.sock_recv(ours, 10))
    peer_reading = loop.run_in_executor(None, recv_exactly, peer, len(data))
    await loop.sock_sendall(ours, data)
    assert await peer_reading == data
    assert not reading.done()
    peer.send(b"x")
    assert await within(reading) == b"x"


async def test_connect_and_accept(loop):
    with listener() as server, socket.socket() as client:
        server.setblocking(False)
        client.setblocking(False)
        accepting = loop.create_task(loop.sock_accept(server))
        await settle()
        await loop.sock_connect(client, server.getsockname())
        accepted, address = await within(accepting)
        with accepted:
            assert address == client.getsockname()
            assert accepted.gettimeout() == 0
            await loop.sock_sendall(client, b"through")
            assert await loop.sock_recv(accepted, 100) == b"through"


async def test_connect_by_name(loop):
    with listener() as server, socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("localhost", server.getsockname()[1]))
        assert client.getpeername() == server.getsockname()


async def test_connect_refused(loop):
    with socket.socket() as client:
        client.setblocking(False)
        with pytest.raises(ConnectionRefusedError):
            await loop.sock_connect(client, ("127.0.0.1", free_port()))


async def test_datagrams(loop, datagrams):
    """uvloop#561: sock_sendto, sock_recvfrom and sock_recvfrom_into."""
    left, right = datagrams
    assert await loop.sock_sendto(left, b"hello", right.getsockname()) == 5
    assert await loop.sock_recvfrom(right, 100) == (b"hello", left.getsockname())
    task = loop.create_task(loop.sock_recvfrom(right, 100))
    await settle()
    assert not task.done()
    await loop.sock_sendto(left, b"later", right.getsockname())
    assert await within(task) == (b"later", left.getsockname())
    buffer = bytearray(8)
    task = loop.create_task(loop.sock_recvfrom_into(right, buffer))
    await settle()
    await loop.sock_sendto(left, b"again", right.getsockname())
    assert await within(task) == (5, left.getsockname())
    assert buffer == b"again\0\0\0"
    await loop.sock_sendto(left, b"12345678", right.getsockname())
    assert await loop.sock_recvfrom_into(right, buffer, 3) == (3, left.getsockname())
    assert buffer == b"123in\0\0\0"
    await loop.sock_sendto(left, b"", right.getsockname())
    assert await loop.sock_recvfrom(right, 100) == (b"", left.getsockname())


CALLS = {
    "sock_recv": (10,),
    "sock_recv_into": (bytearray(10),),
    "sock_recvfrom": (10,),
    "sock_recvfrom_into": (bytearray(10),),
}


@pytest.mark.parametrize("name", CALLS)
async def test_cancelled_calls_leave_the_socket_alone(loop, ends, name):
    ours, peer = ends
    task = loop.create_task(getattr(loop, name)(ours, *CALLS[name]))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.remove_reader(ours) is False
    peer.send(b"kept")
    await settle()
    assert await loop.sock_recv(ours, 100) == b"kept"


async def test_cancelled_sendall(loop, ends):
    ours, peer = ends
    task = loop.create_task(loop.sock_sendall(ours, bytes(16 << 20)))
    await settle()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.remove_writer(ours) is False
    assert peer.recv(10)


async def test_cancelled_accept(loop):
    with listener() as server:
        server.setblocking(False)
        task = loop.create_task(loop.sock_accept(server))
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with socket.create_connection(server.getsockname()) as client:
            accepted, address = await loop.sock_accept(server)
            accepted.close()
            assert address == client.getsockname()


async def test_a_closed_socket(loop):
    sock = socket.socket()
    sock.setblocking(False)
    sock.close()
    for call in (loop.sock_recv(sock, 10), loop.sock_sendall(sock, b"x"), loop.sock_accept(sock)):
        with pytest.raises((OSError, ValueError)):
            await within(call)


async def test_a_reset_peer(loop):
    ours, peer = socket_pair("tcp")
    with ours:
        ours.setblocking(False)
        task = loop.create_task(loop.sock_recv(ours, 10))
        await settle()
        reset(peer)
        with pytest.raises(ConnectionResetError):
            await within(task)


async def test_blocking_sockets_are_refused_in_debug_mode(loop, ends):
    _, blocking = ends
    loop.set_debug(True)
    try:
        for call in (
            loop.sock_recv(blocking, 1),
            loop.sock_recv_into(blocking, bytearray(1)),
            loop.sock_recvfrom(blocking, 1),
            loop.sock_recvfrom_into(blocking, bytearray(1)),
            loop.sock_sendall(blocking, b"x"),
            loop.sock_sendto(blocking, b"x", None),
            loop.sock_connect(blocking, ("127.0.0.1", 1)),
            loop.sock_accept(blocking),
        ):
            with pytest.raises(ValueError, match="the socket must be non-blocking"):
                await call
    finally:
        loop.set_debug(False)


async def test_a_transports_socket_is_refused(loop, pair):
    transport, peer = await pair(Recorder())
    sock = transport.get_extra_info("socket")
    with pytest.raises((RuntimeError, TypeError, AttributeError)):
        await within(loop.sock_recv(sock, 10), 1)
    assert not transport.is_closing()
    transport.write(b"fine")
    assert recv_exactly(peer, 4) == b"fine"
