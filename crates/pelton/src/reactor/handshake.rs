//! The atomic of `wake`, apart from the eventfd, so that loom can try every interleaving of it.

#[cfg(all(test, loom))]
use ::loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;

/// What the poller does. The reasoning stands at the head of `wake`.
pub(super) struct Handshake {
    state: AtomicU8,
}

impl Handshake {
    pub(super) fn new() -> Self {
        Self { state: AtomicU8::new(AWAKE) }
    }

    /// Leaves word for the poller; true if it must be rung out of its sleep.
    pub(super) fn notify(&self) -> bool {
        self.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING
    }

    /// False if there is word: the poller must not sleep.
    pub(super) fn prepare_sleep(&self) -> bool {
        let answer =
            self.state.compare_exchange(AWAKE, SLEEPING, Ordering::AcqRel, Ordering::Acquire);
        // Called twice without `awake` it is sleeping already, and may.
        answer.is_ok() || answer == Err(SLEEPING)
    }

    /// The poller runs again, and takes word as received.
    pub(super) fn awake(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }
}

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;
