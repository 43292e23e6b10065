"""How a TLS connection ends: close, abort, time limits, half-close, and the ways a peer can go.

A peer that ends the TCP stream without a close_notify has cut it short (RFC 8446, 6.1). CPython's
own tests hold asyncio to eof_received() (test_sslproto.test_start_tls_client_reg_proto_1) and to
connection_lost(None) (test_start_tls_server_1, test_ssl.test_shutdown_timeout_handler_not_set)
after such an end between two records: their peers just close their sockets. So the callbacks stay
as they are, and the difference is told beside them:

- get_extra_info("close_notify") is None while the stream goes on, True once the peer has said
  close_notify, False once it ended without. It can be asked in eof_received() already.
- After set_half_close(True), which nobody but a caller who minds has called, a bare end is an error:
  no eof_received(), and connection_lost() gets an ssl.SSLEOFError.
- An end within a record has lost data for certain and is that error for everyone. (asyncio: None.)
"""

import asyncio
import socket
import ssl

import pytest
from helpers import (
    ON_ASYNCIO,
    PATIENCE,
    SLOWDOWN,
    Recorder,
    beyond_asyncio,
    new_loop,
    pattern,
    reset,
    settle,
    socket_pair,
    within,
)
from tlshelpers import HOST, TLS12, TLS13, TlsPeer

SMALL = {"sndbuf": 8192, "rcvbuf": 8192}
MIB = 1 << 20


# -- our side ends ---------------------------------------------------------------------------------


async def test_close(tls_pair, side, kind, version):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, kind=kind, version=version)
    assert not transport.is_closing()
    transport.close()
    assert transport.is_closing()
    assert await peer.recv_to_end() == (b"", "notify")
    await peer.unwrap()
    await protocol.seen("lost")
    assert protocol.exc is None
    assert protocol.events.count("lost") == 1
    assert "data" not in protocol.events


async def test_close_flushes_everything(tls_pair, side, kind, version):
    """D37: four MiB to a slow peer arrive complete, and the end is a clean one."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, kind=kind, version=version, sizes=SMALL)
    data = pattern(4 * MIB)
    transport.write(data)
    transport.close()
    await settle()
    assert "lost" not in protocol.events
    got, how = await peer.recv_to_end()
    assert got == data
    assert how == "notify"
    await peer.unwrap()
    await protocol.seen("lost")
    assert protocol.exc is None


async def test_closing_twice(tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol)
    transport.close()
    transport.close()
    assert await peer.recv_to_end() == (b"", "notify")
    await peer.unwrap()
    await protocol.seen("lost")
    transport.close()
    await settle()
    assert protocol.events.count("lost") == 1


async def test_no_data_after_close(tls_pair, version):
    """D3: close() stops the delivery, whatever the peer goes on sending."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, version=version)
    await peer.send(b"before")
    await protocol.got(6)
    transport.close()
    await peer.send(b"x" * 100_000)
    assert await peer.recv_to_end() == (b"", "notify")
    await peer.raw_send(peer.farewell())
    await protocol.seen("lost")
    assert protocol.data == b"before"


@beyond_asyncio("D3: it reads on for 30 s")
async def test_close_ends_a_download(loop, tls_pair):
    """A peer that never stops sending does not hold a closed connection."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, ssl_shutdown_timeout=0.1)

    async def flood():
        while True:
            await peer.send(bytes(65536))

    flooding = loop.create_task(flood())
    await protocol.got(200_000)
    transport.close()
    size = len(protocol.data)
    await protocol.seen("lost")
    with pytest.raises(ConnectionError):
        await within(flooding)
    assert len(protocol.data) == size


@pytest.mark.parametrize("queued", [0, 4 * MIB])
async def test_abort_is_at_once(tls_pair, side, kind, queued):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, kind=kind, sizes=SMALL)
    transport.write(bytes(queued))
    transport.abort()
    assert transport.is_closing()
    await protocol.seen("lost")
    assert protocol.exc is None
    got, how = await peer.recv_to_end()
    assert how in ("truncated", "reset")
    assert len(got) < 4 * MIB
    assert protocol.events.count("lost") == 1


async def test_abort_after_close(tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, sizes=SMALL)
    transport.write(bytes(4 * MIB))
    transport.close()
    transport.abort()
    await protocol.seen("lost")
    assert protocol.exc is None


@pytest.mark.parametrize("queued", [0, 4 * MIB])
async def test_the_shutdown_timeout(loop, tls_pair, queued):
    """A peer that does not answer close_notify, or does not read at all, is left in the set time."""
    protocol = Recorder()
    transport, _ = await tls_pair(protocol, ssl_shutdown_timeout=0.05, sizes=SMALL)
    transport.write(bytes(queued))
    before = loop.time()
    transport.close()
    await protocol.seen("lost")
    assert 0.045 < loop.time() - before < 2 * SLOWDOWN
    assert isinstance(protocol.exc, TimeoutError)
    assert str(protocol.exc) == "SSL shutdown timed out"


@beyond_asyncio("it refuses 0")
async def test_a_shutdown_timeout_of_zero(loop, tls_pair, side):
    """D3: 0 is at once. The close_notify goes out, no answer is waited for, and that is no error."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, ssl_shutdown_timeout=0)
    transport.write(b"the end")
    transport.close()
    await settle()
    assert protocol.events == ["made", "lost"]
    assert protocol.exc is None
    assert await peer.recv_to_end() == (b"the end", "notify")


