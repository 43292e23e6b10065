"""Compare event loops by what a TLS handshake costs the server.

Ten clients connect, shake hands (TLS 1.3, ECDSA P-256, no resumption), echo one byte and close,
again and again. Rounds are interleaved and figures are medians; the floor is OpenSSL on the
socket itself. Accepting, one echo and closing are in the figure, for every server alike.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import certificate
import common
import loops


def measure(loop: str, options: argparse.Namespace, certificates: Path) -> dict[str, float]:
    """Serve the load once, in a fresh process, and return what it cost."""
    server_core, load_core = common.cores()
    command = common.server_command(loop, "protocol", certificates=certificates)
    load = {"conns": options.conns, "certificates": certificates}
    with common.server(command, core=server_core) as (pid, port):
        common.run_load("handshakes", port, core=load_core, seconds=0.2, **load)
        clock = common.CpuClock(pid)
        figures = common.run_load(
            "handshakes", port, core=load_core, seconds=options.seconds, **load
        )
        return {
            "cpu_us": round(clock.nanoseconds() / 1000 / figures["messages"], 1),
            "rate": figures["rate"],
            "p99_us": figures["p99_us"],
        }


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = common.argument_parser(__doc__, results="handshakes")
    add = parser.add_argument
    add("--rounds", type=common.positive, default=5, help="default %(default)s")
    add("--seconds", type=common.duration, default=2.0, help="a loop and round; default 2")
    add("--conns", type=common.positive, default=10, help="at a time; default %(default)s")
    return parser.parse_args()


def main() -> None:
    """Measure, print and write."""
    options = parse()
    names = common.choose_loops(options.loops, (common.FLOOR, *loops.KNOWN))
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with certificate.folder() as certificates:
        for order in common.abba(names, options.rounds):
            for name in order:
                rounds[name].append(measure(name, options, certificates))
    medians = {name: common.median_by_key(rounds[name]) for name in names}
    common.print_table(
        ("loop", "CPU us/handshake", "handshakes/s", "p99 us"),
        (
            (
                name,
                f"{figures['cpu_us']:.0f}",
                f"{figures['rate']:,.0f}",
                f"{figures['p99_us']:,.0f}",
            )
            for name, figures in medians.items()
        ),
    )
    common.write_results(options, names, medians=medians)


if __name__ == "__main__":
    common.run_main(main)
