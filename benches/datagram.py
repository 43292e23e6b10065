"""Measure datagrams: CPU per packet sent, and per packet echoed by a server.

Sends go to sinks on loopback that nobody reads, 1500 bytes each, in bursts inside one callback;
`bare` is a Python loop around `socket.sendto`, or `socket.send` where connected. `sendto_many` is
compared with the same bare loop. The echo server's CPU time is taken per packet under a load of
one peer that keeps 32 packets under way, and of 1,000 peers that keep one each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import selectors
import socket
import statistics
import sys
import time
from typing import Any

import common
import loops

DEFAULT_LOOPS = ("bare", "asyncio", "uvloop", "aiofastnet", "pelton")
PACKET = bytes(1500)
BURST = 64

#: Peers that are sent to in turn; 0 for a connected socket.
SENDS = {"1 address": 1, "8 addresses": 8, "1,000 addresses": 1000, "connected": 0}
MANY = "sendto_many, 1 address"
ECHOES = {"echo, 1 peer": (1, 32), "echo, 1,000 peers": (1000, 1)}


def sinks(count: int) -> list[socket.socket]:
    """Sockets that are sent to and never read."""
    made = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(max(1, count))]
    for sink in made:
        sink.bind(("127.0.0.1", 0))
    return made


def addresses(to: list[socket.socket]) -> list[Any]:
    """The sinks' addresses, as many as a burst has packets."""
    names = [sink.getsockname() for sink in to]
    return names * (BURST // len(names) + 1)


def bare(peers: int, packets: int) -> float:
    """CPU microseconds a packet of a Python loop around the socket's own call."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        to = sinks(peers)
        names = addresses(to)
        sock.setblocking(False)
        send, sendto = sock.send, sock.sendto
        if not peers:
            sock.connect(names[0])
        start = time.process_time()
        if not peers:
            for _ in range(packets):
                send(PACKET)
        else:
            for number in range(packets):
                sendto(PACKET, names[number % len(names)])
        spent = time.process_time() - start
        for sink in to:
            sink.close()
        return spent / packets * 1e6


async def endpoint(peers: int, packets: int, many: bool) -> float:
    """The same by a loop's transport."""
    to = sinks(peers)
    names = addresses(to)
    loop = asyncio.get_running_loop()
    if peers:
        family: dict[str, Any] = {"family": socket.AF_INET}
    else:
        family = {"remote_addr": names[0]}
    made = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, **family)
    transport: Any = made[0]
    sendto = transport.sendto
    sent = 0
    start = time.process_time()
    while sent < packets:
        if many:
            sent += transport.sendto_many([(PACKET, names[0])] * BURST)
        elif not peers:
            for _ in range(BURST):
                sendto(PACKET)
            sent += BURST
        else:
            for number in range(sent, sent + BURST):
                sendto(PACKET, names[number % len(names)])
            sent += BURST
        await asyncio.sleep(0)
    spent = time.process_time() - start
    if transport.get_write_buffer_size():
        raise common.BenchError("the kernel did not take every packet")
    transport.close()
    for sink in to:
        sink.close()
    return spent / sent * 1e6


def sends(name: str, packets: int) -> dict[str, float]:
    """Every way of sending, in this process."""
    common.raise_descriptor_limit(1100)
    if name == "bare":
        figures = {label: bare(peers, packets) for label, peers in SENDS.items()}
        return {**figures, MANY: figures["1 address"]}
    with asyncio.Runner(loop_factory=loops.loop_factory(name)) as runner:
        figures = {
            label: runner.run(endpoint(peers, packets, False)) for label, peers in SENDS.items()
        }
        if name == "pelton":
            figures[MANY] = runner.run(endpoint(1, packets, True))
    return figures


class Echo(asyncio.DatagramProtocol):
    """Sends back what it gets."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data, addr)


async def serve() -> None:
    """Echo for ever."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    print(f"ready {transport.get_extra_info('sockname')[1]}", flush=True)
    await asyncio.Event().wait()


def load(port: int, peers: int, window: int, seconds: float) -> int:
    """Keep packets under way; how many came back."""
    common.raise_descriptor_limit(peers + 100)
    poller = selectors.DefaultSelector()
    for _ in range(peers):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.connect(("127.0.0.1", port))
        sock.setblocking(False)
        poller.register(sock, selectors.EVENT_READ)
    everyone = [key.fileobj for key in poller.get_map().values()]
    for _ in range(window):
        for peer in everyone:
            peer.send(PACKET[:64])  # type: ignore[union-attr]
    echoed, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for key, _ in poller.select(1):
            sock = key.fileobj  # type: ignore[assignment]
            try:
                for _ in range(window):
                    sock.recv(2000)
                    echoed += 1
                    sock.send(PACKET[:64])
            except BlockingIOError:
                pass
    for peer in everyone:
        peer.close()  # type: ignore[union-attr]
    return echoed


def echoes(name: str, seconds: float, core: int) -> dict[str, float]:
    """Server CPU microseconds per packet, for each number of peers."""
    figures = {}
    for label, (peers, window) in ECHOES.items():
        command = [sys.executable, __file__, "--serve", name]
        with common.server(command, core=core) as (pid, port):
            load(port, peers, window, seconds / 4)
            clock = common.CpuClock(pid)
            echoed = load(port, peers, window, seconds)
            figures[label] = clock.nanoseconds() / max(1, echoed) / 1000
    return figures


def child(name: str, packets: int, core: int) -> dict[str, float]:
    """The sends of one loop in a fresh process."""
    command = [sys.executable, __file__, "--child", "--packets", str(packets), name]
    with common.process(command, core=core) as process:
        line = common.read_line(process, timeout=600)
        if not line:
            raise common.BenchError(f"{name}: the measuring process gave no result")
        figures: dict[str, float] = json.loads(line)
        return figures


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = common.argument_parser(__doc__, results="datagram")
    add = parser.add_argument
    add("--rounds", type=common.positive, default=5, help="default %(default)s")
    add("--packets", type=common.positive, default=64_000, help="a figure; default %(default)s")
    add("--seconds", type=float, default=2.0, help="of each echo; default %(default)s")
    add("--child", action="store_true", help=argparse.SUPPRESS)
    add("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and write."""
    options = parse()
    if options.serve:
        with asyncio.Runner(loop_factory=loops.loop_factory(options.loops[0])) as runner:
            runner.run(serve())
        return
    if options.child:
        print(json.dumps(sends(options.loops[0], options.packets)), flush=True)
        return
    named = [name for name in options.loops or DEFAULT_LOOPS if name != "bare"]
    names = ["bare", *common.choose_loops(named, named)]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    core, other = common.cores()
    os.sched_setaffinity(0, {other})
    for order in common.abba(names, options.rounds):
        for name in order:
            figures = child(name, options.packets, core)
            if name != "bare":
                figures |= echoes(name, options.seconds, core)
            rounds[name].append(figures)
    medians = {
        name: {
            label: statistics.median(row[label] for row in rows)
            for label in (*SENDS, MANY, *ECHOES)
            if label in rows[0]
        }
        for name, rows in rounds.items()
    }

    def cell(name: str, label: str) -> str:
        return f"{medians[name][label]:.2f}" if label in medians[name] else "-"

    common.print_table(
        ("CPU µs a packet", *names),
        ((label, *(cell(name, label) for name in names)) for label in (*SENDS, MANY, *ECHOES)),
    )
    common.write_results(options, named, us=medians)


if __name__ == "__main__":
    common.run_main(main)
