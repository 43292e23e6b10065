//! How a datagram transport comes to be.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::RawFd;

use pelton::datagram::Endpoint;
use pelton::reactor::Interest;

use super::{DatagramTransport, Peers};
use crate::core::{LoopCore, Source};
use crate::ffi::{Context, Keywords, Obj, Raised, Ref, Result, Slot, SocketNumber, Spec, This};
use crate::ffi::{borrow_fd, finally, make};
use crate::names::{self, support};
use crate::stream::Descriptor;
use crate::watch::descriptor;

pub(crate) fn describe_loop(spec: &mut Spec<LoopCore>) {
    spec.any(c"_make_datagram", make_datagram);
}

pub(super) fn describe(spec: &mut Spec<DatagramTransport>) {
    spec.one(c"_start", start_scheduled)
        .one(c"set_protocol", |this, protocol| {
            this.set_protocol(protocol)?;
            Ok(Ref::none())
        })
        .none(c"get_protocol", |this| Ok(this.protocol.get_or_none()))
        .get(c"_protocol", |this| Ok(this.protocol.get_or_none()))
        .get(c"_loop", |this| Ok(this.owner.get_or_none()))
        .get(c"_address", |this| Ok(this.remote.get_or_none()));
}

/// `_make_datagram(sock, protocol, address, waiter, extra)`: a transport over a Python socket,
/// which it owns from here on; the protocol hears of it in the next turn.
fn make_datagram(this: This<'_, LoopCore>, args: &[Obj<'_>], _: Keywords<'_>) -> Result<Ref> {
    let [socket, protocol, remote, waiter, extra] = args else {
        return Err(Raised::type_error("_make_datagram() takes five arguments"));
    };
    this.check_open()?;
    let number = descriptor(*socket)?;
    let endpoint = Endpoint::new(borrow_fd(number)).map_err(|error| Raised::os_error(&error))?;
    let owned = SocketNumber::new(*socket, number);
    let family = endpoint.family();
    let value = DatagramTransport {
        owner: Slot::new(this.obj().to_ref()),
        context: Slot::new(Context::copy_current()?),
        protocol: Slot::empty(),
        deliver: Slot::empty(),
        takes_lists: Cell::new(false),
        remote: if remote.is_none() { Slot::empty() } else { Slot::new(remote.to_ref()) },
        extra: Slot::new(extra.to_ref()),
        descriptor: RefCell::new(Descriptor::Socket { socket: socket.to_ref(), number: owned }),
        token: Cell::new(None),
        endpoint: RefCell::new(endpoint),
        peers: RefCell::new(Peers::new(family)),
        arrived: RefCell::new(VecDeque::new()),
        sent_in: Cell::new(0),
        holding: Cell::new(false),
        resting: Cell::new(false),
        lost: Cell::new(0),
        started: Cell::new(false),
    };
    let transport = make(|| value)?;
    let made = This::<DatagramTransport>::of(transport.obj())
        .ok_or_else(|| Raised::type_error("not a datagram transport"))?;
    if let Err(raised) = set_up(this, made, number, *protocol, *waiter) {
        // As if it had never been: the socket stays its maker's.
        finally(Err(raised), || made.abandon(this))?;
    }
    Ok(transport)
}

fn set_up(
    core: This<'_, LoopCore>,
    this: This<'_, DatagramTransport>,
    number: RawFd,
    protocol: Obj<'_>,
    waiter: Obj<'_>,
) -> Result<()> {
    this.set_protocol(protocol)?;
    // In the poller from the start, with no interest: the number is known as a transport's.
    let source = Source::Datagram(this.obj().to_ref());
    let token = core.kernel()?.reactor.register(borrow_fd(number), Interest::NONE, source);
    let token = token.map_err(|error| Raised::os_error(&error))?;
    this.token.set(Some(token));
    let stale = core.descriptors.borrow_mut().insert(number, token);
    if let Some(stale) = stale {
        // Someone closed this number without taking its callbacks away; they end here.
        let source = core.kernel()?.reactor.forget(stale);
        drop(source);
    }
    let start = this.obj().attr(&names::START)?;
    let context = this.context.get_or_none();
    core.schedule(start.obj(), &[waiter], Some(context.obj()))
}

/// `_start(waiter)`, run by a handle: tells the protocol, receives from then on, and wakes whoever
/// made the endpoint.
fn start_scheduled(this: This<'_, DatagramTransport>, waiter: Obj<'_>) -> Result<Ref> {
    let started = this.with_loop(|core| start(this, core));
    finally(started, || {
        if !waiter.is_none() && !waiter.call_method(&names::DONE, &[])?.obj().is_true()? {
            waiter.call_method(&names::SET_RESULT, &[Ref::none().obj()])?;
        }
        Ok(())
    })?;
    Ok(Ref::none())
}

fn start(this: This<'_, DatagramTransport>, core: This<'_, LoopCore>) -> Result<()> {
    let protocol = this.protocol.get_or_none();
    let made = protocol.obj().call_method(&names::CONNECTION_MADE, &[this.obj()]);
    let made = match made {
        Err(raised) if !raised.ends_the_loop() => {
            let exception = raised.take();
            let report = support::CONNECTION_MADE_FAILED.get()?;
            report.call(&[core.obj(), this.obj(), exception.obj()]).map(drop)
        }
        made => made.map(drop),
    };
    // Whatever comes out of the protocol, the endpoint is set up: SystemExit ends the loop, which
    // may be run again.
    finally(made, || {
        this.started.set(true);
        if this.is_lost() { Ok(()) } else { this.update_interest(core) }
    })
}
