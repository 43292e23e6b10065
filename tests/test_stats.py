"""loop.stats(), its Prometheus form, callback times and the slow-callback hook."""

import asyncio
import logging
import os
import ssl
import threading
import time
from pathlib import Path
from subprocess import PIPE

import pytest
import trustme
from helpers import ON_ASYNCIO, Recorder, new_loop, settle, within

if ON_ASYNCIO:
    pytest.skip("asyncio has no such call", allow_module_level=True)

from pelton.stats import CallbackTimes, LoopStats, prometheus


def test_a_new_loop(loop):
    stats = loop.stats()
    assert isinstance(stats, LoopStats)
    assert (stats.turns, stats.callbacks, stats.running_seconds, stats.idle_seconds) == (0, 0, 0, 0)
    assert (stats.ready, stats.timers, stats.streams, stats.listeners, stats.processes) == (0, 0, 0, 0, 0)
    assert stats.busy == 0 and stats.callback_times is None


def test_turns_and_callbacks(loop):
    ran = []
    for number in range(10):
        loop.call_soon(ran.append, number)
    loop.call_soon(loop.stop)
    assert loop.stats().ready == 11
    loop.run_forever()
    stats = loop.stats()
    assert (stats.turns, stats.callbacks, stats.ready) == (1, 11, 0)


def test_callbacks_of_other_threads_wait_too(loop):
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
    thread.start()
    thread.join()
    assert loop.stats().ready == 1
    loop.run_forever()


def test_timers(loop):
    timers = [loop.call_later(1000, print) for _ in range(5)]
    assert loop.stats().timers == 5
    timers[0].cancel()
    assert loop.stats().timers == 4
    for timer in timers:
        timer.cancel()
    assert loop.stats().timers == 0


def test_busy_and_idle(loop):
    loop.run_until_complete(asyncio.sleep(0.05))
    idle = loop.stats()
    assert idle.idle_seconds >= 0.045 and idle.running_seconds >= idle.idle_seconds
    loop.call_soon(time.sleep, 0.05)
    loop.call_soon(loop.stop)
    loop.run_forever()
    busy = loop.stats()
    assert busy.running_seconds - idle.running_seconds >= 0.05
    assert busy.idle_seconds - idle.idle_seconds < 0.04
    assert 0 < busy.busy < 1


def test_asked_from_another_thread_while_it_sleeps(loop):
    answers = []

    def look():
        while loop.stats().idle_seconds < 0.02:
            time.sleep(0.001)
        answers.append(loop.stats())
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=look)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    assert answers[0].idle_seconds >= 0.02 and answers[0].busy < 1


async def test_streams_and_bytes(loop, pair):
    before = loop.stats()
    protocol = Recorder()
    transport, peer = await pair(protocol)
    assert loop.stats().streams == before.streams + 1
    peer.send(b"x" * 1000)
    await protocol.got(1000)
    transport.write(b"one")
    transport.write(b"two")
    transport.write(bytearray(b"three"))
    transport.writelines([b"four", b"five"])
    await settle()
    stats = loop.stats()
    assert stats.bytes_received == before.bytes_received + 1000
    assert stats.bytes_sent == before.bytes_sent + len("onetwothreefourfive")
    transport.close()
    await protocol.seen("lost")
    assert loop.stats().streams == before.streams


async def test_only_what_the_kernel_took_is_sent(loop, pair):
    transport, peer = await pair(Recorder(), "unix", sndbuf=4096)
    transport.write(bytes(1 << 20))
    sent = loop.stats().bytes_sent
    assert sent == (1 << 20) - transport.get_write_buffer_size() < 1 << 20
    got = 0
    while got < 1 << 20:
        got += len(await loop.run_in_executor(None, peer.recv, 1 << 18))
    await settle()
    assert loop.stats().bytes_sent == 1 << 20


async def test_listeners_pipes_processes_and_watchers(loop):
    before = loop.stats()
    async with await loop.create_server(Recorder, "127.0.0.1", 0):
        assert loop.stats().listeners == before.listeners + 1
    proc = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    stats = loop.stats()
    assert (stats.read_pipes, stats.write_pipes, stats.processes) == (1, 1, 1)
    assert stats.watchers == before.watchers + 1  # the pidfd
    await proc.communicate(b"through pipes")
    stats = loop.stats()
    assert (stats.processes, stats.watchers) == (0, before.watchers)
    assert stats.bytes_sent - before.bytes_sent == stats.bytes_received - before.bytes_received == 13
    reading, writing = os.pipe()
    loop.add_reader(reading, print)
    assert loop.stats().watchers == before.watchers + 1
    loop.remove_reader(reading)
    os.close(reading)
    os.close(writing)


async def test_look_ups_in_flight(loop, monkeypatch):
    go = threading.Event()

    def slow(*args):
        go.wait()
        return []

    monkeypatch.setattr("socket.getaddrinfo", slow)
    looking = [loop.create_task(loop.getaddrinfo(f"name-{n}", 80)) for n in range(3)]
    await asyncio.sleep(0)
    assert loop.stats().dns_in_flight == 3
    go.set()
    await within(asyncio.gather(*looking))
    assert loop.stats().dns_in_flight == 0


async def test_tls_handshakes_are_counted_at_both_ends(loop):
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=server_side)
    before = loop.stats().tls_handshakes
    protocol = Recorder()
    address = server.sockets[0].getsockname()
    transport, _ = await loop.create_connection(
        lambda: protocol, *address, ssl=client_side, server_hostname="localhost"
    )
    assert transport.get_extra_info("ssl_object") is not None
    transport.close()
    await protocol.seen("lost")
    assert loop.stats().tls_handshakes == before + 2
    server.close()
    await server.wait_closed()


