//! `TlsTransport`, in Python `SSLTransport`: TLS over any transport, an `asyncio.Transport`.
//!
//! It is the protocol of the transport below and the transport of the protocol above. Over a
//! [`StreamTransport`] ciphertext comes and goes as slices of the loop's buffers; over anything
//! else as `bytes`, by the methods of asyncio's protocols and transports. CPython:
//! `asyncio/sslproto.py`.
//!
//! | file | what it does |
//! |---|---|
//! | `engine`, `fallback` | what moves application data: OpenSSL itself, or Python's object |
//! | `open` | makes a transport; the handshake |
//! | `read` | from ciphertext to `data_received` or `buffer_updated` |
//! | `write` | `write`, `writelines`, back-pressure; what leaves in one send |
//! | `close` | the two goodbyes, and every other way that a connection ends |
//! | `info` | `get_extra_info` and `repr` |

mod close;
mod engine;
mod fallback;
mod info;
mod open;
mod read;
mod write;

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::rc::Rc;

use pelton::buf::WriteQueue;
use pelton::stream::FlowControl;
use pelton::tls::{Framing, State};

use crate::core::LoopCore;
use crate::ffi::{Class, Context, Obj, Raised, Ref, Result, Slot, Spec, This, TypeCell, Visit};
use crate::flow::Limits;
use crate::names;
use crate::stream::{Chunk, StreamTransport};

use engine::Engine;
pub(crate) use engine::engine_name;
pub(crate) use open::describe_loop;

/// A TLS connection. Every field is a cell: a callback may call back into any method.
pub(crate) struct TlsTransport {
    /// The loop.
    owner: Slot,
    /// The application's protocol.
    protocol: Slot,
    /// `protocol.data_received`, or `protocol.buffer_updated` of a buffered protocol.
    deliver: Slot,
    /// `protocol.get_buffer` of a buffered protocol.
    get_buffer: Slot,
    /// The transport below.
    below: Slot,
    /// The `ssl.SSLObject`.
    ssl_object: Slot,
    /// The `ssl.SSLContext` that the connection was made with.
    tls_context: Slot,
    /// The future that waits for the handshake.
    waiter: Slot,
    /// The timer of the handshake, later that of the shutdown.
    timer: Slot,
    /// What `get_extra_info` has found out from the session.
    extra: Slot,
    /// Shared with the call under way: a callback of OpenSSL may come back here.
    engine: RefCell<Option<Rc<Engine>>>,
    state: Cell<State>,
    flow: RefCell<FlowControl>,
    /// Plaintext that could not be sealed yet.
    backlog: RefCell<WriteQueue<Chunk>>,
    /// Ciphertext that came while reading was paused.
    rest: RefCell<Vec<u8>>,
    /// Follows what has come from the peer, to tell a cut record from a whole one.
    framing: Cell<Framing>,
    server_side: bool,
    /// Seconds.
    handshake_timeout: f64,
    shutdown_timeout: f64,
    /// As the program has set them; reading is paused below at once in any case.
    read_limits: Cell<Limits>,
    /// The transport below has asked for a pause in writing.
    below_full: Cell<bool>,
    /// Reading from the transport below is paused, by us.
    below_paused: Cell<bool>,
    /// Sealed records wait in the loop's buffer for the end of the callback.
    holding: Cell<bool>,
    /// The protocol has been told that it has a connection, and has not been told of its end.
    told: Cell<bool>,
    /// `connection_made` is not for us to call: the protocol has had it from another transport.
    upgraded: bool,
    eof_told: Cell<bool>,
    /// The handshake is or was done: the session has something to show.
    shown: Cell<bool>,
    /// The program has asked for TLS half-close.
    half_close: Cell<bool>,
    /// Our `close_notify` is sent while the peer goes on.
    goodbye_said: Cell<bool>,
    /// Bytes to send that were left when the shutdown timer was set.
    left_at_timer: Cell<usize>,
    /// Bytes dropped since our goodbye.
    dropped: Cell<usize>,
    /// How many writes were dropped since the connection was lost, and one for the loss.
    lost: Cell<u32>,
}

static CELL: TypeCell = TypeCell::new();

impl Class for TlsTransport {
    const NAME: &'static CStr = c"pelton._pelton.SSLTransport";
    const DOC: &'static CStr = c"A TLS connection over another transport.";
    const DICT_AND_WEAKREF: bool = true;
    const FINALIZER: bool = true;

