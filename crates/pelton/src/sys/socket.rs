//! Stream sockets: receive, send, accept.
//!
//! Sending and receiving is non-blocking by its flags, whatever the descriptor's own mode is, and
//! never raises `SIGPIPE`. Every call is made again when a signal interrupts it.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketFlags,
};

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// `None` when there is nothing to read now, `Some(0)` when the peer has ended its side.
#[inline]
pub(crate) fn recv(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(fd, &mut *buf, RecvFlags::DONTWAIT) {
            Ok((count, _)) => return Ok(Some(count)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// As [`recv`], into memory that need not be initialised.
#[inline]
pub(crate) fn recv_uninit(
    fd: BorrowedFd<'_>,
    buf: &mut [MaybeUninit<u8>],
) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(fd, &mut *buf, RecvFlags::DONTWAIT) {
            Ok(((filled, _), _)) => return Ok(Some(filled.len())),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How many bytes the kernel took; 0 when it takes none now.
#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    taken(retry_on_intr(|| rustix::net::send(fd, bytes, SEND)))
}

/// As [`send`], of several pieces in one call.
#[inline]
pub(crate) fn send_gathered(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut no_control = SendAncillaryBuffer::default();
    taken(retry_on_intr(|| rustix::net::sendmsg(fd, slices, &mut no_control, SEND)))
}

pub(crate) fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Write)?)
}

/// The next waiting connection, non-blocking and closed on exec, with its peer's address; `None`
/// when none waits. One that its peer gave up while it waited is passed over.
pub(crate) fn accept(fd: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, Option<SocketAddrAny>)>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        match rustix::net::acceptfrom_with(fd, flags) {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn taken(answer: Result<usize, Errno>) -> io::Result<usize> {
    match answer {
        Ok(count) => Ok(count),
        Err(Errno::AGAIN) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
