"""Data over an established connection: sizes, pieces, buffers, pauses, flow control, sendfile."""

import asyncio
import ssl
import tempfile

import pytest
from helpers import (
    BufferedRecorder,
    Recorder,
    beyond_asyncio,
    beyond_asyncio_before,
    pattern,
    reset,
    settle,
    socket_pair,
    within,
)
from tlshelpers import HOST, TLS13, Delivery, TlsPeer

SMALL = {"sndbuf": 8192, "rcvbuf": 8192}
KIB, MIB = 1 << 10, 1 << 20


# -- sizes and pieces ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100, 16384, 16385, 70_000, 3 * MIB])
async def test_sizes(tls_pair, kind, version, size):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, kind=kind, version=version)
    data = pattern(size)
    transport.write(data)
    assert await peer.recv_exactly(size) == data
    await peer.send(data)
    assert await protocol.got(size) == data


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview], ids=lambda make: make.__name__)
async def test_any_bytes_are_written(tls_pair, make):
    transport, peer = await tls_pair(Recorder())
    transport.write(make(b"as it is"))
    assert await peer.recv_exactly(8) == b"as it is"


async def test_wide_memoryviews_count_bytes(tls_pair):
    transport, peer = await tls_pair(Recorder())
    transport.write(memoryview(bytearray(pattern(4000))).cast("I"))
    transport.write(b"end")
    assert await peer.recv_exactly(4003) == pattern(4000) + b"end"


async def test_a_write_takes_a_snapshot(tls_pair, side):
    """D35: what the caller does to its buffer afterwards is not seen by the peer."""
    transport, peer = await tls_pair(Recorder(), side, sizes=SMALL)
    data = bytearray(b"a" * MIB)
    transport.write(data)
    data[:] = b"b" * MIB
    assert await peer.recv_exactly(MIB) == b"a" * MIB


@pytest.mark.parametrize("wrong", ["text", 7, None, [b"x"]])
async def test_only_bytes_are_written(tls_pair, wrong):
    transport, peer = await tls_pair(Recorder())
    with pytest.raises(TypeError, match=f"data: expecting a bytes-like instance, got {type(wrong).__name__}"):
        transport.write(wrong)
    transport.write(b"")
    transport.write(b"fine")
    assert await peer.recv_exactly(4) == b"fine"


async def test_writelines(tls_pair, version):
    transport, peer = await tls_pair(Recorder(), version=version)
    transport.writelines([b"a" * 10, bytearray(b"b" * 20_000), memoryview(b"c" * 5)])
    transport.writelines(part for part in (b"d", b"e"))
    transport.writelines([])
    expected = b"a" * 10 + b"b" * 20_000 + b"c" * 5 + b"de"
    assert await peer.recv_exactly(len(expected)) == expected


async def test_the_handshake_byte_by_byte(loop, contexts, attach, side, version):

    ours, theirs = contexts(side, version)
    sock, far = socket_pair("tcp")
    far.setblocking(False)
    with far:
        peer = TlsPeer(far, theirs, server_side=side == "client", server_hostname=HOST)
        peer.raw_send = Delivery(far)
        protocol = Recorder()
        transport, _ = await asyncio.gather(attach(protocol, sock, side, ours), peer.handshake())
        await peer.send(b"a little at a time")
        assert await protocol.got(18) == b"a little at a time"
        assert protocol.events == ["made", "data"], "a record is delivered when it is whole"
        transport.abort()
        await protocol.seen("lost")


@pytest.mark.parametrize("piece", [1, 7, 1000])
async def test_records_in_pieces(tls_pair, version, piece):
    protocol = Recorder()
    _, peer = await tls_pair(protocol, version=version)
    data = pattern(200 * piece)
    records = peer.seal(data[: 60 * piece]) + peer.seal(data[60 * piece :])
    await Delivery(peer.carrier, piece)(records)
    assert await protocol.got(len(data)) == data


