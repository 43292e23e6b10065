"""getaddrinfo and getnameinfo: the same answers and errors as socket's, without starving."""

import asyncio
import itertools
import socket
import threading

import pytest
from helpers import beyond_asyncio, within

SCOPE = 1  # The loopback interface; a scope id needs a link-local address.


def outcome_of(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except OSError as exc:
        return type(exc), exc.args
    except Exception as exc:
        return type(exc)


async def outcome_of_awaiting(awaitable):
    try:
        return await awaitable
    except OSError as exc:
        return type(exc), exc.args
    except Exception as exc:
        return type(exc)


LITERALS = [
    "127.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1%lo",
    f"fe80::1%{SCOPE}",
    "fe80::1",
    "::ffff:127.0.0.1",
    "2001:db8::1",
    b"127.0.0.1",
    None,
    "127.1",
    "0x7f000001",
    "1.2.3.4 ",
    "fe80::1%nosuchinterface",
]
PORTS = [80, 0, 65535, "80", "0", None, b"80"]
TYPES = [0, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW]
PROTOS = [0, socket.IPPROTO_TCP, socket.IPPROTO_UDP]
FLAGS = [0, socket.AI_PASSIVE, socket.AI_NUMERICHOST, socket.AI_CANONNAME]
FAMILIES = [socket.AF_UNSPEC, socket.AF_INET, socket.AF_INET6]


@pytest.mark.parametrize("host", LITERALS, ids=repr)
async def test_literals_are_resolved_as_by_socket(loop, host):
    """uvloop#539: the same tuples for every type, protocol and flag, scope ids included."""
    for port, family, flags in itertools.product([80, "80", None], FAMILIES, FLAGS):
        if host == "1.2.3.4 " and not flags & socket.AI_NUMERICHOST:
            continue  # A name, for the resolver of the platform: it may ask the network.
        for kind, proto in itertools.product(TYPES, PROTOS):
            options = {"family": family, "type": kind, "proto": proto, "flags": flags}
            expected = outcome_of(socket.getaddrinfo, host, port, **options)
            assert await outcome_of_awaiting(loop.getaddrinfo(host, port, **options)) == expected, options


async def test_ports(loop):
    for host, port in itertools.product(["127.0.0.1", "::1", None], [*PORTS, "no such service", 65536, -1, "http"]):
        expected = outcome_of(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await outcome_of_awaiting(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        assert found == expected, (host, port)


async def test_the_answer_has_enums(loop):
    for host in ("127.0.0.1", "::1"):
        for family, kind, proto, name, address in await loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM):
            assert isinstance(family, socket.AddressFamily)
            assert isinstance(kind, socket.SocketKind)
            assert type(proto) is int
            assert name == ""
            assert type(address) is tuple


async def test_names(loop):
    found = await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    assert found == socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)


async def test_a_patched_socket_getaddrinfo_is_honoured(loop, monkeypatch):
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 99))]
    calls = []

    def getaddrinfo(*args, **kwargs):
        calls.append((args, kwargs))
        return answer

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert await loop.getaddrinfo("some.name", 99) == answer
    assert await loop.getaddrinfo("127.0.0.1", 99) == answer
    assert len(calls) == 2


async def test_a_patched_socket_getnameinfo_is_honoured(loop, monkeypatch):
    monkeypatch.setattr(socket, "getnameinfo", lambda *args: ("patched", "name"))
    assert await loop.getnameinfo(("127.0.0.1", 80)) == ("patched", "name")


async def test_connecting_asks_the_loop(loop, monkeypatch):
    asked = []

    async def getaddrinfo(host, port, **kwargs):
        asked.append((host, port))
        raise socket.gaierror(socket.EAI_NONAME, "asked")

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    with pytest.raises(socket.gaierror, match="asked"):
        await loop.create_connection(asyncio.Protocol, "some.name", 5)
    assert asked == [("some.name", 5)]


