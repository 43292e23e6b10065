//! `WritePipeTransport`: with an empty queue `write()` asks the kernel before it returns; what the
//! kernel refuses waits, `bytes` by reference, anything mutable as one copy.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use pelton::reactor::{Interest, Readiness};
use pelton::stream::{Door as _, Flushed, Pipe, Sent, Stream};
use rustix::fs::FileType;

use super::{End, Given, PipeEnd};
use crate::core::LoopCore;
use crate::ffi::{BufferView, BytesRef, Class, Keywords, Obj, Raised, Ref, Result, Spec, This};
use crate::ffi::{TypeCell, Visit};
use crate::flow::{Limits, WRITE_HIGH};
use crate::names::{self, support};
use crate::stream::Chunk;
use crate::watch::Side;

const REFUSED: &str = "Pipe transport is only for pipes, sockets and character devices";

/// So many dropped writes go without a warning. CPython: `LOG_THRESHOLD_FOR_CONNLOST_WRITES`.
const QUIET_WRITES: u32 = 5;

/// The writing side of a pipe.
pub(crate) struct WritePipeTransport {
    end: End,
    stream: RefCell<Stream<Chunk, Pipe>>,
    /// How many writes were dropped since the pipe was closed or lost, and one for a failed one.
    dropped: Cell<u32>,
}

static CELL: TypeCell = TypeCell::new();

impl Class for WritePipeTransport {
    const NAME: &'static CStr = c"pelton._pelton.WritePipeTransport";
    const DOC: &'static CStr = c"The writing side of a pipe, a terminal or a socket.";
    const DICT_AND_WEAKREF: bool = true;
    const FINALIZER: bool = true;

    fn cell() -> &'static TypeCell {
        &CELL
    }

    fn spec(spec: &mut Spec<Self>) {
        super::describe(spec);
        spec.one(c"write", write)
            .none(c"write_eof", |this| this.close().map(|()| Ref::none()))
            .none(c"close", |this| this.close().map(|()| Ref::none()))
            .none(c"abort", |this| {
                super::with_loop(this, |core| super::lose(this, core, None))?;
                Ok(Ref::none())
            })
            .none(c"can_write_eof", |_| Ok(Ref::bool(true)))
            .one(c"set_protocol", |this, protocol| {
                this.end.protocol.set(protocol.to_ref());
                Ok(Ref::none())
            })
            .none(c"get_write_buffer_size", |this| Ref::int(this.queued() as i64))
            .none(c"get_write_buffer_limits", |this| {
                Limits::of(this.stream.borrow().flow()).to_tuple()
            })
            .any(c"set_write_buffer_limits", |this, args, keywords| {
                let method = "set_write_buffer_limits";
                let limits = Limits::read(method, args, keywords, WRITE_HIGH)?;
                limits.set(this.stream.borrow_mut().flow_mut());
                super::with_loop(this, |core| this.after_growth(core))?;
                Ok(Ref::none())
            })
            .get(c"_high_water", |this| Ref::int(this.stream.borrow().flow().limits().1 as i64))
            .get(c"_low_water", |this| Ref::int(this.stream.borrow().flow().limits().0 as i64))
            .get(c"_protocol_paused", |this| Ok(Ref::bool(this.stream.borrow().flow().is_paused())))
            .get(c"_conn_lost", |this| Ref::int(this.dropped.get().into()))
            .repr(|this| {
                let mut text = super::begin_repr(this, "WritePipeTransport", Interest::WRITE)?;
                text.push_str(&format!(" bufsize={}>", this.queued()));
                Ref::str(&text)
            });
    }

    fn traverse(&self, visit: &mut Visit<'_>) {
        self.end.traverse(visit);
    }

    fn clear(&self) {
        self.end.clear();
    }

    fn finalize(this: This<'_, Self>) {
        super::finalize(this);
    }
}

impl PipeEnd for WritePipeTransport {
    const SIDE: Side = Side::Write;

    fn end(&self) -> &End {
        &self.end
    }

    /// A terminal has no peer that could go without a write noticing.
    fn wanted(&self) -> Interest {
        let stream = self.stream.borrow();
        if stream.state().is_lost() || !self.end.started.get() {
            return Interest::NONE;
        }
        let write = stream.interest().without(Interest::READ);
        match self.end.kind {
            FileType::CharacterDevice => write,
            _ => write.with(Interest::PEER_GONE),
        }
    }

    fn is_closing(&self) -> bool {
        self.stream.borrow().state().is_closing()
    }

    fn is_lost(&self) -> bool {
        self.stream.borrow().state().is_lost()
    }

    fn set_lost(&self) {
        let queue = {
            let mut stream = self.stream.borrow_mut();
            stream.state_mut().lose();
            stream.take_queue()
        };
        drop(queue);
    }
}

impl WritePipeTransport {
    fn queued(&self) -> usize {
        self.stream.borrow().queued()
    }
}

pub(super) fn describe_loop(spec: &mut Spec<LoopCore>) {
    spec.any(c"_make_write_pipe", make_write_pipe);
}

/// `_make_write_pipe(pipe, protocol, waiter, extra)`
fn make_write_pipe(this: This<'_, LoopCore>, args: &[Obj<'_>], _: Keywords<'_>) -> Result<Ref> {
    let given = Given::read(args)?;
    let end = End::new(this, &given, REFUSED)?;
    let (stream, dropped) = (RefCell::new(Stream::pipe()), Cell::new(0));
    super::open(this, WritePipeTransport { end, stream, dropped }, &given)
}

