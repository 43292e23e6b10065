//! The receive path: one call to the kernel per readiness event, into the loop's batch.
//!
//! What it received is delivered as one callback of the loop, so that answers leave together. The
//! batch is the cap of a turn: what is left makes the level-triggered poller report the endpoint
//! again, after the others had their turn.

use std::collections::VecDeque;

use pelton::datagram::{Family, ReceiveBatch};
use pelton::reactor::Readiness;

use super::address::source;
use super::{Arrived, DatagramTransport};
use crate::core::LoopCore;
use crate::ffi::{Obj, Raised, Ref, Result, Spec, This, finally};
use crate::names::{self, support};

/// So many places for arrivals are kept for the next batch.
const PLACES_KEPT: usize = 64;

pub(super) fn describe(spec: &mut Spec<DatagramTransport>) {
    spec.none(c"pause_reading", |this| {
        if this.endpoint.borrow_mut().state_mut().pause() {
            this.with_loop(|core| this.update_interest(core))?;
        }
        Ok(Ref::none())
    })
    .none(c"resume_reading", |this| {
        if this.endpoint.borrow_mut().state_mut().resume() {
            this.with_loop(|core| {
                this.schedule_delivery(core)?;
                this.update_interest(core)
            })?;
        }
        Ok(Ref::none())
    })
    .none(c"is_reading", |this| {
        let state = this.endpoint.borrow().state();
        Ok(Ref::bool(!state.is_closing() && !state.is_paused()))
    })
    .get(c"_paused", |this| Ok(Ref::bool(this.endpoint.borrow().state().is_paused())))
    .none(c"_deliver", |this| {
        this.with_loop(|core| {
            let delivered = this.deliver(core);
            finally(delivered, || this.update_interest(core))
        })?;
        Ok(Ref::none())
    });
}

