"""An unmodified uvicorn application over HTTP/1.1, with both of its parsers."""

import asyncio
import contextlib

import pytest

uvicorn = pytest.importorskip("uvicorn")

# What uvicorn and its own dependencies deprecate is not the matter here.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            kind = message["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    assert scope["type"] == "http"
    path = scope["path"]
    if path == "/fail":
        raise LookupError("on purpose")
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if path == "/client":
        body = "{}:{}".format(*scope["client"]).encode()
    headers = [(b"content-type", b"application/octet-stream")]
    if path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(100):
            await send({"type": "http.response.body", "body": b"%06d" % number * 500, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def served(http):
    config = uvicorn.Config(app, host="127.0.0.1", port=0, http=http, log_level="critical", access_log=False)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.001)
        assert not task.done(), task
    try:
        yield server.servers[0].sockets[0].getsockname()
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 10)


@pytest.fixture(params=["httptools", "h11"])
def http(request):
    pytest.importorskip(request.param)
    return request.param


async def head_of(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines if line)
    return int(status.split()[1]), headers


async def request(reader, writer, path, body=b"", *, close=False):
    connection = "close" if close else "keep-alive"
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: {connection}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode())
    writer.write(body)
    status, headers = await head_of(reader)
    if "content-length" in headers:
        return status, await reader.readexactly(int(headers["content-length"]))
    content = b""
    while size := int(await reader.readline(), 16):
        content += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return status, content


@contextlib.asynccontextmanager
async def connected(address):
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_requests_on_one_connection(loop, http):
    async with served(http) as address, connected(address) as (reader, writer):
        for size in (0, 1, 1000, 65536, 500_000):
            assert await request(reader, writer, "/", b"b" * size) == (200, b"b" * size)
        status, client = await request(reader, writer, "/client")
        assert status == 200
        assert client.decode() == "{}:{}".format(*writer.get_extra_info("sockname"))
        status, content = await request(reader, writer, "/stream")
        assert content == b"".join(b"%06d" % number * 500 for number in range(100))
        await request(reader, writer, "/", close=True)
        assert await reader.read() == b""


async def test_pipelined_requests(loop, http):
    async with served(http) as address, connected(address) as (reader, writer):
        one = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
        writer.write(one * 20)
        for _ in range(20):
            status, headers = await head_of(reader)
            assert (status, headers["content-length"]) == (200, "0")


async def test_an_error_in_the_application(loop, http):
    async with served(http) as address, connected(address) as (reader, writer):
        status, _ = await request(reader, writer, "/fail")
        assert status == 500


async def test_bad_requests(loop, http):
    async with served(http) as address, connected(address) as (reader, writer):
        writer.write(b"this is not HTTP\r\n\r\n")
        status, _ = await head_of(reader)
        assert status == 400


async def test_many_clients(loop, http):
    async def client(address, number):
        async with connected(address) as (reader, writer):
            for turn in range(3):
                body = b"%d-%d" % (number, turn) * 100
                assert await request(reader, writer, "/", body) == (200, body)

    async with served(http) as address:
        await asyncio.gather(*(client(address, number) for number in range(40)))


async def test_clients_that_leave_early(loop, http):
    async with served(http) as address:
        for _ in range(20):
            async with connected(address) as (_, writer):
                writer.write(b"POST /stream HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\nbody")
                writer.transport.abort()
        async with connected(address) as (reader, writer):
            assert await request(reader, writer, "/", b"still serving") == (200, b"still serving")