@beyond_asyncio("it refuses 0")
async def test_zero_does_not_wait_for_a_slow_peer(tls_pair):
    protocol = Recorder()
    transport, _ = await tls_pair(protocol, ssl_shutdown_timeout=0, sizes=SMALL)
    transport.write(bytes(4 * MIB))
    transport.close()
    await settle(3)
    assert "lost" in protocol.events


async def test_writes_after_the_end_are_dropped(tls_pair, caplog):
    """D5: silently at first, then with a warning now and then."""
    protocol = Recorder()
    transport, _ = await tls_pair(protocol)
    transport.abort()
    await protocol.seen("lost")
    for _ in range(4):
        transport.write(b"x")
        transport.writelines([b"x"])
    assert protocol.events == ["made", "lost"]
    assert all(record.levelname == "WARNING" for record in caplog.records)


@beyond_asyncio("it raises AttributeError")
async def test_everything_can_be_called_after_the_end(tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol)
    transport.close()
    await peer.recv_to_end()
    await peer.unwrap()
    await protocol.seen("lost")
    transport.close()
    transport.abort()
    transport.pause_reading()
    transport.resume_reading()
    transport.set_write_buffer_limits(high=5)
    assert transport.get_write_buffer_size() == 0
    assert transport.get_read_buffer_size() == 0
    assert transport.is_closing()
    assert isinstance(transport.get_extra_info("ssl_object"), ssl.SSLObject)
    repr(transport)


# -- without a loop --------------------------------------------------------------------------------


@beyond_asyncio("D34, cpython#80890: it raised `Event loop is closed`")
@pytest.mark.parametrize("how", ["close", "abort"])
def test_ending_after_the_loop_is_gone(authority, how):
    loop = new_loop()
    sock, far = socket_pair("tcp")
    far.setblocking(False)
    protocol = Recorder()

    async def connect():
        peer = TlsPeer(far, authority.server(), server_side=True)
        (transport, _), _ = await asyncio.gather(
            loop.create_connection(lambda: protocol, sock=sock, ssl=authority.client(), server_hostname=HOST),
            peer.handshake(),
        )
        return transport

    with far:
        transport = loop.run_until_complete(connect())
        loop.close()
        getattr(transport, how)()
        transport.write(b"nobody")
        assert transport.is_closing()
        far.setblocking(True)
        far.settimeout(PATIENCE)
        try:
            while far.recv(1000):
                pass
        except ConnectionResetError:
            pass


# -- the peer ends ---------------------------------------------------------------------------------


async def test_a_clean_end(tls_pair, side, kind, version):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, kind=kind, version=version)
    await peer.raw_send(peer.seal(b"last words") + peer.farewell())
    await protocol.seen("lost")
    assert protocol.events == ["made", "data", "eof", "lost"]
    assert protocol.data == b"last words"
    assert protocol.exc is None
    assert transport.is_closing()
    assert await peer.recv_to_end() == (b"", "notify"), "the close_notify is answered"


