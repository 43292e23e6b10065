//! `LoopCore`: the native base of `pelton.Loop`; what it holds.
//!
//! The rest of it is split by topic: scheduling in `schedule`, one turn of the loop in `turn`, descriptors in `watch`,
//! listening sockets in `listener`, connections in `stream`, datagram endpoints in `datagram`.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

use pelton::datagram::ReceiveBatch;
use pelton::reactor::{Events, Poller, Reactor, Token, Waker};
use pelton::time::Timers;

use crate::ffi::{Class, Obj, Raised, ReadBuffer, Ref, Result, Slot, Spec, This};
use crate::ffi::{TypeCell, Visit, monotonic};
use crate::handle::{TimerHandle, callback_of, new_queued_handle};
use crate::listener::Listener;
use crate::names;
use crate::stats::Stats;
use crate::watch::Watch;
use crate::{datagram, listener, pipe, schedule, stats, stream, tls, turn, watch};

/// Cancelled timers are swept out when there are more than this many of them, and they are more
/// than half of all. CPython: `_MIN_CANCELLED_TIMER_HANDLES_FRACTION`.
const CANCELLED_TIMERS_KEPT: usize = 100;

/// Whom a readiness event is for.
pub(crate) enum Source {
    /// A `StreamTransport`.
    Stream(Ref),
    /// A `DatagramTransport`.
    Datagram(Ref),
    Listener(Rc<Listener>),
    /// The callbacks of `add_reader()` and `add_writer()`.
    Watch(Watch),
}

impl Source {
    fn traverse(&self, visit: &mut Visit<'_>) {
        match self {
            Self::Stream(transport) | Self::Datagram(transport) => visit.object(transport),
            Self::Listener(listener) => listener.traverse(visit),
            Self::Watch(watch) => watch.traverse(visit),
        }
    }
}

/// What an open loop has of the kernel.
pub(crate) struct Kernel {
    pub(crate) reactor: Reactor<Source>,
    pub(crate) poller: Poller,
    pub(crate) waker: Waker,
}

impl Kernel {
    fn new() -> io::Result<Self> {
        let reactor = Reactor::new()?;
        Ok(Self { poller: reactor.poller(), waker: reactor.waker(), reactor })
    }

    /// In a forked child: no longer shares the parent's descriptors.
    pub(crate) fn fork_check(&mut self) -> io::Result<()> {
        if self.reactor.fork_check()? {
            self.poller = self.reactor.poller();
            self.waker = self.reactor.waker();
        }
        Ok(())
    }
}

/// The native base of the loop.
pub(crate) struct LoopCore {
    /// `None` once the loop is closed: its descriptors go then.
    kernel: RefCell<Option<Kernel>>,
    pub(crate) events: RefCell<Events>,
    /// The registration of each watched descriptor.
    pub(crate) descriptors: RefCell<HashMap<RawFd, Token>>,
    pub(crate) ready: RefCell<VecDeque<Ref>>,
    pub(crate) timers: RefCell<Timers<f64, Ref>>,
    cancelled_timers: Cell<usize>,
    /// Handles from other threads, moved to `ready` by the loop's own thread.
    inbox: Mutex<Vec<Ref>>,
    inbox_filled: AtomicBool,
    pub(crate) read_buffer: RefCell<ReadBuffer>,
    /// Plaintext on its way to a protocol.
    pub(crate) plain_buffer: RefCell<ReadBuffer>,
    /// Sealed records of one connection at a time, and whose they are.
    pub(crate) sealed: RefCell<Vec<u8>>,
    pub(crate) sealed_by: Slot,
    /// Small writes that are to share a record.
    pub(crate) joined: RefCell<Vec<u8>>,
    /// What datagrams are received into, made when the first endpoint receives.
    pub(crate) receive_batch: RefCell<Option<ReceiveBatch>>,
    /// Transports that hold back writes until the running callback returns.
    pub(crate) held: RefCell<Vec<Ref>>,
    /// `{"loop": self}`, the arguments of every future, made when the first is.
    future_arguments: Slot,
    /// Counts the callbacks run, so that a transport can tell "in this same callback".
    pub(crate) epoch: Cell<u64>,
    pub(crate) in_callback: Cell<bool>,
    /// The thread that runs the loop, and its number in Python.
    thread: Cell<Option<ThreadId>>,
    thread_number: Cell<i64>,
    pub(crate) stats: Stats,
    pub(crate) stopping: Cell<bool>,
    /// Whether a turn is under way, whatever Python's half believes.
    pub(crate) turning: Cell<bool>,
    debug: Cell<bool>,
    /// `slow_callback_duration`, in seconds.
    pub(crate) slow_after: Cell<f64>,
    /// Whom to tell of slow callbacks, in debug mode or not.
    slow_hook: Slot,
    /// Whether callbacks are timed: in debug mode, or for the hook.
    watched: Cell<bool>,
    /// Whether `time` was replaced, by a test or in a derived class: it is asked then.
    own_time: Cell<bool>,
    closed: Cell<bool>,
}

