"""OpenSSL's own client, whose commands do what no SSLObject can: renegotiate and update keys."""

import array
import asyncio
import contextlib
import fcntl
import shutil
import subprocess
import termios

import pytest
from helpers import PATIENCE, Recorder, within
from tlshelpers import HOST, TLS12, TLS13

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is not installed")


COMMON = ["-servername", HOST, "-quiet", "-no_ign_eof"]


def unread(pipe):
    """How many bytes of a pipe its reader has not taken."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


class Upper(Recorder):
    def data_received(self, data):
        super().data_received(data)
        self.transport.write(data.upper())


class Client:
    """`openssl s_client`. A line that begins with R renegotiates, one with K updates the keys."""

    def __init__(self, loop, port, authority_file):
        self.loop = loop
        self.process = subprocess.Popen(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *COMMON, "-CAfile", authority_file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )

    def say(self, words):
        self.process.stdin.write(words)

    async def has_read(self):
        """What was said has been read: a command must stand at the begin of what s_client reads."""
        async with asyncio.timeout(PATIENCE):
            while unread(self.process.stdin):
                await asyncio.sleep(0.001)

    async def hear(self, count):
        got = b""
        while len(got) < count:
            part = await within(self.loop.run_in_executor(None, self.process.stdout.read, count - len(got)))
            if not part:
                break
            got += part
        return got

    def end(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@pytest.fixture
def visit(loop, authority, tmp_path):
    """`client, protocol, server = await visit(version)`: s_client, connected to a server of the loop."""
    trusted = tmp_path / "authority.pem"
    authority.ca.cert_pem.write_to_path(trusted)
    clients = []

    async def make(version):
        protocols = []

        def factory():
            protocols.append(Upper())
            return protocols[-1]

        server = await loop.create_server(factory, "127.0.0.1", 0, ssl=authority.server(version))
        client = Client(loop, server.sockets[0].getsockname()[1], str(trusted))
        clients.append(client)
        client.say(b"hello\n")
        assert await client.hear(6) == b"HELLO\n"
        return client, protocols[0], server

    yield make
    for client in clients:
        client.end()


async def test_a_conversation(visit, version):
    client, protocol, server = await visit(version)
    client.say(b"Q\n")  # quits, with a close_notify
    await protocol.seen("lost")
    assert protocol.events == ["made", "data", "eof", "lost"]
    assert protocol.exc is None
    server.close()
    await within(server.wait_closed())


@pytest.mark.parametrize("command", [b"K\n", b"k\n"], ids=["both ways", "one way"])
async def test_keys_are_updated(visit, command):
    """TLS 1.3: where the client asks for an update in return it is made, and data goes on."""
    client, protocol, server = await visit(TLS13)
    for _ in range(3):
        client.say(command)
        await client.has_read()
        client.say(b"and on\n")
        assert await client.hear(7) == b"AND ON\n"
    client.say(b"Q\n")
    await protocol.seen("lost")
    assert protocol.exc is None
    assert protocol.data == b"hello\n" + b"and on\n" * 3
    server.close()
    await within(server.wait_closed())


async def test_renegotiation_is_refused(visit, caplog):
    """TLS 1.2: OpenSSL answers `no_renegotiation`. The server stays, and the connection ends once."""
    client, protocol, server = await visit(TLS12)
    client.say(b"R\n")
    await client.hear(1)  # s_client gives up on the refusal
    await protocol.seen("lost")
    assert protocol.events.count("lost") == 1
    assert protocol.data == b"hello\n"
    assert not caplog.records
    again, second, other = await visit(TLS12)
    again.say(b"Q\n")
    await second.seen("lost")
    for each in (server, other):
        each.close()
        await within(each.wait_closed())
