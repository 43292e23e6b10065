"""Count the system calls that a server makes per echoed message, by name.

One connection, unless more are asked for, sends a fixed number of messages, one at a time,
while strace counts. Strace is
attached to a running, warm server, so starting up does not count; the few calls that open and
close the connection do, and disappear among the messages.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import common
import loops
from server import KINDS

#: Calls rarer than this, per message, belong to the connection and not to the messages.
RARE = 0.005


def count(loop: str, strace: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the calls per message of one loop."""
    command = common.server_command(loop, options.kind)
    load = {"conns": options.conns, "size": options.size, "seconds": options.seconds}
    with (
        tempfile.TemporaryDirectory(prefix="pelton-strace-") as folder,
        common.server(command) as (pid, port),
    ):
        common.run_load("echo", port, core=None, messages=200, **load)
        summary = Path(folder) / "summary"
        attach = [strace, "-q", "-c", "-f", "-o", str(summary), "-p", str(pid)]
        with common.process(attach) as tracer:
            wait_until_traced(pid)
            figures = common.run_load("echo", port, core=None, messages=options.messages, **load)
            tracer.send_signal(signal.SIGINT)  # detach, and write the summary
            tracer.wait(10)
        calls = parse_summary(summary.read_text())
    return {name: number / figures["messages"] for name, number in calls.items()}


def wait_until_traced(pid: int) -> None:
    """Wait until a tracer is attached to every thread of a process."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        if not any("TracerPid:\t0\n" in (thread / "status").read_text() for thread in threads):
            return
        time.sleep(0.01)
    raise common.BenchError("strace could not attach: is tracing allowed here (ptrace_scope)?")


def parse_summary(text: str) -> dict[str, int]:
    """Return the counts by name in the table that ``strace -c`` writes.

    A row is share, seconds, microseconds a call, calls, errors if any, and the name.
    """
    calls = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) in (5, 6) and fields[3].isdigit() and fields[-1] != "total":
            calls[fields[-1]] = int(fields[3])
    return calls


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = common.argument_parser(__doc__, results="syscalls")
    add = parser.add_argument
    add("--conns", type=common.positive, default=1, help="connections; default %(default)s")
    add("--messages", type=common.positive, default=2000, help="default %(default)s")
    add("--size", type=common.positive, default=64, help="default %(default)s")
    add("--seconds", type=common.duration, default=30, help="at most; default %(default)s")
    add("--kind", choices=KINDS, default="protocol")
    return parser.parse_args()


def main() -> None:
    """Count, print and write."""
    options = parse()
    strace = shutil.which("strace")
    if strace is None:
        print("skipped: strace is not installed, and counting system calls needs it")
        sys.exit(0)
    names = common.choose_loops(options.loops, (common.FLOOR, *loops.KNOWN))
    counted = {name: count(name, strace, options) for name in names}
    calls = sorted(
        {call for each in counted.values() for call, rate in each.items() if rate >= RARE},
        key=lambda call: -max(each.get(call, 0) for each in counted.values()),
    )
    common.print_table(
        ("calls a message", *names),
        [
            *((call, *(f"{counted[name].get(call, 0):.2f}" for name in names)) for call in calls),
            ("all", *(f"{sum(counted[name].values()):.2f}" for name in names)),
        ],
    )
    common.write_results(options, names, calls=counted)


if __name__ == "__main__":
    common.run_main(main)
