//! Every Python name that the native half uses, in one table.

use crate::ffi::Imported;
pub(crate) use crate::ffi::Interned as Name;

macro_rules! names {
    ($($constant:ident = $text:literal;)*) => {
        $(pub(crate) static $constant: Name = Name::new($text);)*
    };
}

names! {
    ABORT = c"abort";
    ADDR = c"addr";
    BUFFER_UPDATED = c"buffer_updated";
    CALLBACK = c"callback";
    CALL_CONNECTION_LOST = c"_call_connection_lost";
    CALL_EXCEPTION_HANDLER = c"call_exception_handler";
    CALL_LATER = c"call_later";
    CANCEL = c"cancel";
    CANCELLED = c"_cancelled";
    CHECK_CALLBACK = c"_check_callback";
    CHECK_THREAD = c"_check_thread";
    CIPHER = c"cipher";
    CLOSE = c"close";
    CLOSE_NOTIFY = c"close_notify";
    COMPRESSION = c"compression";
    CONNECTION_LOST = c"connection_lost";
    CONNECTION_MADE = c"connection_made";
    CONTEXT = c"context";
    CREATE_FUTURE = c"create_future";
    DATA = c"data";
    DATAGRAMS_RECEIVED = c"datagrams_received";
    DATAGRAM_RECEIVED = c"datagram_received";
    DATA_RECEIVED = c"data_received";
    DEFAULT = c"default";
    DELAY = c"delay";
    DELIVER = c"_deliver";
    DETACH = c"detach";
    DONE = c"done";
    DO_HANDSHAKE = c"do_handshake";
    EOF_RECEIVED = c"eof_received";
    ERROR_RECEIVED = c"error_received";
    EXCEPTION = c"exception";
    FEED_DATA = c"feed_data";
    FILENO = c"fileno";
    FORCE_CLOSE = c"_force_close";
    GETPEERCERT = c"getpeercert";
    GET_BUFFER = c"get_buffer";
    GET_EXTRA_INFO = c"get_extra_info";
    HANDSHAKE_TIMED_OUT = c"_handshake_timed_out";
    HIGH = c"high";
    LOOP = c"loop";
    LOW = c"low";
    MESSAGE = c"message";
    PAUSE_READING = c"pause_reading";
    PAUSE_WRITING = c"pause_writing";
    PEERCERT = c"peercert";
    PEERNAME = c"peername";
    PENDING = c"pending";
    PIPE = c"pipe";
    PROTOCOL = c"protocol";
    PROTOCOL_PAUSED = c"_protocol_paused";
    READ = c"read";
    RESUME = c"_resume";
    RESUME_READING = c"resume_reading";
    RESUME_WRITING = c"resume_writing";
    RETRY = c"_retry";
    RUN = c"_run";
    SENDTO = c"sendto";
    SET_EXCEPTION = c"set_exception";
    SET_RESULT = c"set_result";
    SHUTDOWN = c"shutdown";
    SHUTDOWN_TIMED_OUT = c"_shutdown_timed_out";
    SOCK = c"_sock";
    SOCKET = c"socket";
    SOCKNAME = c"sockname";
    SSLCONTEXT = c"sslcontext";
    SSLOBJ = c"_sslobj";
    SSL_OBJECT = c"ssl_object";
    START = c"_start";
    TIME = c"time";
    TRANSPORT = c"transport";
    WHEN = c"when";
    WRITE = c"write";
}

macro_rules! support {
    ($module:literal: $($constant:ident = $text:literal;)*) => {
        $(pub(crate) static $constant: Imported = Imported::new($module, $text);)*
    };
}

/// What happens once per connection or on a failure is written in Python, in `_support.py` and
/// `tls.py`.
pub(crate) mod support {
    use super::Imported;

    support! { c"pelton._support":
        ACCEPT_FAILED = c"accept_failed";
        ACCEPT_REFUSED = c"accept_refused";
        ACCEPT_TLS = c"accept_tls";
        ATTACH = c"attach";
        CALLBACK_FAILED = c"callback_failed";
        CHECK_ADDRESS = c"check_address";
        CONNECTION_MADE_FAILED = c"connection_made_failed";
        DATAGRAM_FAILED = c"datagram_failed";
        FORMAT_STACK = c"stack";
        OPEN_SOCKET = c"open_socket";
        PIPE_CALLBACK_FAILED = c"pipe_callback_failed";
        READ_PIPE_FAILED = c"read_pipe_failed";
        RECEIVE = c"receive";
        SERVER_DETACH = c"detach";
        SLOW_CALLBACK = c"slow_callback";
        SLOW_PROTOCOL = c"slow_protocol";
        STREAM_READER = c"stream_reader";
        TOO_LONG = c"too_long";
        TRANSPORT_FAILED = c"transport_failed";
        TRANSPORT_SOCKET = c"transport_socket";
        UNCLOSED = c"unclosed";
        WARN_LOST = c"warn_lost";
        WARN_PIPE_LOST = c"warn_pipe_lost";
        WRITE_TAKES = c"WRITE_TAKES";
    }

    support! { c"pelton.tls":
        CUT_SHORT = c"cut_short";
        EOF_KEPT_OPEN = c"eof_kept_open";
        HANDSHAKE_TIMED_OUT = c"handshake_timed_out";
        SHUTDOWN_TIMED_OUT = c"shutdown_timed_out";
        TLS_LOG = c"tls_log";
        TLS_WARN_LOST = c"tls_warn_lost";
        TRIAL_TLS_CONTEXT = c"trial_tls_context";
        WRAP_TLS = c"wrap_tls";
    }
}

pub(crate) static FUTURE: Imported = Imported::new(c"asyncio", c"Future");
pub(crate) static BUFFERED_PROTOCOL: Imported = Imported::new(c"asyncio", c"BufferedProtocol");
pub(crate) static STREAM_READER_PROTOCOL: Imported =
    Imported::new(c"asyncio", c"StreamReaderProtocol");

pub(crate) static CERTIFICATE_ERROR: Imported = Imported::new(c"ssl", c"CertificateError");
pub(crate) static MEMORY_BIO: Imported = Imported::new(c"ssl", c"MemoryBIO");
pub(crate) static SYSCALL_ERROR: Imported = Imported::new(c"ssl", c"SSLSyscallError");
pub(crate) static WANT_READ: Imported = Imported::new(c"ssl", c"SSLWantReadError");
pub(crate) static ZERO_RETURN: Imported = Imported::new(c"ssl", c"SSLZeroReturnError");
pub(crate) static IDLE_BIO_IN: Imported = Imported::new(c"pelton.tls", c"IDLE_BIO_IN");
pub(crate) static IDLE_BIO_OUT: Imported = Imported::new(c"pelton.tls", c"IDLE_BIO_OUT");
