"""Measure what event loops charge for scheduling: nanoseconds an operation.

Each figure is taken in a fresh process, with the loops interleaved, and is the median over the
rounds of the median over the batches inside a round. No sockets, no load.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import common
import loops

DEFAULT_LOOPS = ("asyncio", "uvloop", "pelton")
BATCH = 1000

#: One batch of `BATCH` operations; returns the nanoseconds that they took together.
Operation = Callable[[asyncio.AbstractEventLoop], Awaitable[int]]


def nothing(*_: object) -> None:
    """Be called."""


async def nothing_async() -> None:
    """Be awaited."""


async def bare_contexts(_: asyncio.AbstractEventLoop) -> int:
    """Copy the context, queue it and run the callback in it, without any loop.

    No loop can do less for a callback that brings no context of its own.
    """
    copy = contextvars.copy_context
    ready: list[contextvars.Context] = []
    queue = ready.append
    start = time.perf_counter_ns()
    for _turn in range(BATCH):
        queue(copy())
    for context in ready:
        context.run(nothing)
    return time.perf_counter_ns() - start


async def call_soon(loop: asyncio.AbstractEventLoop) -> int:
    """Schedule callbacks without arguments and let them run."""
    schedule = loop.call_soon
    start = time.perf_counter_ns()
    for _ in range(BATCH):
        schedule(nothing)
    await asyncio.sleep(0)
    return time.perf_counter_ns() - start


async def call_soon_argument(loop: asyncio.AbstractEventLoop) -> int:
    """Schedule callbacks with one argument and let them run."""
    schedule = loop.call_soon
    start = time.perf_counter_ns()
    for number in range(BATCH):
        schedule(nothing, number)
    await asyncio.sleep(0)
    return time.perf_counter_ns() - start


async def call_soon_threadsafe(loop: asyncio.AbstractEventLoop) -> int:
    """Schedule callbacks the thread-safe way, from the loop's own thread, and let them run."""
    schedule = loop.call_soon_threadsafe
    done = loop.create_future()
    start = time.perf_counter_ns()
    for _ in range(BATCH - 1):
        schedule(nothing)
    schedule(done.set_result, None)
    await done
    return time.perf_counter_ns() - start


async def call_later_cancel(loop: asyncio.AbstractEventLoop) -> int:
    """Set timers and cancel each at once, as a timeout that does not happen; then clean up."""
    schedule = loop.call_later
    start = time.perf_counter_ns()
    for _ in range(BATCH):
        schedule(3600, nothing).cancel()
    await asyncio.sleep(0)
    return time.perf_counter_ns() - start


async def call_later_fire(loop: asyncio.AbstractEventLoop) -> int:
    """Set timers and let them fire; the wait until they are due does not count."""
    schedule = loop.call_later
    done = loop.create_future()
    start = time.perf_counter_ns()
    for _ in range(BATCH - 1):
        schedule(0.005, nothing)
    schedule(0.005, done.set_result, None)
    spent = time.perf_counter_ns() - start
    # The loop stands still until every timer is due.
    time.sleep(0.008)  # noqa: ASYNC251
    start = time.perf_counter_ns()
    await done
    return spent + time.perf_counter_ns() - start


async def create_task(loop: asyncio.AbstractEventLoop) -> int:
    """Create tasks and await each before the next."""
    create = loop.create_task
    start = time.perf_counter_ns()
    for _ in range(BATCH):
        await create(nothing_async())
    return time.perf_counter_ns() - start


async def sleep_zero(_: asyncio.AbstractEventLoop) -> int:
    """Yield to the loop and come back: one turn each."""
    sleep = asyncio.sleep
    start = time.perf_counter_ns()
    for _turn in range(BATCH):
        await sleep(0)
    return time.perf_counter_ns() - start


OPERATIONS: dict[str, Operation] = {
    "copy_context + append + Context.run": bare_contexts,
    "call_soon + run, 0 arguments": call_soon,
    "call_soon + run, 1 argument": call_soon_argument,
    "call_soon_threadsafe + run, own thread": call_soon_threadsafe,
    "call_later + cancel": call_later_cancel,
    "call_later + fire": call_later_fire,
    "create_task + await": create_task,
    "sleep(0)": sleep_zero,
}


async def measure(batches: int) -> dict[str, float]:
    """Measure every operation on the running loop."""
    loop = asyncio.get_running_loop()
    figures = {}
    for name, operation in OPERATIONS.items():
        for _ in range(max(2, batches // 10)):
            await operation(loop)
        gc.collect()
        taken = [await operation(loop) / BATCH for _ in range(batches)]
        figures[name] = statistics.median(taken)
    return figures


def measure_in_child(loop: str, batches: int, core: int) -> dict[str, float]:
    """Measure one loop in a fresh process and return its figures."""
    command = [sys.executable, __file__, "--child", "--batches", str(batches), loop]
    with common.process(command, core=core) as child:
        line = common.read_line(child, timeout=600)
        if not line:
            raise common.BenchError(f"{loop}: the measuring process gave no result")
        figures: dict[str, float] = json.loads(line)
        return figures


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = common.argument_parser(__doc__, results="scheduling")
    add = parser.add_argument
    add("--rounds", type=common.positive, default=5, help="default %(default)s")
    add(
        "--batches",
        type=common.positive,
        default=100,
        help=f"of {BATCH} operations, in a round; default %(default)s",
    )
    add("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and write; or, as the child, measure the one loop."""
    options = parse()
    if options.child:
        with asyncio.Runner(loop_factory=loops.loop_factory(options.loops[0])) as runner:
            print(json.dumps(runner.run(measure(options.batches))), flush=True)
        return
    if common.FLOOR in options.loops:
        raise common.BenchError("the floor schedules nothing")
    names = common.choose_loops(options.loops, DEFAULT_LOOPS)
    core, _ = common.cores()
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for order in common.abba(names, options.rounds):
        for name in order:
            rounds[name].append(measure_in_child(name, options.batches, core))
    medians = {name: common.median_by_key(rounds[name]) for name in names}
    common.print_table(
        ("nanoseconds each", *names),
        ((row, *(f"{medians[name][row]:,.0f}" for name in names)) for row in OPERATIONS),
    )
    common.write_results(options, names, ns=medians)


if __name__ == "__main__":
    common.run_main(main)
