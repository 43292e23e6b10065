//! One stream connection: read path, write path, flow control, the table of its states.
//!
//! A [`Stream`] owns no descriptor. Whoever does passes it to each call, so that a connection
//! may belong to another runtime's socket object.

mod flow;
mod state;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

pub use flow::{FlowControl, HIGH, LimitsError};
pub use state::{State, WriteShutdown};

use crate::buf::WriteQueue;
use crate::reactor::Interest;
use crate::sys::socket;

/// The most chunks that one gathered send takes.
const GATHER: usize = 64;

/// What a read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// This many bytes, at least one.
    Data(usize),
    /// The peer sends no more.
    Eof,
    /// Nothing yet.
    WouldBlock,
}

/// Where the bytes of a write are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All with the kernel.
    All,
    /// Some or all in the queue.
    Queued,
}

/// Where the bytes of the queue are after a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// All with the kernel.
    Drained,
    /// The kernel takes no more for now.
    Partial,
}

/// The state of one connection and what waits to be sent on it, as chunks of type `B`.
#[derive(Debug)]
pub struct Stream<B> {
    queue: WriteQueue<B>,
    flow: FlowControl,
    state: State,
}

impl<B: AsRef<[u8]>> Stream<B> {
    /// An open connection; allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self { queue: WriteQueue::new(), flow: FlowControl::new(), state: State::new() }
    }

    /// Reads once, at most `space.len()` bytes, which must not be 0.
    ///
    /// # Errors
    /// What recv(2) reports; the connection is then of no more use.
    pub fn read(fd: BorrowedFd<'_>, space: &mut [u8]) -> io::Result<Read> {
        debug_assert!(!space.is_empty(), "a read needs space");
        Ok(match socket::recv(fd, space)? {
            Some(0) => Read::Eof,
            Some(count) => Read::Data(count),
            None => Read::WouldBlock,
        })
    }

    /// Sends what the kernel takes of `bytes` at once, and answers how much that was. For bytes
    /// whose owner may change them: the caller copies the rest and [`hold`](Self::hold)s it.
    ///
    /// # Errors
    /// What send(2) reports.
    pub fn try_send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        Ok(socket::send(fd, bytes)?.unwrap_or(0))
    }

    /// Sends `chunk` now if nothing waits before it, and queues what is not taken.
    ///
    /// # Errors
    /// What send(2) reports; nothing is queued then.
    pub fn write(&mut self, fd: BorrowedFd<'_>, chunk: B) -> io::Result<Sent> {
        if !self.queue.is_empty() {
            self.queue.push(chunk);
            return Ok(Sent::Queued);
        }
        let sent = Self::try_send(fd, chunk.as_ref())?;
        if sent == chunk.as_ref().len() {
            return Ok(Sent::All);
        }
        self.queue.push_rest(chunk, sent);
        Ok(Sent::Queued)
    }

    /// Queues `chunk` for the next flush.
    pub fn hold(&mut self, chunk: B) {
        self.queue.push(chunk);
    }

    /// Sends what waits, up to 64 chunks in one call, until the kernel takes no more.
    ///
    /// # Errors
    /// What sendmsg(2) reports.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<Flushed> {
        while !self.queue.is_empty() {
            let (sent, offered) = {
                let mut slices = [IoSlice::new(&[]); GATHER];
                let filled = self.queue.gather(&mut slices);
                let slices = &slices[..filled];
                let offered: usize = slices.iter().map(|slice| slice.len()).sum();
                (socket::send_all(fd, slices)?.unwrap_or(0), offered)
            };
            self.queue.advance(sent);
            if sent < offered {
                return Ok(Flushed::Partial);
            }
        }
        Ok(Flushed::Drained)
    }

    /// Tells the peer that no more comes.
    ///
    /// # Errors
    /// What shutdown(2) reports.
    pub fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
        socket::shutdown_write(fd)
    }

    /// Bytes that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Takes out what waits, for the caller to drop when it borrows nothing.
    pub fn take_queue(&mut self) -> Vec<B> {
        self.queue.take()
    }

    /// The flow control.
    #[must_use]
    pub fn flow(&self) -> &FlowControl {
        &self.flow
    }

    /// The flow control, to change.
    pub fn flow_mut(&mut self) -> &mut FlowControl {
        &mut self.flow
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The state, to change.
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// What the poller should watch for.
    #[must_use]
    pub fn interest(&self) -> Interest {
        let mut interest = Interest::NONE;
        if self.state.wants_read() {
            interest = interest.with(Interest::READ);
        }
        if !self.queue.is_empty() && !self.state.is_lost() {
            interest = interest.with(Interest::WRITE);
        }
        interest
    }
}

impl<B: AsRef<[u8]>> Default for Stream<B> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