    fn cell() -> &'static TypeCell {
        &CELL
    }

    fn spec(spec: &mut Spec<Self>) {
        open::describe(spec);
        read::describe(spec);
        write::describe(spec);
        close::describe(spec);
        info::describe(spec);
    }

    fn traverse(&self, visit: &mut Visit<'_>) {
        for slot in self.slots() {
            visit.slot(slot);
        }
        if let Ok(engine) = self.engine.try_borrow()
            && let Some(engine) = &*engine
        {
            engine.traverse(visit);
        }
    }

    fn clear(&self) {
        for slot in self.slots() {
            slot.clear();
        }
        if let Ok(mut engine) = self.engine.try_borrow_mut() {
            let engine = engine.take();
            drop(engine);
        }
    }

    fn finalize(this: This<'_, Self>) {
        close::finalize(this);
    }
}

/// What a readiness event or a callback is run in: see [`This::in_connection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// The poller has called: the connection's context must be entered.
    Loop,
    /// A handle or the transport below has called, in the right context already.
    Context,
}

impl TlsTransport {
    fn slots(&self) -> [&Slot; 10] {
        [
            &self.owner,
            &self.protocol,
            &self.deliver,
            &self.get_buffer,
            &self.below,
            &self.ssl_object,
            &self.tls_context,
            &self.waiter,
            &self.timer,
            &self.extra,
        ]
    }

    fn state(&self) -> State {
        self.state.get()
    }

    /// Changes the state by one of its own methods.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.get();
        let answer = change(&mut state);
        self.state.set(state);
        answer
    }

    /// The engine. One that is in the middle of a call answers that it is busy.
    fn engine(&self) -> Result<Rc<Engine>> {
        let engine = self.engine.borrow().clone();
        engine.ok_or_else(|| Raised::runtime_error("the TLS transport is no more"))
    }
}

impl This<'_, TlsTransport> {
    /// Runs `body` with the loop; does nothing where there is none any more.
    fn with_loop<T: Default>(
        self,
        body: impl FnOnce(This<'_, LoopCore>) -> Result<T>,
    ) -> Result<T> {
        let Some(owner) = self.owner.get() else { return Ok(T::default()) };
        match This::<LoopCore>::of(owner.obj()) {
            Some(core) => body(core),
            None => Err(Raised::type_error("the transport's loop is not pelton's")),
        }
    }

    /// Runs `body` with the transport below if that is a stream of this loop.
    fn with_stream<T>(self, body: impl FnOnce(This<'_, StreamTransport>) -> T) -> Option<T> {
        let below = self.below.get()?;
        This::<StreamTransport>::of(below.obj()).map(body)
    }

    /// Calls a method of the transport below; does nothing where there is none.
    fn call_below(self, method: &names::Name, args: &[Obj<'_>]) -> Result<()> {
        match self.below.get() {
            Some(below) => below.obj().call_method(method, args).map(drop),
            None => Ok(()),
        }
    }

    /// Runs `body` as one callback of the loop, in the context of the connection.
    fn in_connection<T>(
        self,
        core: This<'_, LoopCore>,
        inside: Inside,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if inside == Inside::Context {
            return core.callback(body);
        }
        let Some(below) = self.below.get() else { return core.callback(body) };
        match This::<StreamTransport>::of(below.obj()) {
            Some(stream) => stream.in_context(core, body),
            None => core.callback(body),
        }
    }

    /// Schedules one of our own methods, in the context of the connection.
    fn schedule(self, core: This<'_, LoopCore>, callback: Obj<'_>, args: &[Obj<'_>]) -> Result<()> {
        let context = match self.with_stream(|stream| stream.own_context()).flatten() {
            Some(context) => context,
            None => Context::copy_current()?,
        };
        core.schedule(callback, args, Some(context.obj()))
    }

    /// Stores the protocol and looks its methods up once.
    fn set_protocol(self, protocol: Obj<'_>) -> Result<()> {
        let buffered = protocol.is_instance(names::BUFFERED_PROTOCOL.get()?)?;
        let (get_buffer, deliver) = if buffered {
            let get_buffer = protocol.attr(&names::GET_BUFFER)?;
            (Some(get_buffer), protocol.attr_or_none(&names::BUFFER_UPDATED)?)
        } else {
            (None, protocol.attr_or_none(&names::DATA_RECEIVED)?)
        };
        self.protocol.set(protocol.to_ref());
        self.get_buffer.replace(get_buffer);
        self.deliver.replace(deliver);
        Ok(())
    }

    fn call_protocol(self, method: &names::Name, args: &[Obj<'_>]) -> Result<Ref> {
        self.protocol.get_or_none().obj().call_method(method, args)
    }
}
