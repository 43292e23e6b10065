"""An aiohttp server and client in one process: requests, streams, files, websockets."""

import asyncio
import contextlib
import io
import os

import pytest
from helpers import pattern, settle

aiohttp = pytest.importorskip("aiohttp")
web = pytest.importorskip("aiohttp.web")

# What aiohttp itself deprecates is not the matter here.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


async def echo(request):
    return web.Response(body=await request.read())


async def stream(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for number in range(50):
        await response.write(b"%06d" % number * 1000)
    await response.write_eof()
    return response


async def client_address(request):
    return web.Response(text=f"{request.remote}:{request.transport.get_extra_info('peername')[1]}")


async def chat(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is aiohttp.WSMsgType.TEXT:
            await socket.send_str(message.data.upper())
        elif message.type is aiohttp.WSMsgType.BINARY:
            await socket.send_bytes(message.data[::-1])
    return socket


@contextlib.asynccontextmanager
async def served(*extra, unix_path=None):
    released = asyncio.Event()

    async def slow(request):
        await released.wait()
        return web.Response()

    app = web.Application(client_max_size=32 << 20)
    app.add_routes(
        [
            web.post("/", echo),
            web.get("/stream", stream),
            web.get("/slow", slow),
            web.get("/client", client_address),
            web.get("/chat", chat),
            *extra,
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.UnixSite(runner, unix_path) if unix_path else web.TCPSite(runner, "127.0.0.1", 0)
    try:
        await site.start()
        address = runner.addresses[0]
        connector = aiohttp.UnixConnector(unix_path) if unix_path else aiohttp.TCPConnector()
        base = "http://localhost" if unix_path else "http://{}:{}".format(*address[:2])
        async with aiohttp.ClientSession(base, connector=connector) as session:
            yield session
    finally:
        released.set()
        await settle()
        await runner.cleanup()
        await settle()


async def test_requests(loop):
    async with served() as session:
        for size in (0, 1, 1000, 65536, 4 << 20):
            data = pattern(size)
            async with session.post("/", data=io.BytesIO(data)) as response:
                assert response.status == 200
                assert await response.read() == data


async def test_a_stream(loop):
    async with served() as session, session.get("/stream") as response:
        assert await response.read() == b"".join(b"%06d" % number * 1000 for number in range(50))


async def test_the_clients_address(loop):
    async with served() as session, session.get("/client") as response:
        assert (await response.text()).startswith("127.0.0.1:")


async def test_a_file(loop, tmp_path):
    """FileResponse goes through loop.sendfile()."""
    path = tmp_path / "file.bin"
    path.write_bytes(pattern(3 << 20))

    async def file(request):
        return web.FileResponse(path)

    async with served(web.get("/file", file)) as session:
        async with session.get("/file") as response:
            assert await response.read() == pattern(3 << 20)
        async with session.get("/file", headers={"Range": "bytes=1000-1999"}) as response:
            assert response.status == 206
            assert await response.read() == pattern(3 << 20)[1000:2000]


async def test_websockets(loop):
    async with served() as session, session.ws_connect("/chat") as socket:
        for number in range(50):
            await socket.send_str(f"message {number}")
            assert await socket.receive_str() == f"MESSAGE {number}"
        data = pattern(1 << 20)
        await socket.send_bytes(data)
        assert await socket.receive_bytes() == data[::-1]
        await socket.close()
        assert socket.close_code == 1000


async def test_many_requests_at_once(loop):
    async with served() as session:

        async def ask(number):
            async with session.post("/", data=b"%d" % number * 50) as response:
                return await response.read()

        answers = await asyncio.gather(*(ask(number) for number in range(150)))
        assert answers == [b"%d" % number * 50 for number in range(150)]


async def test_timeouts_and_cancels(loop):
    async with served() as session:
        for _ in range(5):
            with pytest.raises(asyncio.TimeoutError):
                async with session.get("/slow", timeout=aiohttp.ClientTimeout(total=0.02)):
                    pass
            task = asyncio.ensure_future(session.get("/slow"))
            await settle()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with session.post("/", data=b"fine") as response:
            assert await response.read() == b"fine"


async def test_over_a_unix_socket(loop, tmpdir_short):
    async with (
        served(unix_path=os.path.join(tmpdir_short, "sock")) as session,
        session.post("/", data=b"over unix") as response,
    ):
        assert await response.read() == b"over unix"


async def test_a_dead_server(loop):
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get("http://127.0.0.1:1/")