fn write(this: This<'_, WritePipeTransport>, data: Obj<'_>) -> Result<Ref> {
    if !data.is_bytes_like() {
        let text = data.repr()?.obj().to_text()?;
        return Err(Raised::assertion_error(&text));
    }
    if !data.is_true()? {
        return Ok(Ref::none());
    }
    if this.is_closing() {
        if this.dropped.get() >= QUIET_WRITES {
            support::WARN_PIPE_LOST.get()?.call(&[])?;
        }
        this.dropped.set(this.dropped.get().saturating_add(1));
        return Ok(Ref::none());
    }
    super::with_loop(this, |core| match BytesRef::new(data) {
        Some(bytes) => this.send(core, Chunk::Bytes(bytes)),
        None => this.send_mutable(core, data),
    })?;
    Ok(Ref::none())
}

impl This<'_, WritePipeTransport> {
    fn send(self, core: This<'_, LoopCore>, chunk: Chunk) -> Result<()> {
        let (before, length) = (self.queued(), chunk.as_ref().len());
        let sent = self.stream.borrow_mut().write(self.end.borrow(), chunk);
        if sent.is_ok() {
            core.stats.sent(before + length - self.queued());
        }
        match sent {
            Ok(Sent::All) => Ok(()),
            Ok(Sent::Queued) if before > 0 => self.signal_growth(core),
            Ok(Sent::Queued) => self.after_growth(core),
            Err(error) => self.fatal(core, Raised::os_error(&error)),
        }
    }

    /// As `send`, for memory that its owner may change: what the kernel takes at once is not
    /// copied, the rest is.
    fn send_mutable(self, core: This<'_, LoopCore>, data: Obj<'_>) -> Result<()> {
        let idle = self.queued() == 0;
        let answer = BufferView::read(data, |bytes| {
            let sent = if idle { Pipe::send(self.end.borrow(), bytes)? } else { 0 };
            core.stats.sent(sent);
            Ok::<_, std::io::Error>(Box::<[u8]>::from(&bytes[sent..]))
        })?;
        match answer {
            Ok(rest) if rest.is_empty() => Ok(()),
            Ok(rest) => {
                self.stream.borrow_mut().hold(Chunk::Copy(rest));
                self.after_growth(core)
            }
            Err(error) => self.fatal(core, Raised::os_error(&error)),
        }
    }

    /// The queue is longer: asks for the poller's help, and tells the protocol to pause.
    fn after_growth(self, core: This<'_, LoopCore>) -> Result<()> {
        super::update_interest(self, core)?;
        self.signal_growth(core)
    }

    fn signal_growth(self, core: This<'_, LoopCore>) -> Result<()> {
        let queued = self.queued();
        if self.stream.borrow_mut().flow_mut().on_grow(queued) {
            let failed = "protocol.pause_writing() failed";
            return super::signal(self, core, &names::PAUSE_WRITING, failed);
        }
        Ok(())
    }

    pub(super) fn on_ready(self, core: This<'_, LoopCore>, readiness: Readiness) -> Result<()> {
        if self.is_lost() {
            return Ok(());
        }
        if readiness.peer_gone() && self.end.kind != FileType::CharacterDevice {
            let queued = self.queued() > 0;
            let exception = queued.then(|| Raised::broken_pipe().take());
            return super::lose(self, core, exception);
        }
        if self.queued() > 0 { super::in_context(self, core, || self.drain(core)) } else { Ok(()) }
    }

    /// The pipe takes bytes again.
    fn drain(self, core: This<'_, LoopCore>) -> Result<()> {
        let before = self.queued();
        let flushed = self.stream.borrow_mut().flush(self.end.borrow());
        core.stats.sent(before - self.queued());
        if let Err(error) = flushed {
            return self.fatal(core, Raised::os_error(&error));
        }
        let queued = self.queued();
        if self.stream.borrow_mut().flow_mut().on_shrink(queued) {
            let failed = "protocol.resume_writing() failed";
            super::signal(self, core, &names::RESUME_WRITING, failed)?;
        }
        if matches!(flushed, Ok(Flushed::Partial)) || self.queued() > 0 || self.is_lost() {
            return Ok(());
        }
        if self.is_closing() {
            return super::lose(self, core, None);
        }
        super::update_interest(self, core)
    }

    /// What is queued still goes out, then the pipe ends.
    fn close(self) -> Result<()> {
        if !self.stream.borrow_mut().state_mut().close() {
            return Ok(());
        }
        super::with_loop(self, |core| {
            let nothing_to_wait_for = self.queued() == 0 || core.is_closed();
            if nothing_to_wait_for { super::lose(self, core, None) } else { Ok(()) }
        })
    }

    fn fatal(self, core: This<'_, LoopCore>, raised: Raised) -> Result<()> {
        self.dropped.set(self.dropped.get().saturating_add(1));
        let exception = raised.take();
        if core.is_debug() {
            let message = Ref::str("Fatal write error on pipe transport")?;
            let report = support::TRANSPORT_FAILED.get()?;
            report.call(&[core.obj(), self.obj(), message.obj(), exception.obj()])?;
        }
        super::lose(self, core, Some(exception))
    }
}
