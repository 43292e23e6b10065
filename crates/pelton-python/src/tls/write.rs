//! The write path.
//!
//! A write is sealed at once, into a buffer that the loop lends to one connection at a time, and
//! what one callback has written leaves in one send when that callback returns. While bytes wait
//! below, plaintext waits here, `bytes` by reference and anything mutable as one copy, and is
//! sealed when the kernel has taken what is before it.

use pelton::tls::libssl::Outcome;

use super::TlsTransport;
use super::open::WRITE_HIGH;
use crate::core::LoopCore;
use crate::ffi::{BufferView, BytesRef, Obj, Raised, Ref, Result, Spec, This};
use crate::flow::Limits;
use crate::names::{self, support};
use crate::stream::Chunk;

/// The most plaintext that is sealed before the kernel is asked.
const SEAL_AT_MOST: usize = 256 * 1024;

/// The largest plaintext of one record: RFC 8446, 5.1.
const RECORD: usize = 16 * 1024;

/// A warning is logged from this many writes after the loss on.
/// CPython: `LOG_THRESHOLD_FOR_CONNLOST_WRITES`.
const QUIET_WRITES: u32 = 5;

pub(super) fn describe(spec: &mut Spec<TlsTransport>) {
    spec.one(c"write", write)
        .one(c"writelines", writelines)
        .none(c"write_eof", write_eof)
        .none(c"can_write_eof", |this| Ok(Ref::bool(this.half_close.get())))
        .one(c"set_half_close", |this, asked| {
            this.half_close.set(asked.is_true()?);
            Ok(Ref::none())
        })
        .none(c"get_write_buffer_size", |this| {
            this.with_loop(|core| this.flush_held(core))?;
            Ref::int(this.unsent() as i64)
        })
        .none(c"get_write_buffer_limits", |this| Limits::of(&this.flow.borrow()).to_tuple())
        .any(c"set_write_buffer_limits", |this, args, keywords| {
            let limits = Limits::read("set_write_buffer_limits", args, keywords, WRITE_HIGH)?;
            limits.set(&mut this.flow.borrow_mut());
            this.with_loop(|core| {
                this.flush_held(core)?;
                this.control_writer()
            })?;
            Ok(Ref::none())
        })
        .none(c"pause_writing", |this| {
            this.below_full.set(true);
            Ok(Ref::none())
        })
        .none(c"resume_writing", |this| {
            this.below_full.set(false);
            this.with_loop(|core| this.on_writable(core))?;
            Ok(Ref::none())
        })
        // CPython's own tests fill the queue behind the transport's back by this.
        .one(c"_test__append_write_backlog", |this, data| {
            this.push_backlog(data)?;
            Ok(Ref::none())
        })
        .get(c"_protocol_paused", |this| Ok(Ref::bool(this.flow.borrow().is_paused())));
}

fn write(this: This<'_, TlsTransport>, data: Obj<'_>) -> Result<Ref> {
    if !data.is_bytes_like() {
        let given = data.type_name();
        return Err(Raised::type_error(&format!(
            "data: expecting a bytes-like instance, got {given}"
        )));
    }
    if this.takes_writes("write")? {
        this.with_loop(|core| this.write_data(core, data))?;
    }
    Ok(Ref::none())
}

fn writelines(this: This<'_, TlsTransport>, lines: Obj<'_>) -> Result<Ref> {
    let lines = lines.to_tuple()?;
    if !this.takes_writes("writelines")? {
        return Ok(Ref::none());
    }
    let count = lines.obj().tuple_len();
    let chunks = (0..count).map(|index| chunk(lines.obj().tuple_item(index)?.obj()));
    let chunks = chunks.collect::<Result<Vec<_>>>()?;
    // All behind each other, so that small ones share records.
    chunks.into_iter().for_each(|chunk| this.backlog.borrow_mut().push(chunk));
    this.with_loop(|core| {
        this.pump(core)?;
        this.control_writer()
    })?;
    Ok(Ref::none())
}

/// `bytes` by reference, anything mutable as a copy.
fn chunk(data: Obj<'_>) -> Result<Chunk> {
    match BytesRef::new(data) {
        Some(bytes) => Ok(Chunk::Bytes(bytes)),
        None => Ok(Chunk::Copy(BufferView::read(data, |bytes| bytes.into())?)),
    }
}

fn write_eof(this: This<'_, TlsTransport>) -> Result<Ref> {
    if !this.half_close.get() {
        return Err(Raised::not_implemented());
    }
    if this.change(|state| state.half_close()) {
        this.with_loop(|core| this.pump(core))?;
    }
    Ok(Ref::none())
}

