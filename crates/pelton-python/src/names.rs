//! Every Python name that the native half uses, in one table.

use crate::ffi::Imported;
pub(crate) use crate::ffi::Interned as Name;

macro_rules! names {
    ($($constant:ident = $text:literal;)*) => {
        $(pub(crate) static $constant: Name = Name::new($text);)*
    };
}

names! {
    BUFFER_UPDATED = c"buffer_updated";
    CALL_EXCEPTION_HANDLER = c"call_exception_handler";
    CHECK_CALLBACK = c"_check_callback";
    CHECK_THREAD = c"_check_thread";
    CLOSE = c"close";
    CONNECTION_LOST = c"connection_lost";
    CONNECTION_MADE = c"connection_made";
    CONTEXT = c"context";
    CREATE_FUTURE = c"create_future";
    DATA_RECEIVED = c"data_received";
    DEFAULT = c"default";
    DONE = c"done";
    EOF_RECEIVED = c"eof_received";
    EXCEPTION = c"exception";
    FILENO = c"fileno";
    GET_BUFFER = c"get_buffer";
    HIGH = c"high";
    LOOP = c"loop";
    LOW = c"low";
    MESSAGE = c"message";
    PAUSE_WRITING = c"pause_writing";
    PEERNAME = c"peername";
    PROTOCOL = c"protocol";
    CALLBACK = c"callback";
    CANCELLED = c"_cancelled";
    DELAY = c"delay";
    DETACH = c"detach";
    WHEN = c"when";
    RUN = c"_run";
    RESUME_WRITING = c"resume_writing";
    SET_EXCEPTION = c"set_exception";
    SET_RESULT = c"set_result";
    SOCKET = c"socket";
    SOCKNAME = c"sockname";
    START = c"_start";
    CALL_CONNECTION_LOST = c"_call_connection_lost";
    TIME = c"time";
    TRANSPORT = c"transport";
}

macro_rules! support {
    ($($constant:ident = $text:literal;)*) => {
        $(pub(crate) static $constant: Imported = Imported::new(c"pelton._support", $text);)*
    };
}

/// What happens once per connection or on a failure is written in Python, in `_support.py`.
pub(crate) mod support {
    use super::Imported;

    support! {
        ACCEPT_FAILED = c"accept_failed";
        ACCEPT_REFUSED = c"accept_refused";
        ACCEPT_TLS = c"accept_tls";
        ATTACH = c"attach";
        CALLBACK_FAILED = c"callback_failed";
        CONNECTION_MADE_FAILED = c"connection_made_failed";
        FORMAT_STACK = c"stack";
        OPEN_SOCKET = c"open_socket";
        SERVER_DETACH = c"detach";
        SLOW_CALLBACK = c"slow_callback";
        SLOW_PROTOCOL = c"slow_protocol";
        TRANSPORT_FAILED = c"transport_failed";
        TRANSPORT_SOCKET = c"transport_socket";
        UNCLOSED = c"unclosed";
        WARN_LOST = c"warn_lost";
        WRITE_TAKES = c"WRITE_TAKES";
    }
}

pub(crate) static FUTURE: Imported = Imported::new(c"asyncio", c"Future");
pub(crate) static BUFFERED_PROTOCOL: Imported = Imported::new(c"asyncio", c"BufferedProtocol");