async def test_many_records_at_once(tls_pair, version):
    protocol = Recorder()
    _, peer = await tls_pair(protocol, version=version)
    await peer.raw_send(b"".join(peer.seal(bytes([number])) for number in range(200)))
    assert await protocol.got(200) == bytes(range(200))


async def test_empty_records_are_no_data(tls_pair, version):
    """A record of no bytes is not the end, and not data."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, version=version)
    ignored = peer.seal(b"")
    await peer.raw_send(ignored)
    await peer.send(b"x")
    assert await protocol.got(1) == b"x"
    assert b"" not in protocol.chunks
    assert "eof" not in protocol.events


async def test_writes_of_one_callback_leave_together(loop, tls_pair):
    """Two writes in one callback are one send: the peer's one receive finds both records."""
    transport, peer = await tls_pair(Recorder())
    await settle()

    def two():
        transport.write(b"one")
        transport.write(b"two")

    loop.call_soon(two)
    await settle()
    assert await peer.recv_exactly(6) == b"onetwo"


@pytest.mark.parametrize("count", [30])
async def test_many_connections_at_once(loop, authority, count, version):
    class Echo(Recorder):
        def data_received(self, data):
            self.transport.write(data)

    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=authority.server(version), backlog=count)
    address = server.sockets[0].getsockname()
    context = authority.client(version)

    async def one(number):
        transport, protocol = await loop.create_connection(Recorder, *address, ssl=context)
        for round in range(5):
            protocol.chunks.clear()
            data = pattern(1 + number * 997, seed=number)
            transport.write(data)
            assert await protocol.got(len(data)) == data
        transport.close()
        await protocol.seen("lost")
        assert protocol.exc is None

    await asyncio.gather(*map(one, range(count)))
    server.close()
    await within(server.wait_closed())


# -- post-handshake messages -----------------------------------------------------------------------


async def test_a_client_certificate_asked_for_later(tls_pair, authority):
    """Post-handshake authentication: the answer leaves though the application writes nothing."""
    client, server = authority.certified_client(TLS13), authority.server(TLS13)
    client.post_handshake_auth = True
    authority.ca.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    server.post_handshake_auth = True
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, ours=client, theirs=server)
    assert peer.tls.getpeercert() is None
    peer.tls.verify_client_post_handshake()
    await peer.send(b"who are you?")
    assert await protocol.got(12) == b"who are you?"
    transport.write(b"see there")
    assert await peer.recv_exactly(9) == b"see there"
    assert ("DNS", "client.example") in peer.tls.getpeercert()["subjectAltName"]


# -- buffered protocols and streams ----------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100, 65536])
async def test_buffered_protocols(tls_pair, kind, version, size):
    protocol = BufferedRecorder(size)
    protocol.buffer = memoryview(protocol.buffer)
    transport, peer = await tls_pair(protocol, kind=kind, version=version)
    data = pattern(min(size * 300, MIB))
    await peer.send(data)
    assert await protocol.got(len(data)) == data
    transport.write(b"back")
    assert await peer.recv_exactly(4) == b"back"


@beyond_asyncio("it fills a copy from the second record on, unless the buffer is a memoryview")
async def test_any_object_with_a_buffer(tls_pair):
    protocol = BufferedRecorder(65536)
    assert type(protocol.buffer) is bytearray
    _, peer = await tls_pair(protocol)
    await peer.send(pattern(50_000))
    assert await protocol.got(50_000) == pattern(50_000)


async def test_a_buffered_protocol_that_pauses(loop, tls_pair):
    """With a buffer of 100 bytes a record is many callbacks; a pause stops between two of them."""

    class Pausing(BufferedRecorder):
        def buffer_updated(self, count):
            super().buffer_updated(count)
            if len(self.data) == 300:
                self.transport.pause_reading()

    protocol = Pausing(100)
    transport, peer = await tls_pair(protocol)
    await peer.send(pattern(1000))
    await protocol.got(300)
    await settle()
    assert len(protocol.data) == 300
    transport.resume_reading()
    assert await protocol.got(1000) == pattern(1000)


