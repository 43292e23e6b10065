"""What a stream transport tells of itself."""

import asyncio
import pickle
import socket
import weakref

import pytest
from helpers import Recorder, listener, socket_pair


async def test_types(pair, kind):
    transport, _ = await pair(Recorder(), kind)
    assert isinstance(transport, asyncio.Transport)
    assert isinstance(transport, asyncio.ReadTransport)
    assert isinstance(transport, asyncio.WriteTransport)
    assert weakref.ref(transport)() is transport
    transport.some_attribute = 7
    assert transport.some_attribute == 7
    assert hash(transport) == hash(transport)
    assert transport == transport


async def test_socket(pair, kind):
    transport, peer = await pair(Recorder(), kind)
    sock = transport.get_extra_info("socket")
    assert isinstance(sock, asyncio.trsock.TransportSocket)
    assert transport.get_extra_info("socket") is sock
    assert sock.family == peer.family
    assert sock.type == socket.SOCK_STREAM
    assert sock.fileno() >= 0
    assert sock.gettimeout() == 0
    with pytest.raises(TypeError):
        pickle.dumps(sock)
    with pytest.raises(ValueError, match="setblocking"):
        sock.setblocking(True)
    assert not hasattr(sock, "close")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


async def test_names(pair):
    transport, peer = await pair(Recorder())
    assert transport.get_extra_info("peername") == peer.getsockname()
    assert transport.get_extra_info("sockname") == peer.getpeername()


async def test_names_of_unix_sockets(pair):
    transport, _ = await pair(Recorder(), "unix")
    assert transport.get_extra_info("peername") == ""
    assert transport.get_extra_info("sockname") == ""


async def test_names_are_kept_after_close(pair):
    protocol = Recorder()
    transport, peer = await pair(protocol)
    there, here = peer.getsockname(), peer.getpeername()
    transport.close()
    await protocol.seen("lost")
    assert transport.get_extra_info("peername") == there
    assert transport.get_extra_info("sockname") == here
    sock = transport.get_extra_info("socket")
    assert isinstance(sock, asyncio.trsock.TransportSocket)
    assert sock.fileno() == -1


async def test_names_are_there_inside_connection_lost(loop):
    seen = loop.create_future()

    class Protocol(Recorder):
        def connection_lost(self, exc):
            seen.set_result(self.transport.get_extra_info("peername"))

    ours, peer = socket_pair("tcp")
    address = peer.getsockname()
    await loop.create_connection(Protocol, sock=ours)
    peer.close()
    assert await seen == address


async def test_unknown_keys(pair, kind):
    transport, _ = await pair(Recorder(), kind)
    assert transport.get_extra_info("nonsense") is None
    assert transport.get_extra_info("nonsense", 5) == 5
    for name in (
        "ssl_object",
        "sslcontext",
        "peercert",
        "cipher",
        "compression",
        "pipe",
        "subprocess",
    ):
        assert transport.get_extra_info(name) is None
        assert transport.get_extra_info(name, "default") == "default"


async def test_state(pair, kind):
    protocol = Recorder()
    transport, _ = await pair(protocol, kind)
    assert transport.is_closing() is False
    assert transport.is_reading() is True
    assert transport.get_protocol() is protocol
    assert transport.can_write_eof() is True
    transport.close()
    assert transport.is_closing() is True
    assert transport.is_reading() is False
    await protocol.seen("lost")
    assert transport.is_closing() is True
    assert transport.get_write_buffer_size() == 0


async def test_repr(pair, kind):
    protocol = Recorder()
    transport, _ = await pair(protocol, kind)
    number = transport.get_extra_info("socket").fileno()
    assert f"fd={number}" in repr(transport)
    transport.close()
    assert "closing" in repr(transport)
    await protocol.seen("lost")
    assert "closed" in repr(transport)


async def test_the_streams_view(loop):
    with listener() as server:
        _, writer = await asyncio.open_connection(*server.getsockname())
        assert writer.get_extra_info("peername") == server.getsockname()
        assert isinstance(writer.transport, asyncio.Transport)
        writer.close()
        await writer.wait_closed()


async def test_instances_cannot_be_made_by_hand(pair):
    transport, _ = await pair(Recorder())
    with pytest.raises(TypeError):
        type(transport)()


async def test_attributes_that_others_rely_on(loop, pair, kind):
    transport, _ = await pair(Recorder(), kind)
    assert transport._loop is loop
    assert isinstance(transport._extra, dict)
    assert transport._sock is not None
    assert transport._start_tls_compatible is True
    assert isinstance(transport.max_size, int)
