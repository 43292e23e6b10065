"""The public API as a program uses it: pyright reads this file, nothing runs it."""

import asyncio
import sys
from typing import assert_type

import pelton


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        assert_type(transport.get_write_buffer_limits(), tuple[int, int])

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def main(number: int) -> str:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, pelton.Loop)

    # Scheduling returns asyncio's own kinds of handle.
    handle: asyncio.Handle = loop.call_soon(print, "soon")
    timer: asyncio.TimerHandle = loop.call_later(0.5, print, "later", "still")
    assert_type(timer.when(), float)
    handle.cancel()
    loop.call_at(loop.time() + 1, timer.cancel)
    loop.call_soon_threadsafe(print)

    # What is wrong for the callback is wrong here too.
    loop.call_soon(takes_text, 1)  # pyright: ignore[reportArgumentType]
    loop.call_later("soon", print)  # pyright: ignore[reportArgumentType]

    server = await loop.create_server(Echo, "127.0.0.1", 0)
    async with server:
        transport, protocol = await loop.create_connection(Echo, "127.0.0.1", 80)
        assert_type(protocol, Echo)
        transport.close()

    name, port = await loop.getnameinfo(("127.0.0.1", 80))
    return f"{name}{port}{number}"


def takes_text(text: str) -> None:
    print(text)


def starts() -> None:
    assert_type(pelton.run(main(1)), str)
    assert_type(pelton.run(main(1), debug=True), str)
    assert_type(pelton.run(main(1), loop_factory=asyncio.SelectorEventLoop), str)
    with asyncio.Runner(loop_factory=pelton.new_event_loop) as runner:
        assert_type(runner.run(main(2)), str)
    assert_type(pelton.new_event_loop(), pelton.Loop)
    loop: asyncio.AbstractEventLoop = pelton.Loop()
    loop.close()
    if sys.version_info < (3, 16):
        pelton.install()
        asyncio.set_event_loop_policy(pelton.EventLoopPolicy())  # pyright: ignore[reportDeprecated]
    assert_type(pelton.__version__, str)
