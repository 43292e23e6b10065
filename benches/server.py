"""Serve echo on 127.0.0.1 under a named event loop, until killed.

Prints ``ready PORT`` once it listens; PORT 0 takes a free one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import ssl
from typing import cast

import certificate
import loops

BACKLOG = 4096
CHUNK = 64 * 1024

#: The ways to write the server: each is another path through the loop.
KINDS = ("protocol", "buffered", "streams")


class Echo(asyncio.Protocol):
    """The plain protocol: what comes in goes out.

    The cast is a cast because uvloop's transports do not derive from asyncio's.
    """

    __slots__ = ("transport",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """The same with a buffer of the protocol's own.

    The copy is needed: a transport may keep what it was given, and the buffer is filled again.
    """

    __slots__ = ("buffer", "transport")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.buffer = memoryview(bytearray(CHUNK))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


async def echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The same with streams: one task per connection."""
    with contextlib.suppress(OSError), contextlib.closing(writer):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()


async def listen(kind: str, port: int, context: ssl.SSLContext | None) -> asyncio.Server:
    """Start the server of a kind."""
    host = "127.0.0.1"
    if kind == "streams":
        return await asyncio.start_server(echo_stream, host, port, backlog=BACKLOG, ssl=context)
    protocol = Echo if kind == "protocol" else BufferedEcho
    loop = asyncio.get_running_loop()
    return await loop.create_server(protocol, host, port, backlog=BACKLOG, ssl=context)


async def serve(kind: str, port: int, context: ssl.SSLContext | None) -> None:
    """Listen and serve until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    server = await listen(kind, port, context)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()
    server.close()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = ", ".join(loops.KNOWN)
    parser.add_argument("loop", metavar="LOOP", help=f"{known}, or MODULE:FACTORY")
    parser.add_argument("kind", metavar="KIND", choices=KINDS)
    parser.add_argument("port", metavar="PORT", type=int)
    parser.add_argument("--certificates", metavar="FOLDER", help="serve over TLS, with those in it")
    options = parser.parse_args()
    if not 0 <= options.port <= 65535:
        parser.error(f"PORT must be between 0 and 65535, not {options.port}")
    try:
        factory = loops.loop_factory(options.loop)
    except loops.UnknownLoop as error:
        parser.error(str(error))
    folder = options.certificates
    context = certificate.server_context(folder) if folder else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(options.kind, options.port, context))


if __name__ == "__main__":
    main()
