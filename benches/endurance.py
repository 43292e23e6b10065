"""Run a service under mixed load with faults for as long as wanted, and check every answer.

One process serves an application with uvicorn over HTTP and HTTPS on one loop (see
`endurance_app.py`): echoes, slow downloads, queries on a PostgreSQL over TLS, child processes,
cancelled tasks, websockets. Another sends all of these at once and checks each answer against
what it must be. Meanwhile peers misbehave: they reset in the middle of a request, stall, read
slowly, send garbage to the TLS port, and fill the server's descriptor table.

An answer that was begun must come whole and right; a request may fail only where a fault was made
on purpose. At the end the server must answer at once, with the descriptors, threads and children
it had, and with no error in its log.

    python benches/endurance.py --minutes 60 --pieces 12
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import signal
import socket
import ssl
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import certificate
import common
import loops
import throwaway_postgres

#: Of every kind so many workers run at once.
WORKERS = {"echo": 6, "download": 2, "query": 2, "child": 1, "cancel": 1, "websocket": 2}
FAULTS = ("reset", "stall", "slow", "garbage", "flood")

#: Seconds in which an answer must come, under the worst of the load.
PATIENCE = 30.0

#: The server may have so many descriptors.
DESCRIPTORS = 256


class Wrong(Exception):
    """The server has done what it must not."""


class Failed(Exception):
    """The server has said that it cannot; it may, while its descriptor table is full."""


class Client:
    """The peers of one server, good and bad."""

    def __init__(self, ports: dict[str, int], context: ssl.SSLContext, seed: int) -> None:
        self.ports, self.context = ports, context
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.stopping = asyncio.Event()
        # While the table is full on purpose, and for a moment after, connections may be refused.
        self.flooded_until = 0.0

    async def connect(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to either port."""
        if self.random.random() < 0.5:
            return await asyncio.open_connection("127.0.0.1", self.ports["http"], **options)
        return await asyncio.open_connection(
            "127.0.0.1",
            self.ports["https"],
            ssl=self.context,
            server_hostname="localhost",
            ssl_shutdown_timeout=5,
            **options,
        )

    async def request(
        self, path: str, body: bytes = b"", *, slowly: bool = False
    ) -> tuple[int, bytes]:
        """One request on a connection of its own; status and body."""
        reader, writer = await self.connect(limit=4096 if slowly else 65536)
        try:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
            head_bytes = await reader.readuntil(b"\r\n\r\n")
            status = int(head_bytes.split(b" ", 2)[1])
            fields = dict(
                line.lower().split(b": ", 1) for line in head_bytes.split(b"\r\n")[1:] if line
            )
            left = int(fields[b"content-length"])
            pieces = []
            while left:
                piece = await reader.read(min(left, 4096 if slowly else 65536))
                if not piece:
                    raise Wrong(f"{path}: the answer ended {left} bytes early")
                pieces.append(piece)
                left -= len(piece)
                if slowly:
                    await asyncio.sleep(0.005)
            return status, b"".join(pieces)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def expect(self, path: str, body: bytes, answer: bytes, *, slowly: bool = False) -> None:
        """A request whose answer is known."""
        status, got = await self.request(path, body, slowly=slowly)
        if status != 200:
            raise Failed(f"{path}: {status}")
        if got != answer:
            raise Wrong(f"{path}: {len(got)} bytes that differ from {len(answer)}")

    def content(self, most: int) -> bytes:
        """Bytes that no other request has."""
        return self.random.randbytes(self.random.randint(1, most))

    # --- The good ones ------------------------------------------------------------------------

    async def echo(self) -> None:
        body = self.content(200_000 if self.random.random() < 0.1 else 2000)
        await self.expect("/digest", body, hashlib.sha256(body).hexdigest().encode())

    async def download(self) -> None:
        size = self.random.randint(1, 1 << 20)
        await self.expect(f"/download?{size}", b"", pattern(size))

    async def query(self) -> None:
        number = self.random.randint(0, 10**9)
        await self.expect(f"/query?{number}", b"", str(number * 2).encode())

    async def child(self) -> None:
        body = self.content(100_000)
        await self.expect("/child", body, body)

    async def cancel(self) -> None:
        await self.expect("/cancel", b"", b"cancelled")

    async def websocket(self) -> None:
        from websockets.asyncio.client import connect

        secure = self.random.random() < 0.5
        scheme, port = ("wss", "https") if secure else ("ws", "http")
        url = f"{scheme}://localhost:{self.ports[port]}/ws"
        context = self.context if secure else None
        async with connect(url, ssl=context, compression=None) as link:
            for _ in range(self.random.randint(1, 20)):
                message = self.content(20_000)
                await link.send(message)
                if await link.recv() != message:
                    raise Wrong("a websocket message came back changed")

    # --- The bad ones -------------------------------------------------------------------------

    async def reset(self) -> None:
        """Begin a request and reset the connection."""
        _, writer = await self.connect()
        writer.write(b"POST /digest HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nhalf")
        await asyncio.sleep(self.random.random() / 50)
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async def stall(self) -> None:
        """Say half of a request or of a handshake, and nothing more for a while."""
        port = self.ports[self.random.choice(("http", "https"))]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(self.random.choice((b"GET / HT", b"\x16\x03\x01\x02\x00\x01", b"")))
        await asyncio.sleep(1 + self.random.random())
        writer.transport.abort()

    async def slow(self) -> None:
        """Read a download slowly, to its end."""
        size = 300_000
        await self.expect(f"/download?{size}", b"", pattern(size), slowly=True)

    async def garbage(self) -> None:
        """Send what is no TLS to the TLS port."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports["https"])
        writer.write(self.content(3000))
        with contextlib.suppress(OSError):
            await asyncio.wait_for(reader.read(), 2)
        writer.transport.abort()

    async def flood(self) -> None:
        """Fill the server's table of descriptors for a moment."""
        await asyncio.sleep(10 + 10 * self.random.random())
        self.flooded_until = time.monotonic() + PATIENCE
        held = []
        try:
            for _ in range(DESCRIPTORS + 50):
                opening = asyncio.open_connection("127.0.0.1", self.ports["http"])
                held.append((await asyncio.wait_for(opening, 2))[1])
            await asyncio.sleep(0.5)
        except (OSError, TimeoutError):
            pass
        finally:
            for writer in held:
                writer.transport.abort()
        self.flooded_until = time.monotonic() + 5

    # --- All together -------------------------------------------------------------------------

    async def worker(self, kind: str, act: Callable[[], Awaitable[None]]) -> None:
        """Do one thing again and again."""
        while not self.stopping.is_set():
            begun = time.monotonic()
            try:
                await asyncio.wait_for(act(), PATIENCE)
            except Wrong:
                raise
            except TimeoutError as error:
                if begun > self.flooded_until:
                    raise Wrong(f"{kind}: no answer in {PATIENCE:.0f} s") from error
                self.refused[kind] += 1
            except Exception as error:
                # A full table shows as a refused connection, one that ends, or an answer of 500.
                if begun > self.flooded_until and time.monotonic() > self.flooded_until:
                    raise Wrong(f"{kind}: {error!r}") from error
                self.refused[kind] += 1
                await asyncio.sleep(0.05)
            else:
                self.done[kind] += 1

    async def run(self, seconds: float) -> None:
        """Everything at once for so long."""
        async with asyncio.TaskGroup() as group:
            for kind, count in WORKERS.items():
                for _ in range(count):
                    group.create_task(self.worker(kind, getattr(self, kind)))
            for kind in FAULTS:
                group.create_task(self.worker(kind, getattr(self, kind)))
            await asyncio.sleep(seconds)
            self.stopping.set()


