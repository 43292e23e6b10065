//! Registration, readiness, and wake-up from other threads.
//!
//! A [`Reactor`] keeps a value of the caller's, the source, for each registered descriptor, under
//! a [`Token`]. Polling is apart ([`Poller`]), so that no borrow of the reactor and no lock is
//! held while the thread sleeps. Events of descriptors that were deregistered meanwhile, or whose
//! number was given out again, are told by the token's generation: [`Reactor::get`] knows no
//! source for them.

mod interest;
mod wake;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

pub use interest::{Interest, Readiness};
pub use wake::Waker;

use crate::sys::epoll::{Epoll, EventFlags, Report};
use crate::sys::fork;

/// Names one registration, never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// The token of the waker's own events.
    pub const WAKE: Self = Self(u64::MAX);

    fn new(slot: usize, generation: u32) -> Self {
        Self((u64::from(generation) << 32) | slot as u64)
    }

    fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// One readiness event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Whose it is; perhaps of a registration that is gone.
    pub token: Token,
    /// What it is ready for.
    pub readiness: Readiness,
}

/// Space for the events of one poll, to be reused.
#[derive(Default)]
pub struct Events(Vec<Report>);

impl Events {
    /// Space for at most `capacity` events a poll.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// The event at `index`, below what the poll answered.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn get(&self, index: usize) -> Event {
        let report = self.0[index];
        Event { token: Token(report.data.u64()), readiness: Readiness::new(report.flags) }
    }

    /// The events of the last poll.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        (0..self.0.len()).map(|index| self.get(index))
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Waits for a reactor's events; stays valid without it.
#[derive(Clone, Debug)]
pub struct Poller(Arc<Epoll>);

impl Poller {
    /// Waits until something is ready or `timeout` is over (`None`: for ever), and answers how
    /// many events there are. Registrations may change meanwhile.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] where a signal came; else what epoll_wait(2) reports.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        self.0.wait(&mut events.0, timeout)
    }
}

/// The registered descriptors and their sources.
#[derive(Debug)]
pub struct Reactor<S> {
    epoll: Arc<Epoll>,
    waker: Waker,
    entries: Vec<Entry<S>>,
    free: Vec<u32>,
    /// The process that made the epoll set, as [`fork::generation`] tells it.
    process: u32,
}

#[derive(Debug)]
struct Entry<S> {
    fd: RawFd,
    generation: u32,
    interest: Interest,
    source: Option<S>,
}

impl<S> Reactor<S> {
    /// A reactor without registrations: two descriptors.
    ///
    /// # Errors
    /// What epoll_create(2) or eventfd(2) reports.
    pub fn new() -> io::Result<Self> {
        let process = fork::generation();
        let (epoll, waker) = open()?;
        Ok(Self { epoll, waker, entries: Vec::new(), free: Vec::new(), process })
    }

    /// What waits for this reactor's events.
    #[must_use]
    pub fn poller(&self) -> Poller {
        Poller(Arc::clone(&self.epoll))
    }

    /// What wakes its poll from other threads.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Watches a descriptor, which stays its owner's: deregister it before it is closed.
    ///
    /// # Errors
    /// What epoll_ctl(2) reports: `EPERM` for a file that is always ready, `EBADF`, `ENOSPC`.
    pub fn register(
        &mut self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        source: S,
    ) -> io::Result<Token> {
        let slot = self.free.pop().map_or(self.entries.len(), |slot| slot as usize);
        if slot == self.entries.len() {
            self.entries.push(Entry { fd: -1, generation: 0, interest: Interest::NONE, source: None });
        }
        let entry = &mut self.entries[slot];
        entry.generation = entry.generation.wrapping_add(1);
        entry.fd = fd.as_raw_fd();
        entry.interest = Interest::NONE;
        entry.source = Some(source);
        let token = Token::new(slot, entry.generation);
        if let Err(error) = self.set_interest(token, interest) {
            self.forget(token);
            return Err(error);
        }
        Ok(token)
    }

