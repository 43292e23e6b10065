"""run_forever, run_until_complete, stop, close: the life of a loop."""

import asyncio
import sys
import threading
import weakref

import pytest
from helpers import beyond_asyncio, new_loop, open_fds


async def answer(value=42):
    await asyncio.sleep(0)
    return value


def test_run_until_complete_returns_and_raises(loop):
    assert loop.run_until_complete(answer()) == 42

    async def broken():
        raise LookupError("on purpose")

    with pytest.raises(LookupError, match="on purpose"):
        loop.run_until_complete(broken())
    assert loop.run_until_complete(answer(1)) == 1


def test_run_until_complete_takes_futures_and_awaitables(loop):
    done = loop.create_future()
    done.set_result("done")
    assert loop.run_until_complete(done) == "done"

    class Awaitable:
        def __await__(self):
            yield from asyncio.sleep(0).__await__()
            return "awaited"

    assert loop.run_until_complete(Awaitable()) == "awaited"
    task = loop.create_task(answer())
    assert loop.run_until_complete(task) == 42
    assert loop.run_until_complete(task) == 42


def test_run_until_complete_refuses_other_things(loop):
    with pytest.raises(TypeError):
        loop.run_until_complete("text")
    other = new_loop()
    try:
        foreign = other.create_future()
        with pytest.raises(ValueError, match="different loop"):
            loop.run_until_complete(foreign)
    finally:
        other.close()


def test_stop_while_a_future_is_awaited(loop):
    future = loop.create_future()
    loop.call_soon(loop.stop)
    with pytest.raises(RuntimeError, match="Event loop stopped before Future completed"):
        loop.run_until_complete(future)
    future.set_result(5)
    assert loop.run_until_complete(future) == 5


def test_exit_from_a_task_comes_out_of_run_until_complete(loop):
    async def leave():
        raise SystemExit(3)

    with pytest.raises(SystemExit) as caught:
        loop.run_until_complete(leave())
    assert caught.value.code == 3
    assert loop.run_until_complete(answer()) == 42


def test_keyboard_interrupt_from_a_task(loop):
    async def leave():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(leave())
    assert loop.run_until_complete(answer()) == 42


def test_is_running_and_the_running_loop(loop):
    assert not loop.is_running()

    async def look():
        return (
            loop.is_running(),
            asyncio.get_running_loop() is loop,
            asyncio.get_event_loop() is loop,
        )

    assert loop.run_until_complete(look()) == (True, True, True)
    assert not loop.is_running()
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_a_running_loop_cannot_be_run_again(loop):
    async def again():
        future = loop.create_future()
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_until_complete(future)
        with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
            loop.close()
        return "still fine"

    assert loop.run_until_complete(again()) == "still fine"


@beyond_asyncio("3.13.0's run_forever() cleans up after the run it refused to disturb")
def test_a_refused_run_forever_disturbs_nothing(loop):
    async def again():
        with pytest.raises(RuntimeError, match="already running"):
            loop.run_forever()
        return loop.is_running(), asyncio.get_running_loop() is loop

    assert loop.run_until_complete(again()) == (True, True)


def test_two_loops_cannot_run_in_one_thread(loop):
    other = new_loop()

    async def run_other():
        future = other.create_future()
        with pytest.raises(RuntimeError, match="while another loop is running"):
            other.run_until_complete(future)

    try:
        loop.run_until_complete(run_other())
    finally:
        other.close()


def test_a_closed_loop(loop):
    loop.close()
    loop.close()
    assert loop.is_closed()
    assert not loop.is_running()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.run_forever()
    coroutine = answer()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.run_until_complete(coroutine)
    coroutine.close()
    coroutine = answer()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.create_task(coroutine)
    coroutine.close()


def test_close_gives_back_every_descriptor(loop):
    """At close(), not when the object dies: references to a closed loop live long in frames and futures."""
    before = open_fds()
    other = new_loop()
    other.run_until_complete(answer())
    assert open_fds().keys() > before.keys()
    other.close()
    assert open_fds() == before


