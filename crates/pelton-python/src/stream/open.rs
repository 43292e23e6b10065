//! How a stream transport comes to be.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};

use pelton::reactor::Interest;
use pelton::stream::Stream;
use rustix::net::SocketAddrAny;

use super::{Descriptor, StreamTransport};
use crate::core::{LoopCore, Source};
use crate::ffi::{Context, Keywords, Obj, Raised, Ref, Result, Slot, SocketNumber, Spec, This};
use crate::ffi::{borrow_fd, finally, make};
use crate::names::{self, support};
use crate::watch::descriptor;

/// A connection from a listening socket.
pub(crate) struct Accepted {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Option<SocketAddrAny>,
}

pub(crate) fn describe_loop(spec: &mut Spec<LoopCore>) {
    spec.any(c"_make_stream", make_stream);
}

pub(super) fn describe(spec: &mut Spec<StreamTransport>) {
    spec.one(c"_start", start_scheduled)
        .one(c"set_protocol", |this, protocol| {
            this.set_protocol(protocol)?;
            Ok(Ref::none())
        })
        .none(c"get_protocol", |this| Ok(this.protocol.get_or_none()))
        .get(c"_protocol", |this| Ok(this.protocol.get_or_none()))
        .get(c"_loop", |this| Ok(this.owner.get_or_none()))
        .get(c"_server", |this| Ok(this.server.get_or_none()));
}

/// `_make_stream(sock, protocol, waiter, extra, server)`: a transport over a Python socket,
/// which it owns from here on; the protocol hears of it in the next turn.
fn make_stream(this: This<'_, LoopCore>, args: &[Obj<'_>], _: Keywords<'_>) -> Result<Ref> {
    let [socket, protocol, waiter, extra, server] = args else {
        return Err(Raised::type_error("_make_stream() takes five arguments"));
    };
    this.check_open()?;
    let number = descriptor(*socket)?;
    pelton::net::set_nodelay(borrow_fd(number));
    let owned = SocketNumber::new(*socket, number);
    let owner = Descriptor::Socket { socket: socket.to_ref(), number: owned };
    let transport = new(this, owner, number, *protocol, *server)?;
    let transport_this = stream(&transport)?;
    if !extra.is_none() {
        transport_this.extra.set(extra.to_ref());
    }
    if let Ok(Some(peer)) = rustix::net::getpeername(borrow_fd(number)) {
        transport_this.peer.get_or_init(|| peer);
    }
    let start = transport.obj().attr(&names::START)?;
    let context = transport_this.context.get_or_none();
    this.schedule(start.obj(), &[*waiter], Some(context.obj()))?;
    Ok(transport)
}

impl Accepted {
    /// A Python socket that owns the descriptor.
    pub(crate) fn into_socket(self) -> Result<Ref> {
        let number = Ref::int(self.fd.as_raw_fd().into())?;
        let socket = support::OPEN_SOCKET.get()?.call(&[number.obj()])?;
        let _owned_by_socket = self.fd.into_raw_fd();
        Ok(socket)
    }

    /// Makes the transport of an accepted connection and tells its protocol at once.
    pub(crate) fn open(
        self,
        core: This<'_, LoopCore>,
        protocol: Obj<'_>,
        server: Obj<'_>,
    ) -> Result<()> {
        let number = self.fd.as_raw_fd();
        pelton::net::set_nodelay(self.fd.as_fd());
        let transport = new(core, Descriptor::Own(self.fd), number, protocol, server)?;
        let transport = stream(&transport)?;
        if let Some(peer) = self.peer {
            transport.peer.get_or_init(|| peer);
        }
        let transport_context = transport.context.get_or_none();
        Context::run(transport_context.obj(), || start(transport, core))
    }
}

fn stream(transport: &Ref) -> Result<This<'_, StreamTransport>> {
    This::of(transport.obj()).ok_or_else(|| Raised::type_error("not a stream transport"))
}

fn new(
    core: This<'_, LoopCore>,
    owner: Descriptor,
    number: RawFd,
    protocol: Obj<'_>,
    server: Obj<'_>,
) -> Result<Ref> {
    let context = Context::copy_current()?;
    let transport = make(|| StreamTransport {
        owner: Slot::new(core.obj().to_ref()),
        context: Slot::new(context),
        protocol: Slot::empty(),
        deliver: Slot::empty(),
        reader: Slot::empty(),
        get_buffer: Slot::empty(),
        server: Slot::empty(),
        extra: Slot::empty(),
        empty_waiter: Slot::empty(),
        descriptor: RefCell::new(owner),
        token: Cell::new(None),
        stream: RefCell::new(Stream::new()),
        peer: OnceCell::new(),
        local: OnceCell::new(),
        sent_in: Cell::new(0),
        holding: Cell::new(false),
        lost: Cell::new(0),
        started: Cell::new(false),
        is_tls: Cell::new(false),
    })?;
    let this = stream(&transport)?;
    if let Err(raised) = set_up(core, this, number, protocol, server) {
        // As if it had never been: an accepted connection ends, a socket object stays its
        // maker's.
        finally(Err(raised), || this.abandon(core))?;
    }
    Ok(transport)
}

fn set_up(
    core: This<'_, LoopCore>,
    this: This<'_, StreamTransport>,
    number: RawFd,
    protocol: Obj<'_>,
    server: Obj<'_>,
) -> Result<()> {
    this.set_protocol(protocol)?;
    // In the poller from the start, with no interest: the number is known as a transport's.
    let source = Source::Stream(this.obj().to_ref());
    let token = core.kernel()?.reactor.register(borrow_fd(number), Interest::NONE, source);
    let token = token.map_err(|error| Raised::os_error(&error))?;
    this.token.set(Some(token));
    let stale = core.descriptors.borrow_mut().insert(number, token);
    if let Some(stale) = stale {
        // Someone closed this number without taking its callbacks away; they end here.
        let source = core.kernel()?.reactor.forget(stale);
        drop(source);
    }
    if !server.is_none() {
        support::ATTACH.get()?.call(&[server, this.obj()])?;
        this.server.set(server.to_ref());
    }
    Ok(())
}

/// `_start(waiter)`, run by a handle: starts the connection, then wakes whoever made it.
fn start_scheduled(this: This<'_, StreamTransport>, waiter: Obj<'_>) -> Result<Ref> {
    let started = this.with_loop(|core| start(this, core));
    finally(started, || {
        if !waiter.is_none() && !waiter.call_method(&names::DONE, &[])?.obj().is_true()? {
            waiter.call_method(&names::SET_RESULT, &[Ref::none().obj()])?;
        }
        Ok(())
    })?;
    Ok(Ref::none())
}

/// Tells the protocol that it has a connection, then reads. Runs in the transport's context.
fn start(this: This<'_, StreamTransport>, core: This<'_, LoopCore>) -> Result<()> {
    let made = this.call_protocol_here(core, &names::CONNECTION_MADE, &[this.obj()]);
    let made = match made {
        Err(raised) if !raised.ends_the_loop() => {
            let exception = raised.take();
            let report = support::CONNECTION_MADE_FAILED.get()?;
            report.call(&[core.obj(), this.obj(), exception.obj()]).map(drop)
        }
        made => made,
    };
    // Whatever comes out of the protocol, the connection is set up: SystemExit ends the loop,
    // which may be run again.
    finally(made, || {
        this.started.set(true);
        if this.is_lost() { Ok(()) } else { this.update_interest(core) }
    })
}
