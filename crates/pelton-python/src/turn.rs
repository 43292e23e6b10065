//! One turn of the loop. The order is that of `docs/architecture.md`:
//!
//! 1. poll: at once if anything is ready, else until the nearest deadline; the interpreter is
//!    released only for a poll that can block
//! 2. run the callbacks that were ready before the poll: they come before its events, as in
//!    asyncio, where an event joins the queue behind them
//! 3. for each readiness event call the connection, or the callback of `add_reader`, directly
//! 4. run the timers that were due after the poll
//! 5. run what step 3 scheduled: it need not wait for another poll. Left to the next turn where
//!    step 2 scheduled something that comes before it, or where the loop is told to stop
//!
//! What other threads have scheduled is taken in whenever the ready queue is looked at.
//!
//! After each callback, the writes that it made and that were held back go out.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use pelton::reactor::{Event, Events};

use crate::core::{LoopCore, Source};
use crate::datagram::DatagramTransport;
use crate::ffi::{Obj, Raised, Ref, Result, This, finally, monotonic, wait_detached};
use crate::handle::callback_of;
use crate::names::{self, support};
use crate::stream::StreamTransport;
use crate::tls::TlsTransport;
use crate::{listener, watch};

/// The longest poll: some kernels refuse more. CPython: `MAXIMUM_SELECT_TIMEOUT`.
const LONGEST_POLL: f64 = 24.0 * 3600.0;

/// Runs turns until the loop is told to stop.
pub(crate) fn run(this: This<'_, LoopCore>) -> Result<()> {
    if this.turning.get() {
        return Err(Raised::runtime_error("This event loop is already running"));
    }
    let _queue = ShowQueue(this);
    let _turning = Raise::new(&this.payload().turning);
    let _running = this.payload().stats.run();
    loop {
        turn(this)?;
        if this.stopping.get() {
            return Ok(());
        }
    }
}

fn turn(this: This<'_, LoopCore>) -> Result<()> {
    this.stats.turn();
    this.drain_inbox();
    let ready = this.ready.borrow().len();
    let mut events = this.events.take();
    let served = poll(this, &mut events).and_then(|count| {
        // Fixed here, as in asyncio: a timer that a callback of this turn sets waits for the next.
        let due = due_timers(this)?;
        let served = serve(this, ready, (0..count).map(|index| events.get(index)));
        if served.is_err() {
            // The loop ends here; the timers are the first of its next run.
            this.put_back(due);
            return served.map(|served| (served, Vec::new()));
        }
        served.map(|served| (served, due))
    });
    this.events.replace(events);
    let ((ahead, scheduled), due) = served?;
    run_timers(this, due)?;
    if ahead == 0 && !this.stopping.get() { run_ready(this, scheduled) } else { Ok(()) }
}

/// Runs the first `ready` callbacks, then serves the events. Answers how many callbacks the former
/// have scheduled, and how many the latter.
fn serve(
    this: This<'_, LoopCore>,
    ready: usize,
    mut events: impl Iterator<Item = Event>,
) -> Result<(usize, usize)> {
    run_ready(this, ready)?;
    let ahead = this.ready.borrow().len();
    events.try_for_each(|event| dispatch(this, event))?;
    Ok((ahead, this.ready.borrow().len() - ahead))
}

fn due_timers(this: This<'_, LoopCore>) -> Result<Vec<Ref>> {
    if this.timers.borrow().is_empty() {
        return Ok(Vec::new());
    }
    let now = this.now()?;
    Ok(this.take_due_timers(now))
}

fn run_timers(this: This<'_, LoopCore>, due: Vec<Ref>) -> Result<()> {
    let mut due = due.into_iter();
    while let Some(timer) = due.next() {
        if let Err(raised) = this.run_handle(timer.obj()) {
            this.put_back(due.collect());
            return Err(raised);
        }
    }
    Ok(())
}

