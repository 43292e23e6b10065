"""Hundreds of lives of loops, servers and connections leave the process as they found it."""

import asyncio
import contextlib
import gc
import os
import socket
import time
from subprocess import PIPE

import pytest
from helpers import Recorder, new_loop, open_fds, settle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def threads():
    return set(os.listdir("/proc/self/task"))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


async def life(turns):
    """A server, some clients, and cancels after `turns` turns of the loop."""
    loop = asyncio.get_running_loop()
    protocols = []

    class Echo(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            protocols.append(self)

        def data_received(self, data):
            self.transport.write(data)

    server = await loop.create_server(Echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    transport, client = await loop.create_connection(Recorder, *address)
    transport.write(b"x" * 200_000)
    await client.got(200_000)
    leavers = [
        loop.create_task(loop.create_connection(Recorder, *address)),
        loop.create_task(loop.create_connection(Recorder, "localhost", address[1], family=socket.AF_INET)),
        loop.create_task(asyncio.open_connection(*address)),
        loop.create_task(loop.sock_connect(early := socket.socket(), address)),
        loop.create_task(loop.getaddrinfo("localhost", 1)),
        loop.create_task(asyncio.sleep(1000)),
    ]
    early.setblocking(False)
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in leavers:
        task.cancel()
    for result in await asyncio.gather(*leavers, return_exceptions=True):
        if isinstance(result, tuple):
            end = result[0] if isinstance(result[0], asyncio.Transport) else result[1].transport
            end.abort()
        elif isinstance(result, Exception) and not isinstance(result, OSError):
            raise result
    early.close()
    if turns % 2:
        transport.abort()
    else:
        transport.close()
    await client.seen("lost")
    await settle()
    server.close()
    for protocol in protocols:
        protocol.transport.abort()
    await asyncio.wait_for(server.wait_closed(), 5)
    await settle()
    await loop.run_in_executor(None, int)


def one_cycle(number):
    loop = new_loop()
    try:
        loop.run_until_complete(life(number % 10))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def eventually_equal(read, expected):
    """Threads of a pool end a moment after they were told to."""
    deadline = time.monotonic() + 5
    while (found := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_two_hundred_lives():
    # Before the first life: threads of a pool that is on its way out would count as there.
    threads_before = threads()
    for number in range(20):
        one_cycle(number)
    gc.collect()
    fds_before = open_fds()
    for number in range(60):
        one_cycle(number)
    gc.collect()
    middle = resident()
    for number in range(120):
        one_cycle(number)
    gc.collect()
    assert open_fds().keys() == fds_before.keys()
    assert eventually_equal(threads, threads_before) == threads_before
    assert resident() - middle < 6 << 20


def test_a_thousand_connections_come_and_go():
    loop = new_loop()

    async def crowd():
        server = await loop.create_server(Recorder, "127.0.0.1", 0, backlog=300)
        address = server.sockets[0].getsockname()
        for _ in range(2):
            made = await asyncio.gather(*(loop.create_connection(Recorder, *address) for _ in range(200)))
            for transport, _ in made:
                transport.write(b"x")
            for transport, _ in made:
                transport.close()
            for _, protocol in made:
                await protocol.seen("lost")
        server.close()
        await asyncio.wait_for(server.wait_closed(), 10)
        await settle()

    try:
        loop.run_until_complete(crowd())
        gc.collect()
        before, memory = open_fds(), resident()
        for _ in range(4):
            loop.run_until_complete(crowd())
        gc.collect()
        assert open_fds().keys() == before.keys()
        assert resident() - memory < 4 << 20
    finally:
        loop.close()


def zombies():
    """Children of this process that have ended and that nobody has reaped."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) == os.getpid():
                found.append(int(pid))
    return found


async def a_child_and_two_pipes(number):
    """A child that answers, one that is killed, and a pipe between two transports."""
    cat = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    assert (await cat.communicate(bytes(number)))[0] == bytes(number)
    if number % 5 == 0:
        sleep = await asyncio.create_subprocess_exec("sleep", "60", stdout=PIPE)
        sleep.kill()
        assert await sleep.wait() == -9
        await sleep.stdout.read()
    loop = asyncio.get_running_loop()
    reader, writer = os.pipe()
    receiver, receiving = await loop.connect_read_pipe(Recorder, open(reader, "rb", 0))
    sender, sending = await loop.connect_write_pipe(Recorder, open(writer, "wb", 0))
    sender.write(bytes(100_000))
    if number % 3 == 0:
        receiver.close()
    else:
        await receiving.got(100_000)
        sender.close()
    await receiving.seen("lost")
    await sending.seen("lost")


def test_processes_and_pipes_keep_everything_level():
    threads_before = threads()

    def lives(count):
        for number in range(count):
            loop = new_loop()
            loop.run_until_complete(a_child_and_two_pipes(number))
            loop.close()
        gc.collect()

    lives(150)
    fds_before, memory = open_fds(), resident()
    lives(500)
    assert open_fds().keys() == fds_before.keys()
    assert eventually_equal(threads, threads_before) == threads_before
    assert resident() - memory < 6 << 20
    assert zombies() == []


def test_endless_traffic_keeps_memory_level():
    loop = new_loop()

    async def traffic(rounds):
        ours, peer = socket.socketpair()
        with peer:
            peer.setblocking(False)
            transport, protocol = await loop.create_connection(Recorder, sock=ours)
            for number in range(rounds):
                size = 1 + number * 7919 % 30_000
                transport.write(bytes(size))
                transport.writelines([b"abc"] * 10)
                await loop.sock_sendall(peer, bytes(size))
                await protocol.got(size)
                protocol.chunks.clear()
                with contextlib.suppress(BlockingIOError):
                    while True:
                        peer.recv(1 << 20)
            transport.close()
            await protocol.seen("lost")

    try:
        loop.run_until_complete(traffic(500))
        gc.collect()
        before = resident()
        loop.run_until_complete(traffic(6000))
        gc.collect()
        assert resident() - before < 4 << 20
    finally:
        loop.close()


def test_timers_and_callbacks_keep_memory_level():
    loop = new_loop()

    def churn(rounds):
        for _ in range(rounds):
            handles = [loop.call_later(1000 + number, print, number) for number in range(500)]
            for handle in handles:
                handle.cancel()
            for number in range(500):
                loop.call_soon(int, number)
            loop.call_soon(loop.stop)
            loop.run_forever()

    try:
        churn(50)
        gc.collect()
        before = resident()
        churn(400)
        gc.collect()
        assert resident() - before < 3 << 20
    finally:
        loop.close()
