"""Nothing is kept alive that nobody can reach, cycles included."""

import asyncio
import contextlib
import contextvars
import gc
import sys
import warnings
import weakref

import pytest
from helpers import BufferedRecorder, Recorder, beyond_asyncio, new_loop, settle, socket_pair


class Thing:
    """Something that can be watched dying."""


def collected(make):
    """Whether what `make` returns dies with it; collections are forced."""
    gone = weakref.ref(make())
    gc.collect()
    return gone() is None


def test_handles_in_cycles(loop):
    def soon():
        thing = Thing()
        thing.handle = loop.call_soon(lambda: thing)
        loop.call_soon(loop.stop)
        loop.run_forever()
        return thing

    def timer():
        thing = Thing()
        thing.handle = loop.call_later(1000, lambda: thing)
        thing.handle.cancel()
        return thing

    def ran_timer():
        thing = Thing()
        thing.handle = loop.call_later(0, lambda: thing)
        loop.run_until_complete(asyncio.sleep(0.001))
        return thing

    assert collected(soon)
    assert collected(timer)
    assert collected(ran_timer)


def test_handles_that_a_running_loop_made_in_cycles(loop):
    """Whether they ran, were cancelled, or were left in the queue when the loop stopped."""

    def made_inside(callback):
        def make():
            thing.handle = loop.call_soon(callback, thing)
            loop.call_soon(loop.stop)

        thing = Thing()
        loop.call_soon(make)
        loop.run_forever()
        return thing

    def ran():
        return made_inside(lambda _: None)

    def cancelled_itself():
        return made_inside(lambda thing: thing.handle.cancel())

    def cancelled_before():
        thing = Thing()

        def make():
            thing.handle = loop.call_soon(print, thing, context=context)
            thing.handle.cancel()
            loop.call_soon(loop.stop)

        context = contextvars.copy_context()
        context.run(contextvars.ContextVar("thing").set, thing)
        loop.call_soon(make)
        loop.run_forever()
        return thing

    assert collected(ran)
    assert collected(cancelled_itself)
    assert collected(cancelled_before)


@pytest.mark.parametrize("close", [False, True])
def test_handles_left_in_the_queue_of_a_loop_that_stopped(close):
    def left():
        loop = new_loop()
        loops.append(weakref.ref(loop))

        def make():
            thing.handle = loop.call_soon(lambda: (thing, loop))

        thing = Thing()
        loop.call_soon(loop.stop)
        loop.call_soon(make)
        loop.run_forever()
        if close:
            loop.close()
        return thing

    loops = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        assert collected(left)
    assert loops[0]() is None


def test_loops_in_cycles():
    def cycle():
        loop = new_loop()
        loop.thing = Thing()
        loop.thing.loop = loop
        loop.call_soon(print, loop)
        loop.call_later(1000, print, loop)
        loop.set_exception_handler(lambda *_: loop)
        loop.set_task_factory(lambda *_: loop)
        loop.close()
        return loop

    assert collected(cycle)


@pytest.mark.parametrize("make", [Recorder, BufferedRecorder])
async def test_closed_transports_let_go_of_the_protocol(pair, kind, make):
    protocol = make()
    transport, _ = await pair(protocol, kind)
    gone = weakref.ref(protocol)
    transport.close()
    await protocol.seen("lost")
    protocol.transport = None
    del protocol
    await settle()
    gc.collect()
    assert gone() is None


async def test_closed_transports_die_with_their_cycle(loop, kind):
    async def make():
        protocol = Recorder()
        ours, peer = socket_pair(kind)
        with peer:
            transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
            transport.myself = transport
            transport.write(b"x")
            peer.send(b"y")
            await protocol.got(1)
            transport.close()
            await protocol.seen("lost")
            await settle()
        return weakref.ref(protocol), weakref.ref(transport)

    gone = await make()
    await settle()
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


async def test_open_transports_stay_alive_while_they_read(loop, kind):
    ours, peer = socket_pair(kind)
    with peer:
        seen = loop.create_future()

        class Protocol(asyncio.Protocol):
            def data_received(self, data):
                seen.set_result(data)

            def eof_received(self):
                return False

        await loop.create_connection(Protocol, sock=ours)
        del ours
        gc.collect()
        peer.send(b"nobody else holds it")
        assert await seen == b"nobody else holds it"
    await settle()


async def test_servers_die(loop):
    async def make():
        server = await loop.create_server(Recorder, "127.0.0.1", 0)
        server.close()
        await server.wait_closed()
        return weakref.ref(server)

    gone = await make()
    await settle()
    gc.collect()
    assert gone() is None


def references(loop, schedule):
    """How many references to one object remain after many rounds of `schedule`."""
    thing = Thing()
    before = sys.getrefcount(thing)
    for _ in range(100):
        schedule(thing)
        loop.call_soon(loop.stop)
        loop.run_forever()
    gc.collect()
    return sys.getrefcount(thing) - before


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6])
def test_arguments_are_not_leaked(loop, count):
    def soon(thing):
        loop.call_soon(lambda *_: thing, *[thing] * count)
        loop.call_soon_threadsafe(lambda *_: thing, *[thing] * count)

    def cancelled(thing):
        loop.call_soon(lambda *_: thing, *[thing] * count).cancel()
        loop.call_later(1000, lambda *_: thing, *[thing] * count).cancel()
        loop.call_soon_threadsafe(lambda *_: thing, *[thing] * count).cancel()

    def due(thing):
        loop.call_at(0, lambda *_: thing, *[thing] * count)

    def failing(thing):
        def fail(*_):
            raise LookupError(thing)

        loop.call_soon(fail, *[thing] * count)

    loop.set_exception_handler(lambda loop, context: None)
    for schedule in (soon, cancelled, due, failing):
        assert references(loop, schedule) == 0, schedule.__name__


def test_refused_calls_leak_nothing(loop):
    def refused(thing):
        with contextlib.suppress(TypeError):
            loop.call_soon(thing, context=5, nonsense=thing)
        with contextlib.suppress(TypeError):
            loop.call_later(thing, thing)
        with contextlib.suppress(ValueError, TypeError):
            loop.add_reader(thing, thing)

    assert references(loop, refused) == 0


def test_readers_leak_nothing(loop):
    ours, peer = socket_pair("unix")
    with ours, peer:

        def watch(thing):
            loop.add_reader(ours, lambda *_: thing, thing)
            loop.add_reader(ours, lambda *_: thing, thing, thing)
            loop.add_writer(ours, lambda *_: thing, thing)
            loop.call_soon(loop.remove_reader, ours)
            loop.call_soon(loop.remove_writer, ours)

        assert references(loop, watch) == 0


async def test_written_data_is_not_leaked(loop, pair, kind):
    transport, peer = await pair(Recorder(), kind)
    data = bytes(range(256)) * 10
    before = sys.getrefcount(data)
    for _ in range(50):
        transport.write(data)
        transport.writelines([data, data])
        await asyncio.sleep(0)
        peer.recv(1 << 20)
    await settle()
    assert sys.getrefcount(data) == before


@beyond_asyncio("its socket.__del__ warns as well")
def test_closing_a_loop_with_open_transports_frees_them(kind):
    """D34: objects that are collected after the loop is gone make no noise and no leak."""
    ours, peer = socket_pair(kind)
    loop = new_loop()

    async def connect(sock):
        transport, _ = await loop.create_connection(Recorder, sock=sock)
        return transport

    transport = loop.run_until_complete(connect(ours))
    loop.close()
    transport.close()
    transport.abort()
    transport.write(b"late")
    del transport, ours
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    assert peer.recv(1) == b""
    peer.close()
