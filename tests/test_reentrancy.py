"""Callbacks that change the world under the loop's feet: closing, replacing, raising, writing in odd places."""

import asyncio
import gc
import os
import socket

import pytest
from helpers import Recorder, recv_exactly, recv_now, recv_to_end, settle, socket_pair


def run_turn(loop):
    loop.call_soon(loop.stop)
    loop.run_forever()


# -- writes in odd places --------------------------------------------------------------------------


def test_writes_while_the_loop_stands_still(loop, pair, kind):
    """No callback will return here: every single write must go out by itself."""
    transport, peer = loop.run_until_complete(pair(Recorder(), kind))
    transport.write(b"one")
    transport.write(b"two")
    transport.writelines([b"three", b"four"])
    transport.write(bytearray(b"five"))
    assert recv_now(peer) == b"onetwothreefourfive"
    assert transport.get_write_buffer_size() == 0


@pytest.mark.parametrize("leave", [KeyboardInterrupt, SystemExit])
def test_writes_before_an_exit_are_sent(loop, pair, kind, leave):
    transport, peer = loop.run_until_complete(pair(Recorder(), kind))

    def write_and_leave():
        transport.write(b"one")
        transport.write(b"two")
        raise leave

    loop.call_soon(write_and_leave)
    with pytest.raises(leave):
        loop.run_forever()
    assert recv_now(peer) == b"onetwo"


def test_writes_before_stop_are_sent(loop, pair, kind):
    transport, peer = loop.run_until_complete(pair(Recorder(), kind))

    def write_and_stop():
        transport.write(b"one")
        transport.write(b"two")
        loop.stop()

    loop.call_soon(write_and_stop)
    loop.run_forever()
    assert recv_now(peer) == b"onetwo"


async def test_writes_before_an_error_in_data_received_are_sent(pair, kind, errors):
    class Broken(Recorder):
        def data_received(self, data):
            self.transport.write(b"one")
            self.transport.write(b"two")
            raise LookupError("on purpose")

    protocol = Broken()
    _, peer = await pair(protocol, kind)
    peer.send(b"x")
    await protocol.seen("lost")
    assert recv_to_end(peer) == b"onetwo"
    assert len(errors) == 1
    errors.clear()


async def test_writes_before_abort_were_in_the_kernel(loop, pair, kind):
    """What an empty queue let through at once is not taken back."""
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)

    def write_and_abort():
        transport.write(b"one")
        transport.write(b"two")
        transport.abort()

    loop.call_soon(write_and_abort)
    await protocol.seen("lost")
    assert recv_to_end(peer) == b"onetwo"


async def test_small_writes_never_pause(loop, pair, kind):
    protocol = Recorder()
    transport, peer = await pair(protocol, kind)
    transport.set_write_buffer_limits(high=0)
    for _ in range(50):
        transport.write(b"x" * 100)
    assert transport.get_write_buffer_size() == 0
    await settle()
    assert protocol.events == ["made"]
    assert recv_exactly(peer, 5000) == b"x" * 5000


async def test_write_eof_after_several_writes_in_one_callback(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind)

    def write_and_end():
        transport.write(b"one")
        transport.write(b"two")
        transport.write_eof()

    loop.call_soon(write_and_end)
    await settle()
    assert recv_to_end(peer) == b"onetwo"


async def test_writes_of_one_callback_to_many_transports(loop, pair, kind):
    made = [await pair(Recorder(), kind) for _ in range(20)]

    def write_all():
        for turn in range(3):
            for number, (transport, _) in enumerate(made):
                transport.write(b"%d:%d;" % (turn, number))

    loop.call_soon(write_all)
    await settle()
    for number, (_, peer) in enumerate(made):
        assert recv_now(peer) == b"0:%d;1:%d;2:%d;" % ((number,) * 3)


async def test_writing_inside_connection_lost_is_dropped(pair, kind):
    class Late(Recorder):
        def connection_lost(self, exc):
            self.transport.write(b"late")
            self.transport.close()
            self.transport.abort()
            super().connection_lost(exc)

    protocol = Late()
    transport, peer = await pair(protocol, kind)
    transport.close()
    await protocol.seen("lost")
    await settle()
    assert recv_to_end(peer) == b""
    assert protocol.events == ["made", "lost"]


