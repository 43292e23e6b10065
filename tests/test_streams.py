"""asyncio's streams: their protocol is fed without its own method, where that does no more."""

import asyncio
import gc

import pytest
from helpers import settle, socket_pair

pytestmark = pytest.mark.usefixtures("loop")


async def connect(make=asyncio.StreamReaderProtocol, limit=2**16):
    """A stream over a socket pair: the reader, its protocol, the transport and the peer."""
    loop = asyncio.get_running_loop()
    ours, peer = socket_pair("tcp")
    reader = asyncio.StreamReader(limit=limit)
    protocol = make(reader)
    transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
    return reader, protocol, transport, peer


async def end(transport, peer):
    transport.close()
    await settle()
    peer.close()


@pytest.mark.parametrize("size", [1, 1000, 100_000])
async def test_what_comes_in_is_read(size):
    reader, _, transport, peer = await connect(limit=2**20)
    data = bytes(range(256)) * (size // 256 + 1)
    peer.sendall(data)
    assert await reader.readexactly(len(data)) == data
    peer.sendall(b"a line\nand ")
    assert await reader.readline() == b"a line\n"
    peer.sendall(b"the end")
    peer.close()
    assert await reader.read() == b"and the end"
    await end(transport, peer)


async def test_a_full_reader_pauses_the_transport():
    reader, _, transport, peer = await connect(limit=8)
    peer.sendall(b"x" * 100)
    await settle()
    assert not transport.is_reading()
    assert await reader.readexactly(100) == b"x" * 100
    assert transport.is_reading()
    await end(transport, peer)


async def test_data_for_a_reader_that_is_gone_is_dropped():
    reader, _, transport, peer = await connect()
    del reader
    gc.collect()
    peer.sendall(b"for nobody")
    await settle()
    assert not transport.is_closing()
    await end(transport, peer)


async def test_a_derived_protocol_gets_its_data():
    class Counting(asyncio.StreamReaderProtocol):
        count = 0

        def data_received(self, data):
            self.count += len(data)
            super().data_received(data)

    reader, protocol, transport, peer = await connect(Counting)
    peer.sendall(b"seven b")
    assert await reader.readexactly(7) == b"seven b"
    assert protocol.count == 7
    await end(transport, peer)


async def test_a_method_of_the_instance_gets_its_data():
    seen = []

    def make(reader):
        protocol = asyncio.StreamReaderProtocol(reader)
        protocol.data_received = seen.append
        return protocol

    _, _, transport, peer = await connect(make)
    peer.sendall(b"data")
    await settle()
    assert seen == [b"data"]
    await end(transport, peer)


async def test_a_patched_method_gets_its_data(monkeypatch):
    """As tools that trace programs patch it."""
    original = asyncio.StreamReaderProtocol.data_received
    seen = []

    def data_received(self, data):
        seen.append(data)
        original(self, data)

    monkeypatch.setattr(asyncio.StreamReaderProtocol, "data_received", data_received)
    reader, _, transport, peer = await connect()
    peer.sendall(b"data")
    assert await reader.readexactly(4) == b"data"
    assert seen == [b"data"]
    await end(transport, peer)


async def test_another_protocol_takes_over():
    class Other(asyncio.Protocol):
        def data_received(self, data):
            seen.append(data)

    seen = []
    reader, stream, transport, peer = await connect()
    transport.set_protocol(Other())
    peer.sendall(b"for the other")
    await settle()
    assert seen == [b"for the other"]
    transport.set_protocol(stream)
    peer.sendall(b"for the stream")
    assert await reader.readexactly(14) == b"for the stream"
    await end(transport, peer)


async def test_an_error_of_the_reader_ends_the_connection(errors):
    class Failing(asyncio.StreamReader):
        def feed_data(self, data):
            raise OverflowError("no more")

    loop = asyncio.get_running_loop()
    ours, peer = socket_pair("tcp")
    reader = Failing()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
    peer.sendall(b"data")
    await settle()
    assert transport.is_closing()
    assert [type(context["exception"]) for context in errors] == [OverflowError]
    assert isinstance(reader.exception(), OverflowError)
    errors.clear()
    peer.close()


async def test_futures_know_their_loop():
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    assert first is not second
    assert first.get_loop() is second.get_loop() is loop
    assert type(first) is asyncio.Future