    /// Changes what a descriptor is watched for; a system call only where it differs.
    ///
    /// # Errors
    /// As [`register`](Self::register). An unknown token changes nothing.
    pub fn set_interest(&mut self, token: Token, interest: Interest) -> io::Result<()> {
        let shared_with_parent = self.process != fork::generation();
        let Some(entry) = self.entry_mut(token) else { return Ok(()) };
        let (fd, before) = (entry.fd, entry.interest);
        if before == interest {
            return Ok(());
        }
        entry.interest = interest;
        if shared_with_parent {
            // The next `fork_check` registers it with a set of this process's own.
            return Ok(());
        }
        let changed = if interest == Interest::NONE {
            // It may be closed already, and then the kernel has forgotten it.
            let _forgotten = self.epoll.delete(fd);
            Ok(())
        } else if before == Interest::NONE {
            self.epoll.add(fd, token.0, interest.flags())
        } else {
            self.epoll.modify(fd, token.0, interest.flags())
        };
        if changed.is_err()
            && let Some(entry) = self.entry_mut(token)
        {
            entry.interest = before;
        }
        changed
    }

    /// Ends a registration and gives its source back.
    pub fn deregister(&mut self, token: Token) -> Option<S> {
        // Taking the interest away cannot fail.
        let _never = self.set_interest(token, Interest::NONE);
        self.forget(token)
    }

    /// Ends a registration whose descriptor is closed and whose number is in use again: the
    /// kernel is not told, since it would take that for the new file.
    pub fn forget(&mut self, token: Token) -> Option<S> {
        let entry = self.entry_mut(token)?;
        entry.interest = Interest::NONE;
        let source = entry.source.take();
        self.free.push(token.slot() as u32);
        source
    }

    /// The source of a registration; `None` for one that is gone.
    #[must_use]
    pub fn get(&self, token: Token) -> Option<&S> {
        self.entry(token)?.source.as_ref()
    }

    /// The source of a registration, to change.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut S> {
        self.entry_mut(token)?.source.as_mut()
    }

    /// What a descriptor is watched for.
    #[must_use]
    pub fn interest(&self, token: Token) -> Option<Interest> {
        self.entry(token).map(|entry| entry.interest)
    }

    /// Every source, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.entries.iter().filter_map(|entry| entry.source.as_ref())
    }

    /// Ends every registration and gives the sources back.
    pub fn drain(&mut self) -> Vec<S> {
        let tokens: Vec<Token> = self.tokens().collect();
        tokens.into_iter().filter_map(|token| self.deregister(token)).collect()
    }

    /// In a forked child: makes an epoll set and a waker of this process's own, and leaves the
    /// parent's alone. Answers whether it did; pollers and wakers must then be asked for anew.
    ///
    /// # Errors
    /// As [`new`](Self::new). A descriptor that cannot be watched any more is left out.
    pub fn fork_check(&mut self) -> io::Result<bool> {
        let process = fork::generation();
        if self.process == process {
            return Ok(false);
        }
        (self.epoll, self.waker) = open()?;
        self.process = process;
        for token in self.tokens().collect::<Vec<_>>() {
            if let Some(entry) = self.entry_mut(token) {
                let interest = std::mem::replace(&mut entry.interest, Interest::NONE);
                let _closed_in_child = self.set_interest(token, interest);
            }
        }
        Ok(true)
    }

    fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        let entries = self.entries.iter().enumerate();
        entries
            .filter(|(_, entry)| entry.source.is_some())
            .map(|(slot, entry)| Token::new(slot, entry.generation))
    }

    fn entry(&self, token: Token) -> Option<&Entry<S>> {
        let entry = self.entries.get(token.slot())?;
        (entry.generation == token.generation() && entry.source.is_some()).then_some(entry)
    }

    fn entry_mut(&mut self, token: Token) -> Option<&mut Entry<S>> {
        let entry = self.entries.get_mut(token.slot())?;
        (entry.generation == token.generation() && entry.source.is_some()).then_some(entry)
    }
}

fn open() -> io::Result<(Arc<Epoll>, Waker)> {
    let (epoll, waker) = (Epoll::new()?, Waker::new()?);
    epoll.add(waker.descriptor(), Token::WAKE.0, EventFlags::IN)?;
    Ok((Arc::new(epoll), waker))
}

#[cfg(all(test, not(loom)))]
mod tests;
