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
    except OSError as error:  # reset, timed out: the end of this client, not of the server
        print("lost:", peer, error)
    else:
        print("closed:", peer)
    finally:
        writer.close()


async def main(host: str, port: int) -> None:
    """Serve until cancelled, which is what Ctrl-C does; the group then ends its clients, too."""
    async with asyncio.TaskGroup() as clients:

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            clients.create_task(serve_client(reader, writer))

        server = await asyncio.start_server(accept, host, port)
        for listener in server.sockets:
            print("listening on", listener.getsockname())
        try:
            await asyncio.Event().wait()
        finally:
            server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve echo over TCP, on pelton.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7007)
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        pelton.run(main(options.host, options.port))