def test_stop_from_another_turn_is_not_remembered_after_the_run(loop):
    loop.call_soon(loop.stop)
    loop.call_soon(loop.stop)
    loop.run_forever()
    seen = []
    loop.call_later(0.001, seen.append, 1)
    loop.call_later(0.002, loop.stop)
    loop.run_forever()
    assert seen == [1]


def test_repr(loop):
    text = repr(loop)
    assert "running=False" in text
    assert "closed=False" in text
    assert "debug=False" in text
    loop.close()
    assert "closed=True" in repr(loop)


def test_any_attribute_and_weak_references(loop):
    loop.some_attribute = 5
    assert loop.some_attribute == 5
    assert weakref.ref(loop)() is loop
    loop._stopping = False  # Sanic assigns this one.
    assert hash(loop) == hash(loop)
    assert loop == loop


def test_it_is_a_loop(loop):
    assert isinstance(loop, asyncio.AbstractEventLoop)
    assert isinstance(loop, asyncio.BaseEventLoop)


def test_asyncgen_hooks_are_set_and_restored(loop):
    before = sys.get_asyncgen_hooks()

    async def look():
        return sys.get_asyncgen_hooks()

    inside = loop.run_until_complete(look())
    assert inside.firstiter is not None
    assert inside.finalizer is not None
    assert sys.get_asyncgen_hooks() == before


def test_shutdown_asyncgens_closes_them(loop):
    seen = []

    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            seen.append("closed")

    async def take_one():
        generator = numbers()
        assert await anext(generator) == 1
        return generator

    generator = loop.run_until_complete(take_one())
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert seen == ["closed"]
    del generator


def test_a_dropped_asyncgen_is_closed_by_the_loop(loop):
    async def main():
        closed = asyncio.Event()

        async def numbers():
            try:
                yield 1
            finally:
                closed.set()

        generator = numbers()
        await anext(generator)
        del generator
        await asyncio.wait_for(closed.wait(), 3)

    loop.run_until_complete(main())


def test_an_error_in_an_asyncgen_shutdown_is_reported(loop, errors):
    async def numbers():
        try:
            yield 1
        finally:
            raise ValueError("in finally")

    async def take_one():
        generator = numbers()
        await anext(generator)
        return generator

    generator = loop.run_until_complete(take_one())
    loop.run_until_complete(loop.shutdown_asyncgens())
    (context,) = errors
    assert context["asyncgen"] is generator
    assert isinstance(context["exception"], ValueError)
    errors.clear()


def test_exception_handler_is_called_with_loop_and_context(loop):
    seen = []
    loop.set_exception_handler(lambda *args: seen.append(args))
    context = {"message": "a message"}
    loop.call_exception_handler(context)
    assert seen == [(loop, context)]
    assert loop.get_exception_handler() is not None
    loop.set_exception_handler(None)
    assert loop.get_exception_handler() is None
    with pytest.raises(TypeError):
        loop.set_exception_handler("text")


def test_default_exception_handler_logs(loop, caplog):
    loop.set_exception_handler(None)
    loop.call_exception_handler({"message": "the message", "other": 17})
    assert "the message" in caplog.text
    assert "other: 17" in caplog.text
    caplog.clear()
    loop.call_soon(lambda: 1 / 0)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert "Exception in callback" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_broken_exception_handler_is_logged_itself(loop, caplog):
    def broken(loop, context):
        raise LookupError("the handler failed")

    loop.set_exception_handler(broken)
    loop.call_soon(lambda: 1 / 0)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert "Unhandled error in exception handler" in caplog.text
    assert "the handler failed" in caplog.text


def test_a_future_never_retrieved_is_reported(loop, errors):
    future = loop.create_future()
    future.set_exception(ValueError("nobody looked"))
    del future
    (context,) = errors
    assert context["message"] == "Future exception was never retrieved"
    errors.clear()


def test_loops_in_threads_do_not_disturb_each_other():
    results = []

    def work(number):
        loop = new_loop()
        try:

            async def main():
                for _ in range(50):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.001)
                return number

            results.append(loop.run_until_complete(main()))
        finally:
            loop.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(results) == list(range(8))
