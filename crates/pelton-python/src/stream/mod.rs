//! `StreamTransport`: a TCP or unix stream connection, an `asyncio.Transport`.
//!
//! The engine's [`Stream`] has the write queue, the flow control and the table of states; this
//! file joins it to a Python protocol. CPython: `_SelectorSocketTransport`.
//!
//! | file | what it does |
//! |---|---|
//! | `open` | makes a transport and starts it |
//! | `read` | from readiness to `data_received` or `buffer_updated` |
//! | `write` | `write`, `writelines`, `write_eof`, back-pressure |
//! | `close` | every way that a connection ends |
//! | `info` | `get_extra_info` and `repr` |

mod close;
mod info;
mod open;
mod read;
mod write;

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use pelton::reactor::{Interest, Token};
use pelton::stream::Stream;
use rustix::io::Errno;
use rustix::net::SocketAddrAny;

use crate::core::LoopCore;
use crate::ffi::{BytesRef, Class, Obj, Raised, Ref, Result, Slot, Spec, This, TypeCell, Visit};
use crate::ffi::{Context, SocketNumber, monotonic};
use crate::names::{self, support};
use crate::tls::TlsTransport;

pub(crate) use info::address as socket_address;
pub(crate) use open::{Accepted, describe_loop};

/// What waits in the write queue: `bytes` by reference, anything mutable as a copy.
pub(crate) enum Chunk {
    Bytes(BytesRef),
    Copy(Box<[u8]>),
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_ref(),
            Self::Copy(bytes) => bytes,
        }
    }
}

/// Who closes the descriptor.
pub(crate) enum Descriptor {
    /// The transport itself.
    Own(OwnedFd),
    /// A Python socket object, which the transport holds and closes.
    Socket {
        socket: Ref,
        number: SocketNumber,
    },
    Closed {
        number: RawFd,
    },
}

impl Descriptor {
    pub(crate) fn number(&self) -> RawFd {
        match self {
            Self::Own(fd) => fd.as_raw_fd(),
            Self::Socket { number, .. } => number.number(),
            Self::Closed { number } => *number,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self, Self::Closed { .. })
    }

    /// `EBADF` once it is closed, by the transport or behind its back.
    pub(crate) fn borrow(&self) -> io::Result<BorrowedFd<'_>> {
        let fd = match self {
            Self::Own(fd) => Some(fd.as_fd()),
            Self::Socket { socket, number } => number.borrow(socket.obj()),
            Self::Closed { .. } => None,
        };
        fd.ok_or_else(|| Errno::BADF.into())
    }
}

/// A connection. Every field is a cell: a callback may call back into any method.
pub(crate) struct StreamTransport {
    /// The loop.
    owner: Slot,
    context: Slot,
    protocol: Slot,
    /// `protocol.data_received`, or `protocol.buffer_updated` of a buffered protocol.
    deliver: Slot,
    /// The weak reference to the reader of asyncio's own stream protocol: it is fed directly.
    reader: Slot,
    /// `protocol.get_buffer` of a buffered protocol.
    get_buffer: Slot,
    /// The `Server` that accepted it.
    server: Slot,
    /// The dict behind `get_extra_info`, made when it is asked for.
    extra: Slot,
    /// A future that wants to know when the write queue is empty (sendfile).
    empty_waiter: Slot,
    descriptor: RefCell<Descriptor>,
    token: Cell<Option<Token>>,
    stream: RefCell<Stream<Chunk>>,
    /// The peer's address, as `accept` gave it or as it was when the connection was made.
    peer: OnceCell<SocketAddrAny>,
    /// The local address, kept when the socket is closed.
    local: OnceCell<SocketAddrAny>,
    /// The callback in which it last sent: further writes in the same one are gathered.
    sent_in: Cell<u64>,
    /// Whether the queue is held back for the end of the callback, not refused by the kernel.
    holding: Cell<bool>,
    /// How many writes were dropped since the connection was lost, and one for the loss.
    lost: Cell<u32>,
    started: Cell<bool>,
    /// The protocol is a TLS transport of ours: it gets slices, not `bytes`.
    is_tls: Cell<bool>,
}

