"""The service that `endurance.py` loads: one loop, HTTP and HTTPS, on uvicorn.

    python endurance_app.py LOOP CERTIFICATES POSTGRES_PORT DESCRIPTORS

Prints its ports as JSON, serves until SIGINT, and then prints what its log complained of.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import asyncpg
import certificate
import common
import loops
import throwaway_postgres
import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Application:
    """The ASGI application."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self.websocket(receive, send)
        elif scope["type"] == "http":
            action = getattr(self, scope["path"].strip("/"))
            body = await self.body(receive)
            if body is not None:
                await self.answer(send, await action(scope["query_string"].decode(), body))

    async def body(self, receive: Receive) -> bytes | None:
        """The whole body; None if the peer has gone before its end."""
        pieces = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            pieces.append(message["body"])
            if not message.get("more_body"):
                return b"".join(pieces)

    async def answer(self, send: Send, body: bytes) -> None:
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, len(body) or 1, 50_000):
            piece = body[start : start + 50_000]
            more = start + 50_000 < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    async def digest(self, _: str, body: bytes) -> bytes:
        return hashlib.sha256(body).hexdigest().encode()

    async def download(self, query: str, _: bytes) -> bytes:
        size = int(query)
        return (b"0123456789abcdef" * (size // 16 + 1))[:size]

    async def query(self, query: str, _: bytes) -> bytes:
        async with self.pool.acquire() as connection:
            return str(await connection.fetchval("SELECT $1::bigint * 2", int(query))).encode()

    async def child(self, _: str, body: bytes) -> bytes:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
        output, _errors = await process.communicate(body)
        return output

    async def cancel(self, _query: str, _body: bytes) -> bytes:
        """Tasks that are cancelled in the middle of everything."""
        ours, theirs = socket.socketpair()
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
            tasks = [asyncio.create_task(work) for work in (reader.read(), self.slow_query())]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()
            await writer.wait_closed()
        finally:
            theirs.close()
        cancelled = all(isinstance(result, asyncio.CancelledError) for result in results)
        return b"cancelled" if cancelled else repr(results).encode()

    async def slow_query(self) -> None:
        async with self.pool.acquire() as connection:
            await connection.execute("SELECT pg_sleep(5)")

    async def state(self, _query: str, _body: bytes) -> bytes:
        state = {
            "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": threading.active_count(),
            "children": children(),
            "rss": common.rss_kib(os.getpid()),
        }
        return json.dumps(state).encode()

    async def websocket(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "bytes": message["bytes"]})


class Complaints(logging.Handler):
    """Keeps what is logged as an error, but for what a full descriptor table explains."""

    EXPECTED = ("Too many open files", "socket.accept() out of system resource")

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(logging.Formatter("%(message)s"))
        self.kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if not any(expected in text for expected in self.EXPECTED):
            self.kept.append(text)


def children() -> list[str]:
    """The process ids of this process's children."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def listening(port: int = 0) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), backlog=200)


async def serve(certificates: Path, postgres: int, complaints: Complaints) -> None:
    pool = await asyncpg.create_pool(
        host="127.0.0.1",
        port=postgres,
        user=throwaway_postgres.USER,
        database="postgres",
        ssl=certificate.client_context(certificates),
        min_size=3,
        max_size=3,
    )
    application = Application(pool)
    sockets = {"http": listening(), "https": listening()}
    options: dict[str, Any] = {
        "log_level": "error",
        "log_config": None,
        "lifespan": "off",
        "timeout_keep_alive": 2,
        "ws_max_size": 1 << 20,
    }
    tls: dict[str, Any] = {
        "ssl_certfile": str(certificates / certificate.CHAIN),
        "ssl_keyfile": str(certificates / certificate.KEY),
    }
    servers = {
        "http": uvicorn.Server(uvicorn.Config(application, **options)),
        "https": uvicorn.Server(uvicorn.Config(application, **options, **tls)),
    }
    loop = asyncio.get_running_loop()
    for server in servers.values():
        # Signals are ours.
        server.capture_signals = contextlib.nullcontext  # type: ignore[assignment,method-assign]

    def stop() -> None:
        for server in servers.values():
            server.should_exit = True

    loop.add_signal_handler(signal.SIGINT, stop)
    loop.add_signal_handler(signal.SIGTERM, stop)
    ports = {kind: sock.getsockname()[1] for kind, sock in sockets.items()}
    print(json.dumps(ports), flush=True)
    await asyncio.gather(*(servers[kind].serve([sockets[kind]]) for kind in servers))
    await pool.close()


def main() -> None:
    loop, certificates, postgres, descriptors = sys.argv[1:]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(descriptors), hard))
    complaints = Complaints()
    logging.basicConfig(level=logging.ERROR, handlers=[complaints])
    with asyncio.Runner(loop_factory=loops.loop_factory(loop)) as runner:
        runner.run(serve(Path(certificates), int(postgres), complaints))
    print(json.dumps(complaints.kept), flush=True)


if __name__ == "__main__":
    main()
