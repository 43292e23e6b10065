//! Every way that a connection ends. `connection_lost` is called exactly once.

use super::{Descriptor, StreamTransport};
use crate::core::LoopCore;
use crate::ffi::{Obj, Raised, Ref, Result, Spec, This, finally};
use crate::names::{self, support};

pub(super) fn describe(spec: &mut Spec<StreamTransport>) {
    spec.none(c"close", |this| this.close().map(|()| Ref::none()))
        .none(c"abort", |this| this.force_close(None).map(|()| Ref::none()))
        .one(c"_force_close", |this, exception| {
            this.force_close(Some(exception)).map(|()| Ref::none())
        })
        .none(c"is_closing", |this| Ok(Ref::bool(this.stream.borrow().state().is_closing())))
        .get(c"_closing", |this| Ok(Ref::bool(this.stream.borrow().state().is_closing())))
        .get(c"_conn_lost", |this| Ref::int(this.lost.get().into()))
        .one(c"_call_connection_lost", |this, exception| {
            call_connection_lost(this, exception).map(|()| Ref::none())
        });
}

impl This<'_, StreamTransport> {
    /// Stops reading; what is queued still goes out, then the connection ends.
    pub(super) fn close(self) -> Result<()> {
        if self.stream.borrow().state().is_closing() {
            return Ok(());
        }
        self.settle()?;
        if self.stream.borrow().state().is_closing() {
            return Ok(());
        }
        self.stream.borrow_mut().state_mut().close();
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

    /// Ends the connection now; what is queued is dropped.
    pub(super) fn force_close(self, exception: Option<Obj<'_>>) -> Result<()> {
        if self.is_lost() {
            return Ok(());
        }
        self.settle()?;
        if self.is_lost() {
            return Ok(());
        }
        self.stream.borrow_mut().state_mut().lose();
        let queue = self.stream.borrow_mut().take_queue();
        drop(queue);
        self.with_loop(|core| self.lose(core, exception.map(Obj::to_ref)))
    }

    /// The queue of a closing connection is empty.
    pub(super) fn finish(self, core: This<'_, LoopCore>) -> Result<()> {
        if self.is_lost() {
            return Ok(());
        }
        self.stream.borrow_mut().state_mut().lose();
        self.lose(core, None)
    }

    /// The connection is lost: the protocol hears of it in the next turn.
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

    /// An error that ends the connection. Faults of the network are told to the protocol only;
    /// others go to the loop's exception handler first.
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
        // The queue cannot be sent any more: nothing may be held back for it.
        if !self.is_lost() {
            self.stream.borrow_mut().state_mut().lose();
            let queue = self.stream.borrow_mut().take_queue();
            drop(queue);
            self.lose(core, Some(exception))?;
        }
        Ok(())
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
        self.get_buffer.clear();
        self.owner.clear();
        let server = self.server.take();
        if let Some(server) = server {
            support::SERVER_DETACH.get()?.call(&[server.obj(), self.obj()])?;
        }
        closed
    }

    /// Undoes a connection that could not be set up.
    pub(super) fn abandon(self, core: This<'_, LoopCore>) -> Result<()> {
        self.stream.borrow_mut().state_mut().lose();
        self.lost.set(1);
        let number = self.descriptor.borrow().number();
        if matches!(&*self.descriptor.borrow(), Descriptor::Socket { .. }) {
            drop(self.descriptor.replace(Descriptor::Closed { number }));
        }
        self.release(core)
    }

    fn close_descriptor(self) -> Result<()> {
        self.keep_addresses();
        let number = self.descriptor.borrow().number();
        let descriptor = self.descriptor.replace(Descriptor::Closed { number });
        match descriptor {
            Descriptor::Own(fd) => drop(fd),
            Descriptor::Socket { socket, .. } => {
                socket.obj().call_method(&names::CLOSE, &[])?;
            }
            Descriptor::Closed { .. } => {}
        }
        Ok(())
    }
}

fn call_connection_lost(this: This<'_, StreamTransport>, exception: Obj<'_>) -> Result<()> {
    this.with_loop(|core| {
        let told = if this.protocol.is_set() {
            this.call_protocol_here(core, &names::CONNECTION_LOST, &[exception])
        } else {
            Ok(())
        };
        // The descriptor goes whatever the protocol raised; its exception goes on after.
        finally(told, || {
            this.release(core)?;
            if let Some(waiter) = this.empty_waiter.get()
                && !waiter.obj().call_method(&names::DONE, &[])?.obj().is_true()?
            {
                let gone = Raised::connection_error("Connection is closed by peer").take();
                waiter.obj().call_method(&names::SET_EXCEPTION, &[gone.obj()])?;
            }
            Ok(())
        })
    })
}

/// A transport that nobody closed: says so, and closes the descriptor.
pub(super) fn finalize(this: This<'_, StreamTransport>) {
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
    if let Some(server) = this.server.take()
        && let Ok(detach) = support::SERVER_DETACH.get()
        && let Err(raised) = detach.call(&[server.obj(), this.obj()])
    {
        raised.discard();
    }
}