static CELL: TypeCell = TypeCell::new();

impl Class for StreamTransport {
    const NAME: &'static CStr = c"pelton._pelton.StreamTransport";
    const DOC: &'static CStr = c"A TCP or unix stream connection.";
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
        if let Ok(descriptor) = self.descriptor.try_borrow()
            && let Descriptor::Socket { socket, .. } = &*descriptor
        {
            visit.object(socket);
        }
    }

    fn clear(&self) {
        for slot in self.slots() {
            slot.clear();
        }
    }

    fn finalize(this: This<'_, Self>) {
        close::finalize(this);
    }
}

impl StreamTransport {
    fn slots(&self) -> [&Slot; 9] {
        [
            &self.owner,
            &self.context,
            &self.protocol,
            &self.deliver,
            &self.reader,
            &self.get_buffer,
            &self.server,
            &self.extra,
            &self.empty_waiter,
        ]
    }

    /// Bytes that wait for the kernel.
    pub(crate) fn queued(&self) -> usize {
        self.stream.borrow().queued()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.stream.borrow().state().is_closing()
    }

    /// The context in which the protocol is called.
    pub(crate) fn own_context(&self) -> Option<Ref> {
        self.context.get()
    }

    fn is_lost(&self) -> bool {
        self.lost.get() > 0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stream.borrow().state().is_open()
    }
}

impl<'a> This<'a, StreamTransport> {
    /// Runs `body` with the loop; does nothing once the connection is gone.
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

    /// Tells the poller what the connection waits for now.
    fn update_interest(self, core: This<'_, LoopCore>) -> Result<()> {
        let Some(token) = self.token.get().filter(|_| !core.is_closed()) else { return Ok(()) };
        let mut interest = self.stream.borrow().interest();
        if !self.started.get() {
            interest = interest.without(Interest::READ);
        }
        core.kernel()?
            .reactor
            .set_interest(token, interest)
            .map_err(|error| Raised::os_error(&error))
    }

    /// Calls a method of the protocol in the transport's context, as one callback of the loop.
    fn call_protocol(
        self,
        core: This<'_, LoopCore>,
        method: &names::Name,
        args: &[Obj<'_>],
    ) -> Result<Ref> {
        let protocol = self.protocol.get_or_none();
        self.in_context(core, || protocol.obj().call_method(method, args))
    }

    /// As `call_protocol`, from a handle that runs in the transport's context already.
    fn call_protocol_here(
        self,
        core: This<'_, LoopCore>,
        method: &names::Name,
        args: &[Obj<'_>],
    ) -> Result<()> {
        let protocol = self.protocol.get_or_none();
        core.callback(|| protocol.obj().call_method(method, args)).map(drop)
    }

    pub(crate) fn in_context<T>(
        self,
        core: This<'_, LoopCore>,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if core.is_watched() {
            return self.in_context_timed(core, body);
        }
        match self.context.get() {
            Some(context) => core.callback(|| Context::run(context.obj(), body)),
            None => core.callback(body),
        }
    }

    /// As `in_context`, in debug mode: a protocol that is slow is reported by name.
    fn in_context_timed<T>(
        self,
        core: This<'_, LoopCore>,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let protocol = self.protocol.get_or_none();
        let context = self.context.get_or_none();
        let begin = monotonic();
        let answer = core.callback(|| match context.obj().is_none() {
            true => body(),
            false => Context::run(context.obj(), body),
        })?;
        core.report_if_slow(protocol.obj(), self.obj(), monotonic() - begin)?;
        Ok(answer)
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
        self.is_tls.set(This::<TlsTransport>::of(protocol).is_some());
        let stream = protocol.is_exactly(names::STREAM_READER_PROTOCOL.get()?);
        let reader = match stream {
            true => Some(support::STREAM_READER.get()?.call(&[protocol])?),
            false => None,
        };
        self.protocol.set(protocol.to_ref());
        self.get_buffer.replace(get_buffer);
        self.deliver.replace(deliver);
        self.reader.replace(reader.filter(|reader| !reader.obj().is_none()));
        Ok(())
    }
}