# -- closing in odd places -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_leaving_inside_connection_made(loop, kind, how):
    class Leaver(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            getattr(transport, how)()

    protocol = Leaver()
    ours, peer = socket_pair(kind)
    with peer:
        peer.send(b"never seen")
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        assert transport.is_closing()
        await protocol.seen("lost")
        await settle()
        assert protocol.events == ["made", "lost"]
        assert ours.fileno() == -1


@pytest.mark.parametrize("how", ["close", "abort", "pause_reading"])
async def test_one_ready_transport_stops_the_others(loop, pair, kind, how):
    """Several are readable in one turn; the first that runs puts an end to the rest."""
    protocols = []

    class Bully(Recorder):
        def data_received(self, data):
            super().data_received(data)
            for other in protocols:
                if other is not self:
                    getattr(other.transport, how)()

    peers = []
    for _ in range(8):
        protocols.append(Bully())
        peers.append((await pair(protocols[-1], kind))[1])
    for peer in peers:
        peer.send(b"x")
    await settle()
    assert sum("data" in protocol.events for protocol in protocols) == 1


async def test_a_recycled_number_gets_no_event_of_its_predecessor(loop):
    """Both are readable; whoever runs first closes the other and reuses its number for a quiet pair."""
    for _ in range(10):
        pairs = [socket.socketpair() for _ in range(2)]
        stray, opened = [], []

        def replace(mine, victim, opened=opened, stray=stray):
            loop.remove_reader(mine)
            if opened:
                return
            number = victim.fileno()
            loop.remove_reader(victim)
            victim.close()
            opened.extend(socket.socketpair())
            if opened[0].fileno() != number:
                os.dup2(opened[0].fileno(), number)
                opened[0] = socket.socket(fileno=number)
            loop.add_reader(opened[0], stray.append, "event")

        (one, one_peer), (two, two_peer) = pairs
        loop.add_reader(one, replace, one, two)
        loop.add_reader(two, replace, two, one)
        one_peer.send(b"x")
        two_peer.send(b"x")
        await settle()
        assert opened
        assert stray == []
        opened[1].send(b"y")
        await settle()
        assert stray
        loop.remove_reader(opened[0])
        for sock in (one, two, one_peer, two_peer, *opened):
            sock.close()


async def test_new_connections_while_old_ones_die(loop, kind):
    """Numbers are reused at once by the next connection, thousands of times, and nothing is mixed up."""
    for turn in range(150):
        ours, peer = socket_pair(kind)
        with peer:
            transport, protocol = await loop.create_connection(Recorder, sock=ours)
            peer.send(b"%d" % turn)
            assert await protocol.got(1) == b"%d" % turn
            (transport.abort if turn % 2 else transport.close)()
            if turn % 3 == 0:
                await protocol.seen("lost")
    await settle()


def test_stop_inside_data_received(loop, pair, kind):
    class Stopper(Recorder):
        def data_received(self, data):
            super().data_received(data)
            loop.stop()

    protocols = [Stopper() for _ in range(5)]
    peers = [loop.run_until_complete(pair(protocol, kind))[1] for protocol in protocols]
    for peer in peers:
        peer.send(b"x")
    loop.run_forever()
    for _ in range(5):
        run_turn(loop)
    assert [protocol.data for protocol in protocols] == [b"x"] * 5


# -- replacing things ------------------------------------------------------------------------------


async def test_methods_may_be_replaced_on_the_protocol(pair, kind):
    """Mocks and tracers patch the instance. data_received is looked up by set_protocol() at the latest."""
    protocol = Recorder(keep_open=True)
    transport, peer = await pair(protocol, kind)
    peer.send(b"plain")
    await protocol.got(5)
    seen = []
    protocol.data_received = lambda data: (seen.append(data), protocol.note("patched"))
    transport.set_protocol(protocol)
    peer.send(b"patched")
    await protocol.seen("patched")
    protocol.eof_received = lambda: seen.append("eof")
    protocol.connection_lost = lambda exc: (
        seen.append(exc),
        Recorder.connection_lost(protocol, exc),
    )
    peer.close()
    await protocol.seen("lost")
    assert seen == [b"patched", "eof", None]
    assert protocol.data == b"plain"
    assert transport.is_closing()


async def test_protocols_need_no_base_class(pair, kind):
    class Duck:
        def __init__(self):
            self.inner = Recorder()

        def connection_made(self, transport):
            self.inner.connection_made(transport)

        def data_received(self, data):
            self.inner.data_received(data)

        def eof_received(self):
            self.inner.eof_received()

        def connection_lost(self, exc):
            self.inner.connection_lost(exc)

    protocol = Duck()
    transport, peer = await pair(protocol, kind)
    peer.send(b"quack")
    assert await protocol.inner.got(5) == b"quack"
    transport.write(b"back")
    assert recv_exactly(peer, 4) == b"back"
    peer.close()
    await protocol.inner.seen("lost")
    assert protocol.inner.events == ["made", "data", "eof", "lost"]


async def test_a_protocol_that_lacks_its_methods(pair, kind, errors):
    class Bare:
        def connection_made(self, transport):
            pass

    transport, peer = await pair(Bare(), kind)
    peer.send(b"x")
    await settle()
    assert transport.is_closing()
    assert all(isinstance(context["exception"], AttributeError) for context in errors)
    assert errors
    errors.clear()


async def test_callbacks_may_collect_garbage(loop, pair, kind):
    class Collector(Recorder):
        def data_received(self, data):
            gc.collect()
            super().data_received(data)
            self.transport.write(data)
            gc.collect()

    protocol = Collector()
    _, peer = await pair(protocol, kind)
    for _ in range(10):
        peer.send(b"x")
        assert await loop.run_in_executor(None, recv_exactly, peer, 1) == b"x"


def test_a_nested_run_in_a_callback_is_refused_and_harmless(loop, pair, kind, errors):
    class Nester(Recorder):
        def data_received(self, data):
            super().data_received(data)
            loop.run_until_complete(loop.create_future())

    protocol = Nester()
    _, peer = loop.run_until_complete(pair(protocol, kind))
    peer.send(b"x")
    loop.run_until_complete(protocol.seen("lost"))
    assert isinstance(protocol.exc, RuntimeError)
    assert "already running" in str(protocol.exc)
    assert len(errors) == 1
    errors.clear()
    assert loop.run_until_complete(asyncio.sleep(0, "fine")) == "fine"


async def test_errors_in_the_exception_handler_itself(loop, pair, kind, errors, caplog):
    def broken(loop, context):
        raise ValueError("the handler failed")

    class Broken(Recorder):
        def data_received(self, data):
            raise LookupError("on purpose")

    protocol = Broken()
    _, peer = await pair(protocol, kind)
    loop.set_exception_handler(broken)
    peer.send(b"x")
    await protocol.seen("lost")
    assert isinstance(protocol.exc, LookupError)
    assert "the handler failed" in caplog.text


@pytest.mark.parametrize("leave", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["connection_made", "eof_received", "connection_lost", "pause_writing"])
def test_exits_in_protocol_callbacks_come_through(loop, pair, kind, where, leave):
    def raise_it(*_):
        raise leave

    protocol = Recorder()
    if where == "connection_made":
        protocol.connection_made = raise_it
        with pytest.raises(leave):
            loop.run_until_complete(pair(protocol, kind))
        (task,) = asyncio.all_tasks(loop)
        transport, _ = loop.run_until_complete(asyncio.wait_for(task, 3))
        transport.abort()
        loop.run_until_complete(protocol.seen("lost"))
        return
    transport, peer = loop.run_until_complete(pair(protocol, kind, sndbuf=8192, rcvbuf=8192))
    setattr(protocol, where, raise_it)
    with pytest.raises(leave):
        if where == "eof_received":
            peer.shutdown(socket.SHUT_WR)
        elif where == "connection_lost":
            transport.close()
        else:
            transport.write(bytes(1 << 20))
        loop.run_forever()
    delattr(protocol, where)
    assert not loop.is_running()
    assert loop.run_until_complete(asyncio.sleep(0, "fine")) == "fine"
    transport.abort()
    if where != "connection_lost":
        loop.run_until_complete(protocol.seen("lost"))
