//! One datagram endpoint: UDP, unix datagrams, and any other datagram socket that there is.
//!
//! | part | what it is |
//! |---|---|
//! | [`Endpoint`] | the queue of one socket, its flow control and state; sends and receives |
//! | [`ReceiveBatch`] | room for what one call receives |
//! | [`Cache`] | what is known of the peers used last |
//! | [`Address`] | a peer's address as the kernel has it |
//!
//! A datagram goes out by itself ([`Endpoint::send`]), or is held and goes out with others
//! ([`Endpoint::hold`], [`Endpoint::flush`]): in one `sendmmsg`, and runs of one size to one peer
//! as one send that the kernel cuts apart (`UDP_SEGMENT`) where it can. The order is kept.

mod cache;
mod receive;
mod runs;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};

pub use crate::sys::address::Address;
pub use cache::Cache;
pub use receive::{Datagram, ReceiveBatch};

use crate::reactor::Interest;
use crate::stream::FlowControl;
use crate::stream::State;
use crate::sys::datagram::{self as sys, MOST_SENT, Message};
use receive::{Window, slot_size};
use runs::run_length;

/// What a queued datagram counts beside its content, so that empty ones are bounded too: the
/// header of UDP, as in asyncio since Python 3.13.
const HEADER: usize = 8;

/// The family of an endpoint's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
    /// Unix names.
    Unix,
    /// One whose addresses this crate does not spell.
    Other,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To this peer; [`Address::NONE`] on a connected socket.
    To(Address),
    /// To a peer that only the caller can address: [`Endpoint::flush`] stops before it.
    Foreign,
}

/// What became of the queue.
#[derive(Debug)]
pub enum Flushed {
    /// The kernel has taken all of it.
    Drained,
    /// The kernel takes no more now.
    Blocked,
    /// The oldest datagram could not be sent and is gone; the others are still there.
    Failed(io::Error),
    /// The oldest datagram is [`Destination::Foreign`]: the caller takes it with
    /// [`Endpoint::take_first`].
    Foreign,
}

/// One datagram socket's queue, flow control and state.
///
/// It holds no descriptor: every method that talks to the kernel borrows one. `B` is what owns the
/// bytes of a queued datagram; its `as_ref` must give the same bytes every time.
///
/// # Examples
///
/// ```
/// use std::net::UdpSocket;
/// use std::os::fd::AsFd;
/// use pelton::datagram::{Address, Destination, Endpoint, Flushed, ReceiveBatch};
///
/// let (ours, theirs) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
/// let peer = Address::from(theirs.local_addr()?);
/// let mut endpoint = Endpoint::new(ours.as_fd())?;
/// for _ in 0..3 {
///     endpoint.hold(Destination::To(peer), b"hello");
/// }
/// assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Drained));
///
/// let mut batch = ReceiveBatch::new();
/// let mut received = 0;
/// let mut other = Endpoint::<&[u8]>::new(theirs.as_fd())?;
/// while received < 3 {
///     if other.receive(theirs.as_fd(), &mut batch)? {
///         received += batch.iter().filter(|datagram| datagram.data == b"hello").count();
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Endpoint<B> {
    queue: VecDeque<(Destination, B)>,
    /// Bytes of the queue, headers included.
    queued: usize,
    flow: FlowControl,
    state: State,
    family: Family,
    connected: bool,
    /// The largest datagrams that are sent as runs; 0 for none.
    largest: usize,
    /// A run was refused with this code; `largest` was the other number before.
    doubt: Option<(i32, usize)>,
    window: Window,
    /// Whether the kernel was asked to hand over together what arrives together.
    asked_coalesced: bool,
}

