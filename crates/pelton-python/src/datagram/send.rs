//! The send path.
//!
//! With an empty queue the first `sendto()` of a callback asks the kernel before it returns.
//! Further ones in the same callback are held and leave in as few calls as can be when it returns,
//! in their order. What the kernel refuses waits: `bytes` by reference, anything mutable as a copy.

use pelton::datagram::{Address, Destination, Endpoint, Family, Flushed};

use super::{DatagramTransport, Packet};
use crate::core::LoopCore;
use crate::ffi::{BufferView, BytesRef, Keywords, Obj, Raised, Ref, Result, Spec, This};
use crate::flow::{Limits, WRITE_HIGH};
use crate::names::{self, support};
use crate::stream::Chunk;

/// So many datagrams and bytes are held back for the end of the callback; more leave before.
const HOLD_DATAGRAMS: usize = 64;
const HOLD_BYTES: usize = 64 * 1024;

/// A warning is logged from this many datagrams after the loss on.
/// CPython: `LOG_THRESHOLD_FOR_CONNLOST_WRITES`.
const QUIET_SENDS: u32 = 5;

/// Seconds until a full queue of another process is tried again.
const REST: f64 = 0.002;

pub(super) fn describe(spec: &mut Spec<DatagramTransport>) {
    spec.any(c"sendto", sendto)
        .one(c"sendto_many", sendto_many)
        .none(c"get_write_buffer_size", |this| {
            this.settle()?;
            Ref::int(this.queued() as i64)
        })
        .none(c"get_write_buffer_limits", |this| {
            Limits::of(this.endpoint.borrow().flow()).to_tuple()
        })
        .any(c"set_write_buffer_limits", |this, args, keywords| {
            let method = "set_write_buffer_limits";
            let limits = Limits::read(method, args, keywords, WRITE_HIGH)?;
            this.settle()?;
            limits.set(this.endpoint.borrow_mut().flow_mut());
            this.with_loop(|core| this.after_growth(core))?;
            Ok(Ref::none())
        })
        .none(c"_retry", |this| {
            this.resting.set(false);
            this.with_loop(|core| {
                if this.is_lost() || this.queued() == 0 { Ok(()) } else { this.drain(core) }
            })?;
            Ok(Ref::none())
        })
        .get(c"_high_water", |this| Ref::int(this.endpoint.borrow().flow().limits().1 as i64))
        .get(c"_low_water", |this| Ref::int(this.endpoint.borrow().flow().limits().0 as i64))
        .get(c"_protocol_paused", |this| Ok(Ref::bool(this.endpoint.borrow().flow().is_paused())));
}

/// Where a datagram goes.
enum Target<'a> {
    Known(Address),
    /// Only Python's socket module can tell.
    Foreign(Obj<'a>),
}

