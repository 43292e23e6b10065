"""Debug mode: thread checks, slow callbacks by name, unclosed things."""

import asyncio
import gc
import logging
import re
import socket
import threading
import time
import warnings

import pytest
from helpers import Recorder, new_loop, socket_pair


@pytest.fixture
def debug_loop(loop):
    loop.set_debug(True)
    return loop


def in_thread(function):
    """The exception that `function` raises in another thread, or None."""
    caught = []

    def run():
        try:
            function()
        except Exception as exc:
            caught.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    return caught[0] if caught else None


def test_debug_flag(loop):
    assert loop.get_debug() is False
    loop.set_debug(True)
    assert loop.get_debug() is True
    assert "debug=True" in repr(loop)
    assert loop.slow_callback_duration == 0.1


@pytest.mark.parametrize("name", ["call_soon", "call_later", "call_at"])
def test_calls_from_a_foreign_thread_raise(debug_loop, name):
    arguments = () if name == "call_soon" else (1000,)

    async def main():
        call = getattr(debug_loop, name)
        return await debug_loop.run_in_executor(None, in_thread, lambda: call(*arguments, print))

    exc = debug_loop.run_until_complete(main())
    assert isinstance(exc, RuntimeError)
    assert "Non-thread-safe operation invoked on an event loop other than the current one" in str(exc)


def test_call_soon_threadsafe_is_allowed(debug_loop):
    async def main():
        future = debug_loop.create_future()
        call = lambda: debug_loop.call_soon_threadsafe(future.set_result, 1)  # noqa: E731
        assert await debug_loop.run_in_executor(None, in_thread, call) is None
        assert await future == 1

    debug_loop.run_until_complete(main())


def test_without_debug_there_is_no_check(loop):
    async def main():
        handles = []
        call = lambda: handles.append(loop.call_later(1000, print))  # noqa: E731
        assert await loop.run_in_executor(None, in_thread, call) is None
        handles[0].cancel()

    loop.run_until_complete(main())


@pytest.mark.parametrize("name", ["call_soon", "call_later", "call_at", "call_soon_threadsafe"])
def test_callbacks_are_checked(debug_loop, name):
    arguments = () if name.startswith("call_soon") else (1000,)

    async def coroutine():
        pass

    call = getattr(debug_loop, name)
    with pytest.raises(TypeError, match="coroutines cannot be used with"):
        call(*arguments, coroutine)
    made = coroutine()
    with pytest.raises(TypeError, match="coroutines cannot be used with"):
        call(*arguments, made)
    made.close()
    with pytest.raises(TypeError, match="a callable object was expected by"):
        call(*arguments, "text")


