"""What a context brings along works: callbacks, key log, PSK, sessions, subclasses."""

import asyncio
import ssl
import sys

import pytest
from helpers import Recorder, beyond_asyncio, since, socket_pair, within
from tlshelpers import HOST, TLS12, TLS13, TlsPeer


async def handshake(loop, attach, ours, theirs, side, **options):
    """Both results, exceptions as values; the connection is left at once."""
    sock, far = socket_pair("tcp")
    far.setblocking(False)
    protocol = Recorder()
    with far:
        peer = TlsPeer(far, theirs, server_side=side == "client", server_hostname=HOST)

        async def other():
            await peer.handshake()
            await peer.send(b".")

        mine, other = await within(
            asyncio.gather(attach(protocol, sock, side, ours, **options), other(), return_exceptions=True)
        )
        if not isinstance(mine, Exception):
            mine.abort()
            await protocol.seen("lost")
    return mine, other


# -- server names ----------------------------------------------------------------------------------


async def test_the_name_callback(tls_pair, authority, version):
    calls = []
    server, client = authority.server(version), authority.client(version)
    server.sni_callback = lambda *args: calls.append(args)
    transport, _ = await tls_pair(Recorder(), "server", ours=server, theirs=client)
    ((tls, name, context),) = calls
    assert tls is transport.get_extra_info("ssl_object")
    assert name == HOST
    assert context is server


async def test_the_name_callback_changes_the_context(tls_pair, authority, version):
    first = authority.server(version, names=("first.example",))
    second = authority.server(version, names=("second.example",))

    def choose(tls, name, context):
        if name == "second.example":
            tls.context = second

    first.sni_callback = choose
    transport, peer = await tls_pair(
        Recorder(), "server", ours=first, theirs=authority.client(version), hostname="second.example"
    )
    assert ("DNS", "second.example") in peer.tls.getpeercert()["subjectAltName"]
    assert transport.get_extra_info("ssl_object").context is second
    transport.write(b"works")
    assert await peer.recv_exactly(5) == b"works"


async def test_no_name(tls_pair, authority):
    names = []
    server, client = authority.server(), authority.client()
    client.check_hostname = False
    server.sni_callback = lambda tls, name, context: names.append(name)
    await tls_pair(Recorder(), "server", ours=server, theirs=client, hostname=None)
    assert names == [None]


@pytest.mark.parametrize("what", ["raises", "alert", "nonsense"])
async def test_a_name_callback_that_refuses(loop, authority, attach, monkeypatch, what, version):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def callback(tls, name, context):
        if what == "raises":
            raise LookupError("in the callback")
        return ssl.ALERT_DESCRIPTION_ACCESS_DENIED if what == "alert" else "nonsense"

    server, client = authority.server(version), authority.client(version)
    server.sni_callback = callback
    mine, other = await handshake(loop, attach, server, client, "server")
    assert isinstance(mine, ssl.SSLError)
    assert mine.reason == "CALLBACK_FAILED"
    assert isinstance(other, ssl.SSLError | OSError)
    assert len(unraisable) == (0 if what == "alert" else 1)
    if what == "raises":
        assert str(unraisable[0].exc_value) == "in the callback"
    unraisable.clear()


async def test_a_name_callback_that_writes_elsewhere(loop, tls_pair, authority):
    """While OpenSSL is on the stack for one connection, another one is written to and read."""
    bystander = Recorder()
    elsewhere, there = await tls_pair(bystander)
    server, client = authority.server(), authority.client()
    server.sni_callback = lambda *_: elsewhere.writelines([b"in the middle ", b"of a handshake"])
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, "server", ours=server, theirs=client)
    assert await there.recv_exactly(28) == b"in the middle of a handshake"
    transport.write(b"and this one")
    assert await peer.recv_exactly(12) == b"and this one"
    await there.send(b"both live")
    assert await bystander.got(9) == b"both live"


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_name_callback_that_ends_another_connection(tls_pair, authority, how):
    protocol = Recorder()
    elsewhere, there = await tls_pair(protocol)
    server, client = authority.server(), authority.client()
    server.sni_callback = lambda *_: getattr(elsewhere, how)()
    transport, peer = await tls_pair(Recorder(), "server", ours=server, theirs=client)
    assert elsewhere.is_closing()
    there.close()
    await protocol.seen("lost")
    transport.write(b"unhurt")
    assert await peer.recv_exactly(6) == b"unhurt"


# -- observers -------------------------------------------------------------------------------------


async def test_the_key_log(tls_pair, contexts, side, version, tmp_path):
    ours, theirs = contexts(side, version)
    log = tmp_path / "keys"
    ours.keylog_filename = str(log)
    transport, peer = await tls_pair(Recorder(), side, ours=ours, theirs=theirs)
    transport.write(b"x")
    assert await peer.recv_exactly(1) == b"x"
    labels = {line.split()[0] for line in log.read_text().splitlines() if not line.startswith("#")}
    assert "CLIENT_RANDOM" in labels if version is TLS12 else "CLIENT_TRAFFIC_SECRET_0" in labels