def test_after_close():
    loop = new_loop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    stats = loop.stats()
    assert stats.turns > 0 and (stats.streams, stats.ready) == (0, 0)


# -- callback times ------------------------------------------------------------------------------------


def test_callback_times(loop):
    loop.measure_callbacks(True)
    for _ in range(10):
        loop.call_soon(int)
    loop.call_soon(time.sleep, 0.02)
    loop.call_soon(loop.stop)
    loop.run_forever()
    times = loop.stats().callback_times
    assert isinstance(times, CallbackTimes)
    assert len(times.counts) == len(times.bounds) + 1 and list(times.bounds) == sorted(times.bounds)
    assert sum(times.counts) == 12 and times.seconds >= 0.02
    slow = [count for bound, count in zip(times.bounds, times.counts) if bound > 0.01]
    assert sum(slow) + times.counts[-1] >= 1
    loop.measure_callbacks(False)
    assert loop.stats().callback_times is None
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.measure_callbacks(True)
    assert sum(loop.stats().callback_times.counts) == 12


# -- Prometheus -----------------------------------------------------------------------------------------


def sample(text, name):
    [value] = [
        line.rpartition(" ")[2]
        for line in text.splitlines()
        if line.startswith(name + " ") or line.startswith(name + "{")
    ]
    return float(value)


def test_prometheus_text(loop):
    loop.measure_callbacks(True)
    loop.run_until_complete(asyncio.sleep(0))
    stats = loop.stats()
    text = prometheus(stats)
    assert text.endswith("\n")
    assert "# TYPE pelton_loop_turns_total counter" in text and "# TYPE pelton_loop_ready gauge" in text
    assert sample(text, "pelton_loop_turns_total") == stats.turns
    assert sample(text, "pelton_loop_callback_seconds_count") == sum(stats.callback_times.counts)
    assert 'pelton_loop_callback_seconds_bucket{le="+Inf"}' in text
    buckets = [int(line.rpartition(" ")[2]) for line in text.splitlines() if "_bucket" in line]
    assert buckets == sorted(buckets) and buckets[-1] == sum(stats.callback_times.counts)
    for line in text.splitlines():
        assert line.startswith("# TYPE ") or float(line.rpartition(" ")[2]) >= 0


async def test_the_example_shows_it(loop, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "examples")
    import asgi_stats

    sent = []

    async def send(message):
        sent.append(message)

    await asgi_stats.app({"type": "http", "path": "/metrics"}, None, send)
    assert sent[0]["status"] == 200
    assert sample(sent[1]["body"].decode(), "pelton_loop_turns_total") > 0


def test_prometheus_labels(loop):
    text = prometheus(loop.stats(), "app", worker="1", name='a "b"\\\n')
    assert r'app_turns_total{worker="1",name="a \"b\"\\\n"} 0' in text.splitlines()


# -- slow callbacks ---------------------------------------------------------------------------------------


def test_the_hook_names_what_was_slow(loop, caplog):
    seen = []
    loop.set_slow_callback_hook(lambda what, seconds: seen.append((what, seconds)))
    loop.slow_callback_duration = 0.02

    async def the_guilty_coroutine():
        time.sleep(0.03)

    with caplog.at_level(logging.WARNING, "asyncio"):
        loop.run_until_complete(the_guilty_coroutine())
    [(what, seconds)] = seen
    assert "the_guilty_coroutine" in what and 0.03 <= seconds < 1
    assert not caplog.records
    loop.set_slow_callback_hook(None)
    loop.run_until_complete(the_guilty_coroutine())
    assert len(seen) == 1


def test_the_hook_in_debug_mode(loop, caplog):
    seen = []
    loop.set_debug(True)
    loop.set_slow_callback_hook(lambda what, seconds: seen.append(what))
    loop.slow_callback_duration = 0.01
    with caplog.at_level(logging.WARNING, "asyncio"):
        loop.call_soon(time.sleep, 0.02)
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert len(seen) == 1
    assert caplog.records[0].message.startswith(f"Executing {seen[0]} took 0.0")


async def test_the_hook_hears_of_protocols(loop, pair):
    seen = []

    class Slow(Recorder):
        def data_received(self, data):
            time.sleep(0.02)
            super().data_received(data)

        def __repr__(self):
            return "<the slow protocol>"

    transport, peer = await pair(Slow())
    loop.slow_callback_duration = 0.01
    loop.set_slow_callback_hook(lambda what, seconds: seen.append(what))
    peer.send(b"x")
    await transport.get_protocol().got(1)
    loop.set_slow_callback_hook(None)
    assert any("<the slow protocol> for <StreamTransport" in what for what in seen)


def test_a_hook_that_raises_is_reported(loop, errors):
    loop.set_slow_callback_hook(lambda what, seconds: 1 / 0)
    loop.slow_callback_duration = 0
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.set_slow_callback_hook(None)
    assert isinstance(errors[0]["exception"], ZeroDivisionError)
    assert errors[0]["message"] == "Exception in the slow-callback hook"
    errors.clear()


def test_what_is_no_hook(loop):
    with pytest.raises(TypeError, match="callable"):
        loop.set_slow_callback_hook("text")
    assert loop.slow_callback_duration == 0.1
    with pytest.raises(TypeError):
        loop.slow_callback_duration = "soon"
