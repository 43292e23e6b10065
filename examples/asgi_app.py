"""A small web application in plain ASGI: no framework, one function.

Run it on pelton with any ASGI server that takes a loop factory, for instance

    uvicorn --app-dir examples --loop pelton:new_event_loop asgi_app:app

- ``/``        a JSON greeting that names the event loop it runs on
- ``/stream``  ten lines, sent one by one
- ``/echo``    the body of the request, sent back
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: The largest body that /echo takes: a stranger decides how much is sent, not how much is kept.
MAX_BODY = 1 << 20


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Answer one request."""
    if scope["type"] != "http":
        raise NotImplementedError(f"{scope['type']} is not served here")
    if scope["path"] == "/":
        greeting = {"hello": "world", "loop": type(asyncio.get_running_loop()).__name__}
        await answer(send, 200, b"application/json", json.dumps(greeting).encode())
    elif scope["path"] == "/stream":
        await stream(send)
    elif scope["path"] == "/echo":
        await echo(receive, send)
    else:
        await answer(send, 404, b"text/plain", b"not found\n")


async def answer(send: Send, status: int, kind: bytes, body: bytes) -> None:
    """Send a whole response."""
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def stream(send: Send) -> None:
    """Send a response in pieces; its length is not known before the end, so it goes in chunks."""
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number in range(10):
        await send({"type": "http.response.body", "body": b"%d\n" % number, "more_body": True})
        await asyncio.sleep(0)  # whatever else is ready may run in between
    await send({"type": "http.response.body"})


async def echo(receive: Receive, send: Send) -> None:
    """Send the request's body back once all of it is there."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_BODY:
            await answer(send, 413, b"text/plain", b"the body is too large\n")
            return
    await answer(send, 200, b"application/octet-stream", bytes(body))