async def test_the_message_callback(tls_pair, contexts, side, version):
    ours, theirs = contexts(side, version)
    calls = []
    ours._msg_callback = lambda *args: calls.append(args)
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, ours=ours, theirs=theirs)
    tls = transport.get_extra_info("ssl_object")
    assert {call[0] for call in calls} == {tls}
    kinds = [call[4].name for call in calls]
    assert "CLIENT_HELLO" in kinds and "SERVER_HELLO" in kinds and "FINISHED" in kinds
    before = len(calls)
    transport.write(b"seen too")
    assert await peer.recv_exactly(8) == b"seen too"
    await peer.send(b"and back")
    assert await protocol.got(8) == b"and back"
    assert len(calls) > before, "records of data are messages as well"


async def test_a_message_callback_that_raises(tls_pair, contexts, monkeypatch, errors):
    """The exception reaches the caller, and the exception handler as any error in user code may."""
    ours, theirs = contexts("client")

    def callback(*args):
        raise LookupError("in the callback")

    ours._msg_callback = callback
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with pytest.raises(LookupError, match="in the callback"):
        await within(tls_pair(Recorder(), ours=ours, theirs=theirs), 3)
    assert {type(context["exception"]) for context in errors} <= {LookupError}
    errors.clear()


async def test_a_message_callback_that_writes_elsewhere(tls_pair, contexts):
    """Also while data is read and written: the buffers of the loop are not shared with it."""
    bystander = Recorder()
    elsewhere, there = await tls_pair(bystander)
    ours, theirs = contexts("client")
    calls = []

    def callback(*args):
        calls.append(args)
        elsewhere.write(b"%3d" % len(calls))

    ours._msg_callback = callback
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, ours=ours, theirs=theirs)
    for number in range(20):
        transport.write(b"x" * 1000)
        assert await peer.recv_exactly(1000) == b"x" * 1000
        await peer.send(bytes([number]) * 100)
        await protocol.got(100 * number + 100)
    assert protocol.data == b"".join(bytes([number]) * 100 for number in range(20))
    assert await there.recv_exactly(3 * len(calls)) == b"".join(b"%3d" % (n + 1) for n in range(len(calls)))


# -- pre-shared keys -------------------------------------------------------------------------------


@since(3, 13)
async def test_pre_shared_keys(tls_pair, side):
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    asked = []
    for context in (client, server):
        context.maximum_version = TLS12
        context.set_ciphers("PSK")

    def for_client(hint):
        asked.append(hint)
        return "me", b"secret"

    def for_server(identity):
        asked.append(identity)
        return b"secret"

    client.set_psk_client_callback(for_client)
    server.set_psk_server_callback(for_server, "hint")
    ours, theirs = (client, server) if side == "client" else (server, client)
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, ours=ours, theirs=theirs)
    assert asked == ["hint", "me"]
    assert "PSK" in transport.get_extra_info("cipher")[0]
    transport.write(b"shared")
    assert await peer.recv_exactly(6) == b"shared"
    await peer.send(b"secret")
    assert await protocol.got(6) == b"secret"


# -- sessions --------------------------------------------------------------------------------------


async def resumable(tls_pair, client, server, *, side="client", **options):
    """One connection, brought to a clean end; the session that it leaves."""
    protocol = Recorder()
    ours, theirs = (client, server) if side == "client" else (server, client)
    transport, peer = await tls_pair(protocol, side, ours=ours, theirs=theirs, **options)
    tls = transport.get_extra_info("ssl_object")
    await peer.send(b"x")  # behind the tickets of TLS 1.3
    await protocol.got(1)
    transport.write(b"y")
    await peer.recv_exactly(1)
    session, reused = (tls, peer.tls)[side == "server"].session, tls.session_reused
    transport.close()
    await peer.recv_to_end()
    await peer.unwrap()
    await protocol.seen("lost")
    return session, reused


async def test_the_session_can_be_read(tls_pair, authority, version):
    client, server = authority.client(version), authority.server(version)
    session, reused = await resumable(tls_pair, client, server)
    assert isinstance(session, ssl.SSLSession)
    assert session.has_ticket
    assert session.timeout > 0
    assert reused is False


@beyond_asyncio("D59: no session can be given")
async def test_a_client_resumes(tls_pair, authority, version):
    client, server = authority.client(version), authority.server(version)
    sock_session, _ = await resumable(tls_pair, client, server)
    protocol = Recorder()
    sock, far = socket_pair("tcp")
    far.setblocking(False)
    loop = asyncio.get_running_loop()
    with far:
        peer = TlsPeer(far, server, server_side=True)
        (transport, _), _ = await asyncio.gather(
            loop.create_connection(lambda: protocol, sock=sock, ssl=client, server_hostname=HOST, session=sock_session),
            peer.handshake(),
        )
        assert transport.get_extra_info("ssl_object").session_reused is True
        assert peer.tls.session_reused is True
        transport.write(b"again")
        assert await peer.recv_exactly(5) == b"again"
        transport.abort()
        await protocol.seen("lost")


