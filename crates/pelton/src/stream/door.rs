//! How the bytes of a stream get to the kernel: as a socket's or as a pipe's.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use super::Read;
use crate::sys::{pipe, socket};

/// A socket: every call is non-blocking by its flags, whatever the descriptor's mode.
#[derive(Clone, Copy, Debug)]
pub enum Socket {}

/// A pipe, a terminal, or a socket that is to be used like one. It must be non-blocking.
#[derive(Clone, Copy, Debug)]
pub enum Pipe {}

impl Pipe {
    /// Reads what there is, at most as much as `buf` holds: the first bytes of it are initialised
    /// then, as many as the answer says. `buf` must not be empty.
    ///
    /// # Errors
    ///
    /// What the kernel says (`EIO` of a terminal whose other side is gone, ...); not `EINTR`, upon
    /// which the read is made again.
    #[inline]
    pub fn read_uninit(fd: BorrowedFd<'_>, buf: &mut [MaybeUninit<u8>]) -> io::Result<Read> {
        debug_assert!(!buf.is_empty(), "a read into nothing looks like the end of the stream");
        Ok(Read::of(pipe::read_uninit(fd, buf)?))
    }
}

/// A way to the kernel: [`Socket`] or [`Pipe`].
pub trait Door {
    /// Offers bytes; answers how many the kernel took, 0 when it takes none now.
    ///
    /// # Errors
    ///
    /// What the kernel says of the connection.
    fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize>;

    /// As [`send`](Self::send), of several pieces in one call.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    fn send_gathered(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl Door for Socket {
    #[inline]
    fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        socket::send(fd, bytes)
    }

    #[inline]
    fn send_gathered(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        socket::send_gathered(fd, slices)
    }
}

impl Door for Pipe {
    #[inline]
    fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        pipe::write(fd, bytes)
    }

    #[inline]
    fn send_gathered(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        pipe::write_gathered(fd, slices)
    }
}