static CELL: TypeCell = TypeCell::new();

impl Class for LoopCore {
    const NAME: &'static CStr = c"pelton._pelton.LoopCore";
    const DOC: &'static CStr = c"The native base of pelton.Loop.";
    const BASE_TYPE: bool = true;

    fn cell() -> &'static TypeCell {
        &CELL
    }

    fn new() -> Result<Self> {
        let kernel = Kernel::new().map_err(|error| Raised::os_error(&error))?;
        Ok(Self {
            kernel: RefCell::new(Some(kernel)),
            events: RefCell::new(Events::with_capacity(512)),
            descriptors: RefCell::default(),
            ready: RefCell::default(),
            timers: RefCell::new(Timers::new()),
            cancelled_timers: Cell::new(0),
            inbox: Mutex::default(),
            inbox_filled: AtomicBool::new(false),
            read_buffer: RefCell::new(ReadBuffer::new()),
            plain_buffer: RefCell::new(ReadBuffer::new()),
            sealed: RefCell::default(),
            sealed_by: Slot::empty(),
            joined: RefCell::default(),
            receive_batch: RefCell::default(),
            held: RefCell::default(),
            future_arguments: Slot::empty(),
            epoch: Cell::new(1),
            in_callback: Cell::new(false),
            thread: Cell::new(None),
            thread_number: Cell::new(0),
            stats: Stats::default(),
            stopping: Cell::new(false),
            turning: Cell::new(false),
            debug: Cell::new(false),
            slow_after: Cell::new(0.1),
            slow_hook: Slot::empty(),
            watched: Cell::new(false),
            own_time: Cell::new(false),
            closed: Cell::new(false),
        })
    }

    fn spec(spec: &mut Spec<Self>) {
        spec.none(c"time", |_| Ref::float(monotonic()))
            .get_set(
                c"_own_time",
                |this| Ok(Ref::bool(this.own_time.get())),
                |this, value| {
                    this.own_time.set(value.is_true()?);
                    Ok(())
                },
            )
            .none(c"create_future", create_future)
            .none(c"stop", |this| {
                this.stopping.set(true);
                Ok(Ref::none())
            })
            .none(c"is_running", |this| Ok(Ref::bool(this.thread.get().is_some())))
            .none(c"is_closed", |this| Ok(Ref::bool(this.closed.get())))
            .none(c"get_debug", |this| Ok(Ref::bool(this.debug.get())))
            .none(c"_run_once", |this| turn::run(this).map(|()| Ref::none()))
            .none(c"_write_to_self", |this| {
                this.wake();
                Ok(Ref::none())
            })
            .one(c"_add_callback", |this, handle| {
                if !handle.attr(&names::CANCELLED)?.obj().is_true()? {
                    this.push_ready(handle.to_ref());
                }
                Ok(Ref::none())
            })
            .none(c"_close_core", close)
            .get_set(
                c"_stopping",
                |this| Ok(Ref::bool(this.stopping.get())),
                |this, value| {
                    this.stopping.set(value.is_true()?);
                    Ok(())
                },
            )
            .get_set(
                c"_debug",
                |this| Ok(Ref::bool(this.debug.get())),
                |this, value| {
                    this.debug.set(value.is_true()?);
                    this.watched.set(this.debug.get() || this.slow_hook.is_set());
                    Ok(())
                },
            )
            .get_set(
                c"slow_callback_duration",
                |this| Ref::float(this.slow_after.get()),
                |this, value| {
                    this.slow_after.set(value.to_f64()?);
                    Ok(())
                },
            )
            .get_set(
                c"_slow_hook",
                |this| Ok(this.slow_hook.get_or_none()),
                |this, value| {
                    match value.is_none() {
                        true => this.slow_hook.clear(),
                        false => this.slow_hook.set(value.to_ref()),
                    }
                    this.watched.set(this.debug.get() || this.slow_hook.is_set());
                    Ok(())
                },
            )
            .get_set(
                c"_closed",
                |this| Ok(Ref::bool(this.closed.get())),
                |this, value| {
                    // A loop that has given its descriptors back cannot be opened again.
                    let gone = this.kernel.borrow().is_none();
                    this.closed.set(value.is_true()? || gone);
                    Ok(())
                },
            )
            .get_set(c"_thread_id", thread_id, set_thread_id);
        schedule::describe(spec);
        watch::describe(spec);
        listener::describe(spec);
        stream::describe_loop(spec);
        tls::describe_loop(spec);
        pipe::describe_loop(spec);
        stats::describe(spec);
        datagram::describe_loop(spec);
    }

    fn traverse(&self, visit: &mut Visit<'_>) {
        visit.slot(&self.sealed_by);
        // What is borrowed at this moment is left out: the collector then takes its objects for
        // referenced from elsewhere, which keeps them.
        if let Ok(kernel) = self.kernel.try_borrow()
            && let Some(kernel) = &*kernel
        {
            kernel.reactor.iter().for_each(|source| source.traverse(visit));
        }
        if let Ok(ready) = self.ready.try_borrow() {
            ready.iter().for_each(|handle| visit.object(handle));
        }
        if let Ok(timers) = self.timers.try_borrow() {
            timers.iter().for_each(|handle| visit.object(handle));
        }
        if let Ok(inbox) = self.inbox.try_lock() {
            inbox.iter().for_each(|handle| visit.object(handle));
        }
        visit.slot(&self.slow_hook);
        if let Ok(held) = self.held.try_borrow() {
            held.iter().for_each(|transport| visit.object(transport));
        }
        visit.slot(&self.future_arguments);
    }

    fn clear(&self) {
        self.slow_hook.clear();
        self.forget_all();
    }
}