/// A flag that is up while this lives, also when a panic unwinds.
struct Raise<'a> {
    flag: &'a Cell<bool>,
    before: bool,
}

impl<'a> Raise<'a> {
    fn new(flag: &'a Cell<bool>) -> Self {
        Self { flag, before: flag.replace(true) }
    }
}

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}

/// Runs the first `count` callbacks of the ready queue.
fn run_ready(this: This<'_, LoopCore>, count: usize) -> Result<()> {
    for _ in 0..count {
        let Some(handle) = this.ready.borrow_mut().pop_front() else { break };
        let answer = this.run_handle(handle.obj());
        if handle.obj().is_shared() {
            handle.obj().track();
        }
        answer?;
    }
    Ok(())
}

/// When it goes, shows the garbage collector what is in the ready queue: the loop no longer runs.
struct ShowQueue<'a>(This<'a, LoopCore>);

impl Drop for ShowQueue<'_> {
    fn drop(&mut self) {
        self.0.ready.borrow().iter().for_each(|handle| handle.obj().track());
    }
}

/// Waits for events; answers how many there are.
fn poll(this: This<'_, LoopCore>, events: &mut Events) -> Result<usize> {
    let (poller, waker) = {
        let mut kernel = this.kernel()?;
        kernel.fork_check().map_err(|error| Raised::os_error(&error))?;
        (kernel.poller.clone(), kernel.waker.clone())
    };
    let timeout = timeout(this)?;
    let answer = if timeout == Some(Duration::ZERO) {
        poller.wait(events, timeout)
    } else {
        let may_sleep = waker.prepare_sleep() && !this.inbox_is_filled();
        let timeout = if may_sleep { timeout } else { Some(Duration::ZERO) };
        let answer = this.stats.asleep(|| wait_detached(&poller, events, timeout));
        waker.awake();
        answer
    };
    match answer {
        Ok(count) => Ok(count),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            Raised::check_signals()?;
            Ok(0)
        }
        Err(error) => Err(Raised::os_error(&error)),
    }
}

/// How long the poll may take; `None` for ever.
fn timeout(this: This<'_, LoopCore>) -> Result<Option<Duration>> {
    if this.stopping.get() || !this.ready.borrow().is_empty() {
        return Ok(Some(Duration::ZERO));
    }
    let Some(deadline) = this.timers.borrow().next_deadline() else { return Ok(None) };
    let seconds = (deadline - this.now()?).clamp(0.0, LONGEST_POLL);
    Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)))
}

fn dispatch(this: This<'_, LoopCore>, event: Event) -> Result<()> {
    enum Target {
        Stream(Ref),
        Datagram(Ref),
        Listener(std::rc::Rc<listener::Listener>),
        Watch,
    }
    // The borrow ends before any Python code runs.
    let target = match this.kernel()?.reactor.get(event.token) {
        None => return Ok(()),
        Some(Source::Stream(transport)) => Target::Stream(transport.clone()),
        Some(Source::Datagram(transport)) => Target::Datagram(transport.clone()),
        Some(Source::Listener(listener)) => Target::Listener(listener.clone()),
        Some(Source::Watch(_)) => Target::Watch,
    };
    match target {
        Target::Stream(transport) => match This::<StreamTransport>::of(transport.obj()) {
            Some(transport) => transport.on_ready(this, event.readiness),
            None => Ok(()),
        },
        Target::Datagram(transport) => match This::<DatagramTransport>::of(transport.obj()) {
            Some(transport) => transport.on_ready(this, event.readiness),
            None => Ok(()),
        },
        Target::Listener(listener) => listener::on_ready(this, event.token, &listener),
        Target::Watch => watch::on_ready(this, event),
    }
}

