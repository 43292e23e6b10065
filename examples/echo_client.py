"""A client for echo_server.py: asyncio's streams, on pelton.

    python examples/echo_client.py [--host HOST] [--port PORT] [MESSAGE ...]

Sends each message as a line, waits for it to come back, and prints how long that took.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence

import pelton


async def main(host: str, port: int, messages: Sequence[str]) -> None:
    """Send the messages, one after the other."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(host, port)
    try:
        for message in messages:
            line = message.encode() + b"\n"
            start = time.perf_counter()
            writer.write(line)
            await writer.drain()
            # An echo may come in pieces, so it is its length that says when it is complete.
            async with asyncio.timeout(10):
                reply = await reader.readexactly(len(line))
            micros = (time.perf_counter() - start) * 1e6
            print(f"{reply.decode().rstrip()}  ({micros:.0f} us)")
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Talk to an echo server, on pelton.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7007)
    parser.add_argument("messages", metavar="MESSAGE", nargs="*", default=["hello", "goodbye"])
    options = parser.parse_args()
    try:
        pelton.run(main(options.host, options.port, options.messages))
    except (OSError, EOFError) as error:  # OSError: refused, reset, timed out; EOFError: cut off
        sys.exit(f"echo_client: {error or type(error).__name__}")
    except KeyboardInterrupt:
        sys.exit(130)