def slow_lines(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_slow_callbacks_are_named(debug_loop, caplog):
    debug_loop.slow_callback_duration = 0.005

    def sluggish_callback():
        time.sleep(0.01)

    debug_loop.call_soon(sluggish_callback)
    debug_loop.call_later(0, sluggish_callback)
    debug_loop.call_soon_threadsafe(sluggish_callback)
    debug_loop.call_later(0.02, debug_loop.stop)
    debug_loop.run_forever()
    lines = [line for line in slow_lines(caplog) if "sluggish_callback" in line]
    assert len(lines) == 3
    for line in lines:
        assert re.fullmatch(r"Executing <\w*Handle .*sluggish_callback.*> took \d+\.\d{3} seconds", line)


def test_slow_protocols_are_named(debug_loop, caplog):
    """Connections are served without a handle; asyncio names the handle of its reader."""
    debug_loop.slow_callback_duration = 0.005

    class SluggishProtocol(asyncio.Protocol):
        def data_received(self, data):
            time.sleep(0.01)
            debug_loop.stop()

        def __repr__(self):
            return "<sluggish>"

    async def connect():
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        transport, _ = await debug_loop.create_connection(SluggishProtocol, sock=ours)
        return transport, peer

    transport, peer = debug_loop.run_until_complete(connect())
    peer.send(b"x")
    debug_loop.run_forever()
    peer.close()
    transport.abort()
    debug_loop.run_until_complete(asyncio.sleep(0))
    lines = [line for line in slow_lines(caplog) if "Transport" in line]
    assert len(lines) == 1
    assert re.match(r"Executing .*Transport.* took 0\.\d{3} seconds$", lines[0])


def test_slow_tasks_are_named(debug_loop, caplog):
    debug_loop.slow_callback_duration = 0.005

    async def sluggish_coroutine():
        time.sleep(0.01)

    debug_loop.run_until_complete(sluggish_coroutine())
    lines = [line for line in slow_lines(caplog) if "sluggish_coroutine" in line]
    assert len(lines) == 1
    assert re.match(r"Executing <Task .*sluggish_coroutine.* took \d+\.\d{3} seconds$", lines[0])


def test_quick_callbacks_are_not_reported(debug_loop, caplog):
    debug_loop.slow_callback_duration = 5
    debug_loop.call_soon(time.sleep, 0.002)
    debug_loop.call_soon(debug_loop.stop)
    debug_loop.run_forever()
    assert slow_lines(caplog) == []


def test_without_debug_slow_callbacks_are_not_reported(loop, caplog):
    loop.slow_callback_duration = 0
    loop.call_soon(time.sleep, 0.002)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert slow_lines(caplog) == []


def test_handles_know_where_they_were_made(debug_loop, errors):
    handle = debug_loop.call_soon(lambda: 1 / 0)
    assert handle._source_traceback[-1].filename == __file__
    assert f"created at {__file__}:" in repr(handle)
    timer = debug_loop.call_later(1000, print)
    assert timer._source_traceback[-1].filename == __file__
    timer.cancel()
    debug_loop.call_soon(debug_loop.stop)
    debug_loop.run_forever()
    (context,) = errors
    assert context["source_traceback"] == handle._source_traceback
    errors.clear()


def test_without_debug_handles_do_not_know(loop, errors):
    handle = loop.call_soon(lambda: 1 / 0)
    assert handle._source_traceback is None
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert "source_traceback" not in errors[0]
    errors.clear()


def test_a_cancelled_handle_still_tells_its_callback(debug_loop):
    def some_callback():
        pass

    handle = debug_loop.call_soon(some_callback)
    handle.cancel()
    assert "cancelled" in repr(handle)
    assert "some_callback" in repr(handle)


def test_coroutines_know_their_origin(debug_loop):
    async def inner():
        pass

    async def main():
        made = inner()
        origin = made.cr_origin
        await made
        return origin

    assert debug_loop.run_until_complete(main())[0][0] == __file__
    outside = inner()
    assert outside.cr_origin is None
    outside.close()


def test_an_unclosed_loop_warns():
    loop = new_loop()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del loop
        gc.collect()
    assert "unclosed event loop" in " ".join(str(warning.message) for warning in seen)


def test_a_closed_loop_does_not_warn():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loop = new_loop()
        loop.close()
        del loop
        gc.collect()
    assert [str(warning.message) for warning in seen] == []


def test_an_unclosed_transport_warns(loop, kind):
    ours, peer = socket_pair(kind)

    async def connect(sock):
        await loop.create_connection(Recorder, sock=sock)

    loop.run_until_complete(connect(ours))
    loop.call_soon(loop.stop)
    loop.run_forever()
    del ours
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        loop.close()
        gc.collect()
    assert "unclosed transport" in " ".join(str(warning.message) for warning in seen)
    assert peer.recv(1) == b"", "the descriptor was not closed with the transport"
    peer.close()


def test_a_server_works_in_debug_mode(debug_loop):
    debug_loop.slow_callback_duration = 10

    async def main():
        async def serve(reader, writer):
            writer.write((await reader.read()).upper())
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"shout")
            writer.write_eof()
            assert await reader.read() == b"SHOUT"
            writer.close()
            await writer.wait_closed()

    debug_loop.run_until_complete(main())


def test_debug_follows_the_environment(monkeypatch):
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    loop = new_loop()
    try:
        assert loop.get_debug()
    finally:
        loop.close()
