"""create_server and Server: start, stop, clients, options."""

import asyncio
import contextvars
import os
import socket
import subprocess
import sys
import weakref

import pytest
from helpers import (
    Recorder,
    beyond_asyncio,
    free_port,
    listener,
    recv_to_end,
    settle,
    since,
    within,
)

# wait_closed() returned at once before 3.12.1.
WAITS_FOR_CLIENTS = since(3, 12, 1)


class Server:
    """A listening server whose protocols are kept in the order of their making."""

    def __init__(self, loop):
        self.loop = loop
        self.protocols = []
        self.clients = []

    def make(self):
        self.protocols.append(Recorder())
        return self.protocols[-1]

    async def start(self, host="127.0.0.1", port=0, **kwargs):
        self.server = await self.loop.create_server(self.make, host, port, **kwargs)
        return self.server

    async def connect(self):
        """A blocking client whose protocol has seen connection_made."""
        count = len(self.protocols)
        client = socket.create_connection(self.server.sockets[0].getsockname())
        client.settimeout(5)
        self.clients.append(client)
        while len(self.protocols) == count:
            await asyncio.sleep(0)
        await self.protocols[-1].seen("made")
        return client, self.protocols[-1]


@pytest.fixture
def served(loop):
    server = Server(loop)
    yield server
    for client in server.clients:
        client.close()


async def test_attributes(loop, served):
    server = await served.start()
    assert isinstance(server, asyncio.AbstractServer)
    assert server.get_loop() is loop
    assert server.is_serving()
    assert isinstance(server.sockets, tuple)
    (sock,) = server.sockets
    assert isinstance(sock, asyncio.trsock.TransportSocket)
    assert "sockets=" in repr(server)
    assert weakref.ref(server)() is server
    server.close()
    assert server.sockets == ()
    assert not server.is_serving()
    server.close()
    await within(server.wait_closed())


async def test_after_close_nobody_can_connect(served):
    server = await served.start()
    address = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def test_close_leaves_the_clients_alone(served):
    server = await served.start()
    client, protocol = await served.connect()
    server.close()
    client.send(b"still here")
    assert await protocol.got(10) == b"still here"
    protocol.transport.write(b"me too")
    assert client.recv(100) == b"me too"
    client.close()
    await protocol.seen("lost")
    await within(server.wait_closed())


@WAITS_FOR_CLIENTS
async def test_wait_closed_waits_for_close_and_for_the_clients(loop, served):
    server = await served.start()
    _, protocol = await served.connect()
    waiting = [loop.create_task(server.wait_closed()) for _ in range(2)]
    await settle()
    assert not any(task.done() for task in waiting)
    server.close()
    await settle()
    assert not any(task.done() for task in waiting)
    protocol.transport.close()
    await within(asyncio.gather(*waiting))
    assert "lost" in protocol.events


@WAITS_FOR_CLIENTS
async def test_wait_closed_waits_for_close_without_clients(loop, served):
    server = await served.start()
    waiting = loop.create_task(server.wait_closed())
    await settle()
    assert not waiting.done()
    server.close()
    await within(waiting)


@since(3, 13)
@pytest.mark.parametrize("how", ["close_clients", "abort_clients"])
async def test_ending_the_clients(served, how):
    """uvloop#683: both calls end all accepted connections, and wait_closed() then returns."""
    server = await served.start()
    pairs = [await served.connect() for _ in range(5)]
    gone, gone_protocol = await served.connect()
    gone.close()
    await gone_protocol.seen("lost")
    server.close()
    getattr(server, how)()
    await within(server.wait_closed())
    for client, protocol in pairs:
        assert protocol.events.count("lost") == 1
        assert protocol.exc is None
        assert recv_to_end(client) == b""


@since(3, 13)
async def test_close_clients_flushes_and_abort_clients_does_not(loop, served):
    server = await served.start()
    client, protocol = await served.connect()
    protocol.transport.write(bytes(16 << 20))
    server.close()
    server.close_clients()
    assert len(await loop.run_in_executor(None, recv_to_end, client)) == 16 << 20
    await protocol.seen("lost")
    await within(server.wait_closed())

    server = await served.start()
    client, protocol = await served.connect()
    protocol.transport.write(bytes(16 << 20))
    server.abort_clients()
    await protocol.seen("lost")
    server.close()
    await within(server.wait_closed())


