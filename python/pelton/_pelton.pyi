"""The native half of pelton. Names with an underscore are for python/pelton alone."""

import asyncio
import contextvars
import socket
import ssl
import traceback
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal, TypeVarTuple, final

from _typeshed import FileDescriptorLike, ReadableBuffer
from typing_extensions import disjoint_base

__all__ = [
    "DatagramTransport",
    "Handle",
    "LoopCore",
    "ReadPipeTransport",
    "SSLTransport",
    "StreamTransport",
    "TimerHandle",
    "WritePipeTransport",
    "__version__",
    "tls_engine",
]

__version__: str

def tls_engine() -> Literal["direct", "fallback"]:
    """What moves the data of TLS connections in this process; a test at first use decides.

    "direct" is OpenSSL itself, "fallback" Python's `ssl.SSLObject` over memory buffers. The
    environment variable `PELTON_TLS=fallback`, read at that test, forces the latter.
    """

_Ts = TypeVarTuple("_Ts")

@disjoint_base
class LoopCore:
    """The native base of `pelton.Loop`: scheduling, timers, the poll, descriptors, streams."""

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> Handle: ...
    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> Handle: ...
    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> TimerHandle: ...
    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> TimerHandle: ...
    def time(self) -> float: ...
    def create_future(self) -> asyncio.Future[Any]: ...
    def stop(self) -> None: ...
    def is_running(self) -> bool: ...
    def is_closed(self) -> bool: ...
    def get_debug(self) -> bool: ...
    def measure_callbacks(self, enabled: bool, /) -> None:
        """Take the time of each callback from now on, or no longer, for `stats()`.

        Costs two looks at the clock for each callback. What was counted before is kept.
        """
    #: Seconds from which on a callback counts as slow.
    slow_callback_duration: float

    # What asyncio's own classes set and read.
    _stopping: bool
    _debug: bool
    _closed: bool
    _thread_id: int | None
    # Whether `time` is not this class's: the native half asks it then.
    _own_time: bool
    def _add_callback(self, handle: asyncio.Handle, /) -> None: ...
    def _run_once(self) -> None: ...
    def _write_to_self(self) -> None: ...
    def _add_reader(
        self,
        fd: FileDescriptorLike,
        callback: Callable[[*_Ts], Any],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> Handle: ...
    def _add_writer(
        self,
        fd: FileDescriptorLike,
        callback: Callable[[*_Ts], Any],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> Handle: ...
    def _remove_reader(self, fd: FileDescriptorLike, /) -> bool: ...
    def _remove_writer(self, fd: FileDescriptorLike, /) -> bool: ...

    # What python/pelton/loop.py builds on.
    _slow_hook: Callable[[str, float], object] | None
    def _stats(self) -> tuple[Any, ...]:
        """The first fields of `pelton.stats.LoopStats`, to `callback_times`."""

    def _close_core(self) -> None:
        """Let go of every handle, timer, transport and descriptor."""

    def _make_stream(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol | SSLTransport,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any] | None,
        server: asyncio.AbstractServer | None,
        /,
    ) -> StreamTransport:
        """A transport that owns the socket; its protocol is told in the next turn."""

    def _stream_of(self, fd: FileDescriptorLike, /) -> StreamTransport | None:
        """The transport that uses the descriptor."""

    def _listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        sock: socket.socket,
        sslcontext: ssl.SSLContext | None,
        server: asyncio.AbstractServer | None,
        backlog: int,
        /,
        *timeouts: float | None,
    ) -> None:
        """Accept connections of the socket from now on."""

    def _make_read_pipe(
        self,
        pipe: Any,  # a file object
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any] | None,
        /,
    ) -> ReadPipeTransport:
        """A transport that closes the pipe in the end; its protocol is told in the next turn."""

    def _make_write_pipe(
        self,
        pipe: Any,  # a file object
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any] | None,
        /,
    ) -> WritePipeTransport:
        """The same for the other direction."""

    def _listens(self, sock: socket.socket, /) -> bool: ...
    def _make_datagram(
        self,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        address: Any,
        waiter: asyncio.Future[None] | None,
        extra: dict[str, Any],
        /,
    ) -> DatagramTransport:
        """A transport that owns the socket; its protocol is told in the next turn."""

    def _make_tls(
        self,
        protocol: asyncio.BaseProtocol,
        sslcontext: ssl.SSLContext,
        waiter: asyncio.Future[None] | None,
        server_side: bool,
        server_hostname: str | None,
        handshake_timeout: float,
        shutdown_timeout: float,
        upgraded: bool,
        session: ssl.SSLSession | None,
        /,
    ) -> SSLTransport:
        """A TLS transport that waits for `connection_made()`; timeouts in seconds."""

@final
class Handle(asyncio.Handle):
    """What `call_soon` returns."""

    # They are made by the loop alone; `Handle(...)` raises TypeError.
    @property
    def _callback(self) -> Callable[..., object] | None: ...
    @property
    def _context(self) -> contextvars.Context | None: ...
    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def _repr(self) -> str | None: ...
    @property
    def _source_traceback(self) -> traceback.StackSummary | None: ...
    def get_context(self) -> contextvars.Context: ...

@final
class TimerHandle(asyncio.TimerHandle):
    """What `call_later` and `call_at` return."""

    @property
    def _callback(self) -> Callable[..., object] | None: ...
    @property
    def _context(self) -> contextvars.Context | None: ...
    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def _repr(self) -> str | None: ...
    @property
    def _scheduled(self) -> bool: ...
    @property
    def _source_traceback(self) -> traceback.StackSummary | None: ...
    @property
    def _when(self) -> float: ...
    def get_context(self) -> contextvars.Context: ...

@final
class StreamTransport(asyncio.Transport):
    """A TCP or unix stream connection."""

    # Set by python/pelton/_support.py, for asyncio's sendfile and start_tls.
    max_size: ClassVar[int]
    _sendfile_compatible: ClassVar[Any]
    _start_tls_compatible: ClassVar[bool]

    # reading
    def is_reading(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def get_protocol(self) -> asyncio.BaseProtocol: ...

    # writing
    def write(self, data: ReadableBuffer, /) -> None: ...
    def writelines(self, list_of_data: Iterable[ReadableBuffer], /) -> None: ...
    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool: ...
    def get_write_buffer_size(self) -> int: ...
    def get_write_buffer_limits(self) -> tuple[int, int]: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    # closing
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...

    # What asyncio's own classes ask of a transport.
    @property
    def _closing(self) -> bool: ...
    @property
    def _conn_lost(self) -> int: ...
    @property
    def _eof(self) -> bool: ...
    @property
    def _extra(self) -> dict[str, Any] | None: ...
    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def _paused(self) -> bool: ...
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None: ...
    @property
    def _protocol_paused(self) -> bool: ...
    @property
    def _server(self) -> asyncio.AbstractServer | None: ...
    @property
    def _sock(self) -> Any: ...  # a socket.socket; None once it is closed
    @property
    def _sock_fd(self) -> int: ...
    def _call_connection_lost(self, exc: BaseException | None, /) -> None: ...
    def _force_close(self, exc: BaseException | None, /) -> None: ...
    def _make_empty_waiter(self) -> asyncio.Future[None]: ...
    def _reset_empty_waiter(self) -> None: ...
    def _start(self, waiter: asyncio.Future[None] | None, /) -> None: ...

@final
class SSLTransport(asyncio.Transport):
    """A TLS connection over another transport: its protocol, and the transport of the program's."""

    # Set by python/pelton/tls.py, for asyncio's sendfile and start_tls.
    max_size: ClassVar[int]
    _sendfile_compatible: ClassVar[Any]
    _start_tls_compatible: ClassVar[bool]

    # reading
    def is_reading(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_read_buffer_size(self) -> int:
        """Bytes that have come and that the protocol has not had; ciphertext counts as such."""

    def get_read_buffer_limits(self) -> tuple[int, int]:
        """Low and high, in bytes, as they were set."""

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As uvloop's. They change nothing: pausing stops the transport below at once."""

    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def get_protocol(self) -> asyncio.BaseProtocol: ...

    # writing
    def write(self, data: ReadableBuffer, /) -> None: ...
    def writelines(self, list_of_data: Iterable[ReadableBuffer], /) -> None: ...
    def write_eof(self) -> None:
        """Send `close_notify` behind what is queued; reading goes on.

        Raises `NotImplementedError` without `set_half_close(True)`, as asyncio's TLS does.
        """

    def can_write_eof(self) -> bool: ...
    def set_half_close(self, asked: bool, /) -> None:
        """Allow each direction to end on its own (RFC 8446, section 6.1).

        `write_eof()` then works, a true answer of `eof_received()` keeps our side open, and a
        stream that ends without `close_notify` ends with `ssl.SSLEOFError`.
        """

    def get_write_buffer_size(self) -> int:
        """Bytes that wait: plaintext here, ciphertext in the transport below."""

    def get_write_buffer_limits(self) -> tuple[int, int]: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    # closing
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """asyncio's names, and `close_notify`: whether the peer's stream has ended cleanly.

        That is None while the stream goes on, and False for one that was cut off.
        """

    # The protocol of the transport below.
    def connection_made(self, below: asyncio.BaseTransport, /) -> None: ...
    def connection_lost(self, exc: BaseException | None, /) -> None: ...
    def data_received(self, data: ReadableBuffer, /) -> None: ...
    def eof_received(self) -> bool: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    # What asyncio's own classes, and its tests, ask of a transport.
    @property
    def _closed(self) -> bool: ...
    @property
    def _closing(self) -> bool: ...
    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def _protocol_paused(self) -> bool: ...
    @property
    def _sock(self) -> Any: ...
    @property
    def _ssl_protocol(self) -> SSLTransport: ...
    @property
    def _sslcontext(self) -> ssl.SSLContext: ...
    def _begin(self, below: asyncio.BaseTransport, early: ReadableBuffer, /) -> None: ...
    def _force_close(self, exc: BaseException | None, /) -> None: ...
    def _handshake_timed_out(self) -> None: ...
    def _resume(self) -> None: ...
    def _shutdown_timed_out(self) -> None: ...
    def _test__append_write_backlog(self, data: ReadableBuffer, /) -> None: ...

@final
class ReadPipeTransport(asyncio.ReadTransport):
    """The reading side of a pipe, a terminal or a socket."""

    # Set by python/pelton/_support.py: the most bytes of one read.
    max_size: ClassVar[int]

    def is_reading(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def get_protocol(self) -> asyncio.BaseProtocol: ...
    def close(self) -> None: ...
    def is_closing(self) -> bool: ...

    # What asyncio's own class has.
    @property
    def _closing(self) -> bool: ...
    @property
    def _extra(self) -> dict[str, Any]: ...
    @property
    def _fileno(self) -> int: ...
    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def _paused(self) -> bool: ...
    @property
    def _pipe(self) -> Any: ...  # None once it is let go
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None: ...
    def _call_connection_lost(self, exc: BaseException | None, /) -> None: ...
    def _start(self, waiter: asyncio.Future[None] | None, /) -> None: ...

@final
class WritePipeTransport(asyncio.WriteTransport):
    """The writing side of a pipe, a terminal or a socket."""

    def write(self, data: ReadableBuffer, /) -> None: ...
    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool: ...
    def get_write_buffer_size(self) -> int: ...
    def get_write_buffer_limits(self) -> tuple[int, int]: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def get_protocol(self) -> asyncio.BaseProtocol: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...

    # What asyncio's own class has.
    @property
    def _closing(self) -> bool: ...
    @property
    def _conn_lost(self) -> int: ...
    @property
    def _extra(self) -> dict[str, Any]: ...
    @property
    def _fileno(self) -> int: ...
    @property
    def _high_water(self) -> int: ...
    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def _low_water(self) -> int: ...
    @property
    def _pipe(self) -> Any: ...  # None once it is let go
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None: ...
    @property
    def _protocol_paused(self) -> bool: ...
    def _call_connection_lost(self, exc: BaseException | None, /) -> None: ...
    def _start(self, waiter: asyncio.Future[None] | None, /) -> None: ...

@final
class DatagramTransport(asyncio.Transport, asyncio.DatagramTransport):
    """A datagram endpoint: UDP over IPv4 and IPv6, unix datagrams, any datagram socket.

    The first datagram of a callback goes out before `sendto` returns; further ones of the same
    callback may be held until it returns, and leave together in their order.

    A protocol whose class has a method `datagrams_received(datagrams)` gets each batch as one
    list of `(data, addr)`, in place of calls of `datagram_received`.
    """

    # Set by python/pelton/_support.py: bytes of the longest datagram that is not cut off.
    max_size: ClassVar[int]

    # receiving
    def is_reading(self) -> bool: ...
    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`; what arrives waits in the socket's buffer."""

    def resume_reading(self) -> None: ...
    def set_protocol(self, protocol: asyncio.BaseProtocol, /) -> None: ...
    def get_protocol(self) -> asyncio.BaseProtocol: ...

    # sending
    def sendto(self, data: ReadableBuffer, addr: Any = None) -> None:
        """Send one datagram, which may be empty.

        What the kernel does not take now is queued. An `OSError` of any send goes to
        `error_received`, and the endpoint lives on. An address that is none of the socket's
        family raises what `socket.sendto` raises (`TypeError`, `OverflowError`), one that is
        not the remote address of the endpoint `ValueError`.
        """

    def sendto_many(self, datagrams: Iterable[tuple[ReadableBuffer, Any]], /) -> int:
        """Send `(data, addr)` pairs in as few system calls as can be; how many were taken.

        Equal-sized runs to one peer leave as one send that the kernel cuts apart, where it can.
        Datagrams are taken, sent or queued, until the write buffer is above its high mark; the
        rest is the caller's to send after `resume_writing`. `addr` is None for the remote
        address of the endpoint. All pairs are checked before anything is sent: errors as of
        `sendto`.
        """

    def get_write_buffer_size(self) -> int:
        """Bytes that the kernel has not taken, and 8 for each datagram."""

    def get_write_buffer_limits(self) -> tuple[int, int]: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    # closing
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...

    # What asyncio's own transports have.
    @property
    def _address(self) -> Any: ...
    @property
    def _closing(self) -> bool: ...
    @property
    def _conn_lost(self) -> int: ...
    @property
    def _extra(self) -> dict[str, Any]: ...
    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def _paused(self) -> bool: ...
    @property
    def _protocol(self) -> asyncio.BaseProtocol | None: ...
    @property
    def _protocol_paused(self) -> bool: ...
    @property
    def _sock(self) -> Any: ...  # a socket.socket; None once it is closed
    @property
    def _sock_fd(self) -> int: ...
    def _call_connection_lost(self, exc: BaseException | None, /) -> None: ...
    def _deliver(self) -> None: ...
    def _force_close(self, exc: BaseException | None, /) -> None: ...
    def _retry(self) -> None: ...
    def _start(self, waiter: asyncio.Future[None] | None, /) -> None: ...
