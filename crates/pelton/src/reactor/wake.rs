//! Waking a sleeping poll from another thread: no system call while it is awake, and no wake-up
//! lost.
//!
//! One atomic says how the poller stands. The producer first makes its work visible (puts it in
//! the inbox), then swaps in `NOTIFIED`; the poller first swaps in `SLEEPING`, then looks into
//! the inbox once more. Both swaps are on the same atomic, so one is first:
//!
//! - the producer's: the poller's `prepare_sleep` finds `NOTIFIED` and does not sleep
//! - the poller's: the producer finds `SLEEPING` and signals the descriptor in the poll
//!
//! The swaps are acquire and release, so whoever is second sees what the first did before.

use std::io;

use sync::{Arc, AtomicU8, Ordering, Signal};

#[cfg(not(loom))]
mod sync {
    pub(super) use std::sync::Arc;
    pub(super) use std::sync::atomic::{AtomicU8, Ordering};

    pub(super) use crate::sys::eventfd::EventFd as Signal;
}

#[cfg(loom)]
mod sync {
    pub(super) use loom::sync::Arc;
    pub(super) use loom::sync::atomic::{AtomicU8, Ordering};

    /// Stands for the eventfd in the model: a flag that stays up until it is drained.
    #[derive(Debug)]
    pub(super) struct Signal(loom::sync::atomic::AtomicBool);

    impl Signal {
        pub(super) fn new() -> std::io::Result<Self> {
            Ok(Self(loom::sync::atomic::AtomicBool::new(false)))
        }

        pub(super) fn number(&self) -> std::os::fd::RawFd {
            0
        }

        pub(super) fn signal(&self) {
            self.0.store(true, Ordering::SeqCst);
        }

        pub(super) fn is_up(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }

        pub(super) fn drain(&self) {
            self.0.store(false, Ordering::SeqCst);
        }
    }
}

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;

/// Wakes one reactor; clones share it.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    signal: Signal,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        let shared = Shared { state: AtomicU8::new(AWAKE), signal: Signal::new()? };
        Ok(Self(Arc::new(shared)))
    }

    pub(super) fn descriptor(&self) -> std::os::fd::RawFd {
        self.0.signal.number()
    }

    /// Makes the present or the next sleep of the poller end at once. Call it after the work is
    /// where the poller will find it. A system call is made only where the poller sleeps.
    pub fn wake(&self) {
        if self.0.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            self.0.signal.signal();
        }
    }

    /// The poller is about to sleep: false if a wake-up has come since it last did. After true
    /// the poller must look for work once more, then poll, then call [`awake`](Self::awake).
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        let swap = self.0.state.compare_exchange(
            AWAKE,
            SLEEPING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if swap.is_err() {
            // Swapped, so that the work of whoever set it is seen after this.
            self.0.state.swap(AWAKE, Ordering::AcqRel);
        }
        swap.is_ok()
    }

    /// The poll has returned.
    pub fn awake(&self) {
        if self.0.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED {
            self.0.signal.drain();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;

    use super::Waker;

    /// Two producers and a poller that would sleep for ever if a wake-up were lost.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let waker = Waker::new().expect("a model's waker");
            let work = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
            let producers: Vec<_> = (0..2)
                .map(|index| {
                    let (waker, work) = (waker.clone(), Arc::clone(&work));
                    thread::spawn(move || {
                        work[index].store(true, Ordering::Release);
                        waker.wake();
                    })
                })
                .collect();
            let done = || work.iter().all(|flag| flag.load(Ordering::Acquire));
            while !done() {
                if waker.prepare_sleep() && !done() {
                    // The poll: it ends only when the signal is up.
                    while !waker.0.signal.is_up() {
                        thread::yield_now();
                    }
                }
                waker.awake();
            }
            producers.into_iter().for_each(|producer| producer.join().expect("no panic"));
        });
    }
}
