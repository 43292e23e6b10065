//! `add_reader()` and `add_writer()`: callbacks for descriptors that others own. Pipe transports
//! take their places here too, one for each direction of a descriptor.
//!
//! Level-triggered, one registration for both directions, and the descriptor's blocking mode is
//! left as it was found. CPython: `asyncio/selector_events.py`, `_add_reader` and the like.

use std::os::fd::RawFd;

use pelton::reactor::{Event, Interest, Token};

use crate::core::{LoopCore, Source};
use crate::ffi::{Keywords, Obj, Raised, Ref, Result, Spec, This, Visit, borrow_fd};
use crate::handle::{Handle, callback_of, new_handle};
use crate::names;
use crate::pipe;
use crate::stream::StreamTransport;

/// Who waits for one direction of a descriptor.
#[derive(Clone)]
enum Waiter {
    /// A callback.
    Handle(Ref),
    /// A pipe transport.
    Pipe(Ref),
}

impl Waiter {
    fn wants(&self, side: Side) -> Interest {
        match (self, side) {
            (Self::Handle(_), Side::Read) => Interest::READ,
            (Self::Handle(_), Side::Write) => Interest::WRITE,
            (Self::Pipe(transport), side) => pipe::wanted(transport.obj(), side),
        }
    }

    fn object(&self) -> &Ref {
        match self {
            Self::Handle(object) | Self::Pipe(object) => object,
        }
    }
}

/// Who waits for a descriptor, counted.
pub(crate) struct Waiters {
    pub(crate) read_pipe: bool,
    pub(crate) write_pipe: bool,
    pub(crate) callbacks: i64,
}

/// The two directions of one descriptor.
#[derive(Default)]
pub(crate) struct Watch {
    reader: Option<Waiter>,
    writer: Option<Waiter>,
}

impl Watch {
    pub(crate) fn traverse(&self, visit: &mut Visit<'_>) {
        self.reader.iter().chain(&self.writer).for_each(|waiter| visit.object(waiter.object()));
    }

    fn side(&mut self, side: Side) -> &mut Option<Waiter> {
        match side {
            Side::Read => &mut self.reader,
            Side::Write => &mut self.writer,
        }
    }

    fn interest(&self) -> Interest {
        let wants = |waiter: &Option<Waiter>, side| {
            waiter.as_ref().map_or(Interest::NONE, |w| w.wants(side))
        };
        wants(&self.reader, Side::Read).with(wants(&self.writer, Side::Write))
    }

    fn is_empty(&self) -> bool {
        self.reader.is_none() && self.writer.is_none()
    }