impl LoopCore {
    pub(crate) fn is_debug(&self) -> bool {
        self.debug.get()
    }

    /// Whether callbacks are timed.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.get()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.get() { Err(closed_error()) } else { Ok(()) }
    }

    /// Takes everything out first and lets go of it after: letting go runs other code.
    fn forget_all(&self) {
        let sources = self.kernel.borrow_mut().as_mut().map(|kernel| kernel.reactor.drain());
        let ready = std::mem::take(&mut *self.ready.borrow_mut());
        let timers = self.timers.borrow_mut().drain();
        let held = std::mem::take(&mut *self.held.borrow_mut());
        let inbox = std::mem::take(&mut *self.inbox.lock().expect("no panic under this lock"));
        self.descriptors.borrow_mut().clear();
        self.sealed_by.clear();
        for timer in &timers {
            if let Some(timer) = This::<TimerHandle>::of(timer.obj()) {
                timer.unschedule();
            }
        }
        drop((sources, ready, timers, held, inbox, self.future_arguments.take()));
    }

    /// What the loop has of the kernel; an error once it is closed.
    pub(crate) fn kernel(&self) -> Result<RefMut<'_, Kernel>> {
        RefMut::filter_map(self.kernel.borrow_mut(), Option::as_mut).map_err(|_| closed_error())
    }

    fn wake(&self) {
        if let Some(kernel) = &*self.kernel.borrow() {
            kernel.waker.wake();
        }
    }

    /// Moves what other threads have scheduled to the ready queue.
    #[inline]
    pub(crate) fn drain_inbox(&self) {
        if self.inbox_filled.load(Ordering::Acquire) {
            self.drain_filled_inbox();
        }
    }

    #[cold]
    fn drain_filled_inbox(&self) {
        let handles = {
            let mut inbox = self.inbox.lock().expect("no panic under this lock");
            self.inbox_filled.store(false, Ordering::Release);
            std::mem::take(&mut *inbox)
        };
        self.ready.borrow_mut().extend(handles);
    }

    /// How many callbacks of other threads wait.
    pub(crate) fn inbox_len(&self) -> usize {
        self.inbox.lock().expect("no panic under this lock").len()
    }

    /// How many timers are scheduled, and how many of them are cancelled.
    pub(crate) fn timers_counted(&self) -> (usize, usize) {
        (self.timers.borrow().len(), self.cancelled_timers.get())
    }

    pub(crate) fn inbox_is_filled(&self) -> bool {
        self.inbox_filled.load(Ordering::Acquire)
    }

    /// Adds a handle to the ready queue, behind what other threads scheduled before.
    #[inline(always)]
    pub(crate) fn push_ready(&self, handle: Ref) {
        self.drain_inbox();
        self.ready.borrow_mut().push_back(handle);
    }

    /// One more of the scheduled timers is cancelled: sweeps when they are the larger part.
    pub(crate) fn timer_cancelled(&self) {
        let cancelled = self.cancelled_timers.get() + 1;
        self.cancelled_timers.set(cancelled);
        let scheduled = self.timers.borrow().len();
        if cancelled > CANCELLED_TIMERS_KEPT && cancelled * 2 > scheduled {
            let mut dead = Vec::new();
            self.timers.borrow_mut().retain_into(&mut dead, |timer| {
                callback_of(timer.obj()).is_none_or(|callback| !callback.is_cancelled())
            });
            self.cancelled_timers.set(0);
            for timer in &dead {
                if let Some(timer) = This::<TimerHandle>::of(timer.obj()) {
                    timer.unschedule();
                }
            }
            // `dead` is dropped here, after the borrow: a finalizer may schedule timers.
        }
    }

    /// Takes out the timers that are due at `now`, soonest first.
    pub(crate) fn take_due_timers(&self, now: f64) -> Vec<Ref> {
        let mut due = Vec::new();
        let mut timers = self.timers.borrow_mut();
        while let Some(handle) = timers.pop_due(now) {
            if let Some(timer) = This::<TimerHandle>::of(handle.obj()) {
                timer.unschedule();
                if timer.is_cancelled() {
                    self.cancelled_timers.set(self.cancelled_timers.get().saturating_sub(1));
                }
            }
            due.push(handle);
        }
        due
    }

    /// Puts handles at the head of the ready queue, in their order.
    pub(crate) fn put_back(&self, handles: Vec<Ref>) {
        let mut ready = self.ready.borrow_mut();
        handles.into_iter().rev().for_each(|handle| ready.push_front(handle));
    }
}

