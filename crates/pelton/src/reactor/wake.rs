//! Waking a poller from another thread, or from a signal handler.
//!
//! One atomic says what the poller does. A system call is made only for a poller that sleeps or is
//! about to, and only by the first who wakes it.
//!
//! | state | the poller | `wake` does |
//! |---|---|---|
//! | `AWAKE` | runs; it will look for work before it sleeps | leaves word: `NOTIFIED` |
//! | `SLEEPING` | waits in the kernel, or is about to | `NOTIFIED`, and rings the eventfd |
//! | `NOTIFIED` | will not sleep, or is being woken | nothing |
//!
//! Why no wake-up is lost: all three operations read and write the same atomic in one step, so
//! they have one order. If `wake` comes before `prepare_sleep` in it, `prepare_sleep` sees
//! `NOTIFIED` and answers false. If it comes between `prepare_sleep` and `awake`, it sees
//! `SLEEPING` and rings; the eventfd stays ready until the kernel has reported it, so it does not
//! matter whether the wait has begun. If it comes after `awake`, it is before the next
//! `prepare_sleep`. Acquire and release are enough for the work itself: `wake` releases what was
//! written before it, and the `awake` (or the failed `prepare_sleep`) that follows it in the order
//! acquires it, also through the `wake` of another thread in between, because a
//! read-modify-write continues the release sequence. That is why `wake` must not skip the swap when
//! it sees `NOTIFIED`: then nothing would publish its caller's work.
//!
//! The eventfd is registered edge-triggered and never drained: the kernel reports each ring once,
//! and a wake-up costs one write and no read. A ring that comes late, after the poller woke up for
//! another reason, makes the next wait return early once.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::handshake::Handshake;
use crate::sys::eventfd::EventFd;
use crate::sys::fork;

/// Ends the wait of a poller, from any thread.
///
/// The thread that polls calls [`prepare_sleep`](Self::prepare_sleep), then waits, then calls
/// [`awake`](Self::awake), then looks for work; other threads add work, then call
/// [`wake`](Self::wake).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use pelton::reactor::{Events, Reactor};
///
/// let reactor: Reactor<()> = Reactor::new()?;
/// let (poller, waker) = (reactor.poller(), reactor.waker());
/// let mut events = Events::default();
///
/// let other = waker.clone();
/// let thread = std::thread::spawn(move || other.wake());
///
/// // For ever, if the wake-up could get lost.
/// let timeout = if waker.prepare_sleep() { None } else { Some(Duration::ZERO) };
/// poller.wait(&mut events, timeout)?;
/// waker.awake();
/// # thread.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

struct Shared {
    handshake: Handshake,
    eventfd: EventFd,
    /// The process that made it: a forked child must not ring the parent's bell.
    born: u32,
}

impl Waker {
    /// `notified` says that the first [`prepare_sleep`](Self::prepare_sleep) is to answer false.
    pub(crate) fn new(notified: bool) -> io::Result<Self> {
        let handshake = Handshake::new();
        if notified {
            handshake.notify();
        }
        let eventfd = EventFd::new()?;
        Ok(Self { shared: Arc::new(Shared { handshake, eventfd, born: fork::generation() }) })
    }

    /// Ends the poller's wait, or keeps it from sleeping next. Async-signal-safe.
    pub fn wake(&self) {
        if self.shared.handshake.notify() && self.shared.born == fork::generation() {
            self.shared.eventfd.ring();
        }
    }

    /// Says that the poller is about to wait; false if it was woken since it last called
    /// [`awake`](Self::awake), and then it must not wait but only look (a timeout of zero), and
    /// call [`awake`](Self::awake) as after a wait.
    pub fn prepare_sleep(&self) -> bool {
        self.shared.handshake.prepare_sleep()
    }

    /// Says that the poller's wait is over. Work that was added before a [`wake`](Self::wake) up
    /// to here is visible after it.
    pub fn awake(&self) {
        self.shared.handshake.awake();
    }
}

impl AsFd for Waker {
    /// The descriptor that becomes ready; it is not to be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.eventfd.as_fd()
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
