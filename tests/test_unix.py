"""Unix stream sockets: paths, abstract names, and the file that stays behind."""

import asyncio
import os
import pathlib
import socket

import pytest
from helpers import Recorder, pattern, settle, since, within

ABSTRACT = "\0pelton-test-%d-%s"


async def echo(reader, writer):
    data = await reader.read()
    writer.write(data)
    writer.close()
    await writer.wait_closed()


async def roundtrip(path):
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"through")
    writer.write_eof()
    assert await within(reader.read()) == b"through"
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("convert", [str, os.fsencode, pathlib.Path], ids=["str", "bytes", "path"])
async def test_paths(loop, tmpdir_short, convert):
    path = convert(os.path.join(tmpdir_short, "sock"))
    async with await asyncio.start_unix_server(echo, path) as server:
        assert server.sockets[0].getsockname() == os.fsdecode(path)
        await roundtrip(path)


@pytest.mark.parametrize("convert", [str, os.fsencode], ids=["str", "bytes"])
async def test_abstract_names(loop, convert):
    """uvloop#528: names with a leading NUL work and come back unchanged."""
    name = ABSTRACT % (os.getpid(), convert.__name__)
    async with await asyncio.start_unix_server(echo, convert(name)) as server:
        assert server.sockets[0].getsockname() == os.fsencode(name)
        await roundtrip(convert(name))
        transport, protocol = await loop.create_unix_connection(Recorder, convert(name))
        assert transport.get_extra_info("peername") == os.fsencode(name)
        transport.close()
        await protocol.seen("lost")
        await settle(4)


async def test_extra_info(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "sock")
    made = loop.create_future()

    class Server(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            made.set_result(self)

    async with await loop.create_unix_server(Server, path):
        transport, protocol = await loop.create_unix_connection(Recorder, path)
        other = await made
        names = [end.get_extra_info(name) for end in (transport, other.transport) for name in ("sockname", "peername")]
        family = transport.get_extra_info("socket").family
        transport.close()
        await other.seen("lost")
        await protocol.seen("lost")
    assert names == ["", path, path, ""]
    assert family == socket.AF_UNIX


@since(3, 13)
async def test_the_socket_file_is_removed(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "sock")
    server = await asyncio.start_unix_server(echo, path)
    assert os.path.exists(path)
    server.close()
    await server.wait_closed()
    assert not os.path.exists(path)


@since(3, 13)
async def test_the_socket_file_stays_if_asked(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "sock")
    server = await asyncio.start_unix_server(echo, path, cleanup_socket=False)
    server.close()
    await server.wait_closed()
    assert os.path.exists(path)


@since(3, 13)
async def test_somebody_elses_file_is_not_removed(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "sock")
    server = await asyncio.start_unix_server(echo, path)
    os.rename(path, path + ".old")  # The inode stays in use: the new file cannot have its number.
    other = await asyncio.start_unix_server(echo, path)
    server.close()
    await server.wait_closed()
    assert os.path.exists(path)
    await roundtrip(path)
    other.close()
    await other.wait_closed()
    assert not os.path.exists(path)


@since(3, 13)
async def test_a_vanished_file_is_no_error(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "sock")
    server = await asyncio.start_unix_server(echo, path)
    os.unlink(path)
    server.close()
    await server.wait_closed()


async def test_a_stale_file_is_replaced(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "sock")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    assert os.path.exists(path)
    async with await asyncio.start_unix_server(echo, path):
        await roundtrip(path)


async def test_a_regular_file_is_not_replaced(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "file")
    with open(path, "w") as file:
        file.write("content")
    with pytest.raises(OSError, match="is already in use"):
        await asyncio.start_unix_server(echo, path)
    with open(path) as file:
        assert file.read() == "content"


async def test_own_sockets(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "sock")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    async with await asyncio.start_unix_server(echo, sock=sock):
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        reader, writer = await asyncio.open_unix_connection(sock=client)
        writer.write(b"x")
        writer.write_eof()
        assert await reader.read() == b"x"
        writer.close()
        await writer.wait_closed()
        assert client.fileno() == -1


async def test_wrong_arguments(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "sock")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        for make in (loop.create_unix_connection, loop.create_unix_server):
            with pytest.raises(ValueError, match="A UNIX Domain Stream Socket was expected"):
                await make(Recorder, sock=tcp)
            with pytest.raises(ValueError, match="path and sock can not be specified at the same time"):
                await make(Recorder, path, sock=unix)
            with pytest.raises(ValueError, match="sock"):
                await make(Recorder)
            with pytest.raises(ValueError, match="ssl_handshake_timeout is only meaningful with ssl"):
                await make(Recorder, path, ssl_handshake_timeout=1)
        with pytest.raises(ValueError, match="server_hostname is only meaningful with ssl"):
            await loop.create_unix_connection(Recorder, path, server_hostname="x")
        with pytest.raises(TypeError, match="ssl argument must be an SSLContext or None"):
            await loop.create_unix_server(Recorder, path, ssl=True)


async def test_connecting_to_nothing(loop, tmpdir_short):
    with pytest.raises(FileNotFoundError):
        await loop.create_unix_connection(Recorder, os.path.join(tmpdir_short, "missing"))
    path = os.path.join(tmpdir_short, "dead")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    with pytest.raises(ConnectionRefusedError):
        await loop.create_unix_connection(Recorder, path)


async def test_bulk(loop, tmpdir_short):
    path = os.path.join(tmpdir_short, "sock")

    async def serve(reader, writer):
        writer.write(await reader.readexactly(4 << 20))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_unix_server(serve, path):
        reader, writer = await asyncio.open_unix_connection(path)
        data = pattern(4 << 20)
        writer.write(data)
        assert await reader.read() == data
        writer.close()
        await writer.wait_closed()