async def test_serve_forever_ends_on_close(loop, served):
    """uvloop#602: close() cancels the one who awaits serve_forever()."""
    server = await served.start()
    task = loop.create_task(server.serve_forever())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="already being awaited on serve_forever"):
        await server.serve_forever()
    server.close()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
    with pytest.raises(RuntimeError, match="is closed"):
        await server.serve_forever()


async def test_cancelling_serve_forever_closes(loop, served):
    server = await served.start(start_serving=False)
    task = loop.create_task(server.serve_forever())
    await asyncio.sleep(0)
    assert server.is_serving()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
    assert not server.is_serving()
    assert server.sockets == ()


async def test_start_serving(served):
    server = await served.start(start_serving=False)
    assert not server.is_serving()
    address = server.sockets[0].getsockname()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    await server.start_serving()
    await server.start_serving()
    assert server.is_serving()
    client, protocol = await served.connect()
    client.close()
    await protocol.seen("lost")
    server.close()
    await server.wait_closed()


async def test_async_with_closes(served):
    server = await served.start()
    async with server as entered:
        assert entered is server
        assert server.is_serving()
    assert not server.is_serving()


async def test_the_same_address_twice_is_bound_once(loop):
    port = free_port()
    async with await loop.create_server(Recorder, ["127.0.0.1", "127.0.0.1"], port) as server:
        assert len(server.sockets) == 1


async def test_several_hosts(loop):
    async with await loop.create_server(Recorder, ["127.0.0.1", "127.0.0.2"], 0) as server:
        hosts = {sock.getsockname()[0] for sock in server.sockets}
        assert hosts == {"127.0.0.1", "127.0.0.2"}


@pytest.mark.parametrize("host", [None, ""])
async def test_all_interfaces(loop, host):
    async with await loop.create_server(Recorder, host, 0) as server:
        hosts = {sock.getsockname()[0] for sock in server.sockets}
        assert "0.0.0.0" in hosts
        for sock in server.sockets:
            if sock.family == socket.AF_INET6:
                assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


async def test_options(loop):
    async with await loop.create_server(Recorder, "127.0.0.1", 0) as server:
        (sock,) = server.sockets
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
        assert sock.gettimeout() == 0
    async with await loop.create_server(Recorder, "127.0.0.1", 0, reuse_port=True, reuse_address=False) as server:
        (sock,) = server.sockets
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
        assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        port = sock.getsockname()[1]
        async with await loop.create_server(Recorder, "127.0.0.1", port, reuse_port=True) as second:
            assert second.sockets[0].getsockname()[1] == port


@since(3, 13)
async def test_keep_alive(loop):
    async with await loop.create_server(Recorder, "127.0.0.1", 0, keep_alive=True) as server:
        assert server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    async with await loop.create_server(Recorder, "127.0.0.1", 0, keep_alive=False) as server:
        assert not server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_own_socket(loop):
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    async with await loop.create_server(Recorder, sock=sock) as server:
        assert server.sockets[0].fileno() == sock.fileno()
        socket.create_connection(sock.getsockname()).close()
    assert sock.fileno() == -1


async def test_an_address_in_use(loop):
    with listener() as other:
        with pytest.raises(OSError, match="error while attempting to bind on address") as caught:
            await loop.create_server(Recorder, *other.getsockname())
        assert caught.value.errno == 98


async def test_wrong_arguments(loop):
    with listener() as sock, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        with pytest.raises(ValueError, match="host/port and sock can not be specified at the same time"):
            await loop.create_server(Recorder, "127.0.0.1", 0, sock=sock)
        with pytest.raises(ValueError, match="Neither host/port nor sock were specified"):
            await loop.create_server(Recorder)
        with pytest.raises(ValueError, match="A Stream Socket was expected"):
            await loop.create_server(Recorder, sock=datagrams)
        with pytest.raises(TypeError, match="ssl argument must be an SSLContext or None"):
            await loop.create_server(Recorder, "127.0.0.1", 0, ssl=True)
        with pytest.raises(ValueError, match="ssl_handshake_timeout is only meaningful with ssl"):
            await loop.create_server(Recorder, "127.0.0.1", 0, ssl_handshake_timeout=1)
        with pytest.raises(TypeError):
            await loop.create_server(Recorder, "127.0.0.1", 0, nonsense=1)