async def test_a_server_resumes(tls_pair, authority, version):
    client, server = authority.client(version), authority.server(version)
    session, _ = await resumable(tls_pair, client, server, side="server")
    _, reused = await resumable(tls_pair, client, server, side="server", session=session)
    assert reused is True


@beyond_asyncio("D59: no session can be given")
@pytest.mark.parametrize("unix", [False, True])
async def test_sessions_through_the_loop_api(loop, authority, version, unix, tmpdir_short):
    client, server_context = authority.client(version), authority.server(version)

    class Greeter(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.write(b"hi")

    if unix:
        path = f"{tmpdir_short}/s"
        server = await loop.create_unix_server(Greeter, path, ssl=server_context)
    else:
        server = await loop.create_server(Greeter, "127.0.0.1", 0, ssl=server_context)
    session, reused = None, []
    for _ in range(3):
        options = {"ssl": client, "server_hostname": HOST}
        if session is not None:
            options["session"] = session
        if unix:
            transport, protocol = await loop.create_unix_connection(Recorder, path, **options)
        else:
            transport, protocol = await loop.create_connection(Recorder, *server.sockets[0].getsockname(), **options)
        await protocol.got(2)
        tls = transport.get_extra_info("ssl_object")
        session = tls.session
        reused.append(tls.session_reused)
        transport.close()
        await protocol.seen("lost")
    assert reused == [False, True, True]
    server.close()
    await within(server.wait_closed())


@beyond_asyncio("D59: no session can be given")
async def test_sessions_that_do_not_fit(loop, tls_pair, authority):
    client, server = authority.client(), authority.server()
    session, _ = await resumable(tls_pair, client, server)
    for ssl_context, given, error in (
        (client, "a session", TypeError),
        (authority.client(), session, ValueError),
        (None, session, ValueError),
    ):
        sock, far = socket_pair("tcp")
        with far, sock:
            options = {"server_hostname": HOST} if ssl_context else {}
            with pytest.raises(error):
                await within(loop.create_connection(Recorder, sock=sock, ssl=ssl_context, session=given, **options))
            far.setblocking(False)
            with pytest.raises(BlockingIOError):
                far.recv(1)


# -- subclasses ------------------------------------------------------------------------------------


class OwnObject(ssl.SSLObject):
    pass


class OwnContext(ssl.SSLContext):
    sslobject_class = OwnObject
    wrapped = 0

    def wrap_bio(self, *args, **kwargs):
        self.wrapped += 1
        return super().wrap_bio(*args, **kwargs)


async def test_subclasses(tls_pair, authority, side, version):
    make = {"client": authority.client, "server": authority.server}
    ours = make[side](version, kind=OwnContext)
    theirs = make["server" if side == "client" else "client"](version)
    protocol = Recorder()
    transport, peer = await tls_pair(protocol, side, ours=ours, theirs=theirs)
    assert type(transport.get_extra_info("ssl_object")) is OwnObject
    assert ours.wrapped == 1
    transport.write(b"own")
    assert await peer.recv_exactly(3) == b"own"


async def test_a_context_that_cannot_wrap(loop, authority, attach):
    class Broken(ssl.SSLContext):
        def wrap_bio(self, *args, **kwargs):
            raise LookupError("in wrap_bio")

    sock, far = socket_pair("tcp")
    with far, sock:
        with pytest.raises(LookupError, match="in wrap_bio"):
            await attach(Recorder(), sock, "client", authority.client(kind=Broken))


async def test_one_context_for_many(tls_pair, authority, version):
    """A context is shared; its connections do not know each other."""
    client, server = authority.client(version), authority.server(version)
    pairs = []
    for _ in range(5):
        protocol = Recorder()
        transport, peer = await tls_pair(protocol, ours=client, theirs=server)
        pairs.append((protocol, transport, peer))
    for number, (_, transport, peer) in enumerate(pairs):
        transport.write(b"%d" % number)
        await peer.send(b"%d" % (number + 5))
    for number, (protocol, _, peer) in enumerate(pairs):
        assert await peer.recv_exactly(1) == b"%d" % number
        assert await protocol.got(1) == b"%d" % (number + 5)


async def test_the_object_outlives_its_transport(tls_pair):
    protocol = Recorder()
    transport, peer = await tls_pair(protocol)
    tls = transport.get_extra_info("ssl_object")
    cipher = tls.cipher()
    transport.abort()
    await protocol.seen("lost")
    protocol.transport = transport = None
    assert tls.cipher() == cipher
    assert tls.getpeercert()
    assert tls.version()
    with pytest.raises(ssl.SSLError):
        tls.write(b"x")
        tls.read()


async def test_a_session_ticket_count(tls_pair, authority):
    """Tickets are behind the handshake: none, or many, they are no data."""
    for tickets in (0, 5):
        client, server = authority.client(TLS13), authority.server(TLS13)
        server.num_tickets = tickets
        protocol = Recorder()
        transport, peer = await tls_pair(protocol, ours=client, theirs=server)
        await peer.send(b"data")
        assert await protocol.got(4) == b"data"
        assert protocol.events == ["made", "data"]
        assert transport.get_extra_info("ssl_object").session.has_ticket is bool(tickets)