impl This<'_, DatagramTransport> {
    /// What the poller says of this endpoint.
    pub(crate) fn on_ready(self, core: This<'_, LoopCore>, readiness: Readiness) -> Result<()> {
        if readiness.readable() && self.started.get() && self.wants_read() {
            self.receive(core)?;
        }
        if readiness.writable() && !self.is_lost() && self.queued() > 0 {
            self.drain(core)?;
        }
        Ok(())
    }

    fn receive(self, core: This<'_, LoopCore>) -> Result<()> {
        let received = if self.endpoint.borrow().family() == Family::Other {
            self.take_foreign()
        } else {
            self.take_batch(core)
        };
        let received = received.or_else(|raised| {
            if raised.is_os_error() {
                let exception = raised.take();
                self.arrived.borrow_mut().push_back(Arrived::Error(exception));
                return Ok(());
            }
            Err(raised)
        });
        // Out of memory, say: what came before it is delivered.
        let received = self.report(core, received, &names::DATAGRAM_RECEIVED);
        if self.arrived.borrow().is_empty() {
            return received;
        }
        finally(received, || self.in_context(core, || self.deliver(core)))
    }

    /// Takes over what one call to the kernel receives.
    fn take_batch(self, core: This<'_, LoopCore>) -> Result<()> {
        // Lent for this call: making objects may run the collector, and that anything.
        let mut batch = core.receive_batch.take().unwrap_or_default();
        let received = self.take_into(&mut batch);
        core.receive_batch.replace(Some(batch));
        received
    }

    fn take_into(self, batch: &mut ReceiveBatch) -> Result<()> {
        let answer = {
            let descriptor = self.descriptor.borrow();
            descriptor.borrow().and_then(|fd| self.endpoint.borrow_mut().receive(fd, batch))
        };
        if !answer.map_err(|error| Raised::os_error(&error))? {
            return Ok(());
        }
        for datagram in batch.iter() {
            let arrived = if datagram.truncated {
                too_long()?
            } else {
                let from = source(&self.peers, datagram.from)?;
                Arrived::Datagram { data: Ref::bytes(datagram.data)?, from }
            };
            self.arrived.borrow_mut().push_back(arrived);
        }
        Ok(())
    }

    /// Takes over one datagram of a family whose addresses only Python's socket module knows.
    fn take_foreign(self) -> Result<()> {
        let socket = self.socket();
        let received = support::RECEIVE.get()?.call(&[socket.obj()])?;
        if received.obj().is_none() {
            return Ok(());
        }
        let arrived = if received.obj().tuple_item(2)?.obj().is_true()? {
            too_long()?
        } else {
            let (data, from) = (received.obj().tuple_item(0)?, received.obj().tuple_item(1)?);
            Arrived::Datagram { data, from }
        };
        self.arrived.borrow_mut().push_back(arrived);
        Ok(())
    }

    /// Delivers what has arrived, until the protocol pauses or closes.
    fn deliver(self, core: This<'_, LoopCore>) -> Result<()> {
        let delivered = self.deliver_while_wanted(core);
        let mut arrived = self.arrived.borrow_mut();
        if self.endpoint.borrow().state().is_closing() {
            let dropped = std::mem::take(&mut *arrived);
            drop(arrived);
            drop(dropped);
            return delivered;
        }
        if arrived.is_empty() {
            if arrived.capacity() > PLACES_KEPT {
                *arrived = VecDeque::new();
            }
            return delivered;
        }
        drop(arrived);
        // Paused, or the loop is ending. The kernel gave these; nobody else has them.
        finally(delivered, || {
            self.update_interest(core)?;
            if self.wants_read() { self.schedule_delivery(core) } else { Ok(()) }
        })
    }

    fn deliver_while_wanted(self, core: This<'_, LoopCore>) -> Result<()> {
        while self.wants_read() {
            if self.takes_lists.get()
                && let Some(list) = self.take_list()?
            {
                let answer = self.call_protocol(&names::DATAGRAMS_RECEIVED, &[list.obj()]);
                self.report(core, answer, &names::DATAGRAMS_RECEIVED)?;
                continue;
            }
            let Some(arrived) = self.arrived.borrow_mut().pop_front() else { break };
            match arrived {
                Arrived::Datagram { data, from } => {
                    let args = [data.obj(), from.obj()];
                    let answer = self.call_protocol(&names::DATAGRAM_RECEIVED, &args);
                    self.report(core, answer, &names::DATAGRAM_RECEIVED)?;
                }
                Arrived::Error(exception) => {
                    let answer = self.error_received(exception.obj());
                    self.report(core, answer, &names::ERROR_RECEIVED)?;
                }
            }
        }
        Ok(())
    }

    fn call_protocol(self, method: &names::Name, args: &[Obj<'_>]) -> Result<()> {
        match self.deliver.get() {
            Some(deliver) => deliver.obj().call(args).map(drop),
            // A protocol without the method: the call raises what asyncio's does.
            None => self.protocol.get_or_none().obj().call_method(method, args).map(drop),
        }
    }

    /// The datagrams before the next error, as a list of pairs; `None` if there is none.
    fn take_list(self) -> Result<Option<Ref>> {
        let mut list = None;
        while let Some((data, from)) = self.take_datagram() {
            let list = match &list {
                Some(list) => list,
                None => list.insert(Ref::list()?),
            };
            list.obj().append(Ref::tuple(&[data.obj(), from.obj()])?.obj())?;
        }
        Ok(list)
    }

    fn take_datagram(self) -> Option<(Ref, Ref)> {
        let first = self.arrived.borrow_mut().pop_front();
        match first {
            Some(Arrived::Datagram { data, from }) => Some((data, from)),
            Some(error) => {
                self.arrived.borrow_mut().push_front(error);
                None
            }
            None => None,
        }
    }

    /// What has arrived is delivered in the next turn.
    fn schedule_delivery(self, core: This<'_, LoopCore>) -> Result<()> {
        if self.arrived.borrow().is_empty() {
            return Ok(());
        }
        let deliver = self.obj().attr(&names::DELIVER)?;
        let context = self.context.get_or_none();
        core.schedule(deliver.obj(), &[], Some(context.obj()))
    }
}

/// A datagram that the kernel had to cut off is an error.
fn too_long() -> Result<Arrived> {
    Ok(Arrived::Error(support::TOO_LONG.get()?.call(&[])?))
}
