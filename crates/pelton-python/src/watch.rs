//! `add_reader()` and `add_writer()`: callbacks for descriptors that others own.
//!
//! Level-triggered, one registration for both directions, and the descriptor's blocking mode is
//! left as it was found. CPython: `asyncio/selector_events.py`, `_add_reader` and the like.

use std::os::fd::RawFd;

use pelton::reactor::{Event, Interest, Token};

use crate::core::{LoopCore, Source};
use crate::ffi::{Obj, Raised, Ref, Result, Spec, This, Visit, borrow_fd};
use crate::handle::{Handle, callback_of, new_handle};
use crate::names;

/// The two callbacks of one descriptor.
#[derive(Default)]
pub(crate) struct Watch {
    reader: Option<Ref>,
    writer: Option<Ref>,
}

impl Watch {
    pub(crate) fn traverse(&self, visit: &mut Visit<'_>) {
        self.reader.iter().chain(&self.writer).for_each(|handle| visit.object(handle));
    }

    fn side(&mut self, side: Side) -> &mut Option<Ref> {
        match side {
            Side::Read => &mut self.reader,
            Side::Write => &mut self.writer,
        }
    }

    fn interest(&self) -> Interest {
        let mut interest = Interest::NONE;
        if self.reader.is_some() {
            interest = interest.with(Interest::READ);
        }
        if self.writer.is_some() {
            interest = interest.with(Interest::WRITE);
        }
        interest
    }
}

#[derive(Clone, Copy)]
enum Side {
    Read,
    Write,
}

/// Adds the methods of this file to the loop's type. The public ones, in Python, check first
/// that no transport owns the descriptor.
pub(crate) fn describe(spec: &mut Spec<LoopCore>) {
    spec.any(c"_add_reader", |this, args, _| add(this, Side::Read, args))
        .any(c"_add_writer", |this, args, _| add(this, Side::Write, args))
        .one(c"_remove_reader", |this, fd| remove(this, Side::Read, fd))
        .one(c"_remove_writer", |this, fd| remove(this, Side::Write, fd))
        .one(c"_stream_of", stream_of);
}

/// The descriptor's number of a file object or an integer; errors as `selectors` has them.
pub(crate) fn descriptor(file: Obj<'_>) -> Result<RawFd> {
    let number = if file.is_int() {
        file.to_i64()?
    } else {
        match file.call_method(&names::FILENO, &[]) {
            Ok(fileno) if fileno.obj().is_int() => fileno.obj().to_i64()?,
            Ok(_) => -1,
            Err(raised) if raised.ends_the_loop() => return Err(raised),
            Err(raised) if raised.is_attribute_error() => {
                raised.discard();
                let text = file.repr()?.obj().to_text()?;
                return Err(Raised::value_error(&format!("Invalid file object: {text}")));
            }
            Err(raised) => return Err(raised),
        }
    };
    RawFd::try_from(number)
        .ok()
        .filter(|fd| *fd >= 0)
        .ok_or_else(|| Raised::value_error(&format!("Invalid file descriptor: {number}")))
}

fn add(this: This<'_, LoopCore>, side: Side, args: &[Obj<'_>]) -> Result<Ref> {
    let [file, callback, args @ ..] = args else {
        return Err(Raised::type_error("missing required arguments: 'fd' and 'callback'"));
    };
    this.check_open()?;
    let fd = descriptor(*file)?;
    let handle = new_handle(this, *callback, args, None)?;
    let token = this.token_of(fd);
    let replaced = match token {
        Some(token) => set_side(this, token, side, Some(handle.clone()))?,
        None => {
            let mut watch = Watch::default();
            *watch.side(side) = Some(handle.clone());
            let interest = watch.interest();
            let source = Source::Watch(watch);
            let token = this.kernel()?.reactor.register(borrow_fd(fd), interest, source);
            let token = token.map_err(|error| Raised::os_error(&error))?;
            this.descriptors.borrow_mut().insert(fd, token);
            None
        }
    };
    cancel(replaced);
    Ok(handle)
}

