//! The read path: from ciphertext to the protocol.
//!
//! What the transport below has read is a slice of the loop's read buffer. Its records are opened
//! into the loop's plaintext buffer and handed over in one delivery. OpenSSL keeps a partial
//! record itself, so nothing of the slice is left, unless the program pauses reading in the middle
//! of it: that rest alone is kept with the connection.

use std::mem::MaybeUninit;

use pelton::tls::libssl::Outcome;

use super::open::READ_HIGH;
use super::{Inside, TlsTransport};
use crate::core::LoopCore;
use crate::ffi::{BufferView, Obj, Raised, Ref, Result, Spec, This};
use crate::flow::Limits;
use crate::names::{self, support};

/// So many bytes are dropped after our goodbye before a peer that goes on is cut off.
const DROP_AT_MOST: usize = 1024 * 1024;

/// Why reading has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Everything that came is read.
    Starved,
    /// There is more than the space holds.
    Full,
    /// The peer's `close_notify`.
    Closed,
}

pub(super) fn describe(spec: &mut Spec<TlsTransport>) {
    spec.one(c"data_received", |this, data| {
        this.with_loop(|core| this.feed_object(core, data))?;
        Ok(Ref::none())
    })
    .none(c"eof_received", |this| {
        this.with_loop(|core| this.on_eof(core))?;
        // The transport below stays open until our goodbye is out.
        Ok(Ref::bool(!this.state().is_over()))
    })
    .none(c"pause_reading", |this| {
        if this.change(|state| state.pause()) {
            this.with_loop(|core| this.update_reading(core))?;
        }
        Ok(Ref::none())
    })
    .none(c"resume_reading", |this| {
        if this.change(|state| state.resume()) {
            this.with_loop(|core| this.resume_reading(core))?;
        }
        Ok(Ref::none())
    })
    .none(c"_resume", |this| {
        this.with_loop(|core| this.feed(core, &[], Inside::Context))?;
        Ok(Ref::none())
    })
    .none(c"is_reading", |this| {
        Ok(Ref::bool(!this.state().is_closing() && !this.state().is_paused()))
    })
    .none(c"get_read_buffer_size", |this| Ref::int(this.unread()? as i64))
    .none(c"get_read_buffer_limits", |this| this.read_limits.get().to_tuple())
    .any(c"set_read_buffer_limits", |this, args, keywords| {
        let limits = Limits::read("set_read_buffer_limits", args, keywords, READ_HIGH)?;
        this.read_limits.set(limits);
        Ok(Ref::none())
    });
}