async def test_what_is_queued_survives_the_peers_end(tls_pair, version):
    """The peer said close_notify but reads on: what was written before goes out."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, version=version, sizes=SMALL)
    transport.write(pattern(MIB))
    await peer.raw_send(peer.farewell())
    got, how = await peer.recv_to_end()
    assert got == pattern(MIB)
    assert how == "notify"
    await protocol.seen("lost")
    assert protocol.events.count("eof") == 1


async def test_eof_received_may_write(tls_pair, version):
    class Polite(Recorder):
        def eof_received(self):
            super().eof_received()
            self.transport.write(b"goodbye")

    protocol = Polite()
    _, peer = await tls_pair(protocol, version=version)
    await peer.raw_send(peer.farewell())
    assert await peer.recv_to_end() == (b"goodbye", "notify")
    await protocol.seen("lost")
    assert protocol.exc is None


async def test_keeping_open_has_no_effect(tls_pair, caplog):
    protocol = Recorder(keep_open=True)
    _, peer = await tls_pair(protocol)
    await peer.raw_send(peer.farewell())
    await protocol.seen("lost")
    assert [record.getMessage() for record in caplog.records] == [
        "returning true from eof_received() has no effect when using ssl"
    ]


async def test_an_end_between_records_calls_back_as_asyncio(tls_pair, side, kind, version):
    """See the head of this file."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, kind=kind, version=version)
    await peer.send(b"unfinished")
    peer.carrier.shutdown(socket.SHUT_WR)
    await protocol.seen("lost")
    assert protocol.events == ["made", "data", "eof", "lost"]
    assert protocol.exc is None
    assert transport.is_closing()


@beyond_asyncio("D60: it does not tell them apart")
@pytest.mark.parametrize("clean", [True, False], ids=["close_notify", "bare end"])
async def test_an_end_between_records_is_told_from_a_clean_one(tls_pair, side, version, clean):
    class Curious(Recorder):
        def eof_received(self):
            super().eof_received()
            self.told = self.transport.get_extra_info("close_notify")

    protocol = Curious()
    transport, peer = await tls_pair(protocol, side, version=version)
    await peer.send(b"x")
    await protocol.got(1)
    assert transport.get_extra_info("close_notify") is None
    if clean:
        await peer.raw_send(peer.farewell())
    peer.carrier.shutdown(socket.SHUT_WR)
    await protocol.seen("lost")
    assert protocol.told is clean
    assert transport.get_extra_info("close_notify") is clean


@beyond_asyncio("D60: it does not tell them apart")
async def test_a_bare_end_is_an_error_for_those_who_mind(tls_pair, side, version):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, version=version)
    transport.set_half_close(True)
    await peer.send(b"unfinished")
    peer.carrier.shutdown(socket.SHUT_WR)
    await protocol.seen("lost")
    assert protocol.events == ["made", "data", "lost"]
    assert isinstance(protocol.exc, ssl.SSLEOFError)
    assert transport.get_extra_info("close_notify") is False


@beyond_asyncio("it takes half a record for a clean end")
async def test_a_record_cut_short(tls_pair, side, kind, version):
    protocol = Recorder()
    _, peer = await tls_pair(protocol, side, kind=kind, version=version)
    await peer.raw_send(peer.seal(b"whole") + peer.seal(b"cut off")[:-1])
    peer.carrier.shutdown(socket.SHUT_WR)
    await protocol.seen("lost")
    assert protocol.events == ["made", "data", "lost"]
    assert protocol.data == b"whole"
    assert isinstance(protocol.exc, ssl.SSLEOFError)


async def test_streams_keep_what_came_before_a_bare_end(loop, tls_pair):
    """HTTP servers that just close are many: a reader that comes late gets all the data, then the end."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, peer = await tls_pair(protocol)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    await peer.send(b"all of it")
    peer.carrier.shutdown(socket.SHUT_WR)
    await settle(4)
    assert await reader.read() == b"all of it"
    assert await reader.read() == b""
    writer.close()
    await within(writer.wait_closed())


async def test_a_bare_end_behind_a_pause(tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol)
    transport.pause_reading()
    await peer.send(b"the rest")
    peer.carrier.shutdown(socket.SHUT_WR)
    await settle()
    assert protocol.events == ["made"]
    transport.resume_reading()
    await protocol.seen("lost")
    assert protocol.data == b"the rest"
    assert protocol.exc is None


async def test_a_bare_end_in_answer_to_close(tls_pair, version):
    """Who closed does not care how the peer goes: no error, and no wait."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, version=version)
    transport.close()
    assert await peer.recv_to_end() == (b"", "notify")
    peer.close()
    await protocol.seen("lost")
    assert protocol.exc is None


async def test_a_reset(tls_pair, side, version, caplog):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, version=version)
    await settle()
    reset(peer.carrier)
    await protocol.seen("lost")
    assert isinstance(protocol.exc, ConnectionResetError)
    assert protocol.events == ["made", "lost"]
    assert transport.is_closing()
    assert not caplog.records


async def test_data_after_close_notify(tls_pair, version, caplog):
    """What follows the peer's close_notify is nobody's."""
    protocol = Recorder()
    _, peer = await tls_pair(protocol, version=version)
    late = b"\x17\x03\x03\x00\x20" + bytes(32)  # OpenSSL itself seals nothing after the end
    await peer.raw_send(peer.farewell() + late)
    await protocol.seen("lost")
    assert protocol.events == ["made", "eof", "lost"]
    assert protocol.exc is None
    assert not caplog.records