    pub(crate) fn waiters(&self) -> Waiters {
        let is_pipe = |waiter: &Option<Waiter>| matches!(waiter, Some(Waiter::Pipe(_)));
        let is_handle = |waiter: &Option<Waiter>| matches!(waiter, Some(Waiter::Handle(_)));
        Waiters {
            read_pipe: is_pipe(&self.reader),
            write_pipe: is_pipe(&self.writer),
            callbacks: i64::from(is_handle(&self.reader)) + i64::from(is_handle(&self.writer)),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Side {
    Read,
    Write,
}

/// Adds the methods of this file to the loop's type. The public ones, in Python, check first
/// that no transport owns the descriptor.
pub(crate) fn describe(spec: &mut Spec<LoopCore>) {
    spec.any(c"_add_reader", |this, args, keywords| add(this, Side::Read, args, keywords))
        .any(c"_add_writer", |this, args, keywords| add(this, Side::Write, args, keywords))
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

fn add(
    this: This<'_, LoopCore>,
    side: Side,
    args: &[Obj<'_>],
    keywords: Keywords<'_>,
) -> Result<Ref> {
    let [context] = keywords.read("_add_reader", [&names::CONTEXT])?;
    let [file, callback, args @ ..] = args else {
        return Err(Raised::type_error("missing required arguments: 'fd' and 'callback'"));
    };
    this.check_open()?;
    let fd = descriptor(*file)?;
    let token = this.token_of(fd);
    if let Some(token) = token
        && let Some(Waiter::Pipe(owner)) = waiter(this, token, side)?
        && pipe::is_open(owner.obj())
    {
        return Err(used(*file, &owner)?);
    }
    let handle = new_handle(this, *callback, args, context)?;
    let entering = Waiter::Handle(handle.clone());
    let replaced = match token {
        Some(token) => set_side(this, token, side, Some(entering))?,
        None => {
            register(this, fd, side, entering)?;
            None
        }
    };
    cancel(replaced);
    Ok(handle)
}

/// The error of asyncio for a descriptor that a transport has.
fn used(file: Obj<'_>, transport: &Ref) -> Result<Raised> {
    let (file, transport) = (file.repr()?, transport.obj().repr()?);
    let (file, transport) = (file.obj().to_text()?, transport.obj().to_text()?);
    Ok(Raised::runtime_error(&format!("File descriptor {file} is used by transport {transport}")))
}

fn register(this: This<'_, LoopCore>, fd: RawFd, side: Side, waiter: Waiter) -> Result<Token> {
    let mut watch = Watch::default();
    *watch.side(side) = Some(waiter);
    let interest = watch.interest();
    let source = Source::Watch(watch);
    let token = this.kernel()?.reactor.register(borrow_fd(fd), interest, source);
    let token = token.map_err(|error| Raised::os_error(&error))?;
    this.descriptors.borrow_mut().insert(fd, token);
    Ok(token)
}

/// Who waits for one direction.
fn waiter(this: This<'_, LoopCore>, token: Token, side: Side) -> Result<Option<Waiter>> {
    Ok(match this.kernel()?.reactor.get_mut(token) {
        Some(Source::Watch(watch)) => watch.side(side).clone(),
        _ => None,
    })
}

/// A pipe transport takes its place in one direction of a descriptor. Nothing is watched for
/// before [`refresh`].
pub(crate) fn enter(
    this: This<'_, LoopCore>,
    fd: RawFd,
    side: Side,
    transport: Obj<'_>,
) -> Result<Token> {
    let waiter = Waiter::Pipe(transport.to_ref());
    if let Some(token) = this.token_of(fd) {
        if matches!(this.kernel()?.reactor.get(token), Some(Source::Watch(_))) {
            cancel(set_side(this, token, side, Some(waiter))?);
            return Ok(token);
        }
        if let Some(owner) = stream_at(this, token)?
            && This::<StreamTransport>::of(owner.obj()).is_some_and(|owner| owner.is_open())
        {
            return Err(used(Ref::int(fd.into())?.obj(), &owner)?);
        }
        // A transport or a listener whose number was closed behind its back ends here.
        this.descriptors.borrow_mut().remove(&fd);
        let stale = this.kernel()?.reactor.forget(token);
        drop(stale);
    }
    register(this, fd, side, waiter)
}

/// What a pipe transport wants has changed.
pub(crate) fn refresh(this: This<'_, LoopCore>, token: Token) -> Result<()> {
    let mut kernel = this.kernel()?;
    let Some(Source::Watch(watch)) = kernel.reactor.get(token) else { return Ok(()) };
    let interest = watch.interest();
    kernel.reactor.set_interest(token, interest).map_err(|error| Raised::os_error(&error))
}

/// A pipe transport leaves; answers the pipe transport of the other direction.
pub(crate) fn leave(
    this: This<'_, LoopCore>,
    fd: RawFd,
    token: Token,
    side: Side,
    transport: Obj<'_>,
) -> Result<Option<Ref>> {
    let other = match side {
        Side::Read => waiter(this, token, Side::Write)?,
        Side::Write => waiter(this, token, Side::Read)?,
    };
    let place = waiter(this, token, side)?;
    if place.is_some_and(|place| place.object().obj().is(transport)) {
        drop(set_side(this, token, side, None)?);
    }
    forget_if_empty(this, fd, token)?;
    Ok(match other {
        Some(Waiter::Pipe(other)) => Some(other),
        _ => None,
    })
}

fn forget_if_empty(this: This<'_, LoopCore>, fd: RawFd, token: Token) -> Result<()> {
    let empty =
        matches!(this.kernel()?.reactor.get(token), Some(Source::Watch(watch)) if watch.is_empty());
    if empty {
        let source = this.kernel()?.reactor.deregister(token);
        if this.token_of(fd) == Some(token) {
            this.descriptors.borrow_mut().remove(&fd);
        }
        drop(source);
    }
    Ok(())
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
    if matches!(waiter(this, token, side)?, Some(Waiter::Pipe(_))) {
        return Ok(Ref::bool(false)); // not a callback
    }
    let removed = set_side(this, token, side, None)?;
    let was_set = removed.is_some();
    forget_if_empty(this, fd, token)?;
    cancel(removed);
    Ok(Ref::bool(was_set))
}

/// Puts `waiter` in place and answers what was there.
fn set_side(
    this: This<'_, LoopCore>,
    token: Token,
    side: Side,
    waiter: Option<Waiter>,
) -> Result<Option<Waiter>> {
    let (before, changed) = {
        let mut kernel = this.kernel()?;
        let reactor = &mut kernel.reactor;
        let Some(Source::Watch(watch)) = reactor.get_mut(token) else { return Ok(None) };
        let before = std::mem::replace(watch.side(side), waiter);
        let interest = watch.interest();
        // Where a callback is replaced, the number may have been closed and given out again
        // since, and then the kernel no longer watches it: make the registration anew.
        let anew = before.is_some() && reactor.interest(token) == Some(interest);
        let forgotten = if anew { reactor.set_interest(token, Interest::NONE) } else { Ok(()) };
        (before, forgotten.and_then(|()| reactor.set_interest(token, interest)))
    };
    changed.map(|()| before).map_err(|error| Raised::os_error(&error))
}

fn cancel(waiter: Option<Waiter>) {
    if let Some(Waiter::Handle(handle)) = waiter
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
    for (side, waiter) in sides {
        match waiter {
            None => {}
            Some(Waiter::Pipe(transport)) => {
                pipe::on_ready(this, transport.obj(), event.readiness)?;
            }
            Some(Waiter::Handle(handle)) => {
                if callback_of(handle.obj()).is_some_and(|callback| callback.is_cancelled()) {
                    drop(set_side(this, event.token, side, None)?);
                } else {
                    this.run_handle(handle.obj())?;
                }
            }
        }
    }
    Ok(())
}

/// The open transport that owns a descriptor, or None.
fn stream_of(this: This<'_, LoopCore>, file: Obj<'_>) -> Result<Ref> {
    let fd = descriptor(file)?;
    let Some(token) = this.token_of(fd) else { return Ok(Ref::none()) };
    Ok(stream_at(this, token)?.unwrap_or_else(Ref::none))
}

fn stream_at(this: This<'_, LoopCore>, token: Token) -> Result<Option<Ref>> {
    Ok(match this.kernel()?.reactor.get(token) {
        Some(Source::Stream(transport) | Source::Datagram(transport)) => Some(transport.clone()),
        _ => None,
    })
}

impl LoopCore {
    fn is_listening(&self, token: Token) -> Result<bool> {
        Ok(matches!(self.kernel()?.reactor.get(token), Some(Source::Listener(_))))
    }

    pub(crate) fn token_of(&self, fd: RawFd) -> Option<Token> {
        self.descriptors.borrow().get(&fd).copied()
    }
}
