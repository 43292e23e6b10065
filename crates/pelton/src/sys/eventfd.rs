//! A counter that a poll can wait for: eventfd(2).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a poll from any thread.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes the poll return. The one way to fail is a counter that is full, and then the poll
    /// returns anyway.
    pub(crate) fn signal(&self) {
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Takes the signals back.
    pub(crate) fn drain(&self) {
        let mut count = [0; 8];
        let _empty = rustix::io::read(&self.0, &mut count);
    }
}