async def test_changing_the_protocol(loop, tls_pair):
    first, second = Recorder(), BufferedRecorder()
    transport, peer = await tls_pair(first)
    await peer.send(b"one")
    await first.got(3)
    transport.set_protocol(second)
    assert transport.get_protocol() is second
    await peer.send(b"two")
    assert await second.got(3) == b"two"
    transport.set_protocol(first)
    await peer.send(b"three")
    assert await first.got(8) == b"onethree"


async def test_streams(loop, authority, version):
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.server(version))
    address = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(*address, ssl=authority.client(version))
    for _ in range(20):
        writer.write(b"hello\n")
        await writer.drain()
        assert await reader.readline() == b"HELLO\n"
    big = b"z" * (3 * MIB)
    limit = reader._limit
    writer.write(big[: limit - 2] + b"\n")
    assert len(await reader.readline()) == limit - 1
    writer.close()
    await within(writer.wait_closed())
    server.close()
    await within(server.wait_closed())


async def test_a_slow_stream_reader_gets_all(loop, tls_pair, authority):
    """The reader's limit pauses the transport with records left in what was received."""
    size = 3 * MIB

    async def serve(reader, writer):
        writer.write(pattern(size))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.server())
    address = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(*address, ssl=authority.client(), limit=1000)
    got = bytearray()
    while part := await reader.read(5000):
        got += part
        await asyncio.sleep(0)
    assert got == pattern(size)
    writer.close()
    await within(writer.wait_closed())
    server.close()
    await within(server.wait_closed())


# -- pausing ---------------------------------------------------------------------------------------


async def test_pausing_and_resuming(tls_pair, side, kind, version):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, kind=kind, version=version)
    assert transport.is_reading()
    transport.pause_reading()
    transport.pause_reading()
    assert not transport.is_reading()
    await peer.send(b"waits")
    await settle()
    assert protocol.chunks == []
    transport.resume_reading()
    transport.resume_reading()
    assert transport.is_reading()
    assert await protocol.got(5) == b"waits"


