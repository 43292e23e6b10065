"""Callbacks that close, abort, write, raise and upgrade; cancellation at every await."""

import asyncio
import gc
import ssl
import weakref

import pytest
from helpers import ON_ASYNCIO, BufferedRecorder, Recorder, beyond_asyncio, open_fds, settle, socket_pair, within
from tlshelpers import HOST, TlsPeer

SMALL = {"sndbuf": 8192, "rcvbuf": 8192}
MIB = 1 << 20


def acting(where, act, base=Recorder):
    """A protocol that calls `act(transport)` in the callback named."""

    def callback(self, *args):
        getattr(base, where)(self, *args)
        if where == "connection_made" or self.transport is not None:
            act(self.transport)

    return type("Acting", (base,), {where: callback})()


async def provoke(where, peer, protocol):
    """Bring the callback about; connection_made has come already."""
    if where == "data_received":
        await peer.raw_send(peer.seal(b"first") + peer.seal(b"second"))
        await protocol.seen("data")
    elif where == "eof_received":
        await peer.raw_send(peer.farewell())
        await protocol.seen("eof")
    elif where == "pause_writing":
        protocol.transport.write(bytes(4 * MIB))
        while "pause" not in protocol.events:
            protocol.transport.write(bytes(MIB))
    elif where == "resume_writing":
        await provoke("pause_writing", peer, protocol)
        while "resume" not in protocol.events:
            await peer.recv()


WHERE = ["connection_made", "data_received", "eof_received", "pause_writing", "resume_writing"]


# -- ending ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", WHERE[1:])
@pytest.mark.parametrize("how", ["close", "abort"])
async def test_ending_in_a_callback(tls_pair, where, how, side):
    if ON_ASYNCIO and (where, how) == ("resume_writing", "abort"):
        pytest.skip("asyncio is known to differ: D42, the connection is torn down twice")
    protocol = acting(where, lambda transport: getattr(transport, how)())
    transport, peer = await tls_pair(protocol, side, sizes=SMALL)
    try:
        await within(provoke(where, peer, protocol))
    except (OSError, ssl.SSLError):
        assert (where, how) == ("resume_writing", "abort"), "the peer reads while it provokes"
    assert transport.is_closing()
    await peer.recv_to_end()
    peer.close()
    await protocol.seen("lost")
    await settle()
    assert protocol.events.count("lost") == 1
    assert protocol.events[-1] == "lost"


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_ending_in_connection_made(loop, contexts, attach, side, how):
    ours, theirs = contexts(side)
    protocol = acting("connection_made", lambda transport: getattr(transport, how)())
    sock, far = socket_pair("tcp")
    far.setblocking(False)
    with far:
        peer = TlsPeer(far, theirs, server_side=side == "client", server_hostname=HOST)

        async def other():
            await peer.handshake()
            await peer.send(b"too late")

        mine, _ = await within(asyncio.gather(attach(protocol, sock, side, ours), other(), return_exceptions=True))
        assert mine is protocol.transport
        assert mine.is_closing()
    await protocol.seen("lost")
    assert protocol.events == ["made", "lost"] or (how == "close" and protocol.events == ["made", "eof", "lost"])


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_ending_in_buffer_updated(tls_pair, how):
    if ON_ASYNCIO and how == "close":
        pytest.skip("asyncio is known to differ: D3, it goes on delivering")

    class Ending(BufferedRecorder):
        def buffer_updated(self, count):
            super().buffer_updated(count)
            getattr(self.transport, how)()

    protocol = Ending(10)
    protocol.buffer = memoryview(protocol.buffer)
    transport, peer = await tls_pair(protocol)
    await peer.send(b"x" * 1000)
    await peer.recv_to_end()
    peer.close()
    await protocol.seen("lost")
    assert protocol.data == b"x" * 10
    assert protocol.events.count("lost") == 1


