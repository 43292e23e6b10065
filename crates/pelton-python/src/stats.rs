//! What `loop.stats()` tells, counted as cheaply as can be.
//!
//! Most of it is a sum that is there anyway: the callbacks run are the loop's epoch, the open
//! transports are counted when someone asks. What is added to a turn is one increment, and two
//! looks at the clock if it sleeps; to a read or a write one addition; to a callback one branch.
//! Callback times are taken only when they are asked for.

use std::cell::Cell;

use crate::core::{LoopCore, Source};
use crate::ffi::{Obj, Ref, Result, Spec, This, monotonic};

/// The upper bounds of the histogram's buckets, in seconds; one more bucket has no bound.
const BOUNDS: [f64; 12] = [1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0];

/// Callback times since they were asked for.
#[derive(Default)]
struct Histogram {
    counts: [Cell<u64>; BOUNDS.len() + 1],
    seconds: Cell<f64>,
}

/// The counters of one loop, from its beginning.
#[derive(Default)]
pub(crate) struct Stats {
    turns: Cell<u64>,
    /// Seconds in polls that could block, and in all runs that have ended.
    slept: Cell<f64>,
    ran: Cell<f64>,
    /// When the poll or the run under way began; 0 for none.
    sleeping_since: Cell<f64>,
    running_since: Cell<f64>,
    received: Cell<u64>,
    sent: Cell<u64>,
    handshakes: Cell<u64>,
    measuring: Cell<bool>,
    histogram: Histogram,
}

/// A run of the loop ends when this is dropped.
pub(crate) struct Running<'a>(&'a Stats);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let began = self.0.running_since.replace(0.0);
        self.0.ran.set(self.0.ran.get() + (monotonic() - began));
    }
}

impl Stats {
    pub(crate) fn run(&self) -> Running<'_> {
        self.running_since.set(monotonic());
        Running(self)
    }

    pub(crate) fn turn(&self) {
        self.turns.set(self.turns.get() + 1);
    }

    /// Runs `poll`, which may block.
    pub(crate) fn asleep<T>(&self, poll: impl FnOnce() -> T) -> T {
        let began = monotonic();
        self.sleeping_since.set(began);
        let answer = poll();
        self.sleeping_since.set(0.0);
        self.slept.set(self.slept.get() + (monotonic() - began));
        answer
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.set(self.received.get() + bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    /// A TLS handshake has succeeded.
    pub(crate) fn handshake(&self) {
        self.handshakes.set(self.handshakes.get() + 1);
    }

    /// Runs one callback; its time is taken if that was asked for.
    #[inline(always)]
    pub(crate) fn measured<T>(&self, callback: impl FnOnce() -> T) -> T {
        let began = if self.measuring.get() { Some(monotonic()) } else { None };
        let answer = callback();
        if let Some(began) = began {
            self.note(monotonic() - began);
        }
        answer
    }

    #[cold]
    fn note(&self, seconds: f64) {
        let place = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        let count = &self.histogram.counts[place];
        count.set(count.get() + 1);
        self.histogram.seconds.set(self.histogram.seconds.get() + seconds);
    }
}

/// How many of each kind the poller knows.
#[derive(Default)]
struct Open {
    streams: i64,
    datagrams: i64,
    listeners: i64,
    read_pipes: i64,
    write_pipes: i64,
    callbacks: i64,
}

impl Open {
    fn count(&mut self, source: &Source) {
        match source {
            Source::Stream(_) => self.streams += 1,
            Source::Datagram(_) => self.datagrams += 1,
            Source::Listener(_) => self.listeners += 1,
            Source::Watch(watch) => {
                let waiters = watch.waiters();
                self.read_pipes += i64::from(waiters.read_pipe);
                self.write_pipes += i64::from(waiters.write_pipe);
                self.callbacks += waiters.callbacks;
            }
        }
    }
}

pub(crate) fn describe(spec: &mut Spec<LoopCore>) {
    spec.none(c"_stats", stats).one(c"measure_callbacks", |this, enabled| {
        this.stats.measuring.set(enabled.is_true()?);
        Ok(Ref::none())
    });
}

/// A tuple in the order of `python/pelton/stats.py`.
fn stats(this: This<'_, LoopCore>) -> Result<Ref> {
    let stats = &this.stats;
    let now = monotonic();
    let until_now = |since: &Cell<f64>| if since.get() > 0.0 { now - since.get() } else { 0.0 };
    let mut open = Open::default();
    if let Ok(kernel) = this.kernel() {
        kernel.reactor.iter().for_each(|source| open.count(source));
    } else {
        // Closed: nothing is open.
        crate::ffi::Raised.discard();
    }
    let (scheduled, cancelled) = this.timers_counted();
    let integers = [
        stats.turns.get() as i64,
        this.epoch.get() as i64 - 1,
        this.ready.borrow().len() as i64 + this.inbox_len() as i64,
        scheduled.saturating_sub(cancelled) as i64,
        open.streams,
        open.datagrams,
        open.listeners,
        open.read_pipes,
        open.write_pipes,
        open.callbacks,
        stats.received.get() as i64,
        stats.sent.get() as i64,
        stats.handshakes.get() as i64,
    ];
    let mut parts = vec![
        Ref::float(stats.ran.get() + until_now(&stats.running_since))?,
        Ref::float(stats.slept.get() + until_now(&stats.sleeping_since))?,
    ];
    for integer in integers {
        parts.push(Ref::int(integer)?);
    }
    parts.push(histogram(stats)?);
    tuple(&parts)
}

/// `(bounds, counts, seconds)`; None where callback times are not taken.
fn histogram(stats: &Stats) -> Result<Ref> {
    if !stats.measuring.get() {
        return Ok(Ref::none());
    }
    let bounds: Result<Vec<Ref>> = BOUNDS.iter().map(|bound| Ref::float(*bound)).collect();
    let counts = stats.histogram.counts.iter();
    let counts: Result<Vec<Ref>> = counts.map(|count| Ref::int(count.get() as i64)).collect();
    tuple(&[tuple(&bounds?)?, tuple(&counts?)?, Ref::float(stats.histogram.seconds.get())?])
}

fn tuple(items: &[Ref]) -> Result<Ref> {
    let items: Vec<Obj<'_>> = items.iter().map(Ref::obj).collect();
    Ref::tuple(&items)
}
