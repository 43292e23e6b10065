//! `DatagramTransport`: a datagram endpoint, an `asyncio.DatagramTransport`.
//!
//! The engine's [`Endpoint`] has the queue, the flow control, the state and both batches; this
//! folder joins it to a Python protocol. CPython: `_SelectorDatagramTransport`.
//!
//! | file | what it does |
//! |---|---|
//! | `open` | makes a transport and starts it |
//! | `address` | Python's addresses to the kernel's and back |
//! | `receive` | from readiness to `datagram_received` or `datagrams_received` |
//! | `send` | `sendto`, `sendto_many`, back-pressure |
//! | `close` | every way that an endpoint ends |
//! | `info` | `get_extra_info` and `repr` |

mod address;
mod close;
mod info;
mod open;
mod receive;
mod send;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CStr;

use pelton::datagram::Endpoint;
use pelton::reactor::{Interest, Token};

use crate::core::LoopCore;
use crate::ffi::{Class, Obj, Raised, Ref, Result, Slot, Spec, This, TypeCell, Visit};
use crate::ffi::{Context, monotonic};
use crate::names::{self, support};
use crate::stream::{Chunk, Descriptor};

use address::Peers;
pub(crate) use open::describe_loop;

/// What waits in the queue.
struct Packet {
    data: Chunk,
    /// Where it goes, if only Python's socket module can tell.
    foreign: Option<Ref>,
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        self.data.as_ref()
    }
}

/// What waits for the protocol.
enum Arrived {
    Datagram { data: Ref, from: Ref },
    Error(Ref),
}

/// An endpoint. Every field is a cell: a callback may call back into any method.
pub(crate) struct DatagramTransport {
    /// The loop.
    owner: Slot,
    context: Slot,
    protocol: Slot,
    /// `protocol.datagrams_received` if its class has that, else `protocol.datagram_received`.
    deliver: Slot,
    /// Whether `deliver` takes a list.
    takes_lists: Cell<bool>,
    /// The remote address that the endpoint was made with.
    remote: Slot,
    /// The dict behind `get_extra_info`.
    extra: Slot,
    descriptor: RefCell<Descriptor>,
    token: Cell<Option<Token>>,
    endpoint: RefCell<Endpoint<Packet>>,
    peers: RefCell<Peers>,
    /// Received and not delivered: the rest of a batch while its datagrams are delivered, and
    /// longer only if the protocol has paused meanwhile.
    arrived: RefCell<VecDeque<Arrived>>,
    /// The callback in which it last sent: further datagrams in the same one are gathered.
    sent_in: Cell<u64>,
    /// Whether the queue is held back for the end of the callback, not refused by the kernel.
    holding: Cell<bool>,
    /// Whether a timer will ask the kernel again, because the poller cannot tell.
    resting: Cell<bool>,
    /// How many datagrams were dropped since the endpoint was lost, and one for the loss.
    lost: Cell<u32>,
    started: Cell<bool>,
}

static CELL: TypeCell = TypeCell::new();

impl Class for DatagramTransport {
    const NAME: &'static CStr = c"pelton._pelton.DatagramTransport";
    const DOC: &'static CStr = c"A datagram endpoint: UDP, unix datagrams, any datagram socket.";
    const DICT_AND_WEAKREF: bool = true;
    const FINALIZER: bool = true;

    fn cell() -> &'static TypeCell {
        &CELL
    }

    fn spec(spec: &mut Spec<Self>) {
        open::describe(spec);
        receive::describe(spec);
        send::describe(spec);
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
        if let Ok(arrived) = self.arrived.try_borrow() {
            for arrived in &*arrived {
                match arrived {
                    Arrived::Datagram { from, .. } => visit.object(from),
                    Arrived::Error(exception) => visit.object(exception),
                }
            }
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

impl DatagramTransport {
    fn slots(&self) -> [&Slot; 6] {
        [&self.owner, &self.context, &self.protocol, &self.deliver, &self.remote, &self.extra]
    }

    fn queued(&self) -> usize {
        self.endpoint.borrow().queued()
    }

    fn is_lost(&self) -> bool {
        self.lost.get() > 0
    }

    fn wants_read(&self) -> bool {
        self.endpoint.borrow().state().wants_read()
    }

    /// The Python socket; None once it is closed.
    fn socket(&self) -> Ref {
        match &*self.descriptor.borrow() {
            Descriptor::Socket { socket, .. } => socket.clone(),
            _ => Ref::none(),
        }
    }

    /// What to ask the poller for.
    fn interest(&self) -> Interest {
        let mut interest = self.endpoint.borrow().interest();
        if !self.started.get() || !self.arrived.borrow().is_empty() {
            interest = interest.without(Interest::READ);
        }
        if self.holding.get() || self.resting.get() {
            interest = interest.without(Interest::WRITE);
        }
        interest
    }
}

impl This<'_, DatagramTransport> {
    /// Runs `body` with the loop; does nothing once the endpoint is gone.
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

    /// Tells the poller what the endpoint waits for now.
    fn update_interest(self, core: This<'_, LoopCore>) -> Result<()> {
        let Some(token) = self.token.get().filter(|_| !core.is_closed()) else { return Ok(()) };
        let interest = self.interest();
        core.kernel()?
            .reactor
            .set_interest(token, interest)
            .map_err(|error| Raised::os_error(&error))
    }

    /// Runs `body` in the transport's context, as one callback of the loop.
    fn in_context(self, core: This<'_, LoopCore>, body: impl FnOnce() -> Result<()>) -> Result<()> {
        let context = self.context.get_or_none();
        if !core.is_debug() {
            return core.callback(|| Context::run(context.obj(), body));
        }
        // A protocol that is slow is reported by name.
        let protocol = self.protocol.get_or_none();
        let begin = monotonic();
        core.callback(|| Context::run(context.obj(), body))?;
        let taken = Ref::float(monotonic() - begin)?;
        let report = support::SLOW_PROTOCOL.get()?;
        report.call(&[core.obj(), protocol.obj(), self.obj(), taken.obj()]).map(drop)
    }

    /// Tells the protocol of an error; whatever it raises is the caller's.
    fn error_received(self, exception: Obj<'_>) -> Result<()> {
        let protocol = self.protocol.get_or_none();
        if protocol.obj().is_none() {
            return Ok(());
        }
        protocol.obj().call_method(&names::ERROR_RECEIVED, &[exception]).map(drop)
    }

    /// Reports what a call of the protocol, made by the loop, has raised: the endpoint lives on.
    fn report(
        self,
        core: This<'_, LoopCore>,
        answer: Result<()>,
        method: &names::Name,
    ) -> Result<()> {
        match answer {
            Err(raised) if !raised.ends_the_loop() => {
                let exception = raised.take();
                let report = support::DATAGRAM_FAILED.get()?;
                report.call(&[core.obj(), self.obj(), exception.obj(), method.obj()]).map(drop)
            }
            answer => answer,
        }
    }

    /// Stores the protocol and looks its method up once.
    fn set_protocol(self, protocol: Obj<'_>) -> Result<()> {
        // Asked of the class: a mock has every attribute.
        let takes_lists = protocol.class().attr_or_none(&names::DATAGRAMS_RECEIVED)?.is_some();
        let method =
            if takes_lists { &names::DATAGRAMS_RECEIVED } else { &names::DATAGRAM_RECEIVED };
        let deliver = protocol.attr_or_none(method)?;
        self.protocol.set(protocol.to_ref());
        self.takes_lists.set(takes_lists);
        match deliver {
            Some(deliver) => self.deliver.set(deliver),
            None => self.deliver.clear(),
        }
        Ok(())
    }
}
