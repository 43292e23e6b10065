//! Starting a connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt;

use super::listener::tcp_socket;

/// Starts a TCP connection to `addr`. When the socket is writable, [`connect_result`] tells how it
/// went.
///
/// # Errors
///
/// What the kernel knows at once: `ENETUNREACH`, `EADDRNOTAVAIL`, a lack of descriptors, and for
/// an address of this machine also `ECONNREFUSED`.
pub fn connect(addr: SocketAddr) -> io::Result<OwnedFd> {
    let fd = tcp_socket(addr)?;
    match rustix::net::connect(&fd, &addr) {
        // A signal does not stop it either: it goes on as any other.
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(fd),
        Err(error) => Err(error.into()),
    }
}

/// How a started connection went, asked once when its socket is writable. Asked before that, the
/// answer is `Ok` and means nothing.
///
/// # Errors
///
/// Why it failed: `ECONNREFUSED`, `ETIMEDOUT`, `EHOSTUNREACH`, ...
pub fn connect_result(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::socket_error(fd)??)
}
