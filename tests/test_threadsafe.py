"""call_soon_threadsafe: nothing is lost, order is kept, a sleeping loop wakes."""

import asyncio
import os
import sys
import threading
import time

import pytest
from helpers import new_loop


def join(threads):
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_many_threads_lose_nothing(loop):
    threads_count, calls = 16, 2000
    seen = [[] for _ in range(threads_count)]
    left = threads_count * calls

    def count(number, call):
        nonlocal left
        seen[number].append(call)
        left -= 1
        if not left:
            loop.stop()

    def produce(number):
        for call in range(calls):
            loop.call_soon_threadsafe(count, number, call)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(threads_count)]
    for thread in threads:
        thread.start()
    loop.run_forever()
    join(threads)
    assert left == 0
    assert all(calls_seen == list(range(calls)) for calls_seen in seen)


def test_each_single_call_wakes_a_blocked_poll(loop):
    """Ping-pong between the loop and a thread: one lost wake-up and it stands still."""
    rounds = 1500
    turn = threading.Semaphore(0)
    seen = []

    def in_loop(number):
        seen.append(number)
        turn.release()

    def produce():
        for number in range(rounds):
            loop.call_soon_threadsafe(in_loop, number)
            assert turn.acquire(timeout=10)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=produce)
    thread.start()
    loop.run_forever()
    join([thread])
    assert seen == list(range(rounds))


def test_a_sleeping_loop_wakes_soon(loop):
    async def main():
        future = loop.create_future()
        entered = threading.Event()

        def wake():
            entered.wait(5)
            time.sleep(0.02)  # So that the loop is inside its poll.
            loop.call_soon_threadsafe(future.set_result, time.monotonic())

        thread = threading.Thread(target=wake)
        thread.start()
        loop.call_soon(entered.set)
        sent = await asyncio.wait_for(future, 5)
        late = time.monotonic() - sent
        thread.join(5)
        return late

    assert loop.run_until_complete(main()) < 1


def test_stop_from_a_thread(loop):
    thread = threading.Timer(0.01, loop.call_soon_threadsafe, (loop.stop,))
    thread.start()
    loop.run_forever()
    join([thread])


def test_order_with_later_call_soon(loop):
    seen = []
    for number in range(0, 100, 2):
        loop.call_soon_threadsafe(seen.append, number)
        loop.call_soon(seen.append, number + 1)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == list(range(100))


def test_order_with_later_call_soon_inside_a_callback(loop):
    seen = []

    def both():
        loop.call_soon(seen.append, 1)
        loop.call_soon_threadsafe(seen.append, 2)
        loop.call_soon(seen.append, 3)
        loop.call_soon_threadsafe(seen.append, 4)
        loop.call_soon(loop.stop)

    loop.call_soon(both)
    loop.run_forever()
    assert seen == [1, 2, 3, 4]


def test_calls_made_before_the_run_are_kept(loop):
    seen = []
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(seen.append, 1))
    thread.start()
    thread.join()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == [1]


def test_after_close_it_raises(loop):
    loop.close()
    caught = []

    def call():
        try:
            loop.call_soon_threadsafe(print)
        except RuntimeError as exc:
            caught.append(str(exc))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert caught == ["Event loop is closed"]


def test_racing_with_close_never_breaks(loop):
    stop = threading.Event()
    started = threading.Barrier(5)
    strange = []

    def produce():
        started.wait(5)
        while not stop.is_set():
            try:
                loop.call_soon_threadsafe(int)
            except RuntimeError:
                return
            except BaseException as exc:
                strange.append(exc)
                return

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait(5)
    for _ in range(20):
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    stop.set()
    join(threads)
    assert strange == []


def test_a_cancelled_call_does_not_run(loop):
    seen = []
    handle = loop.call_soon_threadsafe(seen.append, 1)
    handle.cancel()
    assert handle.cancelled()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == []


def test_run_coroutine_threadsafe(loop):
    async def double(value):
        await asyncio.sleep(0)
        return 2 * value

    results = []

    def ask():
        futures = [asyncio.run_coroutine_threadsafe(double(number), loop) for number in range(50)]
        results.extend(future.result(5) for future in futures)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=ask)
    thread.start()
    loop.run_forever()
    join([thread])
    assert results == [2 * number for number in range(50)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sixteen_producers_of_coroutines(loop):
    """One lost wake-up and the producer that waits for its answer stands still.

    PELTON_CALLS=1000000 makes it the million of the promise (half a minute).
    """
    producers = 16
    calls = int(os.environ.get("PELTON_CALLS", 80_000)) // producers
    batches = (1, 2, 7, 50)  # a single call finds the loop asleep most often
    sums, failures = [], []

    async def answer(number):
        return number

    def produce():
        total = done = 0
        try:
            while done < calls:
                batch = range(done, min(done + batches[done % len(batches)], calls))
                futures = [asyncio.run_coroutine_threadsafe(answer(n), loop) for n in batch]
                total += sum(future.result(30) for future in futures)
                done = batch.stop
        except BaseException as exc:
            failures.append(exc)
        sums.append(total)
        if len(sums) == producers:
            loop.call_soon_threadsafe(loop.stop)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # as many hand-overs as the machine can do
    try:
        threads = [threading.Thread(target=produce) for _ in range(producers)]
        for thread in threads:
            thread.start()
        loop.run_forever()
        join(threads)
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert sums == [calls * (calls - 1) // 2] * producers


def test_threads_wake_each_others_loops():
    """A ring of loops, each in a thread of its own, hands a token round."""
    size, rounds = 6, 100
    loops = [new_loop() for _ in range(size)]
    arrived = []

    def hand_on(index, count):
        if count == rounds * size:
            arrived.append(count)
            for loop in loops:
                loop.call_soon_threadsafe(loop.stop)
            return
        following = (index + 1) % size
        loops[following].call_soon_threadsafe(hand_on, following, count + 1)

    threads = [threading.Thread(target=loop.run_forever) for loop in loops]
    for thread in threads:
        thread.start()
    loops[0].call_soon_threadsafe(hand_on, 0, 0)
    join(threads)
    for loop in loops:
        loop.close()
    assert arrived == [rounds * size]


def test_the_exception_of_a_threadsafe_call_is_reported(loop, errors):
    loop.call_soon_threadsafe(lambda: 1 / 0)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert isinstance(errors[0]["exception"], ZeroDivisionError)
    errors.clear()


def test_wrong_arguments(loop):
    with pytest.raises(TypeError):
        loop.call_soon_threadsafe()