@beyond_asyncio("D32, cpython#112169: look-ups wait for a place in the default executor")
async def test_a_full_default_executor_does_not_starve_look_ups(loop):
    release = threading.Event()
    blocked = [loop.run_in_executor(None, release.wait, 15) for _ in range(70)]
    try:
        assert await within(loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM))
        assert await within(loop.getnameinfo(("127.0.0.1", 80)))
        assert await within(loop.getaddrinfo("127.0.0.1", 80))
    finally:
        release.set()
        await asyncio.gather(*blocked)


@beyond_asyncio("D32: literals go through the executor")
async def test_literals_never_leave_the_loop_thread(loop):
    release = threading.Event()
    blocked = [loop.run_in_executor(None, release.wait, 15) for _ in range(70)]
    before = threading.active_count()
    try:
        for host in ("127.0.0.1", "::1", "fe80::1%lo"):
            assert await within(loop.getaddrinfo(host, 80, type=socket.SOCK_STREAM))
        assert threading.active_count() == before
    finally:
        release.set()
        await asyncio.gather(*blocked)


async def test_errors_have_the_platforms_codes(loop):
    for host, options in [
        ("name.invalid..", {}),
        ("not a number", {"flags": socket.AI_NUMERICHOST}),
        ("::1", {"family": socket.AF_INET, "flags": socket.AI_NUMERICHOST}),
        ("127.0.0.1", {"type": 77}),
        ("127.0.0.1", {"flags": 1 << 30}),
    ]:
        expected = outcome_of(socket.getaddrinfo, host, 80, **options)
        found = await outcome_of_awaiting(loop.getaddrinfo(host, 80, **options))
        assert found == expected, host
    with pytest.raises(socket.gaierror) as caught:
        await loop.getaddrinfo("not a number", 80, flags=socket.AI_NUMERICHOST)
    assert caught.value.errno == socket.EAI_NONAME


@pytest.mark.parametrize(
    "host",
    [5, object(), "a" * 300, "with\0nul", "\ud800"],
    ids=["int", "object", "long", "nul", "lone"],
)
async def test_hosts_that_are_none(loop, host):
    expected = outcome_of(socket.getaddrinfo, host, 80)
    assert await outcome_of_awaiting(loop.getaddrinfo(host, 80)) == expected


async def test_cancelling_frees_the_waiter_at_once(loop, monkeypatch):
    release, started = threading.Event(), threading.Event()

    def getaddrinfo(*args, **kwargs):
        started.set()
        release.wait(10)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    task = loop.create_task(loop.getaddrinfo("some.name", 80))
    while not started.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(task, 3)
    assert not release.is_set()
    release.set()


async def test_getnameinfo(loop):
    for address, flags in [
        (("127.0.0.1", 80), 0),
        (("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        (("::1", 80), socket.NI_NUMERICHOST),
        (("::1", 80, 0, 0), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        ((f"fe80::1%{SCOPE}", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
        (("fe80::1", 80, 0, SCOPE), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV),
    ]:
        expected = outcome_of(socket.getnameinfo, address, flags)
        assert await outcome_of_awaiting(loop.getnameinfo(address, flags)) == expected
    for wrong in ((("not numeric", 80), 0), (("127.0.0.1",), 0), ("text", 0), (None, 0)):
        expected = outcome_of(socket.getnameinfo, *wrong)
        assert await outcome_of_awaiting(loop.getnameinfo(*wrong)) == expected, wrong


async def test_many_look_ups_at_once(loop):
    expected = socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    asked = (loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM) for _ in range(100))
    assert all(found == expected for found in await within(asyncio.gather(*asked), 10))


def test_a_closed_loop_refuses(loop):
    loop.close()
    coroutine = loop.getaddrinfo("localhost", 80)
    with pytest.raises(RuntimeError):
        coroutine.send(None)
    coroutine.close()


def test_closing_while_a_look_up_runs(loop, monkeypatch):
    release, started = threading.Event(), threading.Event()

    def getaddrinfo(*args, **kwargs):
        started.set()
        release.wait(10)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def main():
        task = loop.create_task(loop.getaddrinfo("some.name", 80))
        while not started.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    loop.run_until_complete(main())
    release.set()
    loop.close()