fn sendto(
    this: This<'_, DatagramTransport>,
    args: &[Obj<'_>],
    keywords: Keywords<'_>,
) -> Result<Ref> {
    let [data, addr] = keywords.read("sendto", [&names::DATA, &names::ADDR])?;
    let (data, addr) = match (args, data) {
        ([data], None) => (*data, addr),
        ([data, given], None) if addr.is_none() => (*data, Some(*given)),
        ([], Some(data)) => (data, addr),
        _ => return Err(Raised::type_error("sendto() takes a datagram and an address")),
    };
    check_data(data)?;
    let addr = addr.filter(|addr| !addr.is_none());
    let remote = this.remote.get();
    let target = this.target(addr, remote.as_ref())?;
    if this.is_lost() {
        return this.count_lost();
    }
    this.with_loop(|core| match target {
        Target::Known(to) => this.send(core, to, data),
        Target::Foreign(to) => this.send_foreign(core, to, data),
    })?;
    Ok(Ref::none())
}

/// `sendto_many(datagrams)`: takes pairs of data and address until the write buffer is above its
/// high mark, and answers how many it took.
fn sendto_many(this: This<'_, DatagramTransport>, datagrams: Obj<'_>) -> Result<Ref> {
    let datagrams = datagrams.to_tuple()?;
    let remote = this.remote.get();
    let mut packets = Vec::with_capacity(datagrams.obj().tuple_len());
    for index in 0..datagrams.obj().tuple_len() {
        // All of them are looked at before one is sent.
        let pair = datagrams.obj().tuple_item(index)?.obj().to_tuple()?;
        if pair.obj().tuple_len() != 2 {
            return Err(Raised::type_error("a datagram is a pair of data and address"));
        }
        let (data, addr) = (pair.obj().tuple_item(0)?, pair.obj().tuple_item(1)?);
        check_data(data.obj())?;
        let addr = Some(addr.obj()).filter(|addr| !addr.is_none());
        packets.push(match this.target(addr, remote.as_ref())? {
            Target::Known(to) => {
                (Destination::To(to), Packet { data: chunk(data.obj())?, foreign: None })
            }
            Target::Foreign(to) => {
                support::CHECK_ADDRESS.get()?.call(&[this.socket().obj(), to])?;
                let foreign = Some(to.to_ref());
                (Destination::Foreign, Packet { data: chunk(data.obj())?, foreign })
            }
        });
    }
    let taken = this.with_loop(|core| this.send_many(core, packets))?;
    Ref::int(taken as i64)
}

fn check_data(data: Obj<'_>) -> Result<()> {
    if data.is_exact_bytes() || data.is_bytes_like() {
        return Ok(());
    }
    let given = data.type_name();
    Err(Raised::type_error(&format!("data argument must be a bytes-like object, not '{given}'")))
}

fn chunk(data: Obj<'_>) -> Result<Chunk> {
    match BytesRef::new(data) {
        Some(bytes) => Ok(Chunk::Bytes(bytes)),
        None => Ok(Chunk::Copy(BufferView::read(data, |bytes| bytes.into())?)),
    }
}

impl This<'_, DatagramTransport> {
    /// Where a datagram goes that was given this address; asyncio's errors.
    fn target<'a>(self, addr: Option<Obj<'a>>, remote: Option<&'a Ref>) -> Result<Target<'a>> {
        if let (Some(addr), Some(remote)) = (addr, remote)
            && addr.id() != remote.obj().id()
            && !addr.equals(remote.obj())?
        {
            let remote = text(remote.obj())?;
            return Err(Raised::value_error(&format!("Invalid address: must be None or {remote}")));
        }
        let (connected, family) = {
            let endpoint = self.endpoint.borrow();
            (endpoint.is_connected(), endpoint.family())
        };
        // As asyncio: a connected socket sends to its peer, whatever address it is given. A peer
        // name is no proof of a connection in every family, though.
        let own = addr.is_none() || remote.is_some() || family != Family::Other;
        if connected && own {
            return Ok(Target::Known(Address::NONE));
        }
        let Some(addr) = remote.map(Ref::obj).or(addr) else {
            return Ok(Target::Foreign(Ref::none_obj()));
        };
        Ok(match self.peers.borrow_mut().target(addr) {
            Some(target) => Target::Known(target),
            None => Target::Foreign(addr),
        })
    }

    /// A datagram after the loss is dropped; asyncio warns after several.
    fn count_lost(self) -> Result<Ref> {
        if self.lost.get() >= QUIET_SENDS {
            support::WARN_LOST.get()?.call(&[])?;
        }
        self.lost.set(self.lost.get().saturating_add(1));
        Ok(Ref::none())
    }

    fn send(self, core: This<'_, LoopCore>, to: Address, data: Obj<'_>) -> Result<()> {
        if !self.holding.get() && !self.endpoint.borrow().is_empty() {
            // The kernel has refused datagrams before this one.
            return self.queue(core, Destination::To(to), data, None);
        }
        let in_callback = core.in_callback.get();
        if self.holding.get() || (in_callback && self.sent_in.get() == core.epoch.get()) {
            return self.hold(core, to, data);
        }
        if in_callback {
            self.sent_in.set(core.epoch.get());
        }
        match self.try_send(&to, data)? {
            Ok(true) => Ok(()),
            Ok(false) => self.queue(core, Destination::To(to), data, None),
            Err(error) => {
                let exception = Raised::os_error(&error).take();
                self.error_received(exception.obj())
            }
        }
    }

    #[inline]
    fn try_send(self, to: &Address, data: Obj<'_>) -> Result<std::io::Result<bool>> {
        let descriptor = self.descriptor.borrow();
        let send = |bytes: &[u8]| {
            descriptor.borrow().and_then(|fd| Endpoint::<Packet>::send(fd, to, bytes))
        };
        match BytesRef::new(data) {
            Some(bytes) => Ok(send(bytes.as_ref())),
            None => BufferView::read(data, send),
        }
    }

    /// Not the first datagram of this callback: gathered with the next ones, within limits.
    fn hold(self, core: This<'_, LoopCore>, to: Address, data: Obj<'_>) -> Result<()> {
        let packet = Packet { data: chunk(data)?, foreign: None };
        let size = packet.as_ref().len();
        let full = {
            let endpoint = self.endpoint.borrow();
            let limit = HOLD_BYTES.min(endpoint.flow().limits().1);
            let queued = endpoint.queued();
            endpoint.len() >= HOLD_DATAGRAMS || (queued > 0 && queued + size > limit)
        };
        if full && self.holding.get() {
            self.flush(core)?;
            if self.is_lost() {
                return Ok(());
            }
            if self.queued() > 0 && !self.holding.get() {
                // The kernel took not all of it.
                self.endpoint.borrow_mut().hold(Destination::To(to), packet);
                return self.after_growth(core);
            }
        }
        self.endpoint.borrow_mut().hold(Destination::To(to), packet);
        if !self.holding.replace(true) {
            core.held.borrow_mut().push(self.obj().to_ref());
        }
        let high = self.endpoint.borrow().flow().limits().1;
        if self.queued() > high { self.flush(core) } else { Ok(()) }
    }

    /// The kernel has refused this datagram, or one before it.
    fn queue(
        self,
        core: This<'_, LoopCore>,
        to: Destination,
        data: Obj<'_>,
        foreign: Option<Ref>,
    ) -> Result<()> {
        let packet = Packet { data: chunk(data)?, foreign };
        self.endpoint.borrow_mut().hold(to, packet);
        self.after_growth(core)
    }

    /// A datagram that goes out by Python's socket, which knows what its address means.
    fn send_foreign(self, core: This<'_, LoopCore>, to: Obj<'_>, data: Obj<'_>) -> Result<()> {
        self.settle()?;
        if self.is_lost() {
            return Ok(());
        }
        let waits = !self.endpoint.borrow().is_empty();
        if !waits && self.try_foreign(to, data)? {
            return Ok(());
        }
        self.queue(core, Destination::Foreign, data, Some(to.to_ref()))
    }

    /// False when the kernel takes none now. An `OSError` is told to the protocol; anything else
    /// is the caller's fault and raised.
    fn try_foreign(self, to: Obj<'_>, data: Obj<'_>) -> Result<bool> {
        let socket = self.socket();
        match socket.obj().call_method(&names::SENDTO, &[data, to]) {
            Ok(_) => Ok(true),
            Err(raised) if raised.is_would_block() => {
                raised.discard();
                Ok(false)
            }
            Err(raised) if raised.is_os_error() => {
                let exception = raised.take();
                self.error_received(exception.obj())?;
                Ok(true)
            }
            Err(raised) => Err(raised),
        }
    }

    fn send_many(
        self,
        core: This<'_, LoopCore>,
        packets: Vec<(Destination, Packet)>,
    ) -> Result<usize> {
        self.settle()?;
        let mut packets = packets.into_iter();
        let mut taken = 0;
        while packets.len() > 0 && !self.is_lost() && !self.is_above_high() {
            let waits = self.queued() > 0;
            let room = if waits { 1 } else { HOLD_DATAGRAMS };
            let mut endpoint = self.endpoint.borrow_mut();
            for (to, packet) in packets.by_ref().take(room) {
                endpoint.hold(to, packet);
                taken += 1;
            }
            drop(endpoint);
            if waits { self.after_growth(core)? } else { self.flush(core)? }
        }
        Ok(taken)
    }

    fn is_above_high(self) -> bool {
        let endpoint = self.endpoint.borrow();
        endpoint.queued() > endpoint.flow().limits().1
    }

    /// Sends what is held back now, so that the queue is what the kernel refused.
    pub(super) fn settle(self) -> Result<()> {
        if self.holding.get() && !self.is_lost() {
            return self.with_loop(|core| self.flush(core));
        }
        Ok(())
    }

    /// The running callback is over.
    pub(crate) fn flush_held(self, core: This<'_, LoopCore>) -> Result<()> {
        if self.is_lost() || !self.holding.get() { Ok(()) } else { self.flush(core) }
    }

    /// Sends what is queued; what is left waits for the poller.
    fn flush(self, core: This<'_, LoopCore>) -> Result<()> {
        self.holding.set(false);
        while !self.is_lost() {
            match self.flush_endpoint() {
                Flushed::Drained => return self.on_drained(core),
                Flushed::Blocked => return self.after_growth(core),
                Flushed::Failed(error) => {
                    let exception = Raised::os_error(&error).take();
                    let told = self.error_received(exception.obj());
                    self.report(core, told, &names::ERROR_RECEIVED)?;
                }
                Flushed::Foreign => {
                    if !self.flush_foreign(core)? {
                        return self.after_growth(core);
                    }
                }
            }
        }
        Ok(())
    }

    fn flush_endpoint(self) -> Flushed {
        let error = match self.descriptor.borrow().borrow() {
            Ok(fd) => return self.endpoint.borrow_mut().flush(fd),
            Err(error) => error,
        };
        let first = self.endpoint.borrow_mut().take_first();
        if first.is_some() { Flushed::Failed(error) } else { Flushed::Drained }
    }

    /// Sends the oldest datagram by Python's socket; false when the kernel takes none now.
    fn flush_foreign(self, core: This<'_, LoopCore>) -> Result<bool> {
        let first = self.endpoint.borrow_mut().take_first();
        let Some((to, packet)) = first else { return Ok(true) };
        let data = match &packet.data {
            Chunk::Bytes(bytes) => bytes.obj().to_ref(),
            Chunk::Copy(bytes) => Ref::bytes(bytes)?,
        };
        let address = packet.foreign.clone().unwrap_or_else(Ref::none);
        match self.try_foreign(address.obj(), data.obj()) {
            Ok(true) => Ok(true),
            Ok(false) => {
                self.endpoint.borrow_mut().put_back(to, packet);
                Ok(false)
            }
            Err(raised) => self.report(core, Err(raised), &names::SENDTO).map(|()| true),
        }
    }

    /// The socket takes datagrams again.
    pub(super) fn drain(self, core: This<'_, LoopCore>) -> Result<()> {
        let before = self.endpoint.borrow().len();
        self.flush(core)?;
        if self.is_lost() {
            return Ok(());
        }
        let endpoint = self.endpoint.borrow();
        // The poller looks at our own socket; what is full is that of a peer, if it does not know
        // which one that would be.
        let blind = endpoint.family() == Family::Unix && !endpoint.is_connected();
        let stuck = endpoint.len() == before && before > 0;
        drop(endpoint);
        if blind && stuck && !self.resting.replace(true) {
            let (rest, retry) = (Ref::float(REST)?, self.obj().attr(&names::RETRY)?);
            core.obj().call_method(&names::CALL_LATER, &[rest.obj(), retry.obj()])?;
            self.update_interest(core)?;
        }
        self.resume_if_low(core)
    }

    fn resume_if_low(self, core: This<'_, LoopCore>) -> Result<()> {
        let queued = self.queued();
        if self.endpoint.borrow_mut().flow_mut().on_shrink(queued) {
            self.signal(core, &names::RESUME_WRITING, "protocol.resume_writing() failed")?;
        }
        Ok(())
    }

    /// The queue is longer: asks for the poller's help, and tells the protocol to pause.
    fn after_growth(self, core: This<'_, LoopCore>) -> Result<()> {
        self.update_interest(core)?;
        let queued = self.queued();
        if self.endpoint.borrow_mut().flow_mut().on_grow(queued) {
            self.signal(core, &names::PAUSE_WRITING, "protocol.pause_writing() failed")?;
        }
        Ok(())
    }

    fn signal(self, core: This<'_, LoopCore>, method: &names::Name, failed: &str) -> Result<()> {
        let protocol = self.protocol.get_or_none();
        match protocol.obj().call_method(method, &[]) {
            Ok(_) => Ok(()),
            Err(raised) if raised.ends_the_loop() => Err(raised),
            Err(raised) => {
                let (message, exception) = (Ref::str(failed)?, raised.take());
                core.report(&[
                    (&names::MESSAGE, message.obj()),
                    (&names::EXCEPTION, exception.obj()),
                    (&names::TRANSPORT, self.obj()),
                    (&names::PROTOCOL, protocol.obj()),
                ])
            }
        }
    }

    /// Everything is with the kernel. The protocol hears of it first, and may send again.
    fn on_drained(self, core: This<'_, LoopCore>) -> Result<()> {
        self.resume_if_low(core)?;
        if self.is_lost() || self.queued() > 0 {
            return Ok(());
        }
        self.update_interest(core)?;
        if self.endpoint.borrow().state().is_closing() { self.finish(core) } else { Ok(()) }
    }
}

/// `f"{object}"` of a tuple or a path.
fn text(object: Obj<'_>) -> Result<String> {
    if object.is_str() { object.to_text() } else { object.repr()?.obj().to_text() }
}
