"""run_in_executor and the default executor."""

import asyncio
import concurrent.futures
import contextvars
import threading

import pytest
from helpers import since


async def test_runs_in_another_thread(loop):
    here = threading.get_ident()
    there = await loop.run_in_executor(None, threading.get_ident)
    assert there != here


async def test_arguments_results_and_exceptions(loop):
    assert await loop.run_in_executor(None, divmod, 17, 5) == (3, 2)
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(None, divmod, 1, 0)


async def test_threads_are_named_as_asyncio_names_them(loop):
    assert (await loop.run_in_executor(None, threading.current_thread)).name.startswith("asyncio_")


async def test_many_at_once(loop):
    results = await asyncio.gather(*(loop.run_in_executor(None, pow, number, 2) for number in range(500)))
    assert results == [number**2 for number in range(500)]


async def test_to_thread_copies_the_context(loop):
    variable = contextvars.ContextVar("variable")
    variable.set("carried")
    assert await asyncio.to_thread(variable.get) == "carried"


async def test_own_executor(loop):
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="own") as pool:
        thread = await loop.run_in_executor(pool, threading.current_thread)
        assert thread.name.startswith("own")
        loop.set_default_executor(pool)
        thread = await loop.run_in_executor(None, threading.current_thread)
        assert thread.name.startswith("own")


def test_only_thread_pools_can_be_the_default(loop):
    class Other(concurrent.futures.Executor):
        pass

    with pytest.raises(TypeError):
        loop.set_default_executor(Other())
    with pytest.raises(TypeError):
        loop.set_default_executor(None)


async def test_cancelling_frees_the_waiter_at_once(loop):
    release = threading.Event()
    started = threading.Event()

    def block():
        started.set()
        release.wait(10)

    future = loop.run_in_executor(None, block)
    await loop.run_in_executor(None, started.wait, 5)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future
    assert not release.is_set()
    release.set()


async def test_shutdown_waits_and_then_refuses(loop):
    seen = []
    running = loop.run_in_executor(None, seen.append, 1)
    await running
    await loop.shutdown_default_executor()
    assert seen == [1]
    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        loop.run_in_executor(None, print)


async def test_shutdown_without_an_executor(loop):
    await loop.shutdown_default_executor()
    await loop.shutdown_default_executor()


@since(3, 13)  # 3.12 waited for the threads whatever the timeout was.
def test_shutdown_timeout(loop):
    release = threading.Event()

    async def main():
        blocked = loop.run_in_executor(None, release.wait, 10)
        with pytest.warns(RuntimeWarning, match=r"joining|within"):
            await loop.shutdown_default_executor(timeout=0.01)
        release.set()
        assert await blocked is True

    loop.run_until_complete(main())


def test_close_ends_the_default_executor(loop):
    loop.run_until_complete(loop.run_in_executor(None, int))
    pool = loop._default_executor
    assert pool is not None
    loop.close()
    with pytest.raises(RuntimeError):
        pool.submit(print)


async def test_coroutines_are_refused_in_debug_mode(loop):
    loop.set_debug(True)

    async def coroutine():
        pass

    with pytest.raises(TypeError, match="coroutines cannot be used with run_in_executor"):
        loop.run_in_executor(None, coroutine)
    loop.set_debug(False)
