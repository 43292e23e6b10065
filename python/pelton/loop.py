"""The event loop: native per callback, the running Python's own code per connection and loop.

`LoopCore` (Rust) has scheduling, timers, the poll, descriptors, listening sockets and the
transports. Everything else is inherited from `asyncio.SelectorEventLoop`, so it follows the
running version of Python exactly; see docs/decisions/0001.
"""

import asyncio
import contextlib
import contextvars
import inspect
import os
import signal
import socket
import threading
from asyncio import constants
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from . import _support
from ._pelton import (
    DatagramTransport,
    LoopCore,
    ReadPipeTransport,
    SSLTransport,
    StreamTransport,
    WritePipeTransport,
)
from .process import ProcessTransport, Watch
from .resolve import Resolver
from .stats import LoopStats, collect

try:
    import ssl

    from . import tls
except ImportError:  # a Python without OpenSSL
    ssl = None  # type: ignore[assignment]

_P = TypeVar("_P", bound=asyncio.BaseProtocol)
_R = TypeVar("_R")

if TYPE_CHECKING:
    from ssl import SSLContext, SSLSession

    class _SelectorEventLoop(asyncio.SelectorEventLoop):
        """asyncio's class with the private names used here, which typeshed leaves out."""

        _csock: socket.socket | None
        _signal_handlers: dict[int, asyncio.Handle]

        def _check_closed(self) -> None: ...
        def _check_running(self) -> None: ...
        def _make_self_pipe(self) -> None: ...
        def _close_self_pipe(self) -> None: ...
        def _ensure_fd_no_transport(self, fd: Any) -> None: ...
        async def _sendfile_native(
            self, transp: Any, file: Any, offset: int, count: int | None
        ) -> int: ...
        async def _sendfile_fallback(
            self, transp: Any, file: Any, offset: int, count: int | None
        ) -> int: ...
        async def create_connection(
            self,
            protocol_factory: Callable[[], _P],
            host: str | None = None,
            port: int | str | None = None,
            *,
            ssl: bool | SSLContext | None = None,
            family: int = 0,
            proto: int = 0,
            flags: int = 0,
            sock: socket.socket | None = None,
            local_addr: tuple[str, int] | None = None,
            server_hostname: str | None = None,
            ssl_handshake_timeout: float | None = None,
            ssl_shutdown_timeout: float | None = None,
            happy_eyeballs_delay: float | None = None,
            interleave: int | None = None,
            all_errors: bool = False,
            session: SSLSession | None = None,
        ) -> tuple[asyncio.Transport, _P]: ...
        async def create_unix_connection(
            self,
            protocol_factory: Callable[[], _P],
            path: str | bytes | None = None,
            *,
            ssl: bool | SSLContext | None = None,
            sock: socket.socket | None = None,
            server_hostname: str | None = None,
            ssl_handshake_timeout: float | None = None,
            ssl_shutdown_timeout: float | None = None,
            session: SSLSession | None = None,
        ) -> tuple[asyncio.Transport, _P]: ...
else:
    _SelectorEventLoop = asyncio.SelectorEventLoop

__all__ = ("DatagramTransport", "Loop", "SSLTransport", "StreamTransport")


def _with_session(method: Callable[..., Any]) -> inspect.Signature:
    """The running Python's signature of a method, and `session` behind it."""
    signature = inspect.signature(method)
    session = inspect.Parameter("session", inspect.Parameter.KEYWORD_ONLY, default=None)
    return signature.replace(parameters=[*signature.parameters.values(), session])


@contextlib.contextmanager
def _offering(session: "SSLSession | None", sslcontext: Any) -> Iterator[None]:
    """Inside, the next client connection of this task offers `session`."""
    if session is None:
        yield
        return
    if not sslcontext:
        raise ValueError("session is only meaningful with ssl")
    offered = tls.offered_session.set(session)
    try:
        yield
    finally:
        tls.offered_session.reset(offered)


def _within(
    context: contextvars.Context | None, call: Callable[..., _R], *args: Any, **kwargs: Any
) -> _R:
    """Call in a copy of `context`, which asyncio names from Python 3.15 on; else in the current.

    What is made there copies the context it finds, so it makes no difference that this is a copy;
    the original may be entered already.
    """
    return call(*args, **kwargs) if context is None else context.copy().run(call, *args, **kwargs)


class _NoSelector:
    """Stands where asyncio's loops have a selector: the native half does the polling."""

    def select(self, timeout: float | None = None) -> list[Any]:
        raise RuntimeError(
            "pelton's loop has no selector: it cannot be patched to nest or to be polled by hand"
        )

    def get_map(self) -> dict[int, Any]:
        return {}

    def get_key(self, fileobj: object) -> Any:
        raise KeyError(fileobj)

    def close(self) -> None:
        pass


