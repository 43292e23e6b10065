//! Stream sockets: recv(2), send(2), sendmsg(2), accept4(2). None blocks.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketFlags};

/// `None` where the call would block.
pub(crate) fn recv(fd: BorrowedFd<'_>, space: &mut [u8]) -> io::Result<Option<usize>> {
    again(|| net::recv(fd, &mut *space, RecvFlags::DONTWAIT).map(|(_, count)| count))
}

/// `None` where the call would block.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    again(|| net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT))
}

/// `None` where the call would block.
pub(crate) fn send_all(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    again(|| net::sendmsg(fd, slices, &mut SendAncillaryBuffer::default(), flags))
}

pub(crate) fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::shutdown(fd, net::Shutdown::Write)?)
}

/// `None` where no connection waits. One that was gone before it could be taken is passed over.
pub(crate) fn accept(fd: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, Option<SocketAddrAny>)>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        match again(|| net::acceptfrom_with(fd, flags)) {
            Err(error) if error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error()) => {}
            answer => return answer,
        }
    }
}

/// Repeats a call that a signal interrupted; `None` where it would block.
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<Option<T>> {
    loop {
        match call() {
            Ok(value) => return Ok(Some(value)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}
