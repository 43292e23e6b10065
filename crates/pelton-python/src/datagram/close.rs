//! Every way that an endpoint ends. `connection_lost` is called exactly once.

use super::DatagramTransport;
use crate::core::LoopCore;
use crate::ffi::{Obj, Ref, Result, Spec, This, finally};
use crate::names::{self, support};
use crate::stream::Descriptor;

pub(super) fn describe(spec: &mut Spec<DatagramTransport>) {
    spec.none(c"close", |this| this.close().map(|()| Ref::none()))
        .none(c"abort", |this| this.force_close(None).map(|()| Ref::none()))
        .one(c"_force_close", |this, exception| {
            this.force_close(Some(exception)).map(|()| Ref::none())
        })
        .none(c"is_closing", |this| Ok(Ref::bool(this.endpoint.borrow().state().is_closing())))
        .get(c"_closing", |this| Ok(Ref::bool(this.endpoint.borrow().state().is_closing())))
        .get(c"_conn_lost", |this| Ref::int(this.lost.get().into()))
        .one(c"_call_connection_lost", |this, exception| {
            call_connection_lost(this, exception).map(|()| Ref::none())
        });
}

impl This<'_, DatagramTransport> {
    /// Stops receiving; what is queued still goes out, then the endpoint ends.
    fn close(self) -> Result<()> {
        if self.endpoint.borrow().state().is_closing() {
            return Ok(());
        }
        self.settle()?;
        if !self.endpoint.borrow_mut().state_mut().close() {
            return Ok(()); // a callback has closed it meanwhile
        }
        self.with_loop(|core| {
            if core.is_closed() {
                // No turn will come: let go of the socket now.
                self.lost.set(self.lost.get().max(1));
                self.release(core)
            } else if self.queued() == 0 {
                self.finish(core)
            } else {
                self.update_interest(core)
            }
        })
    }

    /// Ends the endpoint now; what is queued is dropped.
    fn force_close(self, exception: Option<Obj<'_>>) -> Result<()> {
        if self.is_lost() {
            return Ok(());
        }
        // What the kernel would have taken before the call goes out, as without gathering.
        self.settle()?;
        if self.is_lost() {
            return Ok(());
        }
        self.endpoint.borrow_mut().state_mut().lose();
        let queue = self.endpoint.borrow_mut().take_queue();
        drop(queue);
        self.with_loop(|core| self.lose(core, exception.map(Obj::to_ref)))
    }

    /// The queue of a closing endpoint is empty.
    pub(super) fn finish(self, core: This<'_, LoopCore>) -> Result<()> {
        if self.is_lost() {
            return Ok(());
        }
        self.endpoint.borrow_mut().state_mut().lose();
        self.lose(core, None)
    }

    /// The endpoint is lost: the protocol hears of it in the next turn.
    fn lose(self, core: This<'_, LoopCore>, exception: Option<Ref>) -> Result<()> {
        self.lost.set(self.lost.get() + 1);
        if core.is_closed() {
            return self.release(core);
        }
        self.update_interest(core)?;
        let exception = exception.unwrap_or_else(Ref::none);
        let call = self.obj().attr(&names::CALL_CONNECTION_LOST)?;
        let context = self.context.get();
        core.schedule(call.obj(), &[exception.obj()], context.as_ref().map(Ref::obj))
    }

    /// Gives back the descriptor and the place in the poller, and breaks the cycles.
    fn release(self, core: This<'_, LoopCore>) -> Result<()> {
        if let Some(token) = self.token.take().filter(|_| !core.is_closed()) {
            let source = core.kernel()?.reactor.deregister(token);
            let number = self.descriptor.borrow().number();
            let mut descriptors = core.descriptors.borrow_mut();
            if descriptors.get(&number) == Some(&token) {
                descriptors.remove(&number);
            }
            drop(descriptors);
            drop(source);
        }
        let closed = self.close_descriptor();
        self.protocol.clear();
        self.deliver.clear();
        self.owner.clear();
        let arrived = self.arrived.take();
        drop(arrived);
        closed
    }

    /// Undoes an endpoint that could not be set up; its socket stays open.
    pub(super) fn abandon(self, core: This<'_, LoopCore>) -> Result<()> {
        self.endpoint.borrow_mut().state_mut().lose();
        self.lost.set(1);
        let number = self.descriptor.borrow().number();
        let kept = self.descriptor.replace(Descriptor::Closed { number });
        drop(kept);
        self.release(core)
    }

    fn close_descriptor(self) -> Result<()> {
        let number = self.descriptor.borrow().number();
        let descriptor = self.descriptor.replace(Descriptor::Closed { number });
        if let Descriptor::Socket { socket, .. } = descriptor {
            socket.obj().call_method(&names::CLOSE, &[])?;
        }
        Ok(())
    }
}

fn call_connection_lost(this: This<'_, DatagramTransport>, exception: Obj<'_>) -> Result<()> {
    this.with_loop(|core| {
        let protocol = this.protocol.get_or_none();
        let told = if protocol.obj().is_none() {
            Ok(())
        } else {
            protocol.obj().call_method(&names::CONNECTION_LOST, &[exception]).map(drop)
        };
        // The descriptor goes whatever the protocol raised; its exception goes on after.
        finally(told, || this.release(core))
    })
}

/// A transport that nobody closed: says so, and closes the descriptor.
pub(super) fn finalize(this: This<'_, DatagramTransport>) {
    if !this.descriptor.borrow().is_open() {
        return;
    }
    let warned = support::UNCLOSED.get().and_then(|unclosed| unclosed.call(&[this.obj()]));
    if let Err(raised) = warned {
        if raised.is_import_error() {
            raised.discard(); // the interpreter is on its way out
        } else {
            // With warnings as errors the warning itself is raised: shown, as `__del__` would.
            raised.unraisable(Some(this.obj()));
        }
    }
    if let Err(raised) = this.close_descriptor() {
        raised.discard();
    }
}