class Loop(LoopCore, _SelectorEventLoop):
    """An asyncio event loop on pelton's network engine."""

    def __init__(self) -> None:
        self._resolver = Resolver(self)
        self._children: set[Watch] = set()  # processes that have not ended
        super().__init__(_NoSelector())  # type: ignore[arg-type]
        self._own_time = type(self).time is not LoopCore.time

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "time":  # tests replace a loop's clock; the native half asks it then
            self._own_time = True

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name == "time":
            self._own_time = type(self).time is not LoopCore.time

    # -- running ----------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop()`. A signal that arrives wakes the loop even while it sleeps."""
        # First of all: a refused run must not touch the one that is under way.
        self._check_closed()
        self._check_running()
        with self._signals_wake_the_loop():
            super().run_forever()

    @contextlib.contextmanager
    def _signals_wake_the_loop(self) -> Any:
        if self._csock is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._forget_parent_pipe()
        before = signal.set_wakeup_fd(self._csock.fileno(), warn_on_full_buffer=False)
        mine = self._csock.fileno()
        try:
            yield
        finally:
            # A handler added meanwhile keeps the pipe; otherwise it is as it was before.
            if before != mine and not self._signal_handlers:
                signal.set_wakeup_fd(before)
            elif before == -1 and not self._signal_handlers:
                signal.set_wakeup_fd(-1)

    def close(self) -> None:
        """Close the loop. Transports that are still open are let go of, as by asyncio."""
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if self.is_closed():
            return
        self._resolver.close()
        super().close()
        self._close_core()
        while self._children:
            self._children.pop().forget()

    # -- sight ----------------------------------------------------------------------------------

    def stats(self) -> LoopStats:
        """What the loop has done and has before it; may be asked from any thread.

        Costs a walk over the open transports, and the loop next to nothing while nobody asks.
        """
        return collect(self)

    def set_slow_callback_hook(self, hook: Callable[[str, float], object] | None) -> None:
        """Have `hook(what, seconds)` called after each callback that took too long.

        That is `slow_callback_duration` seconds or more, in debug mode or not; `what` is what
        asyncio's own warning in debug mode would name. While a hook is set each callback costs two
        looks at the clock. None takes it away. What the hook raises goes to the exception handler.
        """
        if hook is not None and not callable(hook):
            raise TypeError(f"A callable object or None is expected, got {hook!r}")
        self._slow_hook = hook

    # -- the pipe that signals write to ---------------------------------------------------------

    def _make_self_pipe(self) -> None:
        super()._make_self_pipe()
        self._pipe_owner = os.getpid()

    def _forget_parent_pipe(self) -> None:
        """After a fork the pipe would be shared with the parent: make another."""
        if self._pipe_owner != os.getpid():
            self._close_self_pipe()
            self._make_self_pipe()

    # -- descriptors ----------------------------------------------------------------------------

    def _ensure_fd_no_transport(self, fd: Any) -> None:
        transport = self._stream_of(fd)
        if transport is not None and not transport.is_closing():
            raise RuntimeError(f"File descriptor {fd!r} is used by transport {transport!r}")
        super()._ensure_fd_no_transport(fd)

    # -- streams --------------------------------------------------------------------------------

    def _make_socket_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol | SSLTransport,
        waiter: asyncio.Future[None] | None = None,
        *,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        context: contextvars.Context | None = None,
    ) -> StreamTransport:
        self._ensure_fd_no_transport(sock)
        return _within(context, self._make_stream, sock, protocol, waiter, extra, server)

    def _make_ssl_transport(
        self,
        rawsock: socket.socket,
        protocol: asyncio.BaseProtocol,
        sslcontext: Any,
        waiter: asyncio.Future[None] | None = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
        ssl_handshake_timeout: float | None = constants.SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: float | None = constants.SSL_SHUTDOWN_TIMEOUT,
        context: contextvars.Context | None = None,
    ) -> Any:
        if ssl is None:
            raise RuntimeError("Python ssl module is not available")
        transport = _within(
            context,
            tls.make_transport,
            self,
            protocol,
            sslcontext,
            waiter,
            server_side=server_side,
            server_hostname=server_hostname,
            session=None if server_side else tls.offered_session.get(),
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )
        self._make_socket_transport(rawsock, transport, extra=extra, server=server, context=context)
        return transport

    if not TYPE_CHECKING:  # its types are with the base class above

        async def create_connection(self, *args, session=None, **kwargs):
            """As asyncio's. `session`, with `ssl`, is one of an earlier connection to resume.

            Sessions are read from `transport.get_extra_info("ssl_object").session`; with TLS 1.3
            one is there once the server's ticket has come, behind the handshake.
            """
            with _offering(session, kwargs.get("ssl")):
                return await super().create_connection(*args, **kwargs)

        async def create_unix_connection(self, *args, session=None, **kwargs):
            """As asyncio's; `session` as for `create_connection`."""
            with _offering(session, kwargs.get("ssl")):
                return await super().create_unix_connection(*args, **kwargs)

        for _method in (create_connection, create_unix_connection):
            _method.__signature__ = _with_session(getattr(_SelectorEventLoop, _method.__name__))
        del _method

    async def start_tls(
        self,
        transport: Any,
        protocol: asyncio.BaseProtocol,
        sslcontext: "SSLContext",
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        session: "SSLSession | None" = None,
    ) -> SSLTransport | None:
        """Upgrade a transport to TLS, in any state; answers the transport to use from now on.

        None if the connection was closed during the handshake without an error. What a
        `StreamReader` has read ahead is taken along. `session` is one to resume.
        """
        if ssl is None:
            raise RuntimeError("Python ssl module is not available")
        return await tls.start_tls(
            self,
            transport,
            protocol,
            sslcontext,
            server_side=server_side,
            server_hostname=server_hostname,
            session=session,
            ssl_handshake_timeout=ssl_handshake_timeout,
            ssl_shutdown_timeout=ssl_shutdown_timeout,
        )

    def _start_serving(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sock: socket.socket,
        sslcontext: Any = None,
        server: Any = None,
        backlog: int = 100,
        ssl_handshake_timeout: float | None = constants.SSL_HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout: float | None = constants.SSL_SHUTDOWN_TIMEOUT,
        context: contextvars.Context | None = None,
    ) -> None:
        _within(
            context,
            self._listen,
            protocol_factory,
            sock,
            sslcontext,
            server,
            backlog,
            ssl_handshake_timeout,
            ssl_shutdown_timeout,
        )

    def _stream_listens(self, sock: socket.socket) -> bool:
        return sock.fileno() >= 0 and self._listens(sock)

    # -- pipes ----------------------------------------------------------------------------------

    def _make_read_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> ReadPipeTransport:
        return self._make_read_pipe(pipe, protocol, waiter, extra)

    def _make_write_pipe_transport(
        self,
        pipe: Any,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> WritePipeTransport:
        return self._make_write_pipe(pipe, protocol, waiter, extra)

    # -- processes ------------------------------------------------------------------------------

    async def _make_subprocess_transport(
        self,
        protocol: asyncio.SubprocessProtocol,
        args: Any,
        shell: bool,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        bufsize: int,
        extra: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> ProcessTransport:
        waiter = self.create_future()
        transport = ProcessTransport(
            self,
            protocol,
            args,
            shell,
            stdin,
            stdout,
            stderr,
            bufsize,
            waiter=waiter,
            extra=extra,
            **kwargs,
        )
        try:
            await waiter
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:
            await transport.abandon()
            raise
        return transport

    # -- datagrams ------------------------------------------------------------------------------

    def _make_datagram_transport(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> DatagramTransport:
        self._ensure_fd_no_transport(sock)
        info = _support.socket_info(sock, extra)
        return self._make_datagram(sock, protocol, address, waiter, info)

    # -- sendfile -------------------------------------------------------------------------------

    async def _sendfile_native(self, transp: Any, file: Any, offset: int, count: int | None) -> int:
        if not isinstance(transp, StreamTransport):
            return await super()._sendfile_native(transp, file, offset, count)
        resume = transp.is_reading()
        transp.pause_reading()
        await transp._make_empty_waiter()
        try:
            # A second descriptor of the same socket, so that the transport's own registration
            # in the poller stays as it is.
            with transp._sock.dup() as sock:
                return await self.sock_sendfile(sock, file, offset, count, fallback=False)
        finally:
            transp._reset_empty_waiter()
            if resume:
                transp.resume_reading()

    async def _sendfile_fallback(
        self, transp: Any, file: Any, offset: int, count: int | None
    ) -> int:
        # asyncio takes an offset of 0 for "where the file stands", unlike the kernel's sendfile.
        if hasattr(file, "seek"):
            file.seek(offset)
        return await super()._sendfile_fallback(transp, file, offset, count)

    # -- names ----------------------------------------------------------------------------------

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """As `socket.getaddrinfo`. Literals are answered at once, names by the loop's threads."""
        return await self._resolver.getaddrinfo(host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> Any:
        """As `socket.getnameinfo`, by the loop's threads."""
        return await self._resolver.getnameinfo(sockaddr, flags)