impl This<'_, LoopCore> {
    /// `call_soon` for the native half: no debug checks, and a context that is known.
    pub(crate) fn schedule(
        self,
        callback: Obj<'_>,
        args: &[Obj<'_>],
        context: Option<Obj<'_>>,
    ) -> Result<()> {
        self.push_ready(self.new_ready(callback, args, context)?);
        Ok(())
    }

    /// A new handle for [`LoopCore::push_ready`].
    #[inline(always)]
    pub(crate) fn new_ready(
        self,
        callback: Obj<'_>,
        args: &[Obj<'_>],
        context: Option<Obj<'_>>,
    ) -> Result<Ref> {
        let handle = new_queued_handle(self, callback, args, context)?;
        if !self.turning.get() {
            handle.obj().track();
        }
        Ok(handle)
    }

    /// What `self.time()` says.
    pub(crate) fn now(self) -> Result<f64> {
        if !self.own_time.get() {
            return Ok(monotonic());
        }
        self.obj().call_method(&names::TIME, &[])?.obj().to_f64()
    }

    /// The checks that asyncio makes in debug mode; the messages are its own.
    #[inline]
    pub(crate) fn check_in_debug(
        self,
        callback: Obj<'_>,
        method: &str,
        thread: bool,
    ) -> Result<()> {
        if self.debug.get() { self.check_call(callback, method, thread) } else { Ok(()) }
    }

    #[cold]
    fn check_call(self, callback: Obj<'_>, method: &str, thread: bool) -> Result<()> {
        if thread {
            self.obj().call_method(&names::CHECK_THREAD, &[])?;
        }
        let method = Ref::str(method)?;
        self.obj().call_method(&names::CHECK_CALLBACK, &[callback, method.obj()])?;
        Ok(())
    }

    /// Reports to the loop's exception handler.
    pub(crate) fn report(self, details: &[(&names::Name, Obj<'_>)]) -> Result<()> {
        let context = Ref::dict()?;
        for (key, value) in details {
            context.obj().set_item(key.obj(), *value)?;
        }
        self.obj().call_method(&names::CALL_EXCEPTION_HANDLER, &[context.obj()])?;
        Ok(())
    }

    /// `push_ready` from whichever thread this is; wakes the loop if it sleeps.
    pub(crate) fn push_from_any_thread(self, handle: Ref) {
        let own = self.on_own_thread();
        if !(own && self.turning.get()) {
            handle.obj().track();
        }
        if own {
            self.push_ready(handle);
        } else {
            let mut inbox = self.inbox.lock().expect("no panic under this lock");
            inbox.push(handle);
            self.inbox_filled.store(true, Ordering::Release);
        }
        // On the loop's own thread too: a signal handler may run while it is about to sleep.
        self.wake();
    }

    /// Whether the calling thread is the one that runs the loop.
    fn on_own_thread(self) -> bool {
        self.thread.get() == Some(thread::current().id())
    }
}

/// A dict that is used again spares each future the making of one.
fn create_future(this: This<'_, LoopCore>) -> Result<Ref> {
    let arguments = match this.future_arguments.get() {
        Some(arguments) => arguments,
        None => {
            let arguments = Ref::dict()?;
            arguments.obj().set_item(names::LOOP.obj(), this.obj())?;
            this.future_arguments.set(arguments.clone());
            arguments
        }
    };
    names::FUTURE.get()?.call_keywords(arguments.obj())
}

fn thread_id(this: This<'_, LoopCore>) -> Result<Ref> {
    if this.thread.get().is_some() { Ref::int(this.thread_number.get()) } else { Ok(Ref::none()) }
}

/// asyncio sets the running thread's number here, and None when the loop ends.
fn set_thread_id(this: This<'_, LoopCore>, value: Obj<'_>) -> Result<()> {
    if value.is_none() {
        this.thread.set(None);
    } else {
        this.thread_number.set(value.to_i64()?);
        this.thread.set(Some(thread::current().id()));
    }
    Ok(())
}

#[cold]
fn closed_error() -> Raised {
    Raised::runtime_error("Event loop is closed")
}

/// Lets go of everything; the loop is closed for good.
fn close(this: This<'_, LoopCore>) -> Result<Ref> {
    if this.turning.get() {
        return Err(Raised::runtime_error("Cannot close a running event loop"));
    }
    this.closed.set(true);
    this.forget_all();
    this.kernel.take();
    Ok(Ref::none())
}