def pattern(size: int) -> bytes:
    """What a download of this size must be."""
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


async def one_piece(
    ports: dict[str, int], options: argparse.Namespace, number: int
) -> Counter[str]:
    """One piece of the time; what the server has at its end must be what it had."""
    context = certificate.client_context(options.certificates)
    client = Client(ports, context, options.seed + number)
    await client.echo()
    await client.query()
    before = json.loads((await client.request("/state"))[1])
    await client.run(options.minutes * 60 / options.pieces)
    # Connections that peers left hanging end by themselves.
    for _ in range(100):
        after = json.loads((await client.request("/state"))[1])
        if after["descriptors"] <= before["descriptors"] and not after["children"]:
            break
        await asyncio.sleep(0.2)
    else:
        raise Wrong(f"the server had {before} and has {after}")
    done = ", ".join(f"{count} {kind}" for kind, count in sorted(client.done.items()))
    refused = sum(client.refused.values())
    print(
        f"piece {number + 1}: {done}; {refused} refused while flooded; "
        f"{after['rss']} KiB, {after['descriptors']} descriptors, {after['threads']} threads",
        flush=True,
    )
    client.done["refused"] = refused
    return client.done


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    add = parser.add_argument
    add("--minutes", type=float, default=2.0, help="in all; default %(default)s")
    add("--pieces", type=common.positive, default=1, help="checks in between; default %(default)s")
    add("--seed", type=int, default=1, help="of what is sent; default %(default)s")
    add("--loop", default="pelton", help="of both processes; default %(default)s")
    return parser.parse_args()


def main() -> None:
    """Start the server and load it."""
    options = parse()
    with contextlib.ExitStack() as stack:
        postgres = stack.enter_context(throwaway_postgres.running())
        options.certificates = postgres.certificates
        app = Path(__file__).with_name("endurance_app.py")
        command = [sys.executable, str(app), options.loop, str(postgres.certificates)]
        command += [str(postgres.port), str(DESCRIPTORS)]
        server = stack.enter_context(common.process(command))
        line = common.read_line(server, 20)
        if not line.startswith("{"):
            raise common.BenchError(f"the server did not start: {line!r}")
        ports = json.loads(line)
        factory = loops.loop_factory(options.loop)
        total: Counter[str] = Counter()
        for number in range(options.pieces):
            with asyncio.Runner(loop_factory=factory) as runner:
                total += runner.run(one_piece(ports, options, number))
            if server.poll() is not None:
                raise Wrong(f"the server has ended with {server.returncode}")
        server.send_signal(signal.SIGINT)
        complaints = json.loads(common.read_line(server, 20) or "null")
        if server.wait(20) != 0 or complaints is None:
            raise Wrong(f"the server did not end in order: {server.returncode}")
        if complaints:
            raise Wrong("the server's log has errors:\n" + "\n".join(complaints[:20]))
    answers = sum(total[kind] for kind in (*WORKERS, "slow"))
    faults = sum(total[kind] for kind in FAULTS if kind != "slow")
    print(f"endurance: {answers} answers right, 0 wrong, beside {faults} peers that misbehaved")


if __name__ == "__main__":
    try:
        common.run_main(main)
    except (Wrong, ExceptionGroup) as error:
        sys.exit(f"endurance: {error!r}")
