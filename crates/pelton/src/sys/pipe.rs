//! Pipes, terminals, and whatever else only `read` and `write` know.
//!
//! They have no flags: whether a call blocks is the descriptor's own mode. Every call is made again
//! when a signal interrupts it. A write to a pipe without a reader raises `SIGPIPE`, which Python
//! and Rust programs ignore from their start.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, retry_on_intr};

/// `None` when there is nothing to read now, `Some(0)` at the end.
#[inline]
pub(crate) fn read_uninit(
    fd: BorrowedFd<'_>,
    buf: &mut [MaybeUninit<u8>],
) -> io::Result<Option<usize>> {
    loop {
        match rustix::io::read(fd, &mut *buf) {
            Ok((filled, _)) => return Ok(Some(filled.len())),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// How many bytes the kernel took; 0 when it takes none now.
#[inline]
pub(crate) fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    taken(retry_on_intr(|| rustix::io::write(fd, bytes)))
}

/// As [`write`], of several pieces in one call.
#[inline]
pub(crate) fn write_gathered(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    taken(retry_on_intr(|| rustix::io::writev(fd, slices)))
}

fn taken(answer: Result<usize, Errno>) -> io::Result<usize> {
    match answer {
        Ok(count) => Ok(count),
        Err(Errno::AGAIN) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
