//! The write path.
//!
//! With an empty queue `write()` asks the kernel before it returns. Further writes in the same
//! callback are held and leave in one gathered call when it returns. What the kernel refuses
//! waits: `bytes` by reference, anything mutable as one copy.

use pelton::stream::{Flushed, Sent, Stream, WriteShutdown};

use super::{Chunk, StreamTransport};
use crate::core::LoopCore;
use crate::ffi::{BufferView, BytesRef, Keywords, Obj, Raised, Ref, Result, Spec, This};
use crate::flow::{Limits, WRITE_HIGH};
use crate::names::{self, support};
use crate::tls::TlsTransport;

/// Writes held back for the end of the callback leave early when they are more than this.
const HOLD_AT_MOST: usize = 64 * 1024;

/// A warning is logged from this many writes after the loss on.
/// CPython: `LOG_THRESHOLD_FOR_CONNLOST_WRITES`.
const QUIET_WRITES: u32 = 5;

pub(super) fn describe(spec: &mut Spec<StreamTransport>) {
    spec.one(c"write", write)
        .one(c"writelines", writelines)
        .none(c"write_eof", write_eof)
        .none(c"can_write_eof", |_| Ok(Ref::bool(true)))
        .none(c"get_write_buffer_size", |this| {
            this.settle()?;
            Ref::int(this.queued() as i64)
        })
        .none(c"get_write_buffer_limits", |this| Limits::of(this.stream.borrow().flow()).to_tuple())
        .any(c"set_write_buffer_limits", set_limits)
        .none(c"_make_empty_waiter", make_empty_waiter)
        .none(c"_reset_empty_waiter", |this| {
            this.empty_waiter.clear();
            Ok(Ref::none())
        })
        .get(c"_high_water", |this| Ref::int(this.stream.borrow().flow().limits().1 as i64))
        .get(c"_low_water", |this| Ref::int(this.stream.borrow().flow().limits().0 as i64))
        .get(c"_protocol_paused", |this| Ok(Ref::bool(this.stream.borrow().flow().is_paused())))
        .get(c"_eof", |this| Ok(Ref::bool(this.stream.borrow().state().is_write_shut())));
}

fn check(this: This<'_, StreamTransport>, method: &str) -> Result<()> {
    if this.stream.borrow().state().is_write_shut() {
        return Err(Raised::runtime_error(&format!("Cannot call {method}() after write_eof()")));
    }
    if this.empty_waiter.is_set() {
        return Err(Raised::runtime_error(&format!("unable to {method}; sendfile is in progress")));
    }
    Ok(())
}

fn bytes_like(data: Obj<'_>) -> Result<()> {
    if data.is_bytes_like() {
        return Ok(());
    }
    let wanted = support::WRITE_TAKES.get()?.to_text()?;
    let given = data.type_name();
    Err(Raised::type_error(&format!("data argument must be {wanted}, not '{given}'")))
}

fn write(this: This<'_, StreamTransport>, data: Obj<'_>) -> Result<Ref> {
    bytes_like(data)?;
    check(this, "write")?;
    this.with_loop(|core| match BytesRef::new(data) {
        Some(bytes) => this.send(core, Chunk::Bytes(bytes)),
        None => this.send_mutable(core, data),
    })?;
    this.count_if_lost()
}

fn writelines(this: This<'_, StreamTransport>, lines: Obj<'_>) -> Result<Ref> {
    check(this, "writelines")?;
    let lines = lines.to_tuple()?;
    let count = lines.obj().tuple_len();
    let mut chunks = Vec::with_capacity(count);
    for index in 0..count {
        let line = lines.obj().tuple_item(index)?;
        chunks.push(match BytesRef::new(line.obj()) {
            Some(bytes) => Chunk::Bytes(bytes),
            None => Chunk::Copy(BufferView::read(line.obj(), |bytes| bytes.into())?),
        });
    }
    chunks.retain(|chunk| !chunk.as_ref().is_empty());
    if chunks.is_empty() {
        return Ok(Ref::none());
    }
    this.with_loop(|core| {
        if this.is_lost() {
            return Ok(());
        }
        let idle = this.queued() == 0;
        {
            let mut stream = this.stream.borrow_mut();
            chunks.into_iter().for_each(|chunk| stream.hold(chunk));
        }
        if idle { this.flush(core) } else { this.after_growth(core) }
    })?;
    this.count_if_lost()
}

