//! The two goodbyes, and every other way that a connection ends. `connection_lost` is called
//! exactly once.
//!
//! `close()` stops delivering, sends what is queued and our `close_notify`, and waits for the
//! peer's as long as the shutdown timeout allows. A peer that takes nothing for that long is cut
//! off; one that is only slow is not.

use pelton::tls::Closing;

use super::TlsTransport;
use super::engine::Step;
use crate::core::LoopCore;
use crate::ffi::{Obj, Raised, Ref, Result, Spec, This};
use crate::names::{self, support};

pub(super) fn describe(spec: &mut Spec<TlsTransport>) {
    spec.none(c"close", |this| this.close().map(|()| Ref::none()))
        .none(c"abort", |this| this.force_close(None).map(|()| Ref::none()))
        .one(c"_force_close", |this, exception| {
            this.force_close(Some(exception)).map(|()| Ref::none())
        })
        .none(c"is_closing", |this| Ok(Ref::bool(this.is_closing())))
        .get(c"_closing", |this| Ok(Ref::bool(this.is_closing())))
        .get(c"_closed", |this| Ok(Ref::bool(this.is_closing())))
        .one(c"connection_lost", |this, exception| {
            this.with_loop(|core| this.on_lost(core, exception))?;
            Ok(Ref::none())
        })
        .none(c"_shutdown_timed_out", |this| {
            this.with_loop(|core| this.on_shutdown_timeout(core))?;
            Ok(Ref::none())
        });
}

