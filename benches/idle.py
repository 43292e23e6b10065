"""Measure the memory that an idle connection costs a server.

Many connections each echo one message and then stay open in silence; the server's resident
memory is compared with what it was before them. One connection has come and gone by then, so
that code and buffers needed once do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from pathlib import Path

import certificate
import common
import loops
from server import KINDS

#: How long a server may take to become quiet before its memory is read.
SETTLE_SECONDS = 0.5

#: The floor over TLS once more, with the buffers given back between records, as CPython does.
RELEASING = "floor, releasing"


def measure(loop: str, options: argparse.Namespace, certificates: Path | None) -> float:
    """Return the KiB of one idle connection, in a fresh server."""
    server_core, load_core = common.cores()
    command = common.server_command(loop, options.kind, certificates=certificates)
    if loop == RELEASING:
        command = common.server_command(common.FLOOR, options.kind, certificates=certificates)
        command.append("--release-buffers")
    shared = {"size": options.size, "certificates": certificates}
    with common.server(command, core=server_core) as (pid, port):
        common.run_load("echo", port, core=load_core, conns=1, messages=10, **shared)
        time.sleep(SETTLE_SECONDS)
        before = common.rss_kib(pid)
        conns: int = options.conns
        hold = common.load_command(
            "echo",
            port,
            conns=conns,
            messages=conns,
            seconds=60,
            hold=60,
            **shared,
        )
        with common.process(hold, core=load_core) as load:
            common.read_figures(load, timeout=120)
            time.sleep(SETTLE_SECONDS)
            return (common.rss_kib(pid) - before) / conns


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = common.argument_parser(__doc__, results="idle")
    add = parser.add_argument
    add("--conns", type=common.positive, default=2000, help="held; default %(default)s")
    add("--size", type=common.positive, default=1024, help="of the echo; default %(default)s")
    add("--kind", choices=KINDS, default="protocol")
    add("--tls", action="store_true", help="over TLS")
    add("--rounds", type=common.positive, default=5, help="default %(default)s")
    return parser.parse_args()


def main() -> None:
    """Measure, print and write."""
    options = parse()
    names = common.choose_loops(options.loops, (common.FLOOR, *loops.KNOWN))
    if options.tls and common.FLOOR in names:
        names.insert(names.index(common.FLOOR) + 1, RELEASING)
    common.raise_descriptor_limit(options.conns + 100)
    rounds: dict[str, list[float]] = {name: [] for name in names}
    with certificate.folder() if options.tls else contextlib.nullcontext() as certificates:
        for order in common.abba(names, options.rounds):
            for name in order:
                rounds[name].append(measure(name, options, certificates))
    medians = {name: round(statistics.median(rounds[name]), 2) for name in names}
    over = "TLS" if options.tls else "TCP"
    print(
        f"{options.conns:,} connections over {over}, {options.kind}, "
        f"after one echo of {options.size:,} B"
    )
    common.print_table(
        ("loop", "KiB a connection"), ((name, f"{medians[name]:.2f}") for name in names)
    )
    common.write_results(options, [name for name in names if name != RELEASING], kib=medians)


if __name__ == "__main__":
    common.run_main(main)