fn write_eof(this: This<'_, StreamTransport>) -> Result<Ref> {
    this.settle()?;
    let empty = this.queued() == 0;
    let asked = this.stream.borrow_mut().state_mut().shut_write(empty);
    if asked == WriteShutdown::Now {
        this.shut_write();
    }
    Ok(Ref::none())
}

fn set_limits(
    this: This<'_, StreamTransport>,
    args: &[Obj<'_>],
    keywords: Keywords<'_>,
) -> Result<Ref> {
    let limits = Limits::read("set_write_buffer_limits", args, keywords, WRITE_HIGH)?;
    this.settle()?;
    limits.set(this.stream.borrow_mut().flow_mut());
    this.with_loop(|core| this.after_growth(core))?;
    Ok(Ref::none())
}

fn make_empty_waiter(this: This<'_, StreamTransport>) -> Result<Ref> {
    if this.empty_waiter.is_set() {
        return Err(Raised::runtime_error("Empty waiter is already set"));
    }
    this.settle()?;
    let owner = this.owner.get_or_none();
    let waiter = owner.obj().call_method(&names::CREATE_FUTURE, &[])?;
    this.empty_waiter.set(waiter.clone());
    if this.queued() == 0 {
        waiter.obj().call_method(&names::SET_RESULT, &[Ref::none().obj()])?;
    }
    Ok(waiter)
}

impl This<'_, StreamTransport> {
    /// A write after the loss is dropped; asyncio warns after several.
    fn count_if_lost(self) -> Result<Ref> {
        if self.is_lost() {
            if self.lost.get() >= QUIET_WRITES {
                support::WARN_LOST.get()?.call(&[])?;
            }
            self.lost.set(self.lost.get().saturating_add(1));
        }
        Ok(Ref::none())
    }

    fn send(self, core: This<'_, LoopCore>, chunk: Chunk) -> Result<()> {
        if chunk.as_ref().is_empty() || self.is_lost() {
            return Ok(());
        }
        if self.queued() > 0 && !self.holding.get() {
            // The kernel has refused bytes before these.
            self.stream.borrow_mut().hold(chunk);
            return self.after_growth(core);
        }
        let in_callback = core.in_callback.get();
        if self.holding.get() || (in_callback && self.sent_in.get() == core.epoch.get()) {
            return self.hold(core, chunk);
        }
        if in_callback {
            self.sent_in.set(core.epoch.get());
        }
        let length = chunk.as_ref().len();
        let sent = {
            let descriptor = self.descriptor.borrow();
            descriptor.borrow().and_then(|fd| self.stream.borrow_mut().write(fd, chunk))
        };
        if sent.is_ok() {
            core.stats.sent(length - self.queued());
        }
        match sent {
            Ok(Sent::All) => Ok(()),
            Ok(Sent::Queued) => self.after_growth(core),
            Err(error) => {
                let raised = Raised::os_error(&error);
                self.fatal(core, raised, "Fatal write error on socket transport")
            }
        }
    }

    /// Sends records that lie in a buffer of the loop's: what the kernel does not take is copied.
    pub(crate) fn send_slice(self, core: This<'_, LoopCore>, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() || self.is_lost() {
            return Ok(());
        }
        let mut sent = 0;
        if self.queued() == 0 {
            let answer = {
                let descriptor = self.descriptor.borrow();
                descriptor.borrow().and_then(|fd| Stream::<Chunk>::try_send(fd, bytes))
            };
            core.stats.sent(*answer.as_ref().unwrap_or(&0));
            match answer {
                Ok(count) if count == bytes.len() => return Ok(()),
                Ok(count) => sent = count,
                Err(error) => {
                    let raised = Raised::os_error(&error);
                    return self.fatal(core, raised, "Fatal write error on socket transport");
                }
            }
        }
        self.stream.borrow_mut().hold(Chunk::Copy(bytes[sent..].into()));
        self.after_growth(core)
    }

    /// As `send`, for memory that its owner may change: what the kernel takes at once is not
    /// copied, the rest is.
    fn send_mutable(self, core: This<'_, LoopCore>, data: Obj<'_>) -> Result<()> {
        let may_send = self.queued() == 0
            && !self.is_lost()
            && !(core.in_callback.get() && self.sent_in.get() == core.epoch.get());
        let answer = BufferView::read(data, |bytes| {
            if !may_send || bytes.is_empty() {
                return Ok((0, Box::from(bytes)));
            }
            let descriptor = self.descriptor.borrow();
            let sent = descriptor.borrow().and_then(|fd| Stream::<Chunk>::try_send(fd, bytes))?;
            Ok((sent, Box::<[u8]>::from(&bytes[sent..])))
        })?;
        let (sent, rest) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let raised = Raised::os_error(&error);
                return self.fatal(core, raised, "Fatal write error on socket transport");
            }
        };
        if sent == 0 && rest.is_empty() {
            return Ok(()); // nothing was given
        }
        core.stats.sent(sent);
        if may_send && core.in_callback.get() {
            self.sent_in.set(core.epoch.get());
        }
        if rest.is_empty() {
            return Ok(());
        }
        if may_send && sent > 0 {
            self.stream.borrow_mut().hold(Chunk::Copy(rest));
            return self.after_growth(core);
        }
        self.send(core, Chunk::Copy(rest))
    }

    /// Not the first write of this callback: gathered with the next ones, within limits.
    fn hold(self, core: This<'_, LoopCore>, chunk: Chunk) -> Result<()> {
        self.stream.borrow_mut().hold(chunk);
        if !self.holding.replace(true) {
            core.held.borrow_mut().push(self.obj().to_ref());
        }
        let (_, high) = self.stream.borrow().flow().limits();
        if self.queued() > HOLD_AT_MOST.min(high) { self.flush(core) } else { Ok(()) }
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

    /// One gathered send; what is left waits for the poller.
    fn flush(self, core: This<'_, LoopCore>) -> Result<()> {
        self.holding.set(false);
        let before = self.queued();
        let flushed = self.flush_stream();
        core.stats.sent(before - self.queued());
        match flushed {
            Ok(Flushed::Drained) => self.on_drained(core),
            Ok(Flushed::Partial) => self.after_growth(core),
            Err(error) => {
                let raised = Raised::os_error(&error);
                self.fatal(core, raised, "Fatal write error on socket transport")
            }
        }
    }

    fn flush_stream(self) -> std::io::Result<Flushed> {
        let descriptor = self.descriptor.borrow();
        descriptor.borrow().and_then(|fd| self.stream.borrow_mut().flush(fd))
    }

    /// The socket takes bytes again.
    pub(super) fn drain(self, core: This<'_, LoopCore>) -> Result<()> {
        self.flush(core)?;
        if self.is_lost() {
            return Ok(());
        }
        self.resume_if_low(core)?;
        if self.is_tls.get()
            && let Some(protocol) = self.protocol.get()
            && let Some(tls) = This::<TlsTransport>::of(protocol.obj())
        {
            return self.in_context(core, || tls.on_writable(core));
        }
        Ok(())
    }

    fn resume_if_low(self, core: This<'_, LoopCore>) -> Result<()> {
        let queued = self.queued();
        if self.stream.borrow_mut().flow_mut().on_shrink(queued) {
            self.signal(core, &names::RESUME_WRITING, "protocol.resume_writing() failed")?;
        }
        Ok(())
    }

    /// The queue is longer: asks for the poller's help, and tells the protocol to pause.
    fn after_growth(self, core: This<'_, LoopCore>) -> Result<()> {
        self.update_interest(core)?;
        let queued = self.queued();
        if self.stream.borrow_mut().flow_mut().on_grow(queued) {
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

    /// Everything is with the kernel. The protocol hears of it first, and may write again.
    fn on_drained(self, core: This<'_, LoopCore>) -> Result<()> {
        self.resume_if_low(core)?;
        if self.is_lost() || self.queued() > 0 {
            return Ok(());
        }
        self.update_interest(core)?;
        if let Some(waiter) = self.empty_waiter.get()
            && !waiter.obj().call_method(&names::DONE, &[])?.obj().is_true()?
        {
            waiter.obj().call_method(&names::SET_RESULT, &[Ref::none().obj()])?;
        }
        let (closing, eof) = {
            let stream = self.stream.borrow();
            (stream.state().is_closing(), stream.state().is_write_shut())
        };
        if closing {
            return self.finish(core);
        }
        if eof {
            self.shut_write();
        }
        Ok(())
    }

    fn shut_write(self) {
        let descriptor = self.descriptor.borrow();
        if let Ok(fd) = descriptor.borrow() {
            // A peer that is gone makes this fail; the read side or the next write tells.
            let _gone = Stream::<Chunk>::shutdown_write(fd);
        }
    }
}