impl This<'_, TlsTransport> {
    /// Closing, lost, or broken below: nothing that is written now would arrive.
    pub(super) fn is_closing(self) -> bool {
        self.state().is_closing() || self.with_stream(|stream| stream.is_closing()).unwrap_or(false)
    }

    fn close(self) -> Result<()> {
        self.with_loop(|core| {
            if core.is_closed() {
                // No turn will come: the descriptor goes now.
                self.change(|state| state.lose());
                return self.call_below(&names::CLOSE, &[]);
            }
            self.start_shutdown(core)
        })
    }

    pub(super) fn start_shutdown(self, core: This<'_, LoopCore>) -> Result<()> {
        match self.change(|state| state.close()) {
            Closing::Ignored => Ok(()),
            Closing::Abort => self.force_close(None),
            Closing::Flush => {
                self.update_reading(core)?;
                let rest = std::mem::take(&mut *self.rest.borrow_mut());
                drop(rest); // not delivered any more
                if self.shutdown_timeout > 0.0 {
                    self.left_at_timer.set(self.unsent());
                    self.set_timer(core, self.shutdown_timeout, &names::SHUTDOWN_TIMED_OUT)?;
                }
                self.advance_shutdown(core)
            }
        }
    }

    /// Goes as far with the shutdown as it can now.
    pub(super) fn advance_shutdown(self, core: This<'_, LoopCore>) -> Result<()> {
        let at_once = self.shutdown_timeout <= 0.0;
        if self.state().is_flushing() {
            self.pump(core)?;
            let waits = !self.backlog.borrow().is_empty() || !self.state().is_flushing();
            if waits && at_once {
                return self.give_up(core, None);
            }
            if waits || !self.say_goodbye(core)? || !self.change(|state| state.notified()) {
                return Ok(());
            }
        }
        if !self.state().is_ending() {
            return Ok(());
        }
        if at_once && self.unsent() > 0 {
            return self.give_up(core, None);
        }
        if at_once || self.state().is_peer_done() {
            return self.call_below(&names::CLOSE, &[]);
        }
        Ok(())
    }

    /// Sends our `close_notify`. False if it could not be made yet.
    fn say_goodbye(self, core: This<'_, LoopCore>) -> Result<bool> {
        if self.state().is_truncated() {
            // The peer has left without a word; asyncio leaves it without one too.
            return Ok(true);
        }
        let mut output = Vec::new();
        let engine = self.engine()?;
        engine.prepare();
        let step = engine.step(&names::SHUTDOWN, &mut &[][..], &mut output);
        match step {
            Ok(Step::Busy) => return Ok(false),
            // The peer's came before ours.
            Ok(Step::Done) => self.change(|state| state.peer_closed()),
            Ok(Step::WantInput) => {}
            Err(raised) if raised.ends_the_loop() => return Err(raised),
            // Data of the peer's behind our goodbye, or a broken session: ours is said anyway.
            Err(raised) => raised.discard(),
        }
        self.send_below(core, &output)?;
        Ok(true)
    }

    /// Half-close: our goodbye behind what is queued, while the peer goes on.
    pub(super) fn end_our_side(self, core: This<'_, LoopCore>) -> Result<()> {
        if !self.backlog.borrow().is_empty() || self.goodbye_said.replace(true) {
            return Ok(());
        }
        if !self.say_goodbye(core)? {
            self.goodbye_said.set(false);
        }
        if self.state().is_peer_done() { self.start_shutdown(core) } else { Ok(()) }
    }

    fn on_shutdown_timeout(self, core: This<'_, LoopCore>) -> Result<()> {
        if self.state().is_over() {
            return Ok(());
        }
        let unsent = self.unsent();
        if unsent < self.left_at_timer.get() {
            // The peer is slow, but it takes what we send.
            self.left_at_timer.set(unsent);
            return self.set_timer(core, self.shutdown_timeout, &names::SHUTDOWN_TIMED_OUT);
        }
        let timed_out = support::SHUTDOWN_TIMED_OUT.get()?.call(&[])?;
        self.give_up(core, Some(timed_out.obj()))
    }

    /// Ends the connection now; what is queued is dropped.
    fn force_close(self, exception: Option<Obj<'_>>) -> Result<()> {
        self.with_loop(|core| self.give_up(core, exception))
    }

    pub(super) fn give_up(
        self,
        core: This<'_, LoopCore>,
        exception: Option<Obj<'_>>,
    ) -> Result<()> {
        self.flush_held(core)?;
        self.change(|state| state.lose());
        drop(self.backlog.take());
        let Some(below) = self.below.get() else { return self.cancel_timer() };
        let exception = exception.map_or_else(Ref::none, Obj::to_ref);
        match below.obj().attr_or_none(&names::FORCE_CLOSE)? {
            Some(force_close) => force_close.obj().call(&[exception.obj()]).map(drop),
            None => below.obj().call_method(&names::ABORT, &[]).map(drop),
        }
    }

    /// An error that ends the connection. Faults of the network and of the peer's TLS (both are
    /// `OSError`) are told to the protocol only; others go to the loop's exception handler first.
    pub(super) fn fatal(
        self,
        core: This<'_, LoopCore>,
        raised: Raised,
        message: &str,
    ) -> Result<()> {
        if raised.ends_the_loop() {
            return Err(raised);
        }
        let network = raised.is_os_error();
        let exception = raised.take();
        if !network || core.is_debug() {
            let message = Ref::str(message)?;
            support::TRANSPORT_FAILED.get()?.call(&[
                core.obj(),
                self.obj(),
                message.obj(),
                exception.obj(),
            ])?;
        }
        self.give_up(core, Some(exception.obj()))
    }

    /// The connection below has ended: the protocol hears of it in the next turn, as in asyncio.
    fn on_lost(self, core: This<'_, LoopCore>, exception: Obj<'_>) -> Result<()> {
        self.change(|state| state.lose());
        self.lost.set(self.lost.get().saturating_add(1));
        self.cancel_timer()?;
        drop(self.backlog.take());
        if self.told.replace(false) && self.protocol.is_set() {
            let lost = self.protocol.get_or_none().obj().attr(&names::CONNECTION_LOST)?;
            self.schedule(core, lost.obj(), &[exception])?;
        }
        // Without an error the wait ends without one, as in asyncio: `start_tls()` then answers None.
        self.wake_waiter((!exception.is_none()).then_some(exception))?;
        // What leads back to the program goes; the session stays for `get_extra_info`.
        self.protocol.clear();
        self.deliver.clear();
        self.get_buffer.clear();
        Ok(())
    }
}

/// A transport that nobody closed: says so. The transport below closes the descriptor.
pub(super) fn finalize(this: This<'_, TlsTransport>) {
    let begun = this.below.is_set() && !this.state().is_over();
    if !begun || this.is_closing() {
        return;
    }
    let warned = support::UNCLOSED.get().and_then(|unclosed| unclosed.call(&[this.obj()]));
    if let Err(raised) = warned {
        if raised.is_import_error() {
            raised.discard(); // the interpreter is on its way out
        } else {
            raised.unraisable(Some(this.obj()));
        }
    }
}
