//! A descriptor that another thread can make ready.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// An eventfd, non-blocking and closed on exec.
#[derive(Debug)]
pub(crate) struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd })
    }

    /// Makes the descriptor ready. Every call is a new edge for an edge-triggered epoll, whether
    /// or not the counter was drained since the last one.
    pub(crate) fn ring(&self) {
        loop {
            match rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) {
                Err(Errno::INTR) => {}
                // The counter is at its limit, 2^64 - 2: empty it and ring again.
                Err(Errno::AGAIN) => self.drain(),
                // Nothing else can fail on an eventfd that we own.
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn drain(&self) {
        let mut counter = [0; 8];
        // Whatever it answers: `ring` tries again.
        let _emptied = rustix::io::read(&self.fd, &mut counter);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
