//! The read path: one read per readiness event, into the loop's buffer.
//!
//! A read takes at most `READ_BUFFER_SIZE` bytes; what is left makes the level-triggered poller
//! report the connection again, after the others had their turn.

use pelton::reactor::Readiness;
use pelton::stream::{Read, Stream};

use super::{Chunk, StreamTransport};
use crate::core::LoopCore;
use crate::ffi::{BufferView, Obj, Raised, Ref, Result, Spec, This};
use crate::names;
use crate::tls::{Inside, TlsTransport};

pub(super) fn describe(spec: &mut Spec<StreamTransport>) {
    spec.none(c"pause_reading", |this| {
        if this.stream.borrow_mut().state_mut().pause() {
            this.with_loop(|core| this.update_interest(core))?;
        }
        Ok(Ref::none())
    })
    .none(c"resume_reading", |this| {
        if this.stream.borrow_mut().state_mut().resume() {
            this.with_loop(|core| this.update_interest(core))?;
        }
        Ok(Ref::none())
    })
    .none(c"is_reading", |this| {
        let stream = this.stream.borrow();
        Ok(Ref::bool(!stream.state().is_closing() && !stream.state().is_paused()))
    })
    .get(c"_paused", |this| Ok(Ref::bool(this.stream.borrow().state().is_paused())));
}

impl This<'_, StreamTransport> {
    /// What the poller says of this connection.
    pub(crate) fn on_ready(self, core: This<'_, LoopCore>, readiness: Readiness) -> Result<()> {
        if readiness.readable() && self.stream.borrow().state().wants_read() {
            if self.is_tls.get() {
                self.read_sealed(core)?;
            } else if self.get_buffer.is_set() {
                self.read_into_protocol(core)?;
            } else {
                self.read(core)?;
            }
        }
        if readiness.writable() && self.stream.borrow().queued() > 0 {
            self.drain(core)?;
        }
        Ok(())
    }

    fn read(self, core: This<'_, LoopCore>) -> Result<()> {
        let delivery = {
            let mut buffer = core.read_buffer.borrow_mut();
            let descriptor = self.descriptor.borrow();
            let space = buffer.space()?;
            let answer = descriptor.borrow().and_then(|fd| Stream::<Chunk>::read_uninit(fd, space));
            drop(descriptor);
            match answer {
                Ok(Read::Data(count)) => {
                    core.stats.received(count);
                    buffer.deliver(count)?
                }
                Ok(Read::WouldBlock) => return Ok(()),
                Ok(Read::Eof) => {
                    drop(buffer);
                    return self.on_eof(core);
                }
                Err(error) => {
                    drop(buffer);
                    let raised = Raised::os_error(&error);
                    return self.fatal(core, raised, "Fatal read error on socket transport");
                }
            }
        };
        let answer = self.in_context(core, || self.deliver(delivery.bytes()));
        if !delivery.is_small() {
            core.read_buffer.borrow_mut().take_back(delivery);
        }
        match answer {
            Ok(()) => Ok(()),
            Err(raised) => {
                self.fatal(core, raised, "Fatal error: protocol.data_received() call failed.")
            }
        }
    }

    /// Reads records for the TLS transport above, which opens them from the loop's buffer.
    fn read_sealed(self, core: This<'_, LoopCore>) -> Result<()> {
        // Taken out of the loop meanwhile: what the records cause may run a turn of its own.
        let mut buffer = core.read_buffer.take();
        let space = buffer.space()?;
        let answer = {
            let descriptor = self.descriptor.borrow();
            descriptor.borrow().and_then(|fd| Stream::<Chunk>::read_uninit(fd, space))
        };
        let fed = match answer {
            Ok(Read::Data(count)) => {
                core.stats.received(count);
                let protocol = self.protocol.get_or_none();
                match This::<TlsTransport>::of(protocol.obj()) {
                    Some(tls) => tls.feed(core, buffer.filled(count), Inside::Loop),
                    None => Ok(()),
                }
            }
            Ok(Read::WouldBlock) => Ok(()),
            Ok(Read::Eof) => self.on_eof(core),
            Err(error) => {
                let raised = Raised::os_error(&error);
                self.fatal(core, raised, "Fatal read error on socket transport")
            }
        };
        core.read_buffer.replace(buffer);
        fed
    }

    /// `protocol.data_received(data)`
    fn deliver(self, data: Obj<'_>) -> Result<()> {
        if let Some(reader) = self.reader.get() {
            let reader = reader.obj().call(&[])?;
            if !reader.obj().is_none() {
                reader.obj().call_method(&names::FEED_DATA, &[data])?;
            }
            return Ok(());
        }
        match self.deliver.get() {
            Some(deliver) => deliver.obj().call(&[data])?,
            // A protocol without the method: the call raises what asyncio's does.
            None => {
                self.protocol.get_or_none().obj().call_method(&names::DATA_RECEIVED, &[data])?
            }
        };
        Ok(())
    }

    /// Reads straight into the memory of a buffered protocol: one callback from `get_buffer` to
    /// `buffer_updated`.
    fn read_into_protocol(self, core: This<'_, LoopCore>) -> Result<()> {
        let mut failed = "Fatal error: protocol.get_buffer() call failed.";
        let answer = self.in_context(core, || {
            let Some(get_buffer) = self.get_buffer.get() else { return Ok(Read::WouldBlock) };
            let space = get_buffer.obj().call(&[Ref::int(-1)?.obj()])?;
            if self.is_lost() {
                return Ok(Read::WouldBlock);
            }
            let read = BufferView::write(space.obj(), |bytes| {
                if bytes.is_empty() {
                    return Err(Raised::runtime_error("get_buffer() returned an empty buffer"));
                }
                let descriptor = self.descriptor.borrow();
                failed = "Fatal read error on socket transport";
                let read = descriptor.borrow().and_then(|fd| Stream::<Chunk>::read(fd, bytes));
                read.map_err(|error| Raised::os_error(&error))
            })??;
            drop(space);
            if let Read::Data(count) = read {
                core.stats.received(count);
                failed = "Fatal error: protocol.buffer_updated() call failed.";
                let count = Ref::int(count as i64)?;
                match self.deliver.get() {
                    Some(updated) => updated.obj().call(&[count.obj()])?,
                    None => {
                        let protocol = self.protocol.get_or_none();
                        protocol.obj().call_method(&names::BUFFER_UPDATED, &[count.obj()])?
                    }
                };
            }
            Ok(read)
        });
        match answer {
            Ok(Read::Eof) => self.on_eof(core),
            Ok(_) => Ok(()),
            Err(raised) => self.fatal(core, raised, failed),
        }
    }

    /// The peer has shut its side: true from the protocol keeps ours open.
    fn on_eof(self, core: This<'_, LoopCore>) -> Result<()> {
        self.stream.borrow_mut().state_mut().peer_eof();
        self.update_interest(core)?;
        let answer = self.call_protocol(core, &names::EOF_RECEIVED, &[]);
        match answer.and_then(|keep_open| keep_open.obj().is_true()) {
            Ok(true) => Ok(()),
            Ok(false) => self.close(),
            Err(raised) => {
                self.fatal(core, raised, "Fatal error: protocol.eof_received() call failed.")
            }
        }
    }
}
