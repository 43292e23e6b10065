"""The `loop` fixture, which checks after each test that nothing was left behind; `async def` tests; bounds."""

import asyncio
import contextlib
import faulthandler
import gc
import inspect

import pytest
from helpers import ON_ASYNCIO, SLOWDOWN, new_loop, open_fds, settle, short_tmpdir, socket_pair

faulthandler.enable()

BOUND = 20 * SLOWDOWN
CALL_FAILED = pytest.StashKey[bool]()


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes seconds, not milliseconds")
    config.addinivalue_line("filterwarnings", "error")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(BOUND))


def pytest_collection_finish():
    # What pytest and the imported modules hold lives to the end: the many collections below skip it.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.stash[CALL_FAILED] = report.failed
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run an `async def` test on the loop under test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    loop = pyfuncitem.funcargs["loop"]

    async def bounded():
        async with asyncio.timeout(BOUND - 2):
            await pyfuncitem.obj(**arguments)

    loop.run_until_complete(bounded())
    return True


@pytest.fixture
def errors():
    """What reached the exception handler of `loop`; a test that expects something empties the list."""
    return []


@pytest.fixture
def loop(request, errors):
    gc.collect()
    before = open_fds()
    loop = new_loop()
    loop.set_debug(False)  # Whatever PYTHONDEVMODE says; the tests of debug mode ask for it.
    loop.set_exception_handler(lambda _, context: errors.append(context))
    yield loop
    left = _finish(loop)
    if request.node.stash.get(CALL_FAILED, True):
        errors.clear()
        return
    assert not errors, "the exception handler was called and the test did not look"
    assert not left, f"tasks left behind: {left}"
    del loop
    gc.collect()
    leaked = open_fds().items() - before.items()
    assert not leaked, f"descriptors left open: {leaked}"


def _finish(loop):
    """Close the loop as asyncio.run() would; what was still to do is returned."""
    if loop.is_closed():
        return []
    left = [repr(task) for task in asyncio.all_tasks(loop)]
    for task in asyncio.all_tasks(loop):
        task.cancel()

    async def last_turns():
        await settle()
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()

    try:
        loop.run_until_complete(last_turns())
    finally:
        loop.close()
    return left


@pytest.fixture(params=["tcp", "unix"])
def kind(request):
    """Both sorts of stream sockets."""
    return request.param


@pytest.fixture
def pair(loop):
    """`transport, peer = await pair(protocol, kind)`: a transport and the plain socket at its other end."""
    with contextlib.ExitStack() as stack:

        async def make(protocol, kind="tcp", **sizes):
            ours, peer = socket_pair(kind, **sizes)
            stack.callback(peer.close)
            transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
            stack.callback(_abort, transport)
            return transport, peer

        yield make
        if loop.is_closed():
            stack.pop_all()


def _abort(transport):
    # asyncio's own transport trips over abort() once close() has flushed its queue.
    with contextlib.suppress(AttributeError) if ON_ASYNCIO else contextlib.nullcontext():
        transport.abort()


@pytest.fixture
def tmpdir_short():
    with short_tmpdir() as path:
        yield path