impl This<'_, TlsTransport> {
    /// Ciphertext from a transport that is not a stream of ours.
    pub(super) fn feed_object(self, core: This<'_, LoopCore>, data: Obj<'_>) -> Result<()> {
        BufferView::read(data, |bytes| self.feed(core, bytes, Inside::Context))?
    }

    /// Ciphertext from below.
    pub(crate) fn feed(self, core: This<'_, LoopCore>, input: &[u8], inside: Inside) -> Result<()> {
        let mut framing = self.framing.get();
        framing.advance(input);
        self.framing.set(framing);
        let mut kept = std::mem::take(&mut *self.rest.borrow_mut());
        if kept.is_empty() {
            return self.feed_all(core, input, inside);
        }
        kept.extend_from_slice(input);
        self.feed_all(core, &kept, inside)
    }

    fn feed_all(self, core: This<'_, LoopCore>, input: &[u8], inside: Inside) -> Result<()> {
        let mut input = input;
        if self.state().is_handshaking() {
            self.handshake(core, &mut input, inside)?;
        }
        if self.state().delivers() {
            self.open_records(core, &mut input, inside)?;
        }
        if self.state().is_open() || self.state().is_handshaking() {
            // Paused in the middle of it, or OpenSSL was busy with a callback that led here.
            self.rest.borrow_mut().extend_from_slice(input);
        }
        if self.state().is_flushing() || self.state().is_ending() {
            self.drop_records(core, &mut input)?;
        }
        self.end_if_truncated(core, inside)
    }

    /// Opens what came and hands it over.
    fn open_records(
        self,
        core: This<'_, LoopCore>,
        input: &mut &[u8],
        inside: Inside,
    ) -> Result<()> {
        self.engine()?.prepare();
        let mut output = Vec::new();
        let answer = loop {
            let answer = if self.get_buffer.is_set() {
                self.open_into_protocol(core, input, &mut output, inside)
            } else {
                self.open_and_deliver(core, input, &mut output, inside)
            };
            if !output.is_empty() {
                // A key update's answer, or the alert that explains a failure.
                let pending = answer.as_ref().is_err().then(|| Raised.take());
                self.send_below(core, &std::mem::take(&mut output))?;
                if let Some(exception) = pending {
                    break Err(Raised::from_exception(exception));
                }
            }
            match answer {
                Ok(Stop::Full) if self.state().delivers() => {}
                answer => break answer,
            }
        };
        match answer {
            Ok(Stop::Closed) => self.on_peer_closed(core, inside),
            Ok(Stop::Starved | Stop::Full) => {
                // A write may have waited for what just came (TLS 1.2 renegotiation).
                if self.backlog.borrow().is_empty() { Ok(()) } else { self.pump(core) }
            }
            Err(raised) => self.fatal(core, raised, "Fatal error on SSL protocol"),
        }
    }

    fn open_and_deliver(
        self,
        core: This<'_, LoopCore>,
        input: &mut &[u8],
        output: &mut Vec<u8>,
        inside: Inside,
    ) -> Result<Stop> {
        // Taken out while OpenSSL works: its callbacks may run anything.
        let mut buffer = core.plain_buffer.take();
        let (filled, stop) = self.fill(input, buffer.space()?, output);
        if filled == 0 {
            core.plain_buffer.replace(buffer);
            return stop;
        }
        // What came before a failure is the program's first.
        let failure = stop.as_ref().is_err().then(|| Raised.take());
        let delivery = buffer.deliver(filled);
        core.plain_buffer.replace(buffer);
        let delivery = delivery?;
        self.in_connection(core, inside, || match self.deliver.get() {
            Some(deliver) => deliver.obj().call(&[delivery.bytes()]),
            None => self.call_protocol(&names::DATA_RECEIVED, &[delivery.bytes()]),
        })?;
        if !delivery.is_small() {
            core.plain_buffer.borrow_mut().take_back(delivery);
        }
        raise_again(failure, stop)
    }

    /// Opens straight into the memory of a buffered protocol.
    fn open_into_protocol(
        self,
        core: This<'_, LoopCore>,
        input: &mut &[u8],
        output: &mut Vec<u8>,
        inside: Inside,
    ) -> Result<Stop> {
        if input.is_empty() && self.engine()?.pending()? == 0 {
            return Ok(Stop::Starved); // no buffer is asked for in vain
        }
        self.in_connection(core, inside, || {
            let Some(get_buffer) = self.get_buffer.get() else { return Ok(Stop::Full) };
            let hint = Ref::int(input.len() as i64)?;
            let space = get_buffer.obj().call(&[hint.obj()])?;
            if !self.state().delivers() {
                return Ok(Stop::Full);
            }
            let (filled, stop) = BufferView::write_uninit(space.obj(), |space| {
                if space.is_empty() {
                    return Err(Raised::runtime_error("get_buffer() returned an empty buffer"));
                }
                Ok(self.fill(input, space, output))
            })??;
            let failure = stop.as_ref().is_err().then(|| Raised.take());
            drop(space);
            if filled > 0 {
                let count = Ref::int(filled as i64)?;
                match self.deliver.get() {
                    Some(updated) => updated.obj().call(&[count.obj()])?,
                    None => self.call_protocol(&names::BUFFER_UPDATED, &[count.obj()])?,
                };
            }
            raise_again(failure, stop)
        })
    }

    /// Opens records into `space` until it is full or nothing is left.
    fn fill(
        self,
        input: &mut &[u8],
        space: &mut [MaybeUninit<u8>],
        output: &mut Vec<u8>,
    ) -> (usize, Result<Stop>) {
        let mut filled = 0;
        let mut open = || {
            let engine = self.engine()?;
            while filled < space.len() {
                match engine.read(input, &mut space[filled..], output)? {
                    Outcome::Data(count) => filled += count,
                    Outcome::Closed => return Ok(Stop::Closed),
                    Outcome::WantInput | Outcome::Busy | Outcome::Failed => {
                        return Ok(Stop::Starved);
                    }
                }
                if input.is_empty() && engine.pending()? == 0 {
                    return Ok(Stop::Starved);
                }
            }
            Ok(Stop::Full)
        };
        let stop = open();
        (filled, stop)
    }

    /// After the program has closed: what comes is looked at for the peer's goodbye only.
    fn drop_records(self, core: This<'_, LoopCore>, input: &mut &[u8]) -> Result<()> {
        let mut output = Vec::new();
        loop {
            let mut buffer = core.plain_buffer.take();
            let space = buffer.space();
            let answer = space.and_then(|space| {
                let (filled, stop) = self.fill(input, space, &mut output);
                stop.map(|stop| (filled, stop))
            });
            core.plain_buffer.replace(buffer);
            let (filled, stop) = match answer {
                Ok(answer) => answer,
                Err(raised) if raised.ends_the_loop() => return Err(raised),
                Err(raised) => {
                    // The session is broken; there was nothing to be had from it any more.
                    raised.discard();
                    return self.give_up(core, None);
                }
            };
            self.send_below(core, &std::mem::take(&mut output))?;
            if stop == Stop::Closed {
                self.change(|state| state.peer_closed());
                return self.advance_shutdown(core);
            }
            if self.state().is_ending() {
                self.dropped.set(self.dropped.get() + filled);
                if self.dropped.get() > DROP_AT_MOST {
                    return self.give_up(core, None);
                }
            }
            if stop == Stop::Starved {
                return self.advance_shutdown(core);
            }
        }
    }

    /// The peer's `close_notify`. asyncio then closes our side too; with half-close asked for, the
    /// protocol decides.
    fn on_peer_closed(self, core: This<'_, LoopCore>, inside: Inside) -> Result<()> {
        self.change(|state| state.peer_closed());
        let keep_open = self.tell_eof(core, inside)?;
        if keep_open && self.half_close.get() && !self.state().is_half_closed() {
            return Ok(());
        }
        self.start_shutdown(core)
    }

    /// The peer's side has ended below.
    fn on_eof(self, core: This<'_, LoopCore>) -> Result<()> {
        if core.is_debug() {
            support::TLS_LOG.get()?.call(&[self.obj(), Ref::str("received EOF")?.obj()])?;
        }
        if self.state().is_handshaking() {
            let raised = Raised::connection_reset("the peer has gone during the TLS handshake");
            return self.handshake_failed(core, raised);
        }
        self.change(|state| state.peer_eof());
        if self.state().is_flushing() || self.state().is_ending() {
            return self.advance_shutdown(core);
        }
        self.end_if_truncated(core, Inside::Context)
    }

    /// Once everything is read that came before the end of the stream below, the connection ends.
    fn end_if_truncated(self, core: This<'_, LoopCore>, inside: Inside) -> Result<()> {
        let state = self.state();
        if !state.is_open() || !state.is_truncated() || (state.is_paused() && self.unread()? > 0) {
            return Ok(());
        }
        if self.half_close.get() || !self.framing.get().is_between_records() {
            // Who half-closes relies on the goodbye; and half a record is an end for nobody.
            let exception = support::CUT_SHORT.get()?.call(&[])?;
            let raised = Raised::from_exception(exception);
            return self.fatal(core, raised, "Fatal error on SSL protocol");
        }
        self.tell_eof(core, inside)?;
        self.start_shutdown(core)
    }

    /// Calls `eof_received` once; answers whether the protocol wants to keep its side open.
    fn tell_eof(self, core: This<'_, LoopCore>, inside: Inside) -> Result<bool> {
        if self.eof_told.replace(true) || !self.told.get() {
            return Ok(false);
        }
        let answer = self.in_connection(core, inside, || {
            self.call_protocol(&names::EOF_RECEIVED, &[])?.obj().is_true()
        });
        match answer {
            Ok(keep_open) => {
                if keep_open && !self.half_close.get() {
                    support::EOF_KEPT_OPEN.get()?.call(&[])?;
                }
                Ok(keep_open)
            }
            Err(raised) => {
                self.fatal(core, raised, "Error calling eof_received()")?;
                Ok(false)
            }
        }
    }

    /// How many bytes have come that the program has not had: ciphertext kept aside, and what
    /// OpenSSL has of a record.
    pub(super) fn unread(self) -> Result<usize> {
        let kept = self.rest.borrow().len();
        Ok(kept + self.engine()?.pending()?)
    }

    /// Reading below stops while the program has paused an established connection, and only then.
    pub(super) fn update_reading(self, core: This<'_, LoopCore>) -> Result<()> {
        let pause = self.state().is_open() && self.state().is_paused();
        if self.below_paused.replace(pause) == pause || core.is_closed() {
            return Ok(());
        }
        self.call_below(if pause { &names::PAUSE_READING } else { &names::RESUME_READING }, &[])
    }

    fn resume_reading(self, core: This<'_, LoopCore>) -> Result<()> {
        self.update_reading(core)?;
        if self.state().is_open() && (self.unread()? > 0 || self.state().is_peer_done()) {
            // In the next turn, as in asyncio: the caller does not expect data from in here.
            let resume = self.obj().attr(&names::RESUME)?;
            self.schedule(core, resume.obj(), &[])?;
        }
        Ok(())
    }
}

/// What `stop` said, with the failure that was set aside while the data before it was delivered.
fn raise_again(failure: Option<Ref>, stop: Result<Stop>) -> Result<Stop> {
    match failure {
        Some(exception) => Err(Raised::from_exception(exception)),
        None => stop,
    }
}
