//! One stream connection.

mod door;
mod flow;
mod state;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

pub use door::{Door, Pipe, Socket};
pub use flow::{FlowControl, LimitsError};
pub use state::{State, WriteShutdown};

use crate::buf::WriteQueue;
use crate::reactor::Interest;
use crate::sys::socket;

/// How many chunks one call to the kernel takes. An `IoSlice` is 16 bytes of stack.
const GATHER: usize = 64;

/// A stream connection: a write queue, its flow control, and the table of its states.
///
/// It holds no descriptor: every method that talks to the kernel borrows one, so that whoever owns
/// the socket decides when it is closed. The descriptor must be a socket; its blocking mode does
/// not matter, because every call is non-blocking by its flags. With [`Pipe`] for `D` it is a
/// non-blocking pipe's writing end, or anything else that `write` knows.
///
/// `B` is what owns the written bytes, as for [`WriteQueue`].
///
/// # Examples
///
/// ```
/// use std::os::fd::AsFd;
/// use std::os::unix::net::UnixStream;
/// use pelton::stream::{Read, Sent, Stream};
///
/// let (ours, theirs) = UnixStream::pair()?;
/// let mut stream = Stream::new();
/// assert_eq!(stream.write(ours.as_fd(), b"hello".to_vec())?, Sent::All);
///
/// let mut buffer = [0; 16];
/// assert_eq!(Stream::<Vec<u8>>::read(theirs.as_fd(), &mut buffer)?, Read::Data(5));
/// assert_eq!(Stream::<Vec<u8>>::read(theirs.as_fd(), &mut buffer)?, Read::WouldBlock);
/// drop(ours);
/// assert_eq!(Stream::<Vec<u8>>::read(theirs.as_fd(), &mut buffer)?, Read::Eof);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stream<B, D = Socket> {
    queue: WriteQueue<B>,
    flow: FlowControl,
    state: State,
    door: PhantomData<D>,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// This many bytes, at least one.
    Data(usize),
    /// The peer has ended its side.
    Eof,
    /// Nothing now.
    WouldBlock,
}

/// What became of written bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has taken all of them.
    All,
    /// Some wait in the queue.
    Queued,
}

/// What became of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The kernel has taken all of it.
    Drained,
    /// Some bytes wait until the socket is writable.
    Partial,
}

impl<B> Stream<B> {
    /// An open connection with nothing queued. Asks the heap for nothing.
    pub const fn new() -> Self {
        Self::through()
    }

    /// Reads what there is, at most as much as `buf` holds.
    ///
    /// `buf` must not be empty: the kernel's answer would be the same as at the end of the stream.
    ///
    /// # Errors
    ///
    /// What the kernel says of the connection (`ECONNRESET`, `ETIMEDOUT`, ...); not `EINTR`, upon
    /// which the read is made again.
    #[inline]
    pub fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Read> {
        debug_assert!(!buf.is_empty(), "a read into nothing looks like the end of the stream");
        Ok(Read::of(socket::recv(fd, buf)?))
    }

    /// As [`read`](Self::read), into memory that need not be initialised: the first bytes of it
    /// are, as many as the answer says.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    #[inline]
    pub fn read_uninit(fd: BorrowedFd<'_>, buf: &mut [MaybeUninit<u8>]) -> io::Result<Read> {
        debug_assert!(!buf.is_empty(), "a read into nothing looks like the end of the stream");
        Ok(Read::of(socket::recv_uninit(fd, buf)?))
    }

    /// Offers `bytes` to the kernel, beside any queue, and answers how many it took: 0 when it
    /// takes none now.
    ///
    /// For bytes that the caller does not want to own before it knows that they must wait; the
    /// queue must be empty, and what was not taken goes to [`hold`](Self::hold).
    ///
    /// # Errors
    ///
    /// What the kernel says of the connection (`EPIPE`, `ECONNRESET`, ...).
    #[inline]
    pub fn try_send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        socket::send(fd, bytes)
    }

    /// Ends our side of the connection: the peer reads an end of file.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` when the peer is gone already.
    pub fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
        socket::shutdown_write(fd)
    }
}

impl<B> Stream<B, Pipe> {
    /// An open pipe with nothing queued. Asks the heap for nothing.
    pub const fn pipe() -> Self {
        Self::through()
    }
}

impl<B, D> Stream<B, D> {
    const fn through() -> Self {
        Self {
            queue: WriteQueue::new(),
            flow: FlowControl::new(),
            state: State::new(),
            door: PhantomData,
        }
    }

    /// How many bytes wait for the kernel.
    pub const fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Takes out what waits, oldest first, for the caller to drop after its borrow.
    #[must_use = "the chunks are dropped where the answer is"]
    pub fn take_queue(&mut self) -> VecDeque<B> {
        self.queue.take_all()
    }

    /// The flow control. The stream does not drive it: the caller does, where it can tell the
    /// writer.
    pub const fn flow(&self) -> &FlowControl {
        &self.flow
    }

    /// The flow control, to be told of the queue's length.
    pub const fn flow_mut(&mut self) -> &mut FlowControl {
        &mut self.flow
    }

    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The state, to be told what happens.
    pub const fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// What the reactor is to watch for: readable while reads are wanted, writable while bytes
    /// wait, nothing once the connection is lost.
    pub const fn interest(&self) -> Interest {
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

impl<B: AsRef<[u8]>, D: Door> Stream<B, D> {
    /// Sends `data`. With nothing queued the kernel is asked at once, and what it does not take is
    /// queued; behind queued bytes `data` is queued without a call.
    ///
    /// # Errors
    ///
    /// What the kernel says of the connection (`EPIPE`, `ECONNRESET`, ...); nothing is queued
    /// then.
    #[inline]
    pub fn write(&mut self, fd: BorrowedFd<'_>, data: B) -> io::Result<Sent> {
        if !self.queue.is_empty() {
            self.queue.push(data);
            return Ok(Sent::Queued);
        }
        let bytes = data.as_ref();
        if bytes.is_empty() {
            return Ok(Sent::All);
        }
        let sent = D::send(fd, bytes)?;
        if sent == bytes.len() {
            return Ok(Sent::All);
        }
        self.queue.push_rest(data, sent);
        Ok(Sent::Queued)
    }

    /// Queues `data` without asking the kernel: the next [`flush`](Self::flush) takes it along.
    pub fn hold(&mut self, data: B) {
        self.queue.push(data);
    }

    /// Sends what is queued, up to 64 chunks in one call, until nothing is left or the kernel
    /// takes no more.
    ///
    /// # Errors
    ///
    /// What the kernel says of the connection; what it had not taken stays queued.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<Flushed> {
        while !self.queue.is_empty() {
            let (offered, sent) = self.send_some(fd)?;
            self.queue.advance(sent);
            if sent < offered {
                return Ok(Flushed::Partial);
            }
        }
        Ok(Flushed::Drained)
    }

    /// One call; answers how many bytes were offered, and how many were taken.
    fn send_some(&self, fd: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
        if let Some(bytes) = self.queue.single() {
            return Ok((bytes.len(), D::send(fd, bytes)?));
        }
        let mut slices = [IoSlice::new(&[]); GATHER];
        let count = self.queue.gather(&mut slices);
        let slices = &slices[..count];
        let offered = slices.iter().map(|slice| slice.len()).sum();
        Ok((offered, D::send_gathered(fd, slices)?))
    }
}

impl<B> Default for Stream<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl Read {
    #[inline]
    fn of(received: Option<usize>) -> Self {
        match received {
            None => Self::WouldBlock,
            Some(0) => Self::Eof,
            Some(count) => Self::Data(count),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