async def test_a_pause_in_the_middle_of_what_was_received(tls_pair, version):
    """After pause_reading() not one more callback comes, though more records are in already."""

    class Pausing(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    protocol = Pausing()
    transport, peer = await tls_pair(protocol, version=version)
    data = pattern(200_000)
    await peer.send(data)
    rounds = 0
    while len(protocol.data) < len(data):
        await protocol.until(lambda: len(protocol.chunks) > rounds)
        rounds += 1
        await settle()
        assert len(protocol.chunks) == rounds
        transport.resume_reading()
    assert protocol.data == data


async def test_a_pause_holds_the_peer_up(loop, tls_pair, kind):
    """What a paused transport takes in is bounded: the rest stays with the peer."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, kind=kind, sizes=SMALL)
    transport.pause_reading()
    size = 8 * MIB
    sending = loop.create_task(peer.send(pattern(size)))
    for _ in range(50):
        await settle()
    assert not sending.done()
    assert protocol.chunks == []
    assert transport.get_read_buffer_size() <= MIB
    transport.resume_reading()
    assert await protocol.got(size) == pattern(size)
    await sending


async def test_writing_while_reading_is_paused(tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol)
    transport.pause_reading()
    await peer.send(b"later")
    await settle()
    transport.write(b"now")
    assert await peer.recv_exactly(3) == b"now"
    assert protocol.chunks == []
    transport.resume_reading()
    assert await protocol.got(5) == b"later"


async def test_the_end_waits_behind_a_pause(tls_pair, version):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, version=version)
    transport.pause_reading()
    await peer.raw_send(peer.seal(b"the rest") + peer.farewell())
    await settle()
    assert protocol.events == ["made"]
    transport.resume_reading()
    await protocol.seen("eof")
    assert protocol.data == b"the rest"
    assert protocol.events[:3] == ["made", "data", "eof"]
    peer.close()
    await protocol.seen("lost")


async def test_read_buffer_limits(tls_pair):
    transport, _ = await tls_pair(Recorder())
    assert transport.get_read_buffer_limits() == (64 * KIB, 256 * KIB)
    transport.set_read_buffer_limits(high=400)
    assert transport.get_read_buffer_limits() == (100, 400)
    transport.set_read_buffer_limits(low=200)
    assert transport.get_read_buffer_limits() == (200, 800)
    transport.set_read_buffer_limits(high=10, low=10)
    assert transport.get_read_buffer_limits() == (10, 10)
    for wrong in ({"high": 1, "low": 2}, {"high": -1}, {"high": 5, "low": -1}):
        with pytest.raises(ValueError, match="must be >= low"):
            transport.set_read_buffer_limits(**wrong)
    assert transport.get_read_buffer_limits() == (10, 10)
    transport.set_read_buffer_limits()
    assert transport.get_read_buffer_limits() == (64 * KIB, 256 * KIB)
    assert transport.get_read_buffer_size() == 0


@pytest.mark.parametrize(
    "limit", [pytest.param(0, marks=beyond_asyncio("a limit of 0 stops reading for good")), 1, 100, MIB]
)
async def test_any_read_buffer_limit_delivers_all(tls_pair, limit):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol)
    transport.set_read_buffer_limits(high=limit)
    transport.pause_reading()
    data = pattern(300_000)
    sending = asyncio.ensure_future(peer.send(data))
    await settle()
    transport.resume_reading()
    assert await protocol.got(len(data)) == data
    await sending


# -- flow control ----------------------------------------------------------------------------------


async def test_write_buffer_limits(tls_pair):
    transport, _ = await tls_pair(Recorder())
    assert transport.get_write_buffer_limits() == (128 * KIB, 512 * KIB)
    transport.set_write_buffer_limits(high=400)
    assert transport.get_write_buffer_limits() == (100, 400)
    for wrong in ({"high": 1, "low": 2}, {"high": -1}, {"high": 5, "low": -1}):
        with pytest.raises(ValueError, match="must be >= low"):
            transport.set_write_buffer_limits(**wrong)
    transport.set_write_buffer_limits()
    assert transport.get_write_buffer_limits() == (128 * KIB, 512 * KIB)
    assert transport.get_write_buffer_size() == 0


@beyond_asyncio("only its own layer is counted, not what the socket's transport holds")
async def test_what_is_queued_is_counted(loop, tls_pair, kind, version):
    """Plaintext and ciphertext, whichever layer has them: all that the kernel has not taken."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, kind=kind, version=version, sizes=SMALL)
    transport.write(bytes(4 * MIB))
    assert protocol.events == ["made", "pause"]
    assert 3 * MIB < transport.get_write_buffer_size() < 5 * MIB
    assert await peer.recv_exactly(4 * MIB) == bytes(4 * MIB)
    await protocol.seen("resume")
    await protocol.until(lambda: transport.get_write_buffer_size() == 0)
    assert protocol.events == ["made", "pause", "resume"]


async def test_one_pause_and_one_resume_a_crossing(tls_pair, kind):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, kind=kind, sizes=SMALL)
    for crossing in range(1, 4):
        total = 0
        while protocol.events.count("pause") < crossing:
            transport.write(bytes(50_000))
            total += 50_000
            assert total < 20 * MIB
        transport.write(bytes(1000))
        total += 1000
        assert protocol.events.count("resume") == crossing - 1
        assert await peer.recv_exactly(total) == bytes(total)
        await protocol.until(lambda crossing=crossing: protocol.events.count("resume") == crossing)
    assert protocol.events == ["made", *["pause", "resume"] * 3]


@beyond_asyncio("what its socket's transport holds is not counted")
async def test_high_zero_pauses_at_the_first_queued_byte(tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, sizes=SMALL)
    transport.set_write_buffer_limits(high=0)
    transport.write(b"this the kernel takes at once")
    assert protocol.events == ["made"]
    transport.write(bytes(MIB))
    assert protocol.events == ["made", "pause"]
    await peer.recv_exactly(MIB + 29)
    await protocol.seen("resume")
    assert protocol.events == ["made", "pause", "resume"]


