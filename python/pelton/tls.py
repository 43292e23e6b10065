"""TLS connections: what runs once per connection. Records are native, in `SSLTransport`.

The user's `ssl.SSLContext` stays the authority: it makes a genuine `ssl.SSLObject` for every
connection, and the native half puts its own bytes under that object.
"""

import asyncio
import contextvars
import ssl
from asyncio import constants, sslproto
from asyncio.log import logger
from typing import Any

from ._pelton import SSLTransport, StreamTransport

# Every connection of the direct engine passes these to `wrap_bio()`, and none uses them.
IDLE_BIO_IN, IDLE_BIO_OUT = ssl.MemoryBIO(), ssl.MemoryBIO()

# The session that create_connection() was given, on its way to the transport: asyncio's own code,
# which lies between, does not know of it.
offered_session: contextvars.ContextVar[ssl.SSLSession | None] = contextvars.ContextVar(
    "offered_session", default=None
)


def make_transport(
    loop: Any,
    protocol: asyncio.BaseProtocol,
    sslcontext: ssl.SSLContext | None,
    waiter: asyncio.Future[None] | None,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    upgraded: bool = False,
    session: ssl.SSLSession | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
) -> SSLTransport:
    """A TLS transport that waits for `connection_made()` of the one below.

    Timeouts are in seconds, None for asyncio's own (60 and 30). A shutdown timeout of 0 lets go
    at once. `upgraded` says that the protocol has had its `connection_made()` already.

    Raises `ValueError` for a timeout that is not positive (below 0 for the shutdown), for a server
    without a context, and whatever `SSLContext.wrap_bio()` raises.
    """
    if ssl_handshake_timeout is None:
        ssl_handshake_timeout = constants.SSL_HANDSHAKE_TIMEOUT
    elif ssl_handshake_timeout <= 0:
        raise ValueError(
            f"ssl_handshake_timeout should be a positive number, got {ssl_handshake_timeout}"
        )
    if ssl_shutdown_timeout is None:
        ssl_shutdown_timeout = constants.SSL_SHUTDOWN_TIMEOUT
    elif ssl_shutdown_timeout < 0:
        raise ValueError(
            f"ssl_shutdown_timeout should be a positive number, got {ssl_shutdown_timeout}"
        )
    if not sslcontext:
        sslcontext = sslproto._create_transport_context(server_side, server_hostname)
    return loop._make_tls(  # type: ignore[no-any-return]
        protocol,
        sslcontext,
        waiter,
        server_side,
        None if server_side else server_hostname or None,
        ssl_handshake_timeout,
        ssl_shutdown_timeout,
        upgraded,
        session,
    )


async def start_tls(
    loop: Any,
    transport: Any,
    protocol: asyncio.BaseProtocol,
    sslcontext: ssl.SSLContext,
    **options: Any,
) -> SSLTransport | None:
    """Upgrade `transport`; see `Loop.start_tls`."""
    if not isinstance(sslcontext, ssl.SSLContext):
        raise TypeError(
            f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}"
        )
    if not getattr(transport, "_start_tls_compatible", False):
        raise TypeError(f"transport {transport!r} is not supported by start_tls()")
    waiter = loop.create_future()
    tls = make_transport(loop, protocol, sslcontext, waiter, upgraded=True, **options)
    # Nothing may come before `_begin`, which runs in a turn of its own, as in asyncio.
    transport.pause_reading()
    transport.set_protocol(tls)
    begin = loop.call_soon(tls._begin, transport, _take_buffered(protocol))
    resume = loop.call_soon(transport.resume_reading)
    try:
        await waiter
    except BaseException:
        transport.close()
        begin.cancel()
        resume.cancel()
        raise
    # As in asyncio: None where the connection was closed, by nobody's fault, in the handshake.
    return tls if tls.get_extra_info("ssl_object") is not None else None


def _take_buffered(protocol: Any) -> bytes:
    """What a stream reader has read ahead belongs to the handshake."""
    reader = getattr(protocol, "_stream_reader", None)
    buffer = getattr(reader, "_buffer", None)
    if not isinstance(protocol, asyncio.StreamReaderProtocol) or not buffer:
        return b""
    early = bytes(buffer)
    buffer.clear()
    return early


# -- what the native half asks for, by name -------------------------------------------------------


def wrap_tls(
    sslcontext: ssl.SSLContext,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
    server_side: bool,
    server_hostname: str | None,
    session: ssl.SSLSession | None,
) -> ssl.SSLObject:
    """The genuine object of one connection."""
    if session is None:
        return sslcontext.wrap_bio(incoming, outgoing, server_side, server_hostname)
    return sslcontext.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


def trial_tls_context() -> ssl.SSLContext:
    """A client context for the self-test: it loads no certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def handshake_timed_out(seconds: float) -> ConnectionAbortedError:
    """What ends a handshake that takes too long."""
    return ConnectionAbortedError(
        f"SSL handshake is taking longer than {seconds} seconds: aborting the connection"
    )


def shutdown_timed_out() -> TimeoutError:
    """What ends a connection whose peer does not answer our goodbye."""
    return TimeoutError("SSL shutdown timed out")


def cut_short() -> ssl.SSLEOFError:
    """What ends a stream that stops without `close_notify`, in mid-record or while half-closed."""
    return ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF occurred in violation of protocol")


def tls_log(transport: Any, what: str) -> None:
    """Log a step in debug mode."""
    logger.debug("%r %s", transport, what)


def tls_warn_lost() -> None:
    """Someone goes on writing to a connection that is lost."""
    logger.warning("SSL connection is closed")


def eof_kept_open() -> None:
    """`eof_received` wants to keep its side open, which TLS has to be asked for."""
    logger.warning("returning true from eof_received() has no effect when using ssl")


# asyncio's sendfile() and start_tls() ask a transport for these.
SSLTransport._sendfile_compatible = constants._SendfileMode.FALLBACK
SSLTransport._start_tls_compatible = True
SSLTransport.max_size = StreamTransport.max_size
