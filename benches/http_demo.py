"""Serve one web application under uvicorn on several event loops, and compare them.

Each loop in turn serves examples/asgi_app.py for a few seconds of keep-alive requests, over HTTP
and over HTTPS; rounds are interleaved and figures are medians. The server has one core and the
load another. The HTTP parser and the application are the same for all, so the loops differ less
than in an echo.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import certificate
import common
import loops

if TYPE_CHECKING:
    import uvicorn

DEFAULT_LOOPS = ("asyncio", "uvloop", "aiofastnet+uvloop", "pelton")
SCHEMES = ("http", "https")


def uvicorn_config(certificates: str | None) -> uvicorn.Config:
    """Return how uvicorn serves the example: quietly, on the loop that is running."""
    import uvicorn

    sys.path.insert(0, str(common.ROOT / "examples"))
    return uvicorn.Config(
        "asgi_app:app",
        host="127.0.0.1",
        port=0,
        loop="none",
        log_level="warning",
        access_log=False,
        lifespan="off",
        ssl_certfile=Path(certificates) / certificate.CHAIN if certificates else None,
        ssl_keyfile=Path(certificates) / certificate.KEY if certificates else None,
    )


async def serve(certificates: str | None) -> None:
    """Serve the example on a free port, under the running loop, until SIGTERM."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print("ready", self.servers[0].sockets[0].getsockname()[1], flush=True)

    await Server(uvicorn_config(certificates)).serve()


def measure(
    loop: str, scheme: str, options: argparse.Namespace, certificates: Path
) -> dict[str, float]:
    """Serve the load once, in a fresh process, and return what it cost."""
    server_core, load_core = common.cores()
    command = [sys.executable, __file__, "--child", loop]
    if scheme == "https":
        command += ["--certificates", str(certificates)]
    with common.server(command, core=server_core) as (pid, port):
        clock = common.CpuClock(pid)
        load = common.run_load(
            "http",
            port,
            core=load_core,
            conns=options.conns,
            seconds=options.seconds,
            path=options.path,
            certificates=certificates if scheme == "https" else None,
        )
        if load["non_200"]:
            raise common.BenchError(f"{loop}: {load['non_200']} answers were not 200")
        load["cpu_us"] = clock.nanoseconds() / 1000 / load["messages"]
        return load


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = common.argument_parser(__doc__, results="http")
    add = parser.add_argument
    add("--rounds", type=common.positive, default=3, help="default %(default)s")
    add("--seconds", type=common.duration, default=2.0, help="a loop and round; default 2")
    add("--conns", type=common.positive, default=32, help="connections; default %(default)s")
    add("--path", default="/", help="/ or /stream; default %(default)s")
    add("--schemes", metavar="SCHEME", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    add("--child", action="store_true", help=argparse.SUPPRESS)
    add("--certificates", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and write; or, as the child, serve on the one loop."""
    options = parse()
    if importlib.util.find_spec("uvicorn") is None:
        raise common.BenchError("uvicorn is needed: pip install uvicorn httptools")
    if options.child:
        with asyncio.Runner(loop_factory=loops.loop_factory(options.loops[0])) as runner:
            runner.run(serve(options.certificates))
        return
    if common.FLOOR in options.loops:
        raise common.BenchError("the floor does not speak HTTP")
    names = common.choose_loops(options.loops, DEFAULT_LOOPS)
    parser = "httptools" if importlib.util.find_spec("httptools") else "h11"
    cells = len(names) * options.rounds * len(options.schemes)
    print(
        f"uvicorn with {parser}, GET {options.path} on {options.conns} connections: "
        f"{cells} times {options.seconds:g} s",
        flush=True,
    )
    rounds: dict[str, dict[str, list[dict[str, float]]]] = {
        scheme: {name: [] for name in names} for scheme in options.schemes
    }
    with certificate.folder() as certificates:
        for order in common.abba(names, options.rounds):
            for scheme in options.schemes:
                for name in order:
                    figures = measure(name, scheme, options, certificates)
                    rounds[scheme][name].append(figures)
    medians = {
        scheme: {name: common.median_by_key(rounds[scheme][name]) for name in names}
        for scheme in options.schemes
    }
    for scheme, rows in medians.items():
        print(f"\n{scheme}")
        common.print_table(
            ("loop", "requests/s", "server CPU us/request", "p50 us", "p99 us"),
            (
                (
                    name,
                    f"{figures['rate']:,.0f}",
                    f"{figures['cpu_us']:.1f}",
                    f"{figures['p50_us']:,.0f}",
                    f"{figures['p99_us']:,.0f}",
                )
                for name, figures in rows.items()
            ),
        )
    del options.certificates
    common.write_results(options, names, parser=parser, medians=medians)


if __name__ == "__main__":
    common.run_main(main)