impl<B> Endpoint<B> {
    /// An endpoint for this socket, which may be connected or not, and stays so.
    ///
    /// # Errors
    ///
    /// If the kernel does not know the descriptor, or not as a socket.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let family = match sockopt::socket_domain(fd)? {
            AddressFamily::INET => Family::Inet,
            AddressFamily::INET6 => Family::Inet6,
            AddressFamily::UNIX => Family::Unix,
            _ => Family::Other,
        };
        let udp = matches!(family, Family::Inet | Family::Inet6)
            && sockopt::socket_type(fd)? == SocketType::DGRAM
            && sockopt::socket_protocol(fd)? == Some(ipproto::UDP);
        // `None` is the unnamed peer of a socket pair.
        let connected = rustix::net::getpeername(fd).is_ok();
        Ok(Self {
            queue: VecDeque::new(),
            queued: 0,
            flow: FlowControl::new(),
            state: State::new(),
            family,
            connected,
            largest: if udp && cuts_runs(fd) { usize::MAX } else { 0 },
            doubt: None,
            window: Window::new(),
            asked_coalesced: !udp,
        })
    }

    /// Sends and receives every datagram by itself, whatever the kernel could do.
    #[must_use]
    pub fn without_offload(mut self) -> Self {
        self.largest = 0;
        self.asked_coalesced = true;
        self
    }

    /// The family of its addresses.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Whether the socket had a peer when the endpoint was made.
    pub const fn is_connected(&self) -> bool {
        self.connected
    }

    /// How many bytes wait for the kernel; every datagram counts 8 more than it has.
    pub const fn queued(&self) -> usize {
        self.queued
    }

    /// How many datagrams wait for the kernel.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The flow control. The endpoint does not drive it: the caller does, where it can tell the
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

    /// What the reactor is to watch for: readable while reads are wanted, writable while datagrams
    /// wait, nothing once the endpoint is lost.
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

    /// Sends one datagram beside any queue; false when the kernel takes none now.
    ///
    /// # Errors
    ///
    /// What the kernel says of this datagram (`EMSGSIZE`, `ENETUNREACH`, ...), or, on a connected
    /// socket, of an earlier one (`ECONNREFUSED`); this one is not sent then.
    #[inline]
    pub fn send(fd: BorrowedFd<'_>, to: &Address, data: &[u8]) -> io::Result<bool> {
        sys::send(fd, to, data)
    }

    /// Receives what there is, as much as fits `batch`; false when nothing is there now.
    ///
    /// # Errors
    ///
    /// What the kernel says of an earlier send (`ECONNREFUSED`), once; the socket lives on.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, batch: &mut ReceiveBatch) -> io::Result<bool> {
        batch.filled = 0;
        batch.slot = slot_size(matches!(self.family, Family::Inet | Family::Inet6));
        let heads = &mut batch.heads[..self.window.slots()];
        match sys::receive_many(fd, &mut batch.memory, batch.slot, heads)? {
            None => Ok(false),
            Some(filled) => {
                batch.filled = filled;
                self.window.on_filled(filled);
                if self.window.is_widest() && !self.asked_coalesced {
                    // Only now: a socket that gets few datagrams stays as it was made.
                    self.asked_coalesced = true;
                    sys::receive_coalesced(fd);
                }
                Ok(true)
            }
        }
    }

    /// Takes out the oldest datagram.
    pub fn take_first(&mut self) -> Option<(Destination, B)>
    where
        B: AsRef<[u8]>,
    {
        let (to, data) = self.queue.pop_front()?;
        self.queued -= data.as_ref().len() + HEADER;
        Some((to, data))
    }

    /// Takes out what waits, oldest first, for the caller to drop after its borrow.
    #[must_use = "the datagrams are dropped where the answer is"]
    pub fn take_queue(&mut self) -> VecDeque<(Destination, B)> {
        self.queued = 0;
        std::mem::take(&mut self.queue)
    }
}

impl<B: AsRef<[u8]>> Endpoint<B> {
    /// Queues a datagram without asking the kernel: the next [`flush`](Self::flush) takes it along.
    pub fn hold(&mut self, to: Destination, data: B) {
        self.queued += data.as_ref().len() + HEADER;
        self.queue.push_back((to, data));
    }

    /// Puts back the datagram that [`take_first`](Self::take_first) gave.
    pub fn put_back(&mut self, to: Destination, data: B) {
        self.queued += data.as_ref().len() + HEADER;
        self.queue.push_front((to, data));
    }