impl<'a> This<'a, LoopCore> {
    /// Runs one handle, and reports what it raises as asyncio does.
    #[inline(always)]
    pub(crate) fn run_handle(self, handle: Obj<'a>) -> Result<()> {
        let Some(callback) = callback_of(handle) else { return self.run_foreign(handle) };
        if callback.is_cancelled() {
            return Ok(());
        }
        if self.is_watched() {
            return self.run_timed(handle);
        }
        match self.callback(|| callback.run()) {
            Ok(()) => Ok(()),
            Err(raised) => self.callback_failed(handle, raised),
        }
    }

    /// Runs one of asyncio's own handles: it reports what its callback raises.
    #[cold]
    fn run_foreign(self, handle: Obj<'a>) -> Result<()> {
        self.callback(|| handle.call_method(&names::RUN, &[])).map(drop)
    }

    /// As `run_handle`, in debug mode or with a hook: a slow callback is reported by name.
    #[cold]
    fn run_timed(self, handle: Obj<'a>) -> Result<()> {
        let Some(callback) = callback_of(handle) else { return Ok(()) };
        let debug = self.is_debug();
        let begin = monotonic();
        if debug {
            support::SLOW_CALLBACK.get()?.call(&[self.obj(), handle])?;
        }
        let answer = self.callback(|| callback.run());
        let seconds = monotonic() - begin;
        let answer = answer.or_else(|raised| self.callback_failed(handle, raised));
        if answer.is_ok() && (debug || seconds >= self.slow_after.get()) {
            let seconds = Ref::float(seconds)?;
            support::SLOW_CALLBACK.get()?.call(&[self.obj(), handle, seconds.obj()])?;
        }
        answer
    }

    /// As `run_timed`, of a connection's event, which has no handle that could be named.
    pub(crate) fn report_if_slow(
        self,
        protocol: Obj<'_>,
        transport: Obj<'_>,
        seconds: f64,
    ) -> Result<()> {
        if seconds < self.slow_after.get() {
            return Ok(());
        }
        let seconds = Ref::float(seconds)?;
        let report = support::SLOW_PROTOCOL.get()?;
        report.call(&[self.obj(), protocol, transport, seconds.obj()]).map(drop)
    }

    #[cold]
    fn callback_failed(self, handle: Obj<'_>, raised: Raised) -> Result<()> {
        if raised.ends_the_loop() {
            return Err(raised);
        }
        let exception = raised.take();
        support::CALLBACK_FAILED.get()?.call(&[self.obj(), handle, exception.obj()])?;
        Ok(())
    }

    /// Runs `body` as one callback: the writes it holds back go out when it has returned.
    #[inline]
    pub(crate) fn callback<T>(self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let answer = {
            let _inside = Raise::new(&self.payload().in_callback);
            self.stats.measured(body)
        };
        self.epoch.set(self.epoch.get() + 1);
        if !self.held.borrow().is_empty() {
            self.flush_held(answer.is_err())?;
        }
        answer
    }

    /// Sends what transports hold back. `raising` says that an exception is set meanwhile.
    fn flush_held(self, raising: bool) -> Result<()> {
        let pending = if raising { Some(Raised.take()) } else { None };
        let first = pending.map_or(Ok(()), |exception| Err(Raised::from_exception(exception)));
        let mut transports = std::mem::take(&mut *self.held.borrow_mut());
        let answer = transports.drain(..).fold(first, |first, transport| {
            finally(first, || {
                if let Some(stream) = This::<StreamTransport>::of(transport.obj()) {
                    return stream.flush_held(self);
                }
                if let Some(tls) = This::<TlsTransport>::of(transport.obj()) {
                    return tls.flush_held(self);
                }
                match This::<DatagramTransport>::of(transport.obj()) {
                    Some(datagram) => datagram.flush_held(self),
                    None => Ok(()),
                }
            })
        });
        // The list's memory is kept: a callback that writes twice asks the heap for nothing.
        let mut held = self.held.borrow_mut();
        if held.is_empty() {
            *held = transports;
        }
        answer
    }
}
