"""Programs that live on datagrams: WebRTC (aiortc) and HTTP/3 (aioquic), both ends on one loop."""

import asyncio

import pytest
import trustme
from helpers import within

aiortc = pytest.importorskip("aiortc", reason="SKIPPED: aiortc has no wheel here")
pytest.importorskip("aioquic", reason="SKIPPED: aioquic has no wheel here")

from aioquic.asyncio import QuicConnectionProtocol, connect, serve  # noqa: E402
from aioquic.h3.connection import H3_ALPN, H3Connection  # noqa: E402
from aioquic.h3.events import DataReceived, HeadersReceived  # noqa: E402
from aioquic.quic.configuration import QuicConfiguration  # noqa: E402

# The libraries leave timers and sockets to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


async def test_a_data_channel_between_two_peers(loop):
    # Without a server that tells addresses, loopback and the machine's own are what is tried.
    nothing = aiortc.RTCConfiguration(iceServers=[])
    caller, callee = aiortc.RTCPeerConnection(nothing), aiortc.RTCPeerConnection(nothing)
    answers = asyncio.Queue()

    @callee.on("datachannel")
    def on_channel(channel):
        channel.on("message", lambda message: channel.send(message[::-1]))

    channel = caller.createDataChannel("words")
    opened = loop.create_future()
    channel.on("open", lambda: opened.done() or opened.set_result(None))
    channel.on("message", answers.put_nowait)
    try:
        await caller.setLocalDescription(await caller.createOffer())
        await callee.setRemoteDescription(caller.localDescription)
        await callee.setLocalDescription(await callee.createAnswer())
        await caller.setRemoteDescription(callee.localDescription)
        await within(opened, 20)
        for message in ("pelton", b"wheel", "x" * 20_000):
            channel.send(message)
            assert await within(answers.get(), 10) == message[::-1]
    finally:
        await asyncio.gather(caller.close(), callee.close())


class Http3Server(QuicConnectionProtocol):
    """Answers each request with its path and the length of its body."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.paths, self.bodies = {}, {}

    def quic_event_received(self, event):
        for told in self.http.handle_event(event):
            if isinstance(told, HeadersReceived):
                self.paths[told.stream_id] = dict(told.headers)[b":path"]
            elif isinstance(told, DataReceived):
                self.bodies[told.stream_id] = self.bodies.get(told.stream_id, 0) + len(told.data)
            if told.stream_ended:
                path, size = self.paths[told.stream_id], self.bodies.get(told.stream_id, 0)
                self.http.send_headers(told.stream_id, [(b":status", b"200")])
                body = b"%s %d " % (path, size) + b"." * 100_000
                self.http.send_data(told.stream_id, body, end_stream=True)
                self.transmit()


class Http3Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.answers = {}

    async def post(self, path, body):
        stream = self._quic.get_next_available_stream_id()
        ended = asyncio.get_running_loop().create_future()
        self.answers[stream] = ([], ended)
        headers = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"localhost")]
        self.http.send_headers(stream, [*headers, (b":path", path)])
        self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        await within(ended, 20)
        return b"".join(self.answers[stream][0])

    def quic_event_received(self, event):
        for told in self.http.handle_event(event):
            pieces, ended = self.answers[told.stream_id]
            if isinstance(told, DataReceived):
                pieces.append(told.data)
            if told.stream_ended:
                ended.set_result(None)


async def test_an_http3_request_and_its_response(loop, tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    serving = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    serving.load_cert_chain(chain, key)
    asking = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost")
    asking.load_verify_locations(cadata=authority.cert_pem.bytes())
    server = await serve("127.0.0.1", 0, configuration=serving, create_protocol=Http3Server)
    port = server._transport.get_extra_info("sockname")[1]
    try:
        async with connect("127.0.0.1", port, configuration=asking, create_protocol=Http3Client) as client:
            body = b"a body of some size " * 5000
            answers = await asyncio.gather(*(client.post(b"/%d" % n, body) for n in range(3)))
        expected = [b"/%d %d " % (n, len(body)) + b"." * 100_000 for n in range(3)]
        assert answers == expected
    finally:
        server.close()