async def test_data_that_crosses_our_close_notify(tls_pair, version, caplog):
    """D54: no noise; the peer could not know."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, version=version)
    transport.close()
    await peer.send(b"crossing")
    await settle()
    peer.close()
    await protocol.seen("lost")
    assert protocol.data == b""
    assert protocol.exc is None or isinstance(protocol.exc, OSError)
    assert not caplog.records


@pytest.mark.parametrize("what", ["garbage", "flipped bit", "plain alert"])
async def test_a_broken_record(tls_pair, version, what, caplog):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, version=version)
    whole = peer.seal(b"before")
    if what == "flipped bit":
        bad = bytearray(peer.seal(b"never seen"))
        bad[-1] ^= 1
    else:
        bad = {"garbage": b"\x99" * 100, "plain alert": b"\x15\x03\x03\x00\x02\x02\x28"}[what]
    await peer.raw_send(whole + bad)
    await protocol.seen("lost")
    assert isinstance(protocol.exc, ssl.SSLError)
    if what == "flipped bit":
        assert protocol.exc.reason == "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
    assert protocol.data == b"before" or ON_ASYNCIO, "what was whole is delivered"
    assert protocol.events.count("lost") == 1
    assert "eof" not in protocol.events
    assert transport.is_closing()
    assert not caplog.records


# -- half-close ------------------------------------------------------------------------------------


async def test_no_half_close_by_default(tls_pair):
    transport, peer = await tls_pair(Recorder())
    assert transport.can_write_eof() is False
    with pytest.raises(NotImplementedError):
        transport.write_eof()
    transport.write(b"still open")
    assert await peer.recv_exactly(10) == b"still open"


@beyond_asyncio("D60: it has no half-close")
@pytest.mark.parametrize("queued", [0, 2 * MIB])
async def test_half_close(tls_pair, side, kind, version, queued):
    """write_eof() sends close_notify behind what is queued; reading goes on until the peer's own."""
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, kind=kind, version=version, sizes=SMALL)
    transport.set_half_close(True)
    assert transport.can_write_eof() is True
    transport.write(pattern(queued))
    transport.write_eof()
    transport.write_eof()
    assert not transport.is_closing()
    if version is TLS13:
        assert await peer.recv_to_end() == (pattern(queued), "notify")
        # OpenSSL's own peer reads to the end first and writes afterwards.
        await peer.send(b"reading goes on" * 1000)
        assert await protocol.got(15_000) == b"reading goes on" * 1000
        assert "lost" not in protocol.events
        await peer.raw_send(peer.farewell())
    else:
        assert await peer.recv_exactly(queued) == pattern(queued)
        await peer.send(b"reading goes on" * 1000)
        assert await protocol.got(15_000) == b"reading goes on" * 1000
        assert await peer.recv_to_end() == (b"", "notify")
        await peer.raw_send(peer.farewell())
    await protocol.seen("lost")
    assert protocol.exc is None
    assert protocol.events.count("eof") == 1


@beyond_asyncio("D60: it has no half-close")
async def test_after_a_half_close_nothing_is_written(tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol)
    transport.set_half_close(True)
    transport.write_eof()
    with pytest.raises(RuntimeError, match=r"Cannot call write\(\) after write_eof\(\)"):
        transport.write(b"x")
    with pytest.raises(RuntimeError, match=r"Cannot call writelines\(\) after write_eof\(\)"):
        transport.writelines([b"x"])
    assert await peer.recv_to_end() == (b"", "notify")
    transport.close()
    peer.close()
    await protocol.seen("lost")
    assert protocol.exc is None


@beyond_asyncio("D60: it has no half-close")
async def test_half_close_of_a_stream(loop, tls_pair):
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, peer = await tls_pair(protocol, version=TLS13)
    transport.set_half_close(True)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    assert writer.can_write_eof()
    writer.write(b"question")
    writer.write_eof()
    assert await peer.recv_to_end() == (b"question", "notify")
    await peer.send(b"answer")
    await peer.raw_send(peer.farewell())
    assert await reader.read() == b"answer"
    writer.close()
    await within(writer.wait_closed())


@beyond_asyncio("D60: it has no half-close")
async def test_half_close_can_be_taken_back(tls_pair):
    transport, _ = await tls_pair(Recorder(), version=TLS12)
    transport.set_half_close(True)
    transport.set_half_close(False)
    assert transport.can_write_eof() is False
    with pytest.raises(NotImplementedError):
        transport.write_eof()
