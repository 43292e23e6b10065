"""Measure how much a long run of queries grows a client, over TLS and over plain TCP.

A PostgreSQL server is started for the purpose. In a fresh process for each, asyncpg sends one
query at a time, over TLS 1.3 and over plain TCP; resident memory is read after a warm-up and at
the end. A loop whose TLS reads ask the heap for far more than they need grows where it would not
over TCP.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys

import certificate
import common
import loops
import throwaway_postgres

#: What is asked for in turn: a small row, a large one.
SIZES = (300, 8000)


async def queries(options: argparse.Namespace) -> dict[str, float]:
    """Ask, and return how many KiB the process grew after the warm-up."""
    import asyncpg

    tls = certificate.client_context(options.certificates) if options.certificates else False
    connection = await asyncpg.connect(
        host="127.0.0.1",
        port=options.port,
        user=throwaway_postgres.USER,
        database="postgres",
        ssl=tls,
    )
    version = await connection.fetchval(
        "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    )
    if version != ("TLSv1.3" if tls else None):
        raise common.BenchError(f"the connection is under {version}")

    async def ask(pairs: int) -> None:
        statement = await connection.prepare("SELECT repeat('x', $1::int)")
        for number in range(pairs):
            size = SIZES[number % len(SIZES)]
            if len(await statement.fetchval(size)) != size:
                raise common.BenchError("the server answered something else")

    await ask(options.warm_up)
    before = common.rss_kib(os.getpid())
    await ask(options.pairs)
    grown = common.rss_kib(os.getpid()) - before
    await connection.close()
    return {"grown": grown, "before": before}


def measure(
    loop: str, server: throwaway_postgres.Server, tls: bool, options: argparse.Namespace
) -> dict[str, float]:
    """Measure one loop in a fresh process."""
    command = [sys.executable, __file__, "--child", "--port", str(server.port), loop]
    command += ["--pairs", str(options.pairs), "--warm-up", str(options.warm_up)]
    if tls:
        command += ["--certificates", str(server.certificates)]
    with common.process(command) as child:
        line = common.read_line(child, timeout=1200)
        if not line:
            raise common.BenchError(f"{loop}: the measuring process gave no result")
        figures: dict[str, float] = json.loads(line)
        return figures


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = common.argument_parser(__doc__, results="postgres")
    add = parser.add_argument
    add("--pairs", type=common.positive, default=150_000, help="queries; default %(default)s")
    add("--warm-up", type=common.positive, default=15_000, help="default %(default)s")
    add("--json", action="store_true", help="print one line of JSON and write no results")
    add("--child", action="store_true", help=argparse.SUPPRESS)
    add("--port", type=int, help=argparse.SUPPRESS)
    add("--certificates", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and write; or, as the child, measure the one loop."""
    options = parse()
    if options.child:
        with asyncio.Runner(loop_factory=loops.loop_factory(options.loops[0])) as runner:
            print(json.dumps(runner.run(queries(options))), flush=True)
        return
    names = common.choose_loops(options.loops, ("asyncio", "uvloop", "aiofastnet", "pelton"))
    grown: dict[str, dict[str, float]] = {}
    try:
        with throwaway_postgres.running() as server:
            for name in names:
                plain = measure(name, server, False, options)
                secret = measure(name, server, True, options)
                grown[name] = {"TCP": plain["grown"], "TLS": secret["grown"]}
    except throwaway_postgres.NoPostgres as missing:
        raise common.BenchError(str(missing)) from missing
    if options.json:
        print(json.dumps(grown))
        return
    print(f"growth over {options.pairs:,} queries after {options.warm_up:,} to warm up")
    common.print_table(
        ("loop", "KiB over TCP", "KiB over TLS"),
        ((name, f"{kib['TCP']:,.0f}", f"{kib['TLS']:,.0f}") for name, kib in grown.items()),
    )
    for name in ("port", "certificates", "json"):
        delattr(options, name)
    common.write_results(options, names, grown_kib=grown)


if __name__ == "__main__":
    common.run_main(main)
