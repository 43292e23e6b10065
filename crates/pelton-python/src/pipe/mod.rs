//! Pipe transports: one direction of a pipe, a terminal or a socket.
//!
//! The file object handed in owns the descriptor; a transport closes that object when it ends, and
//! where two transports share one, a console's two directions, the last of them does. CPython:
//! `_UnixReadPipeTransport` and `_UnixWritePipeTransport` of `asyncio/unix_events.py`.
//!
//! | file | what it does |
//! |---|---|
//! | `read` | `ReadPipeTransport`: from readiness to `data_received` |
//! | `write` | `WritePipeTransport`: `write`, back-pressure |

mod read;
mod write;

use std::cell::Cell;
use std::os::fd::{BorrowedFd, RawFd};

use pelton::reactor::{Interest, Readiness, Token};
use rustix::fs::FileType;

use crate::core::LoopCore;
use crate::ffi::{Class, Context, Obj, Raised, Ref, Result, Slot, Spec, This, Visit};
use crate::ffi::{borrow_fd, finally, make, monotonic};
use crate::names::{self, Name, support};
use crate::watch::{self, Side};

pub(crate) use read::ReadPipeTransport;
pub(crate) use write::WritePipeTransport;

/// Adds the methods that make the transports to the loop's type.
pub(crate) fn describe_loop(spec: &mut Spec<LoopCore>) {
    read::describe_loop(spec);
    write::describe_loop(spec);
}

/// What both kinds hold.
pub(crate) struct End {
    /// The loop.
    owner: Slot,
    context: Slot,
    protocol: Slot,
    /// The file object; empty once it is let go.
    pipe: Slot,
    /// The dict behind `get_extra_info`.
    extra: Slot,
    number: RawFd,
    kind: FileType,
    token: Cell<Option<Token>>,
    started: Cell<bool>,
}

impl End {
    /// Looks at the file and makes it non-blocking. `refused` says what kinds are taken.
    fn new(core: This<'_, LoopCore>, given: &Given<'_>, refused: &str) -> Result<Self> {
        core.check_open()?;
        let number = given.pipe.call_method(&names::FILENO, &[])?.obj().to_i64()?;
        let number = RawFd::try_from(number).ok().filter(|number| *number >= 0);
        let number = number.ok_or_else(|| Raised::value_error("the pipe has no descriptor"))?;
        let fd = borrow_fd(number);
        let stat = rustix::fs::fstat(fd).map_err(|error| Raised::os_error(&error.into()))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::Fifo | FileType::Socket | FileType::CharacterDevice) {
            return Err(Raised::value_error(refused));
        }
        let unblocked = rustix::io::ioctl_fionbio(fd, true);
        unblocked.map_err(|error| Raised::os_error(&error.into()))?;
        let extra = if given.extra.is_none() { Ref::dict()? } else { given.extra.to_ref() };
        extra.obj().set_item(names::PIPE.obj(), given.pipe)?;
        Ok(Self {
            owner: Slot::new(core.obj().to_ref()),
            context: Slot::new(Context::copy_current()?),
            protocol: Slot::new(given.protocol.to_ref()),
            pipe: Slot::new(given.pipe.to_ref()),
            extra: Slot::new(extra),
            number,
            kind,
            token: Cell::new(None),
            started: Cell::new(false),
        })
    }

    fn is_open(&self) -> bool {
        self.pipe.is_set()
    }

    fn borrow(&self) -> BorrowedFd<'_> {
        borrow_fd(self.number)
    }

    fn slots(&self) -> [&Slot; 5] {
        [&self.owner, &self.context, &self.protocol, &self.pipe, &self.extra]
    }

    fn traverse(&self, visit: &mut Visit<'_>) {
        self.slots().into_iter().for_each(|slot| visit.slot(slot));
    }

    fn clear(&self) {
        self.slots().into_iter().for_each(Slot::clear);
    }
}

/// The arguments of the two methods that make a transport.
struct Given<'a> {
    pipe: Obj<'a>,
    protocol: Obj<'a>,
    waiter: Obj<'a>,
    extra: Obj<'a>,
}

impl<'a> Given<'a> {
    fn read(args: &[Obj<'a>]) -> Result<Self> {
        match *args {
            [pipe, protocol, waiter, extra] => Ok(Self { pipe, protocol, waiter, extra }),
            _ => Err(Raised::type_error("a pipe transport is made of four arguments")),
        }
    }
}

/// What the two kinds have in common.
pub(crate) trait PipeEnd: Class {
    const SIDE: Side;

    fn end(&self) -> &End;

    /// What the poller is to watch for.
    fn wanted(&self) -> Interest;

    /// Whether `close` was called or the pipe has ended.
    fn is_closing(&self) -> bool;

    /// Whether `connection_lost` is on its way or was called.
    fn is_lost(&self) -> bool;

