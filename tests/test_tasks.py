"""create_task with every keyword of the running Python, factories, futures."""

import asyncio
import contextvars
import gc

import pytest
from helpers import since


async def value(result=1):
    await asyncio.sleep(0)
    return result


async def test_create_task_name_and_context(loop):
    variable = contextvars.ContextVar("variable", default=None)
    context = contextvars.copy_context()
    context.run(variable.set, "inside")

    async def look():
        await asyncio.sleep(0)
        return variable.get(), asyncio.current_task().get_name()

    task = loop.create_task(look(), name="a name", context=context)
    assert isinstance(task, asyncio.Task)
    assert task.get_name() == "a name"
    assert await task == ("inside", "a name")
    assert task.get_loop() is loop
    assert variable.get() is None


async def test_create_future(loop):
    future = loop.create_future()
    assert isinstance(future, asyncio.Future)
    assert future.get_loop() is loop
    loop.call_soon(future.set_result, 3)
    assert await future == 3


async def test_tasks_are_of_the_c_type(loop):
    task = loop.create_task(value())
    assert type(task) is asyncio.Task
    assert type(loop.create_future()) is asyncio.Future
    await task


async def test_wrong_arguments(loop):
    with pytest.raises(TypeError):
        loop.create_task("text")
    coroutine = value()
    with pytest.raises(TypeError):
        loop.create_task(coroutine, nonsense=1)
    coroutine.close()


async def test_task_factory(loop):
    calls = []

    def factory(loop, coroutine, **kwargs):
        calls.append(kwargs)
        kwargs.pop("name", None)
        return asyncio.Task(coroutine, loop=loop, **kwargs)

    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory
    task = loop.create_task(value(5), name="named")
    assert await task == 5
    assert len(calls) == 1
    context = contextvars.copy_context()
    assert await loop.create_task(value(6), context=context) == 6
    assert calls[1]["context"] is context
    loop.set_task_factory(None)
    assert loop.get_task_factory() is None
    with pytest.raises(TypeError, match="task factory must be a callable or None"):
        loop.set_task_factory("text")


@since(3, 12)
async def test_eager_task_factory(loop):
    loop.set_task_factory(asyncio.eager_task_factory)
    order = []

    async def quick():
        order.append("quick")
        return 7

    async def slow():
        order.append("slow started")
        await asyncio.sleep(0)
        order.append("slow ended")

    task = loop.create_task(quick())
    assert task.done()
    assert task.result() == 7
    other = loop.create_task(slow())
    assert not other.done()
    assert order == ["quick", "slow started"]
    await other
    loop.set_task_factory(None)


@since(3, 14)
async def test_eager_start_keyword(loop):
    async def quick():
        return 7

    assert loop.create_task(quick(), eager_start=True).done()
    task = loop.create_task(quick(), eager_start=False)
    assert not task.done()
    assert await task == 7


async def test_tasks_run_in_the_order_they_were_made(loop):
    order = []

    async def note(number):
        order.append(number)
        await asyncio.sleep(0)
        order.append(number + 100)

    await asyncio.gather(*(note(number) for number in range(20)))
    assert order == [*range(20), *range(100, 120)]


async def test_sleep_zero_yields_one_turn(loop):
    seen = []

    async def other():
        for number in range(3):
            seen.append(number)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for expected in range(3):
        await asyncio.sleep(0)
        assert seen == list(range(expected + 1))
    await task


async def test_timeouts_and_cancels(loop):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await loop.create_future()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(loop.create_future(), 0.001)
    task = loop.create_task(asyncio.sleep(1000))
    await asyncio.sleep(0)
    task.cancel("with a reason")
    with pytest.raises(asyncio.CancelledError, match="with a reason"):
        await task


async def test_task_group(loop):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(value(number)) for number in range(10)]
    assert [task.result() for task in tasks] == list(range(10))
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1000))
            group.create_task(asyncio.to_thread(divmod, 1, 0))
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


async def test_all_tasks_and_current_task(loop):
    task = loop.create_task(asyncio.sleep(1000))
    assert asyncio.all_tasks() == {task, asyncio.current_task()}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_context_of_callbacks_is_that_of_the_future_call(loop):
    variable = contextvars.ContextVar("variable", default=0)
    seen = []
    future = loop.create_future()
    variable.set(1)
    future.add_done_callback(lambda _: seen.append(variable.get()))
    context = contextvars.copy_context()
    context.run(variable.set, 2)
    future.add_done_callback(lambda _: seen.append(variable.get()), context=context)
    variable.set(3)
    future.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [1, 2]


async def test_a_task_destroyed_while_pending_is_reported(loop, errors):
    async def forever():
        await asyncio.Future()

    task = loop.create_task(forever())
    await asyncio.sleep(0)
    del task
    gc.collect()
    assert [context["message"] for context in errors] == ["Task was destroyed but it is pending!"]
    errors.clear()
    gc.collect()


def test_patched_task_class_is_honoured(loop, monkeypatch):
    class OwnTask(asyncio.tasks._PyTask):
        pass

    monkeypatch.setattr(asyncio.tasks, "Task", OwnTask)
    task = loop.create_task(value())
    assert type(task) is OwnTask
    assert loop.run_until_complete(task) == 1
