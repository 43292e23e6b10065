"""Count the heap requests of a TLS client for one small request and its answer.

The client is a plain Protocol in a process of its own, into which the counter is preloaded
(`benches/heapspy`): requests of Python, of OpenSSL and of the loop are all seen. The row `openssl`
is what OpenSSL itself asks for in one write and one read, called by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import functools
import json
import os
import ssl
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import certificate
import common
import loops

#: The row of OpenSSL alone.
ALONE = "openssl"

#: What is counted, for one request and its answer.
COUNTS = ("requests", "big", "bytes")

Figures = dict[str, float]


class Counts(ctypes.Structure):
    """What the counter gives: see benches/heapspy."""

    _fields_ = [(name, ctypes.c_uint64) for name in COUNTS]


def counter() -> Path:
    """Return the path of the counter: $PELTON_HEAPSPY, or the release build."""
    named = os.environ.get("PELTON_HEAPSPY")
    target = Path(os.environ.get("CARGO_TARGET_DIR", common.ROOT / "target"))
    path = Path(named) if named else target / "release" / "libpelton_heapspy.so"
    if not path.exists():
        raise common.BenchError(
            f"no counter at {path}: run `cargo build --release -p pelton-heapspy`, "
            "or name one in PELTON_HEAPSPY"
        )
    return path


@functools.cache
def _function() -> Callable[[], Counts]:
    function = ctypes.CDLL(None).heapspy_counts
    function.restype = Counts
    return cast(Callable[[], Counts], function)


def counts() -> list[int]:
    """Return the counts of this process."""
    now = _function()()
    return [getattr(now, name) for name in COUNTS]


def per_pair(before: list[int], after: list[int], pairs: int) -> Figures:
    """Return the difference for one pair."""
    return {
        name: (now - then) / pairs for name, then, now in zip(COUNTS, before, after, strict=True)
    }


class Client(asyncio.Protocol):
    """Sends the next request when the answer to the last is complete."""

    def __init__(self, size: int) -> None:
        self.request = b"q" * size
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.got = self.left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    async def ask(self, pairs: int) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self.left = pairs
        self.transport.write(self.request)
        await self.done

    def data_received(self, data: bytes) -> None:
        self.got += len(data)
        if self.got < len(self.request):
            return
        self.got = 0
        self.left -= 1
        if self.left:
            self.transport.write(self.request)
        else:
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server left"))


async def by_loop(options: argparse.Namespace) -> Figures:
    """Ask the server on the running loop."""
    context = certificate.client_context(options.certificates)
    transport, client = await asyncio.get_running_loop().create_connection(
        lambda: Client(options.size), "127.0.0.1", options.port, ssl=context
    )
    await client.ask(max(200, options.pairs // 10))
    before = counts()
    await client.ask(options.pairs)
    after = counts()
    transport.close()
    return per_pair(before, after, options.pairs)


def by_hand(options: argparse.Namespace) -> Figures:
    """Call OpenSSL alone: one write and one read for each pair, into a buffer that is there."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certificate.server_context(options.certificates).wrap_bio(there, back, True)
    client = certificate.client_context(options.certificates).wrap_bio(
        back, there, server_hostname="localhost"
    )
    for _ in range(3):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    message, room = b"q" * options.size, bytearray(options.size)

    def cost(*call: Any) -> list[int]:
        before = counts()
        call[0](*call[1:])
        after = counts()
        return [now - then for then, now in zip(before, after, strict=True)]

    def nothing() -> None:
        pass

    pairs = []
    for _ in range(options.pairs):
        idle = cost(nothing)  # what counting costs
        write = cost(client.write, message)
        server.read(options.size, room)
        server.write(message)
        read = cost(client.read, options.size, room)
        pairs.append([w + r - 2 * i for w, r, i in zip(write, read, idle, strict=True)])
    medians = map(statistics.median, zip(*pairs, strict=True))
    return dict(zip(COUNTS, medians, strict=True))


def measure(name: str, size: int, options: argparse.Namespace, certificates: Path) -> Figures:
    """Count in a fresh process."""
    command = [sys.executable, __file__, "--child", name, "--certificates", str(certificates)]
    command += ["--size", str(size), "--pairs", str(options.pairs)]
    server = common.server_command("asyncio", "protocol", certificates=certificates)
    with common.server(server) as (_, port):
        command += ["--port", str(port)]
        with common.process(command, env={"LD_PRELOAD": str(counter())}) as child:
            line = common.read_line(child, timeout=120)
            if not line:
                raise common.BenchError(f"{name}: the counting process gave no result")
            figures: Figures = json.loads(line)
            return figures


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = common.argument_parser(__doc__, results="heap")
    add = parser.add_argument
    add("--pairs", type=common.positive, default=5000, help="counted; default %(default)s")
    add("--sizes", type=common.byte_sizes, default=[300, 8000], help="default 300,8000")
    add("--json", action="store_true", help="print one line of JSON and write no results")
    add("--child", action="store_true", help=argparse.SUPPRESS)
    add("--size", type=common.positive, default=300, help=argparse.SUPPRESS)
    add("--port", type=int, help=argparse.SUPPRESS)
    add("--certificates", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Count, print and write; or, as the child, count for the one loop."""
    options = parse()
    if options.child:
        if options.loops[0] == ALONE:
            print(json.dumps(by_hand(options)), flush=True)
            return
        with asyncio.Runner(loop_factory=loops.loop_factory(options.loops[0])) as runner:
            print(json.dumps(runner.run(by_loop(options))), flush=True)
        return
    chosen = common.choose_loops(options.loops, tuple(loops.KNOWN))
    names = [ALONE, *chosen]
    with certificate.folder() as certificates:
        counted = {
            str(size): {name: measure(name, size, options, certificates) for name in names}
            for size in options.sizes
        }
    if options.json:
        print(json.dumps(counted))
        return
    for size, rows in counted.items():
        print(f"\n{int(size):,} B, for one request and its answer")
        common.print_table(
            ("", "heap requests", "of 128 KiB or more", "bytes"),
            (
                (
                    name,
                    f"{figures['requests']:.2f}",
                    f"{figures['big']:.2f}",
                    f"{figures['bytes']:,.0f}",
                )
                for name, figures in rows.items()
            ),
        )
    for name in ("json", "size", "port", "certificates"):
        delattr(options, name)
    common.write_results(options, chosen, counted=counted)


if __name__ == "__main__":
    common.run_main(main)
