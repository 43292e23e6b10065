"""A UDP echo server that takes and answers datagrams by the batch.

    python examples/udp_echo.py [PORT]

A protocol with a method `datagrams_received` gets what one turn of the loop has received as one
list, and `sendto_many` sends as many with as few system calls as can be. On another loop the
same program would have `datagram_received` called for each.
"""

from __future__ import annotations

import asyncio
import sys

import pelton
from pelton.loop import DatagramTransport

Datagrams = list[tuple[bytes, tuple[str, int]]]


class Echo(asyncio.DatagramProtocol):
    """Sends every datagram back to where it came from."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, DatagramTransport)
        self.transport = transport

    def datagrams_received(self, datagrams: Datagrams) -> None:
        taken = self.transport.sendto_many(datagrams)
        if taken < len(datagrams):
            # The write buffer is full: a peer that sends faster than it reads loses some.
            print(f"{len(datagrams) - taken} datagrams not answered", file=sys.stderr)

    def error_received(self, exc: Exception) -> None:
        print(f"a peer is gone: {exc}", file=sys.stderr)


async def main(port: int) -> None:
    """Serve until cancelled, as Ctrl-C does."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", port))
    print("echo on udp {}:{}".format(*transport.get_extra_info("sockname")), flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        transport.close()


if __name__ == "__main__":
    try:
        pelton.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8007))
    except KeyboardInterrupt:
        print("bye")