async def test_peername_comes_from_accept(loop, served):
    """uvloop#560: a client that has left before connection_made is still known by its address."""
    await served.start()
    client = socket.create_connection(served.server.sockets[0].getsockname())
    address = client.getsockname()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    while not served.protocols:
        await asyncio.sleep(0)
    (protocol,) = served.protocols
    await protocol.seen("made")
    assert protocol.transport.get_extra_info("peername") == address
    await protocol.seen("lost")
    served.server.close()
    await served.server.wait_closed()


async def test_the_context_of_the_connections(loop):
    """What create_server() saw is what the callbacks see; what one connection sets, no other sees."""
    variable = contextvars.ContextVar("variable", default="default")
    seen = []

    class Server(Recorder):
        def connection_made(self, transport):
            seen.append(variable.get())
            variable.set("set by a connection")
            super().connection_made(transport)

        def connection_lost(self, exc):
            super().connection_lost(exc)

    async def start():
        variable.set("server")
        return await loop.create_server(Server, "127.0.0.1", 0)

    server = await loop.create_task(start())
    variable.set("somebody else")
    async with server:
        for count in range(1, 4):
            with socket.create_connection(server.sockets[0].getsockname()):
                while len(seen) < count:
                    await asyncio.sleep(0)
        await settle()
    assert seen == ["server"] * 3


@beyond_asyncio("the accepted socket is left to the garbage collector")
async def test_an_error_in_the_factory_closes_the_socket_and_serving_goes_on(loop, errors):
    calls = []

    def factory():
        calls.append(1)
        if len(calls) == 1:
            raise LookupError("in the factory")
        return Recorder()

    loop.set_debug(True)  # asyncio tells of it in debug mode only.
    loop.slow_callback_duration = 10
    async with await loop.create_server(factory, "127.0.0.1", 0) as server:
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            client.settimeout(5)
            while not errors:
                await asyncio.sleep(0)
            (context,) = errors
            assert context["message"] == "Error on transport creation for incoming connection"
            assert isinstance(context["exception"], LookupError)
            errors.clear()
            await settle()
            assert client.recv(1) == b""
        with socket.create_connection(server.sockets[0].getsockname()):
            while len(calls) < 2:
                await asyncio.sleep(0)
        await settle()
    loop.set_debug(False)


async def test_a_burst_of_clients(loop, served):
    server = await served.start(backlog=128)
    address = server.sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(120)]
    served.clients.extend(clients)
    while len(served.protocols) < 120:
        await asyncio.sleep(0)
    for protocol in served.protocols:
        await protocol.seen("made")
    names = {protocol.transport.get_extra_info("peername") for protocol in served.protocols}
    assert names == {client.getsockname() for client in clients}
    for client in clients:
        client.close()
    for protocol in served.protocols:
        await protocol.seen("lost")
    server.close()
    await within(server.wait_closed())


EMFILE = """
import asyncio, os, resource, socket, sys, time
sys.path.insert(0, {here!r})
from helpers import new_loop

loop = new_loop()
reports = []
loop.set_exception_handler(lambda loop, context: reports.append(context["message"]))

async def serve(reader, writer):
    writer.write(await reader.read(5))
    writer.close()
    await writer.wait_closed()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    waiting = [socket.socket() for _ in range(3)]
    limit = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    fill = []
    try:
        while True:
            fill.append(os.dup(0))
    except OSError:
        pass
    for sock in waiting:
        sock.setblocking(False)
        sock.connect_ex(address)
    before = time.process_time()
    for _ in range(6):
        await asyncio.sleep(0.05)
    used = time.process_time() - before
    assert used < 0.15, f"spinning: {{used:.3f}} s of processor time in 0.3 s"
    assert reports, "nobody was told"
    assert len(reports) < 20, f"told {{len(reports)}} times"
    for number in fill:
        os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    for sock in waiting:
        await loop.sock_sendall(sock, b"hello")
        assert await asyncio.wait_for(loop.sock_recv(sock, 10), 8) == b"hello"
        sock.close()
    server.close()
    await server.wait_closed()

loop.run_until_complete(main())
loop.close()
print("ok")
"""


@beyond_asyncio("D51: told a hundred times at once")
@pytest.mark.slow
def test_accepting_survives_a_full_descriptor_table():
    """uvicorn#1030: no spinning, one report, and serving goes on by itself."""
    source = EMFILE.format(here=os.path.dirname(__file__))
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=18)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr
