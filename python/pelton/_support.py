"""What the native half asks of Python: once per connection, or when something fails.

Each function is called by name from the crate's `names` table.
"""

import errno
import os
import socket
import sys
import traceback
import warnings
from asyncio import base_events, constants, format_helpers, streams, trsock
from asyncio.log import logger
from typing import Any

from ._pelton import DatagramTransport, ReadPipeTransport, StreamTransport

# -- handles ------------------------------------------------------------------------------------


def stack() -> traceback.StackSummary:
    """Where the running code is, for a handle made in debug mode."""
    # Not kept in a variable: a frame that holds itself is freed by the collector only.
    return format_helpers.extract_stack(sys._getframe(1))


def callback_failed(loop: Any, handle: Any, exc: BaseException) -> None:
    """Report as `asyncio.Handle._run` does."""
    callback = format_helpers._format_callback_source(handle._callback, handle._args or ())
    context = {"message": f"Exception in callback {callback}", "exception": exc, "handle": handle}
    if handle._source_traceback:
        context["source_traceback"] = handle._source_traceback
    loop.call_exception_handler(context)


def slow_callback(loop: Any, handle: Any, seconds: float | None = None) -> None:
    """Around a callback in debug mode: without `seconds` it begins, with them it has ended.

    Where a hook asks for slow ones it is called for those alone, when they have ended.
    """
    if seconds is None:
        loop._current_handle = handle
        return
    loop._current_handle = None
    if seconds >= loop.slow_callback_duration:
        named = base_events._format_handle(handle)  # type: ignore[attr-defined]
        _report_slow(loop, named, seconds)


def slow_protocol(loop: Any, protocol: Any, transport: Any, seconds: float) -> None:
    """A connection's event took too long, without a handle that could be named."""
    _report_slow(loop, f"{protocol!r} for {transport!r}", seconds)


def _report_slow(loop: Any, what: str, seconds: float) -> None:
    if loop.get_debug():
        logger.warning("Executing %s took %.3f seconds", what, seconds)
    hook = loop._slow_hook
    if hook is None:
        return
    try:
        hook(what, seconds)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as exc:
        message = "Exception in the slow-callback hook"
        loop.call_exception_handler({"message": message, "exception": exc})


# -- transports ---------------------------------------------------------------------------------

_DATA_RECEIVED = streams.StreamReaderProtocol.__dict__.get("data_received")
_STREAM_READER = streams.StreamReaderProtocol.__dict__.get("_stream_reader")


def _only_names(function: Any, *names: str) -> bool:
    """Whether a function is asyncio's own, of a version in which it uses just these names."""
    return (
        getattr(function, "__globals__", None) is vars(streams)
        and function.__code__.co_names == names
    )


#: Whether `data_received` hands the data to the reader behind the weak reference and does no more,
#: as in all versions known: neither a new version of Python nor a patch has changed that.
_JUST_FEEDS = _only_names(_DATA_RECEIVED, "_stream_reader", "feed_data") and _only_names(
    getattr(_STREAM_READER, "fget", None), "_stream_reader_wr"
)


def stream_reader(protocol: streams.StreamReaderProtocol) -> Any:
    """The weak reference to a stream protocol's reader, where data can go there directly."""
    kind = type(protocol).__dict__
    if (
        not _JUST_FEEDS
        or kind.get("data_received") is not _DATA_RECEIVED
        or kind.get("_stream_reader") is not _STREAM_READER
        or "data_received" in vars(protocol)
    ):
        return None
    return protocol._stream_reader_wr  # type: ignore[attr-defined]


# Server._attach() and _detach() take the transport since 3.13 (and in no patch release before).
_SERVER_KNOWS_TRANSPORTS = base_events.Server._attach.__code__.co_argcount == 2  # type: ignore[attr-defined]


def attach(server: Any, transport: Any) -> None:
    """Count an accepted connection."""
    if _SERVER_KNOWS_TRANSPORTS:
        server._attach(transport)
    else:
        server._attach()


def detach(server: Any, transport: Any) -> None:
    """A connection that `attach` counted is over."""
    if _SERVER_KNOWS_TRANSPORTS:
        server._detach(transport)
    else:
        server._detach()


def connection_made_failed(loop: Any, transport: Any, exc: BaseException) -> None:
    """`connection_made` raised. asyncio calls it from a handle, so its report names a callback."""
    message = f"Exception in callback {transport.get_protocol()!r}.connection_made"
    _report_failure(loop, transport, message, exc)


def transport_failed(loop: Any, transport: Any, message: str, exc: BaseException) -> None:
    """Report as `_SelectorTransport._fatal_error`: network faults at debug level only."""
    if isinstance(exc, OSError):
        logger.debug("%r: %s", transport, message, exc_info=exc)
        return
    _report_failure(loop, transport, message, exc)


def unclosed(transport: Any) -> None:
    """A transport is collected that nobody has closed."""
    warnings.warn(f"unclosed transport {transport!r}", ResourceWarning, 1, source=transport)


def warn_lost() -> None:
    """Someone goes on writing to a connection that is lost."""
    logger.warning("socket.send() raised exception.")


def warn_pipe_lost() -> None:
    """Someone goes on writing to a pipe that is closed or lost."""
    logger.warning("pipe closed by peer or os.write(pipe, data) raised exception.")


def read_pipe_failed(loop: Any, transport: Any, exc: BaseException) -> None:
    """Report as `_UnixReadPipeTransport._fatal_error`: a terminal that ended is no fault."""
    message = "Fatal read error on pipe transport"
    if isinstance(exc, OSError) and exc.errno == errno.EIO:
        if loop.get_debug():
            logger.debug("%r: %s", transport, message, exc_info=exc)
        return
    _report_failure(loop, transport, message, exc)


def pipe_callback_failed(loop: Any, transport: Any, exc: BaseException) -> None:
    """`data_received` raised. asyncio calls it from a handle, so its report names a callback."""
    message = f"Exception in callback {transport.get_protocol()!r}.data_received"
    _report_failure(loop, transport, message, exc)


def _report_failure(loop: Any, transport: Any, message: str, exc: BaseException) -> None:
    loop.call_exception_handler(
        {
            "message": message,
            "exception": exc,
            "transport": transport,
            "protocol": transport.get_protocol(),
        }
    )


def transport_socket(sock: socket.socket | None) -> trsock.TransportSocket:
    """What `get_extra_info('socket')` gives; a closed socket where there is none any more."""
    if sock is None:
        sock = socket.socket()
        sock.close()
    return trsock.TransportSocket(sock)


def open_socket(fd: int) -> socket.socket:
    """A non-blocking socket object that owns `fd` from here on."""
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    return sock


# What write() names in its TypeError.
WRITE_TAKES = (
    "a bytes, bytearray, or memoryview object"
    if sys.version_info >= (3, 14)
    else "a bytes-like object"
)


# asyncio's sendfile() and start_tls() ask a transport for these; both may be set on one.
StreamTransport._sendfile_compatible = constants._SendfileMode.TRY_NATIVE
StreamTransport._start_tls_compatible = True
StreamTransport.max_size = ReadPipeTransport.max_size = 256 * 1024


# -- datagrams ----------------------------------------------------------------------------------

DatagramTransport.max_size = 256 * 1024


def socket_info(sock: socket.socket, extra: dict[str, Any] | None) -> dict[str, Any]:
    """What `get_extra_info` knows: as asyncio's, the addresses at the time of the connection."""
    info = dict(extra or {}, socket=trsock.TransportSocket(sock))
    try:
        info["sockname"] = sock.getsockname()
    except OSError:
        info["sockname"] = None
    if "peername" not in info:
        try:
            info["peername"] = sock.getpeername()
        except OSError:
            info["peername"] = None
    return info


def receive(sock: socket.socket) -> tuple[bytes, Any, bool] | None:
    """A datagram of any family: its data, its sender, and whether it was cut off."""
    try:
        data, _, flags, sender = sock.recvmsg(DatagramTransport.max_size)
    except (BlockingIOError, InterruptedError):
        return None
    return data, sender, bool(flags & socket.MSG_TRUNC)


def check_address(sock: socket.socket, address: Any) -> None:
    """Raise what `sendto` would raise for an address of the wrong form, without sending."""
    with socket.socket(sock.family, sock.type, sock.proto) as scratch:
        try:
            scratch.connect(address)  # of a datagram socket: looks at the address, tells nobody
        except OSError:
            pass  # a peer that cannot be reached is told when its turn comes
        except (TypeError, ValueError, OverflowError) as exc:
            raise type(exc)(str(exc).replace("connect()", "sendto()")) from None


def too_long() -> OSError:
    """What `error_received` gets for a datagram that was cut off."""
    return OSError(errno.EMSGSIZE, f"{os.strerror(errno.EMSGSIZE)}: a datagram was cut off")


def datagram_failed(loop: Any, transport: Any, exc: BaseException, method: str) -> None:
    """A method of the protocol raised. asyncio calls it from a handle that names a callback."""
    loop.call_exception_handler(
        {
            "message": f"Exception in callback {transport.get_protocol()!r}.{method}",
            "exception": exc,
            "transport": transport,
            "protocol": transport.get_protocol(),
        }
    )


# -- listening sockets --------------------------------------------------------------------------


def accept_tls(loop: Any, sock: socket.socket, peername: Any, args: tuple[Any, ...]) -> None:
    """Set up a TLS connection in a task of its own, as asyncio does."""
    factory, _, sslcontext, server, _, *timeouts = args
    extra = {"peername": peername}
    loop.create_task(loop._accept_connection2(factory, sock, extra, sslcontext, server, *timeouts))


def accept_failed(loop: Any, exc: OSError, args: tuple[Any, ...]) -> None:
    """`accept` failed: out of descriptors or memory means to try again in a while."""
    sock = args[1]
    if loop._stream_listens(sock):
        # One connection could not be taken; the next ones may.
        loop.call_exception_handler(
            {
                "message": "socket.accept() failed",
                "exception": exc,
                "socket": trsock.TransportSocket(sock),
            }
        )
        return
    loop.call_exception_handler(
        {
            "message": "socket.accept() out of system resource",
            "exception": exc,
            "socket": trsock.TransportSocket(sock),
        }
    )
    loop.call_later(constants.ACCEPT_RETRY_DELAY, _resume_accepting, loop, args)


def _resume_accepting(loop: Any, args: tuple[Any, ...]) -> None:
    if args[1].fileno() >= 0:  # not closed meanwhile
        loop._start_serving(*args)


def accept_refused(loop: Any, exc: BaseException) -> None:
    """The protocol factory raised. asyncio reports that in debug mode only."""
    if loop.get_debug():
        loop.call_exception_handler(
            {
                "message": "Error on transport creation for incoming connection",
                "exception": exc,
            }
        )