impl This<'_, TlsTransport> {
    /// False for a connection that is closed: what is written then is dropped, as by asyncio.
    fn takes_writes(self, method: &str) -> Result<bool> {
        if self.state().is_half_closed() {
            return Err(Raised::runtime_error(&format!(
                "Cannot call {method}() after write_eof()"
            )));
        }
        if !self.is_closing() {
            return Ok(true);
        }
        if self.lost.get() >= QUIET_WRITES {
            support::TLS_WARN_LOST.get()?.call(&[])?;
        }
        self.lost.set(self.lost.get().saturating_add(1));
        Ok(false)
    }

    fn write_data(self, core: This<'_, LoopCore>, data: Obj<'_>) -> Result<()> {
        if !self.backlog.borrow().is_empty() || !self.may_seal() {
            self.push_backlog(data)?;
            return self.control_writer();
        }
        let rest = match BytesRef::new(data) {
            Some(bytes) => {
                let taken = self.seal(core, bytes.as_ref())?;
                (taken < bytes.as_ref().len()).then_some((Chunk::Bytes(bytes), taken))
            }
            None => BufferView::read(data, |bytes| {
                let taken = self.seal(core, bytes)?;
                Ok((taken < bytes.len()).then(|| (Chunk::Copy(bytes[taken..].into()), 0)))
            })??,
        };
        if let Some((chunk, taken)) = rest
            && !self.is_closing()
        {
            let mut backlog = self.backlog.borrow_mut();
            if backlog.is_empty() {
                backlog.push_rest(chunk, taken);
            } else {
                // A callback of OpenSSL has written meanwhile.
                let rest = chunk.as_ref()[taken..].into();
                backlog.push(Chunk::Copy(rest));
            }
        }
        self.control_writer()
    }

    fn push_backlog(self, data: Obj<'_>) -> Result<()> {
        let chunk = chunk(data)?;
        self.backlog.borrow_mut().push(chunk);
        Ok(())
    }

    /// Whether records may be made now: nothing waits below, and the handshake is done.
    fn may_seal(self) -> bool {
        let state = self.state();
        (state.is_open() || state.is_flushing())
            && !self.below_full.get()
            && self.with_stream(|stream| stream.queued()).unwrap_or(0) == 0
            && !self.engine.borrow().as_ref().is_some_and(|engine| engine.is_busy())
    }

    /// Seals `plain` and sends it, or holds it back for the end of the callback. Answers how many
    /// bytes were taken; fewer than all where the kernel takes no more.
    fn seal(self, core: This<'_, LoopCore>, plain: &[u8]) -> Result<usize> {
        let mut taken = 0;
        while taken < plain.len() {
            let piece = &plain[taken..plain.len().min(taken + SEAL_AT_MOST)];
            let mut sealed = self.claim(core)?;
            let engine = self.engine()?;
            engine.prepare();
            let outcome = engine.write(piece, &mut sealed);
            let length = sealed.len();
            self.put_back(core, sealed)?;
            match outcome {
                Ok(Outcome::Data(count)) => taken += count,
                Ok(_) => break,
                Err(raised) => {
                    self.fatal(core, raised, "Fatal error on SSL protocol")?;
                    return Ok(plain.len());
                }
            }
            if length < SEAL_AT_MOST && core.in_callback.get() {
                self.hold(core);
                continue;
            }
            self.send_sealed(core)?;
            if !self.may_seal() {
                break;
            }
        }
        Ok(taken)
    }

    /// Seals and sends what waits, as long as the kernel takes it.
    pub(super) fn pump(self, core: This<'_, LoopCore>) -> Result<()> {
        while !self.backlog.borrow().is_empty() && self.may_seal() {
            // Taken out meanwhile: OpenSSL's callbacks may write more.
            let mut backlog = self.backlog.take();
            let before = backlog.len();
            let first = backlog.iter().next().map_or(0, <[u8]>::len);
            let answer = if first >= RECORD || first == before {
                self.seal(core, backlog.iter().next().unwrap_or_default())
            } else {
                let mut joined = core.joined.take();
                for bytes in backlog.iter() {
                    let room = RECORD - joined.len();
                    joined.extend_from_slice(&bytes[..bytes.len().min(room)]);
                }
                let answer = self.seal(core, &joined);
                joined.clear();
                core.joined.replace(joined);
                answer
            };
            let taken = *answer.as_ref().unwrap_or(&before);
            backlog.advance(taken.min(before));
            let newer = self.backlog.take().take_all();
            newer.into_iter().for_each(|chunk| backlog.push(chunk));
            self.backlog.replace(backlog);
            answer?;
            if self.is_closing() && !self.state().is_flushing() {
                drop(self.backlog.take()); // it has failed
            }
            if taken == 0 {
                break;
            }
        }
        if self.state().is_half_closed() && self.state().is_open() {
            return self.end_our_side(core);
        }
        Ok(())
    }

    /// Takes the loop's buffer, with what this connection has in it already.
    fn claim(self, core: This<'_, LoopCore>) -> Result<Vec<u8>> {
        self.send_others(core)?;
        Ok(core.sealed.take())
    }

    fn put_back(self, core: This<'_, LoopCore>, sealed: Vec<u8>) -> Result<()> {
        // Another connection's, if a callback of OpenSSL wrote to it.
        self.send_others(core)?;
        core.sealed.replace(sealed);
        if !core.sealed_by.get().is_some_and(|owner| owner.obj().is(self.obj())) {
            core.sealed_by.set(self.obj().to_ref());
        }
        Ok(())
    }

    /// What another connection holds back in the loop's buffer goes out now.
    fn send_others(self, core: This<'_, LoopCore>) -> Result<()> {
        let Some(owner) = core.sealed_by.get() else { return Ok(()) };
        if owner.obj().is(self.obj()) || core.sealed.borrow().is_empty() {
            return Ok(());
        }
        match This::<TlsTransport>::of(owner.obj()) {
            Some(other) => other.send_sealed(core),
            None => Ok(()),
        }
    }

    fn hold(self, core: This<'_, LoopCore>) {
        if !self.holding.replace(true) {
            core.held.borrow_mut().push(self.obj().to_ref());
        }
    }

    /// Sends what is in the loop's buffer, if it is this connection's.
    fn send_sealed(self, core: This<'_, LoopCore>) -> Result<()> {
        self.holding.set(false);
        if !core.sealed_by.get().is_some_and(|owner| owner.obj().is(self.obj())) {
            return Ok(());
        }
        let mut sealed = core.sealed.take();
        core.sealed_by.clear();
        let sent = self.write_below(core, &sealed);
        sealed.clear();
        // TLS in TLS: the transport below may hold its own records back there by now.
        if core.sealed_by.get().is_none() {
            core.sealed.replace(sealed);
        }
        sent
    }

    /// The running callback is over, or someone wants to know what is queued.
    pub(crate) fn flush_held(self, core: This<'_, LoopCore>) -> Result<()> {
        if !self.holding.get() {
            return Ok(());
        }
        self.send_sealed(core)?;
        self.control_writer()
    }

    /// Sends records that are not the program's: handshake, key update, alert. Behind what is held
    /// back, because records have numbers.
    pub(super) fn send_below(self, core: This<'_, LoopCore>, records: &[u8]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        if self.holding.get() {
            self.send_sealed(core)?;
        }
        self.write_below(core, records)
    }

    fn write_below(self, core: This<'_, LoopCore>, records: &[u8]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        match self.with_stream(|stream| stream.send_slice(core, records)) {
            Some(sent) => sent,
            None => self.call_below(&names::WRITE, &[Ref::bytes(records)?.obj()]),
        }
    }

    /// The transport below takes bytes again.
    pub(crate) fn on_writable(self, core: This<'_, LoopCore>) -> Result<()> {
        self.pump(core)?;
        self.control_writer()?;
        if self.state().is_flushing() || self.state().is_ending() {
            return self.advance_shutdown(core);
        }
        Ok(())
    }

    /// Plaintext and ciphertext that wait, in both layers, in bytes.
    pub(super) fn unsent(self) -> usize {
        let below = self.with_stream(|stream| stream.queued()).unwrap_or(0);
        self.backlog.borrow().len() + below
    }

    /// Tells the protocol to pause or to go on where a limit is crossed.
    pub(super) fn control_writer(self) -> Result<()> {
        let unsent = self.unsent();
        let (pause, resume) = {
            let mut flow = self.flow.borrow_mut();
            (flow.on_grow(unsent), flow.on_shrink(unsent))
        };
        if pause {
            self.signal(&names::PAUSE_WRITING, "protocol.pause_writing() failed")?;
        }
        if resume {
            self.signal(&names::RESUME_WRITING, "protocol.resume_writing() failed")?;
        }
        Ok(())
    }

    fn signal(self, method: &names::Name, failed: &str) -> Result<()> {
        match self.call_protocol(method, &[]) {
            Ok(_) => Ok(()),
            Err(raised) if raised.ends_the_loop() => Err(raised),
            Err(raised) => {
                let (message, exception) = (Ref::str(failed)?, raised.take());
                let protocol = self.protocol.get_or_none();
                self.with_loop(|core| {
                    core.report(&[
                        (&names::MESSAGE, message.obj()),
                        (&names::EXCEPTION, exception.obj()),
                        (&names::TRANSPORT, self.obj()),
                        (&names::PROTOCOL, protocol.obj()),
                    ])
                })
            }
        }
    }
}