    /// Says so; what is queued is dropped.
    fn set_lost(&self);
}

/// Makes the transport `value` known to the poller; its protocol hears of it in the next turn.
fn open<T: PipeEnd>(core: This<'_, LoopCore>, value: T, given: &Given<'_>) -> Result<Ref> {
    let transport = make(|| value)?;
    let this = This::<T>::of(transport.obj()).ok_or_else(|| Raised::type_error("not a pipe"))?;
    let set_up = || -> Result<()> {
        let token = watch::enter(core, this.end().number, T::SIDE, this.obj())?;
        this.end().token.set(Some(token));
        let start = this.obj().attr(&names::START)?;
        let context = this.end().context.get();
        core.schedule(start.obj(), &[given.waiter], context.as_ref().map(Ref::obj))
    };
    if let Err(raised) = set_up() {
        // As if it had never been: the pipe stays its maker's.
        finally(Err(raised), || {
            this.end().pipe.clear();
            release(this, core)
        })?;
    }
    Ok(transport)
}

/// The methods and attributes that both have.
fn describe<T: PipeEnd>(spec: &mut Spec<T>) {
    spec.one(c"_start", start::<T>)
        .one(c"_call_connection_lost", call_connection_lost::<T>)
        .none(c"is_closing", |this| Ok(Ref::bool(this.is_closing())))
        .none(c"get_protocol", |this| Ok(this.end().protocol.get_or_none()))
        .get(c"_closing", |this| Ok(Ref::bool(this.is_closing())))
        .get(c"_protocol", |this| Ok(this.end().protocol.get_or_none()))
        .get(c"_loop", |this| Ok(this.end().owner.get_or_none()))
        .get(c"_pipe", |this| Ok(this.end().pipe.get_or_none()))
        .get(c"_fileno", |this| Ref::int(this.end().number.into()))
        .get(c"_extra", |this| Ok(this.end().extra.get_or_none()));
}

/// `_start(waiter)`, run by a handle: tells the protocol, starts watching, wakes the maker.
fn start<T: PipeEnd>(this: This<'_, T>, waiter: Obj<'_>) -> Result<Ref> {
    let started = with_loop(this, |core| {
        let protocol = this.end().protocol.get_or_none();
        let made = core
            .callback(|| protocol.obj().call_method(&names::CONNECTION_MADE, &[this.obj()]))
            .map(drop);
        let made = match made {
            Err(raised) if !raised.ends_the_loop() => {
                let exception = raised.take();
                let report = support::CONNECTION_MADE_FAILED.get()?;
                report.call(&[core.obj(), this.obj(), exception.obj()]).map(drop)
            }
            made => made,
        };
        finally(made, || {
            this.end().started.set(true);
            update_interest(this, core)
        })
    });
    finally(started, || {
        if !waiter.is_none() && !waiter.call_method(&names::DONE, &[])?.obj().is_true()? {
            waiter.call_method(&names::SET_RESULT, &[Ref::none().obj()])?;
        }
        Ok(())
    })?;
    Ok(Ref::none())
}

/// Runs `body` with the loop; does nothing once the transport has let go of it.
fn with_loop<T: PipeEnd, R: Default>(
    this: This<'_, T>,
    body: impl FnOnce(This<'_, LoopCore>) -> Result<R>,
) -> Result<R> {
    let Some(owner) = this.end().owner.get() else { return Ok(R::default()) };
    match This::<LoopCore>::of(owner.obj()) {
        Some(core) => body(core),
        None => Err(Raised::type_error("the transport's loop is not pelton's")),
    }
}

fn update_interest<T: PipeEnd>(this: This<'_, T>, core: This<'_, LoopCore>) -> Result<()> {
    match this.end().token.get() {
        Some(token) if !core.is_closed() => watch::refresh(core, token),
        _ => Ok(()),
    }
}

/// The pipe is lost: the protocol hears of it in the next turn.
fn lose<T: PipeEnd>(
    this: This<'_, T>,
    core: This<'_, LoopCore>,
    exception: Option<Ref>,
) -> Result<()> {
    if this.is_lost() {
        return Ok(());
    }
    this.set_lost();
    if core.is_closed() {
        // No turn will come: let go of the pipe now.
        return release(this, core);
    }
    update_interest(this, core)?;
    let exception = exception.unwrap_or_else(Ref::none);
    let call = this.obj().attr(&names::CALL_CONNECTION_LOST)?;
    let context = this.end().context.get();
    core.schedule(call.obj(), &[exception.obj()], context.as_ref().map(Ref::obj))
}

fn call_connection_lost<T: PipeEnd>(this: This<'_, T>, exception: Obj<'_>) -> Result<Ref> {
    with_loop(this, |core| {
        let protocol = this.end().protocol.get_or_none();
        let told = core
            .callback(|| protocol.obj().call_method(&names::CONNECTION_LOST, &[exception]))
            .map(drop);
        finally(told, || release(this, core))
    })?;
    Ok(Ref::none())
}

/// Gives back the place in the poller and the file object, and breaks the cycles.
fn release<T: PipeEnd>(this: This<'_, T>, core: This<'_, LoopCore>) -> Result<()> {
    let end = this.end();
    let mut shared = false;
    if let Some(token) = end.token.take().filter(|_| !core.is_closed()) {
        let other = watch::leave(core, end.number, token, T::SIDE, this.obj())?;
        shared = other.is_some_and(|other| match (pipe_of(other.obj()), end.pipe.get()) {
            (Some(theirs), Some(ours)) => theirs.obj().is(ours.obj()),
            _ => false,
        });
    }
    end.protocol.clear();
    end.owner.clear();
    match end.pipe.take() {
        Some(pipe) if !shared => pipe.obj().call_method(&names::CLOSE, &[]).map(drop),
        _ => Ok(()),
    }
}

/// The file object of a transport of either kind.
fn pipe_of(transport: Obj<'_>) -> Option<Ref> {
    if let Some(reader) = This::<ReadPipeTransport>::of(transport) {
        return reader.end().pipe.get();
    }
    This::<WritePipeTransport>::of(transport).and_then(|writer| writer.end().pipe.get())
}

/// What a transport of either kind is to be watched for.
pub(crate) fn wanted(transport: Obj<'_>, side: Side) -> Interest {
    let wanted = match side {
        Side::Read => This::<ReadPipeTransport>::of(transport).map(|this| this.wanted()),
        Side::Write => This::<WritePipeTransport>::of(transport).map(|this| this.wanted()),
    };
    wanted.unwrap_or(Interest::NONE)
}

/// Whether a transport of either kind is open.
pub(crate) fn is_open(transport: Obj<'_>) -> bool {
    match This::<ReadPipeTransport>::of(transport) {
        Some(reader) => !reader.is_closing(),
        None => This::<WritePipeTransport>::of(transport).is_some_and(|this| !this.is_closing()),
    }
}

/// What the poller says of a transport of either kind.
pub(crate) fn on_ready(
    core: This<'_, LoopCore>,
    transport: Obj<'_>,
    readiness: Readiness,
) -> Result<()> {
    if let Some(reader) = This::<ReadPipeTransport>::of(transport) {
        return reader.on_ready(core);
    }
    match This::<WritePipeTransport>::of(transport) {
        Some(writer) => writer.on_ready(core, readiness),
        None => Ok(()),
    }
}

/// Runs `body` as one callback, in the transport's context; slow ones are named in debug mode.
fn in_context<T: PipeEnd, R>(
    this: This<'_, T>,
    core: This<'_, LoopCore>,
    body: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let begin = if core.is_watched() { Some(monotonic()) } else { None };
    let protocol = this.end().protocol.get_or_none();
    let answer = match this.end().context.get() {
        Some(context) => core.callback(|| Context::run(context.obj(), body)),
        None => core.callback(body),
    }?;
    if let Some(begin) = begin {
        core.report_if_slow(protocol.obj(), this.obj(), monotonic() - begin)?;
    }
    Ok(answer)
}

/// Calls a method of the protocol without arguments; what it raises is reported, as asyncio does.
fn signal<T: PipeEnd>(
    this: This<'_, T>,
    core: This<'_, LoopCore>,
    method: &Name,
    failed: &str,
) -> Result<()> {
    let protocol = this.end().protocol.get_or_none();
    match protocol.obj().call_method(method, &[]) {
        Ok(_) => Ok(()),
        Err(raised) if raised.ends_the_loop() => Err(raised),
        Err(raised) => {
            let (message, exception) = (Ref::str(failed)?, raised.take());
            core.report(&[
                (&names::MESSAGE, message.obj()),
                (&names::EXCEPTION, exception.obj()),
                (&names::TRANSPORT, this.obj()),
                (&names::PROTOCOL, protocol.obj()),
            ])
        }
    }
}

/// A transport that nobody closed: says so, and closes the pipe.
fn finalize<T: PipeEnd>(this: This<'_, T>) {
    if !this.end().is_open() {
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
    if let Some(pipe) = this.end().pipe.take()
        && let Err(raised) = pipe.obj().call_method(&names::CLOSE, &[])
    {
        raised.unraisable(Some(this.obj()));
    }
}

/// `<Name closing fd=5 polling`, without the end.
fn begin_repr<T: PipeEnd>(this: This<'_, T>, name: &str, polls_for: Interest) -> Result<String> {
    let state = match (this.end().is_open(), this.is_closing()) {
        (false, _) => " closed",
        (true, true) => " closing",
        (true, false) => "",
    };
    let polling = with_loop(this, |core| {
        let token = this.end().token.get().filter(|_| !core.is_closed());
        let Some(token) = token else { return Ok(None) };
        Ok(core.kernel()?.reactor.interest(token))
    })?;
    let polling = match polling {
        Some(interest) if interest.contains(polls_for) => " polling",
        Some(_) => " idle",
        None if this.end().is_open() => " open",
        None => " closed",
    };
    Ok(format!("<{name}{state} fd={}{polling}", this.end().number))
}