async def test_the_last_reference_goes_in_a_callback(tls_pair):
    """OpenSSL is on the stack while the connection is dropped: it is released afterwards."""

    class Forgetful(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.abort()
            self.transport = None
            gc.collect()

    protocol = Forgetful()
    transport, peer = await tls_pair(protocol)
    tls = weakref.ref(transport.get_extra_info("ssl_object"))
    del transport
    await peer.raw_send(peer.seal(b"first") + peer.seal(b"second"))
    await protocol.seen("lost")
    await settle()
    assert len(protocol.chunks) == 1
    gc.collect()
    if not ON_ASYNCIO:  # the fixture holds the transport until the test ends
        assert tls() is None or isinstance(tls(), ssl.SSLObject)


# -- writing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", WHERE)
async def test_writing_in_a_callback(tls_pair, where):
    protocol = acting(where, lambda transport: transport.write(b"from inside"))
    transport, peer = await tls_pair(protocol, sizes=SMALL)
    queued = 0
    if where in ("pause_writing", "resume_writing"):
        while "pause" not in protocol.events:
            transport.write(bytes(MIB))
            queued += MIB
        if where == "pause_writing":
            assert await peer.recv_exactly(queued + 11) == bytes(queued) + b"from inside"
        else:
            assert await peer.recv_exactly(queued) == bytes(queued)
            assert await peer.recv_exactly(11) == b"from inside"
        return
    await provoke(where, peer, protocol)
    assert await peer.recv_exactly(11) == b"from inside"


async def test_writing_from_one_connection_to_others(tls_pair):
    """A hub: what comes in on one goes out on all, while OpenSSL is at work on the first."""
    protocols = []

    class Hub(Recorder):
        def data_received(self, data):
            super().data_received(data)
            for protocol in protocols:
                protocol.transport.write(data)
                protocol.transport.writelines([b"<", data, b">"])

    peers = []
    for side in ("client", "server") * 3:
        protocols.append(Hub())
        _, peer = await tls_pair(protocols[-1], side)
        peers.append(peer)
    said = b""
    for number, peer in enumerate(peers):
        word = bytes([97 + number]) * (1 + 5000 * number)
        await peer.send(word)
        await protocols[number].got(len(word))
        said += b"".join(chunk + b"<" + chunk + b">" for chunk in protocols[number].chunks)
    for peer in peers:
        assert await peer.recv_exactly(len(said)) == said


async def test_ping_pong_inside_one_process(loop, authority):
    """Both ends on one loop: each read writes, for a thousand rounds."""
    rounds = 1000

    class Ponger(Recorder):
        def data_received(self, data):
            self.transport.write(data)

    class Pinger(Recorder):
        left = rounds

        def data_received(self, data):
            self.left -= 1
            if self.left:
                self.transport.write(b"ping")
            else:
                self.note("done")

    server = await loop.create_server(Ponger, "127.0.0.1", 0, ssl=authority.server())
    transport, protocol = await loop.create_connection(Pinger, *server.sockets[0].getsockname(), ssl=authority.client())
    transport.write(b"ping")
    await protocol.seen("done")
    transport.close()
    await protocol.seen("lost")
    server.close()
    await within(server.wait_closed())


# -- raising ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["data_received", "eof_received", "pause_writing", "resume_writing"])
async def test_raising_in_a_callback(tls_pair, where, errors):
    def act(transport):
        raise LookupError(where)

    protocol = acting(where, act)
    transport, peer = await tls_pair(protocol, sizes=SMALL)
    try:
        await within(provoke(where, peer, protocol))
    except OSError:
        assert where == "data_received"
    if where in ("data_received", "eof_received"):
        await protocol.seen("lost")
        assert where == "eof_received" or isinstance(protocol.exc, LookupError)
        assert len(protocol.chunks) <= 1
    else:
        transport.abort()
        await protocol.seen("lost")
    assert errors, "the exception handler hears of it"
    assert {str(context["exception"]) for context in errors} == {where}
    errors.clear()


async def test_raising_in_connection_made(loop, authority, attach, errors):
    def act(transport):
        raise LookupError("connection_made")

    protocol = acting("connection_made", act)
    sock, far = socket_pair("tcp")
    far.setblocking(False)
    with far:
        peer = TlsPeer(far, authority.server(), server_side=True)
        mine, _ = await within(
            asyncio.gather(
                attach(protocol, sock, "client", authority.client()), peer.handshake(), return_exceptions=True
            )
        )
        assert isinstance(mine, LookupError)
        await peer.recv_to_end()
    await settle()
    assert {str(context["exception"]) for context in errors} <= {"connection_made"}
    errors.clear()


async def test_raising_in_connection_lost(tls_pair, errors):
    class Broken(Recorder):
        def connection_lost(self, exc):
            super().connection_lost(exc)
            raise LookupError("connection_lost")

    protocol = Broken()
    transport, _ = await tls_pair(protocol)
    transport.abort()
    await protocol.seen("lost")
    await settle()
    assert [str(context["exception"]) for context in errors] == ["connection_lost"]
    errors.clear()


@pytest.mark.parametrize("method", ["get_buffer", "buffer_updated"])
async def test_raising_in_a_buffered_protocol(tls_pair, errors, method):
    def callback(self, _):
        raise LookupError(method)

    protocol = type("Broken", (BufferedRecorder,), {method: callback})()
    try:
        _, peer = await tls_pair(protocol)
        await peer.send(b"x")
    except (OSError, ssl.SSLError):
        assert method == "get_buffer"  # asyncio asks for a buffer before there is anything to fill it with
    await protocol.seen("lost")
    assert isinstance(protocol.exc, LookupError)
    assert protocol.transport.is_closing()
    assert [str(context["exception"]) for context in errors] == [method]
    errors.clear()


@pytest.mark.parametrize("buffer", [b"read-only", bytearray(), None, 7], ids=["read-only", "empty", "None", "int"])
@beyond_asyncio("it spins on an empty buffer, or tells the loop in another way")
async def test_a_buffer_that_is_none(tls_pair, errors, buffer):
    class Wrong(BufferedRecorder):
        def get_buffer(self, sizehint):
            return buffer

    protocol = Wrong()
    transport, peer = await tls_pair(protocol)
    await peer.send(b"x")
    await protocol.seen("lost")
    assert protocol.exc is not None
    assert len(errors) == 1
    errors.clear()


# -- cancelling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["open_connection", "start_tls"])
async def test_cancelling_at_every_turn(loop, authority, what, caplog):
    """However far it has come: either it is done or it is as if it had never been."""

    async def serve(reader, writer):
        try:
            if what == "start_tls":
                await writer.start_tls(authority.server())
            await reader.read()
        except (OSError, ssl.SSLError):
            pass
        writer.transport.abort()

    context = authority.server() if what == "open_connection" else None
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    address = server.sockets[0].getsockname()

    async def attempt():
        if what == "open_connection":
            return await asyncio.open_connection(*address, ssl=authority.client(), server_hostname=HOST)
        reader, writer = await asyncio.open_connection(*address)
        try:
            await writer.start_tls(authority.client(), server_hostname=HOST)
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    done, turns = 0, 0
    while done < 3:
        task = loop.create_task(attempt())
        for _ in range(turns):
            await asyncio.sleep(0)
        turns += 1
        if not task.cancel():
            done += 1
        try:
            _, writer = await within(task)
        except asyncio.CancelledError:
            continue
        writer.transport.abort()
        assert turns < 500
    server.close()
    await within(server.wait_closed())
    await settle(4)
    assert not caplog.records


async def test_cancelling_drain_and_read(loop, tls_pair):
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, peer = await tls_pair(protocol, sizes=SMALL)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    writer.write(bytes(20 * MIB))
    for waiting in (writer.drain, reader.read):
        task = loop.create_task(waiting())
        await settle()
        task.cancel()
        await asyncio.wait([task])
    writer.close()
    got, how = await peer.recv_to_end()
    assert (len(got), how) == (20 * MIB, "notify")
    await peer.unwrap()
    await within(writer.wait_closed())


# -- the other thread, and garbage ------------------------------------------------------------------


async def test_an_unclosed_transport_warns(loop, contexts, attach):
    sock, far = socket_pair("tcp")
    far.setblocking(False)
    ours, theirs = contexts("client")
    with far:
        peer = TlsPeer(far, theirs, server_side=True)
        protocol = Recorder()
        transport, _ = await asyncio.gather(attach(protocol, sock, "client", ours), peer.handshake())
        transport.abort()
        await protocol.seen("lost")
        protocol.transport = None
        reference = weakref.ref(transport)
        del transport
        gc.collect()
        assert reference() is None, "a closed transport is not kept"


async def test_connections_are_collected(loop, tls_pair, authority):
    """After connection_lost() nothing holds the protocol, the transport or the SSLObject."""
    references = []

    async def one():
        sock, far = socket_pair("tcp")
        far.setblocking(False)
        with far:
            protocol = Recorder()
            peer = TlsPeer(far, authority.server(), server_side=True)
            (transport, _), _ = await asyncio.gather(
                loop.create_connection(lambda: protocol, sock=sock, ssl=authority.client(), server_hostname=HOST),
                peer.handshake(),
            )
            references.extend(map(weakref.ref, (protocol, transport, transport.get_extra_info("ssl_object"))))
            await peer.raw_send(peer.farewell())
            await protocol.seen("lost")

    for _ in range(3):
        await one()
    await settle()
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)
    assert open_fds()
