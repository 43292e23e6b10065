"""Signal handlers, Ctrl-C, the wake-up descriptor."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest


@pytest.fixture(autouse=True)
def signals_restored():
    numbers = [
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCHLD,
        signal.SIGHUP,
    ]
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_a_handler_runs_with_its_arguments(loop):
    future = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, lambda *args: future.set_result(args), 1, "two")
    os.kill(os.getpid(), signal.SIGUSR1)
    assert await future == (1, "two")
    assert loop.remove_signal_handler(signal.SIGUSR1) is True
    assert loop.remove_signal_handler(signal.SIGUSR1) is False
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


async def test_a_handler_can_be_replaced(loop):
    seen = []
    done = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, seen.append, "old")
    loop.add_signal_handler(signal.SIGUSR1, lambda: (seen.append("new"), done.set_result(None)))
    os.kill(os.getpid(), signal.SIGUSR1)
    await done
    assert seen == ["new"]
    loop.remove_signal_handler(signal.SIGUSR1)


async def test_a_signal_wakes_a_sleeping_loop(loop):
    future = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, future.set_result, None)

    def send():
        time.sleep(0.02)  # So that the loop is inside its poll.
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    await asyncio.wait_for(future, 5)
    thread.join()
    loop.remove_signal_handler(signal.SIGUSR1)


async def test_several_signals(loop):
    seen = []
    done = loop.create_future()

    def note(name):
        seen.append(name)
        if len(seen) == 3:
            done.set_result(None)

    loop.add_signal_handler(signal.SIGUSR1, note, "one")
    loop.add_signal_handler(signal.SIGUSR2, note, "two")
    loop.add_signal_handler(signal.SIGTERM, note, "term")
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        os.kill(os.getpid(), number)
    await done
    assert sorted(seen) == ["one", "term", "two"]
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        assert loop.remove_signal_handler(number)


async def test_sigchld_is_allowed(loop):
    """uvloop#409: a program may want to know of its own children."""
    future = loop.create_future()
    loop.add_signal_handler(signal.SIGCHLD, lambda: future.done() or future.set_result(None))
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    await asyncio.wait_for(future, 10)
    assert child.wait(10) == 0
    assert loop.remove_signal_handler(signal.SIGCHLD) is True


async def test_sigint_handler_instead_of_keyboard_interrupt(loop):
    future = loop.create_future()
    loop.add_signal_handler(signal.SIGINT, future.set_result, "handled")
    os.kill(os.getpid(), signal.SIGINT)
    assert await future == "handled"
    loop.remove_signal_handler(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_keyboard_interrupt_leaves_a_usable_loop(loop):
    """uvloop#295: after Ctrl-C the program still wants to clean up."""
    loop.call_soon(os.kill, os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert not loop.is_running()
    assert loop.run_until_complete(asyncio.sleep(0.001, "fine")) == "fine"


def test_keyboard_interrupt_ends_a_blocking_poll(loop):
    def send():
        time.sleep(0.03)  # So that the loop is inside its poll.
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    started = time.monotonic()
    handle = loop.call_later(10, loop.stop)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert time.monotonic() - started < 5
    thread.join()
    handle.cancel()
    assert loop.run_until_complete(asyncio.sleep(0, "fine")) == "fine"


def test_a_plain_python_handler_runs_while_the_loop_sleeps(loop):
    seen = []
    signal.signal(signal.SIGUSR2, lambda *_: (seen.append("handler"), loop.call_soon_threadsafe(loop.stop)))

    def send():
        time.sleep(0.02)  # So that the loop is inside its poll.
        os.kill(os.getpid(), signal.SIGUSR2)

    thread = threading.Thread(target=send)
    thread.start()
    handle = loop.call_later(10, loop.stop)
    loop.run_forever()
    thread.join()
    handle.cancel()
    assert seen == ["handler"]


def test_the_exception_of_a_plain_handler_comes_out(loop):
    class Leave(Exception):
        pass

    def raise_it(*_):
        raise Leave

    signal.signal(signal.SIGUSR2, raise_it)

    def send():
        time.sleep(0.02)  # So that the loop is inside its poll.
        os.kill(os.getpid(), signal.SIGUSR2)

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(Leave):
        loop.run_forever()
    thread.join()
    assert loop.run_until_complete(asyncio.sleep(0, "fine")) == "fine"


def wakeup_fd():
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number)
    return number


def test_the_wakeup_descriptor_is_restored(loop):
    before = wakeup_fd()
    assert before == -1

    async def main():
        loop.add_signal_handler(signal.SIGUSR1, print)
        during = wakeup_fd()
        loop.remove_signal_handler(signal.SIGUSR1)
        return during

    assert loop.run_until_complete(main()) >= 0
    assert wakeup_fd() == before


def test_close_removes_the_handlers(loop):
    loop.add_signal_handler(signal.SIGUSR1, print)
    loop.add_signal_handler(signal.SIGINT, print)
    loop.close()
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert wakeup_fd() == -1


def test_a_foreign_wakeup_descriptor_survives_a_run(loop):
    left, right = os.pipe()
    os.set_blocking(right, False)
    signal.set_wakeup_fd(right)
    try:
        loop.run_until_complete(asyncio.sleep(0.001))
        assert wakeup_fd() == right
    finally:
        signal.set_wakeup_fd(-1)
        os.close(left)
        os.close(right)


def test_an_error_in_a_handler_is_reported(loop, errors):
    loop.add_signal_handler(signal.SIGUSR1, lambda: 1 / 0)
    os.kill(os.getpid(), signal.SIGUSR1)
    loop.run_until_complete(asyncio.sleep(0.001))
    while not errors:
        loop.run_until_complete(asyncio.sleep(0.001))
    assert isinstance(errors[0]["exception"], ZeroDivisionError)
    errors.clear()
    loop.remove_signal_handler(signal.SIGUSR1)


def test_wrong_arguments(loop):
    with pytest.raises(TypeError, match="sig must be an int"):
        loop.add_signal_handler("SIGINT", print)
    with pytest.raises(ValueError, match="invalid signal number 999"):
        loop.add_signal_handler(999, print)
    with pytest.raises(ValueError, match="invalid signal number 0"):
        loop.remove_signal_handler(0)
    with pytest.raises(RuntimeError, match="cannot be caught"):
        loop.add_signal_handler(signal.SIGKILL, print)
    with pytest.raises(RuntimeError, match="cannot be caught"):
        loop.add_signal_handler(signal.SIGSTOP, print)

    async def coroutine():
        pass

    with pytest.raises(TypeError, match="coroutines cannot be used with add_signal_handler"):
        loop.add_signal_handler(signal.SIGUSR1, coroutine)
    assert wakeup_fd() == -1


async def test_only_the_main_thread_can_add(loop):
    with pytest.raises((RuntimeError, ValueError), match="main thread"):
        await loop.run_in_executor(None, loop.add_signal_handler, signal.SIGUSR1, print)


CTRL_C = """
import asyncio, sys
sys.path.insert(0, {here!r})
from helpers import new_loop

async def main():
    try:
        print("ready", flush=True)
        await asyncio.sleep(30)
    finally:
        await asyncio.sleep(0.001)
        print("cleaned", flush=True)

try:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_from_outside():
    source = CTRL_C.format(here=os.path.dirname(__file__))
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
        assert child.wait(10) == 0
    assert rest == "cleaned\ninterrupted\n"
