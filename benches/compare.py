"""Compare event loops by what one echoed message costs the server.

Rounds are interleaved: in each, every loop serves the same load for a few seconds, and every
second round goes backwards. The server has one core and the load another. Over TLS the floor is
OpenSSL on the socket itself, and the load is rustls. Figures are medians over the rounds; the
ratio to the floor is the median of the ratios inside each round, because absolute values wander
with the machine's mood.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import certificate
import common
import loops
from server import KINDS


@dataclass(frozen=True)
class Cell:
    """One thing to measure in every round."""

    kind: str
    size: int


@dataclass(frozen=True)
class Row:
    """The medians of one loop in one cell."""

    loop: str
    kind: str
    size: int
    cpu_us: float
    floor_ratio: float
    rate: float
    p50_us: float
    p99_us: float
    cpu_us_rounds: list[float]


Figures = dict[str, float]
Measured = dict[tuple[Cell, str], list[Figures]]


def measure(
    loop: str, cell: Cell, options: argparse.Namespace, certificates: Path | None
) -> Figures:
    """Serve the load once, in a fresh process, and return what it cost."""
    server_core, load_core = common.cores()
    command = common.server_command(loop, cell.kind, certificates=certificates)
    with common.server(command, core=server_core, env=options.env) as (pid, port):
        clock = common.CpuClock(pid)
        load = common.run_load(
            "echo",
            port,
            core=load_core,
            conns=options.conns,
            size=cell.size,
            seconds=options.seconds,
            certificates=certificates,
        )
        return {
            "cpu_us": clock.nanoseconds() / 1000 / load["messages"],
            "rate": load["rate"],
            "p50_us": load["p50_us"],
            "p99_us": load["p99_us"],
        }


def run(
    options: argparse.Namespace, names: list[str], cells: list[Cell], certificates: Path | None
) -> Measured:
    """Measure every cell under every loop in every round."""
    measured: Measured = defaultdict(list)
    for number, order in enumerate(common.abba(names, options.rounds), start=1):
        print(f"round {number} of {options.rounds}: {' '.join(order)}", file=sys.stderr)
        for cell in cells:
            for loop in order:
                measured[cell, loop].append(measure(loop, cell, options, certificates))
    return measured


def summarize(measured: Measured) -> list[Row]:
    """Reduce the rounds to medians and to ratios to the floor of the same round."""
    rows = []
    for (cell, loop), rounds in measured.items():
        floor = measured[cell, common.FLOOR]
        ratios = [
            mine["cpu_us"] / least["cpu_us"] for mine, least in zip(rounds, floor, strict=True)
        ]
        rows.append(
            Row(
                loop=loop,
                kind=cell.kind,
                size=cell.size,
                floor_ratio=round(statistics.median(ratios), 3),
                cpu_us_rounds=[round(figures["cpu_us"], 3) for figures in rounds],
                **{name: round(value, 3) for name, value in common.median_by_key(rounds).items()},
            )
        )
    return rows


def show(rows: list[Row], cells: list[Cell]) -> None:
    """Print one table for each cell."""
    for cell in cells:
        print(f"\n{cell.kind}, {cell.size:,} B")
        common.print_table(
            ("loop", "CPU us/message", "to floor", "messages/s", "p50 us", "p99 us"),
            (
                (
                    row.loop,
                    f"{row.cpu_us:.2f}",
                    f"{row.floor_ratio:.2f}",
                    f"{row.rate:,.0f}",
                    f"{row.p50_us:.0f}",
                    f"{row.p99_us:.0f}",
                )
                for row in rows
                if (row.kind, row.size) == (cell.kind, cell.size)
            ),
        )


def variable(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = common.argument_parser(__doc__, results="echo")
    add = parser.add_argument
    add("--rounds", type=common.positive, default=5, help="default %(default)s")
    add("--seconds", type=common.duration, default=2.0, help="of load a cell; default %(default)s")
    add("--conns", type=common.positive, default=10, help="connections; default %(default)s")
    add(
        "--sizes",
        metavar="BYTES",
        type=common.byte_sizes,
        default=[64, 1024, 16384, 262144],
        help="message sizes, with commas; default 64,1024,16384,262144",
    )
    add("--tls", action="store_true", help="echo over TLS")
    add("--kinds", metavar="KIND", nargs="+", choices=KINDS, default=["protocol"])
    add(
        "--env",
        metavar="NAME=VALUE",
        action="append",
        type=variable,
        default=[],
        help="a variable for the servers, such as MALLOC_MMAP_THRESHOLD_=1073741824",
    )
    options = parser.parse_args()
    options.env = dict(options.env)
    if options.rounds < 5:
        print(f"{options.rounds} rounds are too few for figures to quote", file=sys.stderr)
    return options


def main() -> None:
    """Measure, print and write."""
    options = parse()
    chosen = common.choose_loops(options.loops, tuple(loops.KNOWN))
    names = [common.FLOOR, *(name for name in chosen if name != common.FLOOR)]
    cells = [Cell(kind, size) for kind in options.kinds for size in options.sizes]
    with certificate.folder() if options.tls else contextlib.nullcontext() as certificates:
        rows = summarize(run(options, names, cells, certificates))
    show(rows, cells)
    common.write_results(options, names, rows=[asdict(row) for row in rows])


if __name__ == "__main__":
    common.run_main(main)
