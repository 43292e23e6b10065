"""An echo server: asyncio's streams, on pelton.

    python examples/echo_server.py [--host HOST] [--port PORT]

Talk to it with echo_client.py; Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib

import pelton


async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what one client sends, until it hangs up."""
    peer = writer.get_extra_info("peername")
    print("connected:", peer)
    try:
        # Pelton sends inside write(), so there is only something to wait for in drain() when the
        # client reads more slowly than it sends; then this stops reading, too.
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError as error:
        print("lost:", peer, error)
    else:
        print("closed:", peer)
    finally:
        writer.close()


async def main(host: str, port: int) -> None:
    """Serve until cancelled, which is what Ctrl-C does."""
    server = await asyncio.start_server(serve_client, host, port)
    for listener in server.sockets:
        print("listening on", listener.getsockname())
    try:
        await asyncio.Event().wait()
    finally:
        # No new clients; run() then cancels the tasks of those that are still connected.
        server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve echo over TCP, on pelton.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7007)
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        pelton.run(main(options.host, options.port))