fn remove(this: This<'_, LoopCore>, side: Side, file: Obj<'_>) -> Result<Ref> {
    if this.is_closed() {
        return Ok(Ref::bool(false));
    }
    let fd = descriptor(file)?;
    let Some(token) = this.token_of(fd) else { return Ok(Ref::bool(false)) };
    if this.is_listening(token)? {
        // A server stops: asyncio's `_stop_serving` says it this way.
        this.drop_registration(fd)?;
        return Ok(Ref::bool(true));
    }
    let removed = set_side(this, token, side, None)?;
    let was_set = removed.is_some();
    let empty = match this.kernel()?.reactor.get(token) {
        Some(Source::Watch(watch)) => watch.interest() == Interest::NONE,
        _ => false,
    };
    if empty {
        let source = this.kernel()?.reactor.deregister(token);
        this.descriptors.borrow_mut().remove(&fd);
        drop(source);
    }
    cancel(removed);
    Ok(Ref::bool(was_set))
}

/// Puts `handle` in place and answers what was there.
fn set_side(
    this: This<'_, LoopCore>,
    token: Token,
    side: Side,
    handle: Option<Ref>,
) -> Result<Option<Ref>> {
    let (before, changed) = {
        let mut kernel = this.kernel()?;
        let reactor = &mut kernel.reactor;
        let Some(Source::Watch(watch)) = reactor.get_mut(token) else { return Ok(None) };
        let before = std::mem::replace(watch.side(side), handle);
        let interest = watch.interest();
        // Where a callback is replaced, the number may have been closed and given out again
        // since, and then the kernel no longer watches it: make the registration anew.
        let anew = before.is_some() && reactor.interest(token) == Some(interest);
        let forgotten = if anew { reactor.set_interest(token, Interest::NONE) } else { Ok(()) };
        (before, forgotten.and_then(|()| reactor.set_interest(token, interest)))
    };
    changed.map(|()| before).map_err(|error| Raised::os_error(&error))
}

fn cancel(handle: Option<Ref>) {
    if let Some(handle) = handle
        && let Some(handle) = This::<Handle>::of(handle.obj())
    {
        handle.cancel_quietly();
    }
}

/// Runs the callbacks of a descriptor that is ready; one that was cancelled by its handle is
/// forgotten.
pub(crate) fn on_ready(this: This<'_, LoopCore>, event: Event) -> Result<()> {
    let (reader, writer) = match this.kernel()?.reactor.get(event.token) {
        Some(Source::Watch(watch)) => (watch.reader.clone(), watch.writer.clone()),
        _ => return Ok(()),
    };
    let sides = [
        (Side::Read, reader.filter(|_| event.readiness.readable())),
        (Side::Write, writer.filter(|_| event.readiness.writable())),
    ];
    for (side, handle) in sides {
        let Some(handle) = handle else { continue };
        if callback_of(handle.obj()).is_some_and(|callback| callback.is_cancelled()) {
            drop(set_side(this, event.token, side, None)?);
        } else {
            this.run_handle(handle.obj())?;
        }
    }
    Ok(())
}

/// The open stream transport that owns a descriptor, or None.
fn stream_of(this: This<'_, LoopCore>, file: Obj<'_>) -> Result<Ref> {
    let fd = descriptor(file)?;
    let Some(token) = this.token_of(fd) else { return Ok(Ref::none()) };
    match this.kernel()?.reactor.get(token) {
        Some(Source::Stream(transport)) => Ok(transport.clone()),
        _ => Ok(Ref::none()),
    }
}

impl LoopCore {
    fn is_listening(&self, token: Token) -> Result<bool> {
        Ok(matches!(self.kernel()?.reactor.get(token), Some(Source::Listener(_))))
    }

    pub(crate) fn token_of(&self, fd: RawFd) -> Option<Token> {
        self.descriptors.borrow().get(&fd).copied()
    }
}
