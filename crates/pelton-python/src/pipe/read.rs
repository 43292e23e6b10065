//! `ReadPipeTransport`: one read per readiness event, into the loop's buffer.

use std::cell::Cell;
use std::ffi::CStr;

use pelton::reactor::Interest;
use pelton::stream::{Pipe, Read, State, Stream};
use rustix::fs::FileType;

use super::{End, Given, PipeEnd};
use crate::core::LoopCore;
use crate::ffi::{Class, Keywords, Obj, Raised, Ref, Result, Slot, Spec, This, TypeCell, Visit};
use crate::names::{self, support};
use crate::stream::Chunk;
use crate::watch::Side;

const REFUSED: &str = "Pipe transport is for pipes/sockets only.";

/// The reading side of a pipe.
pub(crate) struct ReadPipeTransport {
    end: End,
    /// `protocol.data_received`
    deliver: Slot,
    state: Cell<State>,
}

static CELL: TypeCell = TypeCell::new();

impl Class for ReadPipeTransport {
    const NAME: &'static CStr = c"pelton._pelton.ReadPipeTransport";
    const DOC: &'static CStr = c"The reading side of a pipe, a terminal or a socket.";
    const DICT_AND_WEAKREF: bool = true;
    const FINALIZER: bool = true;

    fn cell() -> &'static TypeCell {
        &CELL
    }

    fn spec(spec: &mut Spec<Self>) {
        super::describe(spec);
        spec.none(c"close", |this| {
            super::with_loop(this, |core| super::lose(this, core, None))?;
            Ok(Ref::none())
        })
        .none(c"pause_reading", |this| this.change(State::pause))
        .none(c"resume_reading", |this| this.change(State::resume))
        .none(c"is_reading", |this| {
            let state = this.state.get();
            Ok(Ref::bool(state.is_open() && !state.is_paused()))
        })
        .one(c"set_protocol", |this, protocol| {
            this.set_protocol(protocol)?;
            Ok(Ref::none())
        })
        .get(c"_paused", |this| Ok(Ref::bool(this.state.get().is_paused())))
        .repr(|this| {
            let mut text = super::begin_repr(this, "ReadPipeTransport", Interest::READ)?;
            text.push('>');
            Ref::str(&text)
        });
    }

    fn traverse(&self, visit: &mut Visit<'_>) {
        self.end.traverse(visit);
        visit.slot(&self.deliver);
    }

    fn clear(&self) {
        self.end.clear();
        self.deliver.clear();
    }

    fn finalize(this: This<'_, Self>) {
        super::finalize(this);
    }
}

impl PipeEnd for ReadPipeTransport {
    const SIDE: Side = Side::Read;

    fn end(&self) -> &End {
        &self.end
    }

    fn wanted(&self) -> Interest {
        let wants = self.end.started.get() && self.state.get().wants_read();
        if wants { Interest::READ } else { Interest::NONE }
    }

    fn is_closing(&self) -> bool {
        self.state.get().is_closing()
    }

    fn is_lost(&self) -> bool {
        self.state.get().is_lost()
    }

    fn set_lost(&self) {
        let mut state = self.state.get();
        state.lose();
        self.state.set(state);
        self.deliver.clear();
    }
}

pub(super) fn describe_loop(spec: &mut Spec<LoopCore>) {
    spec.any(c"_make_read_pipe", make_read_pipe);
}

/// `_make_read_pipe(pipe, protocol, waiter, extra)`
fn make_read_pipe(this: This<'_, LoopCore>, args: &[Obj<'_>], _: Keywords<'_>) -> Result<Ref> {
    let given = Given::read(args)?;
    let end = End::new(this, &given, REFUSED)?;
    let (deliver, state) = (Slot::empty(), Cell::new(State::new()));
    let transport = super::open(this, ReadPipeTransport { end, deliver, state }, &given)?;
    if let Some(reader) = This::<ReadPipeTransport>::of(transport.obj()) {
        reader.set_protocol(given.protocol)?;
    }
    Ok(transport)
}

impl This<'_, ReadPipeTransport> {
    fn set_protocol(self, protocol: Obj<'_>) -> Result<()> {
        let deliver = protocol.attr_or_none(&names::DATA_RECEIVED)?;
        self.end.protocol.set(protocol.to_ref());
        match deliver {
            Some(deliver) => self.deliver.set(deliver),
            None => self.deliver.clear(),
        }
        Ok(())
    }

    /// Pauses or resumes.
    fn change(self, input: impl FnOnce(&mut State) -> bool) -> Result<Ref> {
        let mut state = self.state.get();
        if input(&mut state) {
            self.state.set(state);
            super::with_loop(self, |core| super::update_interest(self, core))?;
        }
        Ok(Ref::none())
    }

    pub(super) fn on_ready(self, core: This<'_, LoopCore>) -> Result<()> {
        if !self.state.get().wants_read() {
            return Ok(());
        }
        let delivery = {
            let mut buffer = core.read_buffer.borrow_mut();
            let (fd, space) = (self.end.borrow(), buffer.space()?);
            let answer = match self.end.kind {
                // Non-blocking whatever others have made of the descriptor's mode.
                FileType::Socket => Stream::<Chunk>::read_uninit(fd, space),
                _ => Pipe::read_uninit(fd, space),
            };
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
                    return self.fatal(core, Raised::os_error(&error));
                }
            }
        };
        let answer = super::in_context(self, core, || match self.deliver.get() {
            Some(deliver) => deliver.obj().call(&[delivery.bytes()]),
            // A protocol without the method: the call raises what asyncio's does.
            None => {
                let protocol = self.end.protocol.get_or_none();
                protocol.obj().call_method(&names::DATA_RECEIVED, &[delivery.bytes()])
            }
        });
        if !delivery.is_small() {
            core.read_buffer.borrow_mut().take_back(delivery);
        }
        match answer {
            Ok(_) => Ok(()),
            Err(raised) if raised.ends_the_loop() => Err(raised),
            // Unlike a socket's, a pipe's protocol may fail: it is reported and reading goes on.
            Err(raised) => {
                let exception = raised.take();
                let report = support::PIPE_CALLBACK_FAILED.get()?;
                report.call(&[core.obj(), self.obj(), exception.obj()]).map(drop)
            }
        }
    }

    /// The end: the protocol hears of it, and then that the pipe is lost, in the next turn.
    fn on_eof(self, core: This<'_, LoopCore>) -> Result<()> {
        let protocol = self.end.protocol.get_or_none();
        let eof_received = protocol.obj().attr(&names::EOF_RECEIVED)?;
        let context = self.end.context.get();
        core.schedule(eof_received.obj(), &[], context.as_ref().map(Ref::obj))?;
        super::lose(self, core, None)
    }

    fn fatal(self, core: This<'_, LoopCore>, raised: Raised) -> Result<()> {
        let exception = raised.take();
        let report = support::READ_PIPE_FAILED.get()?;
        report.call(&[core.obj(), self.obj(), exception.obj()])?;
        super::lose(self, core, Some(exception))
    }
}
