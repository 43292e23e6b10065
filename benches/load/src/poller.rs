//! Readiness by epoll: descriptors go in under a token, tokens come out when they are ready.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

/// The most events that one wait reports.
const BATCH: usize = 512;

/// One epoll instance and the events of its last wait.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(BATCH) })
    }

    pub(crate) fn add(&self, source: impl AsFd, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), flags)?)
    }

    pub(crate) fn modify(
        &self,
        source: impl AsFd,
        token: u64,
        flags: EventFlags,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), flags)?)
    }

    /// Waits until something is ready, or until `timeout` is over; `None` waits without end.
    ///
    /// A signal that interrupts the wait ends it with no events.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout
            .map(Timespec::try_from)
            .transpose()
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// How many descriptors the last wait found ready.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// The token of the `index`th descriptor that the last wait found ready.
    pub(crate) fn token(&self, index: usize) -> u64 {
        self.events[index].data.u64()
    }
}
