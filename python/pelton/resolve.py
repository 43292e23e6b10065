"""Names to addresses: literals at once, everything else on threads of the loop's own.

The threads are daemons made on demand: a full default executor starves no look-up, and a
look-up that hangs keeps neither the loop nor the process. `socket.getaddrinfo` is looked up for
each call, so a replaced one is honoured.
"""

import asyncio
import collections
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

# Look-ups that may be under way at once; further ones wait their turn.
MOST_THREADS = 32
# Seconds after which a thread without work ends.
IDLE = 10.0

_Job = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class Resolver:
    """The look-ups of one loop."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._jobs: collections.deque[_Job] = collections.deque()
        self._wake = threading.Condition()
        self._threads = 0
        self._unanswered = 0
        self._idle = 0
        self._closed = False
        self._owner = os.getpid()

    async def getaddrinfo(
        self, host: Any, port: Any, family: int, type: int, proto: int, flags: int
    ) -> Any:
        """`socket.getaddrinfo` with these arguments; raises `socket.gaierror` as it does."""
        look_up = socket.getaddrinfo
        if _is_literal(host) and _is_number(port):
            try:
                # Numeric host and port: the C library parses both and asks nobody.
                numeric = flags | socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
                return look_up(host, port, family, type, proto, numeric)
            except socket.gaierror:
                pass  # the unchanged call decides on the error
        return await self._run(look_up, host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        """`socket.getnameinfo` with these arguments."""
        return await self._run(socket.getnameinfo, sockaddr, flags)

    def close(self) -> None:
        """End the threads that have nothing to do."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def pending(self) -> int:
        """How many look-ups wait for a thread."""
        return len(self._jobs)

    def in_flight(self) -> int:
        """How many look-ups have not been answered, waiting for a thread or not."""
        return self._unanswered

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        self._loop._check_closed()
        if self._owner != os.getpid():  # threads do not live through a fork
            self.__init__(self._loop)  # type: ignore[misc]
        future = self._loop.create_future()
        with self._wake:
            self._jobs.append((future, function, args))
            if self._idle >= len(self._jobs):
                self._wake.notify()
            elif self._threads < MOST_THREADS:
                self._threads += 1
                name = f"pelton-resolver-{self._threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        self._unanswered += 1
        try:
            return await future
        finally:
            self._unanswered -= 1

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            future, function, args = job
            if future.cancelled():
                continue
            try:
                answer, error = function(*args), None
            except BaseException as exc:
                answer, error = None, exc
            try:
                self._loop.call_soon_threadsafe(_settle, future, answer, error)
            except RuntimeError:
                return  # the loop was closed meanwhile: nobody waits
            del job, future, function, args, answer, error

    def _next_job(self) -> _Job | None:
        with self._wake:
            self._idle += 1
            try:
                if self._wake.wait_for(lambda: self._jobs or self._closed, IDLE) and self._jobs:
                    return self._jobs.popleft()
                self._threads -= 1
                return None
            finally:
                self._idle -= 1


def _settle(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer)


def _is_literal(host: Any) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str):
        return False
    address, _, _ = host.partition("%")
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, address)
        except (OSError, ValueError):
            continue
        return True
    return False


def _is_number(port: Any) -> bool:
    if isinstance(port, bytes):
        port = port.decode("ascii", "replace")
    return port is None or isinstance(port, int) or (isinstance(port, str) and port.isdecimal())