    /// Sends what is queued, up to 64 datagrams in one call, until nothing is left, the kernel
    /// takes no more, or something needs the caller.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> Flushed {
        while let Some((to, _)) = self.queue.front() {
            if *to == Destination::Foreign {
                return Flushed::Foreign;
            }
            match self.send_some(fd) {
                Ok(0) => return Flushed::Blocked,
                Ok(sent) => {
                    self.doubt = None;
                    self.forget(sent);
                }
                Err((error, 1)) => {
                    self.clear_doubt(&error);
                    self.forget(1);
                    return Flushed::Failed(error);
                }
                Err((error, _)) => {
                    if !self.refuses_runs(&error) {
                        self.forget(1);
                        return Flushed::Failed(error);
                    }
                }
            }
        }
        if self.queue.capacity() > MOST_SENT {
            // A burst that has waited is over; what bursts use every day is kept.
            self.queue = VecDeque::new();
        }
        Flushed::Drained
    }

    /// One call; how many datagrams were taken. An error comes with the number of datagrams that
    /// were in the message that it is about.
    fn send_some(&self, fd: BorrowedFd<'_>) -> Result<usize, (io::Error, usize)> {
        let mut slices = [IoSlice::new(&[]); MOST_SENT];
        let mut peers = [&Address::NONE; MOST_SENT];
        let mut count = 0;
        for ((to, data), (slice, peer)) in self.queue.iter().zip(slices.iter_mut().zip(&mut peers))
        {
            let Destination::To(to) = to else { break };
            (*slice, *peer) = (IoSlice::new(data.as_ref()), to);
            count += 1;
        }
        let mut runs = [0; MOST_SENT];
        let (mut calls, mut planned) = (0, 0);
        // An error of a connected socket is one of an earlier datagram, and told but once: a call
        // with several messages would swallow it.
        let most_calls = if self.connected { 1 } else { MOST_SENT };
        while planned < count && calls < most_calls {
            let rest = slices[planned..count].iter().zip(&peers[planned..count]);
            runs[calls] = run_length(rest.map(|(slice, peer)| (*peer, slice.len())), self.largest);
            planned += runs[calls];
            calls += 1;
        }
        let failed = |error| (error, runs[0]);
        if planned == 1 {
            let sent = sys::send(fd, peers[0], &slices[0]).map_err(failed)?;
            return Ok(usize::from(sent));
        }
        let mut start = 0;
        let messages = runs[..calls].iter().map(|&run| {
            let slices = &slices[start..start + run];
            let message = Message {
                to: peers[start],
                slices,
                segment: if run > 1 { slices[0].len() as u16 } else { 0 },
            };
            start += run;
            message
        });
        let taken = sys::send_many(fd, messages).map_err(failed)?;
        Ok(runs[..taken].iter().sum())
    }

    fn forget(&mut self, count: usize) {
        for (_, data) in self.queue.drain(..count) {
            self.queued -= data.as_ref().len() + HEADER;
        }
    }

    /// The kernel has refused a run: whether it is to be tried datagram by datagram.
    fn refuses_runs(&mut self, error: &io::Error) -> bool {
        let code = error.raw_os_error().unwrap_or_default();
        let before = self.largest;
        let size = self.queue.front().map_or(0, |(_, data)| data.as_ref().len());
        self.largest = match code {
            // Cut apart they would be longer than the way to this peer takes whole.
            libc::EINVAL | libc::EMSGSIZE => size.saturating_sub(1),
            // The device cannot do its part, or a filter of the kernel cannot.
            libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT => 0,
            _ => return false,
        };
        self.doubt = Some((code, before));
        true
    }

    /// A datagram by itself was refused: where that is for the same reason for which its run was,
    /// the reason was not the run.
    fn clear_doubt(&mut self, error: &io::Error) {
        if let Some((code, before)) = self.doubt.take()
            && error.raw_os_error() == Some(code)
        {
            self.largest = before;
        }
    }
}

impl<B> fmt::Debug for Endpoint<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("queued", &self.queued)
            .field("datagrams", &self.queue.len())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Whether the kernel cuts runs apart; asked once for the process.
fn cuts_runs(fd: BorrowedFd<'_>) -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| sys::knows_segments(fd))
}

#[cfg(all(test, not(loom)))]
mod tests;
