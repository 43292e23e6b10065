//! Waiting for events, apart from the registry, so that nothing is borrowed meanwhile.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{Readiness, Token};
use crate::sys::epoll::{Epoll, RawEvent};

/// A handle to wait with. Cheap to clone, and free of any borrow of the
/// [`Reactor`](super::Reactor).
#[derive(Clone, Debug)]
pub struct Poller {
    epoll: Arc<Epoll>,
}

impl Poller {
    pub(crate) const fn new(epoll: Arc<Epoll>) -> Self {
        Self { epoll }
    }

    /// Waits until something is ready, at most `timeout` (`None`: for ever; to the nanosecond
    /// where the kernel can, never shorter), and answers how many events `events` holds then.
    ///
    /// # Errors
    ///
    /// [`Interrupted`](io::ErrorKind::Interrupted) when a signal came; `events` is empty then.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.buffer.clear();
        if events.buffer.capacity() == 0 {
            events.buffer.reserve_exact(DEFAULT_CAPACITY);
        }
        Ok(self.epoll.wait(&mut events.buffer, timeout)?)
    }
}

/// A buffer for events, reused from one wait to the next.
///
/// The default one holds no memory before its first wait, and then has space for 512 events.
#[derive(Default)]
pub struct Events {
    buffer: Vec<RawEvent>,
}

/// One readiness event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which registration; [`Token::WAKE`] for the waker's.
    pub token: Token,
    /// What it is ready for.
    pub readiness: Readiness,
}

impl Events {
    /// A buffer for `capacity` events, at least one: what is ready beyond that is reported by the
    /// next wait. The heap is asked here, and never again.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { buffer: Vec::with_capacity(capacity.max(1)) }
    }

    /// How many events the last wait found.
    pub const fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the last wait found none.
    pub const fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The event at `index`.
    ///
    /// # Panics
    ///
    /// If there are not that many.
    pub fn get(&self, index: usize) -> Event {
        Event::new(self.buffer[index])
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = Event> {
        self.buffer.iter().copied().map(Event::new)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Event {
    fn new(raw: RawEvent) -> Self {
        Self { token: Token::from_raw(raw.data.u64()), readiness: Readiness::new(raw.flags) }
    }
}

const DEFAULT_CAPACITY: usize = 512;