async def test_drain_waits(loop, authority):
    """A writer that drains holds no more than the marks allow, however slow its peer."""
    received = loop.create_future()

    async def serve(reader, writer):
        size = 0
        while part := await reader.read(1 << 16):
            size += len(part)
        received.set_result(size)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.server())
    address = server.sockets[0].getsockname()
    _, writer = await asyncio.open_connection(*address, ssl=authority.client())
    for _ in range(200):
        writer.write(bytes(100_000))
        await writer.drain()
        assert writer.transport.get_write_buffer_size() <= 512 * KIB
    writer.close()
    assert await within(received) == 20_000_000
    await within(writer.wait_closed())
    server.close()
    await within(server.wait_closed())


@beyond_asyncio("D4, cpython#118950: a TLS writer never heard that its peer was gone")
@pytest.mark.parametrize("version", [TLS13], ids=["1.3"])
async def test_a_writer_hears_of_a_reset(loop, tls_pair, authority, version):
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, peer = await tls_pair(protocol, version=version)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    await settle()
    reset(peer.carrier)
    with pytest.raises(ConnectionError):
        for _ in range(1000):
            writer.write(b"x" * 512)
            await writer.drain()
    assert transport.is_closing()
    with pytest.raises(ConnectionError):
        await writer.wait_closed()
    reader.exception()


@beyond_asyncio("D4: is_closing() stayed false")
async def test_a_failed_write_is_told_at_once(loop, tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol)
    transport.pause_reading()
    reset(peer.carrier)
    await settle()
    transport.write(b"x")
    await asyncio.sleep(0)  # what a callback writes leaves when it returns
    assert transport.is_closing()
    await protocol.seen("lost")
    assert isinstance(protocol.exc, (ConnectionResetError, BrokenPipeError))
    assert protocol.events == ["made", "lost"]


# -- sendfile --------------------------------------------------------------------------------------


async def test_sendfile_falls_back(loop, tls_pair, side):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side)
    data = pattern(700_000)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        transport.write(b"first ")
        sending = loop.create_task(loop.sendfile(transport, file))
        assert await peer.recv_exactly(6 + len(data)) == b"first " + data
        assert await within(sending) == len(data)
        assert file.tell() == len(data)
        sending = loop.create_task(loop.sendfile(transport, file, 100, 50))
        assert await peer.recv_exactly(50) == data[100:150]
        assert await within(sending) == 50
    transport.write(b" last")
    assert await peer.recv_exactly(5) == b" last"
    await peer.send(b"reading goes on")
    assert await protocol.got(15) == b"reading goes on"


async def test_sendfile_without_fallback(loop, tls_pair):
    transport, peer = await tls_pair(Recorder())
    with tempfile.TemporaryFile() as file:
        file.write(b"data")
        with pytest.raises(RuntimeError, match="fallback is disabled|not supported"):
            await loop.sendfile(transport, file, fallback=False)
    transport.write(b"fine")
    assert await peer.recv_exactly(4) == b"fine"


async def test_sendfile_on_a_closing_transport(loop, tls_pair):
    protocol = Recorder()
    transport, _ = await tls_pair(protocol)
    transport.abort()
    with tempfile.TemporaryFile() as file:
        with pytest.raises(RuntimeError, match="closing"):
            await loop.sendfile(transport, file)
    await protocol.seen("lost")


@beyond_asyncio_before(3, 14, "its sendfile does not hear of the loss")
async def test_sendfile_to_a_peer_that_leaves(loop, tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, sizes=SMALL)
    with tempfile.TemporaryFile() as file:
        file.write(bytes(8 * MIB))
        sending = loop.create_task(loop.sendfile(transport, file))
        await peer.recv_exactly(10_000)
        reset(peer.carrier)
        with pytest.raises(ConnectionError):
            await within(sending)
    await protocol.seen("lost")
