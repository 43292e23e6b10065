"""A web service that shows its event loop's load and names what holds it up.

    uvicorn --app-dir examples --loop pelton:new_event_loop asgi_stats:app

- ``/``         says hello
- ``/slow``     blocks the loop for 0.2 seconds, as a service should not: the log names it
- ``/metrics``  the loop's statistics for Prometheus
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pelton import Loop
from pelton.stats import prometheus

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger("uvicorn.error")


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Answer one request, or the server's start and stop."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["path"] == "/":
        await answer(send, 200, "hello\n")
    elif scope["path"] == "/slow":
        time.sleep(0.2)  # noqa: ASYNC251  (this is what the hook is there to find)
        await answer(send, 200, "that was slow\n")
    elif scope["path"] == "/metrics":
        await metrics(send)
    else:
        await answer(send, 404, "not found\n")


async def lifespan(receive: Receive, send: Send) -> None:
    """Look at the loop from the server's start to its end."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            loop = asyncio.get_running_loop()
            if isinstance(loop, Loop):
                loop.measure_callbacks(True)
                loop.slow_callback_duration = 0.05
                loop.set_slow_callback_hook(report_slow)
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def report_slow(what: str, seconds: float) -> None:
    """Called by the loop, in its thread, after a callback that took too long."""
    logger.warning("the loop was held up for %.3f s by %s", seconds, what)


async def metrics(send: Send) -> None:
    """The loop's statistics."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, Loop):
        await answer(send, 200, prometheus(loop.stats()))
    else:
        await answer(send, 501, f"{type(loop).__name__} has no statistics\n")


async def answer(send: Send, status: int, text: str) -> None:
    """Send a whole response."""
    body = text.encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
