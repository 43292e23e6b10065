//! Taking connections from a listening socket.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, sockopt};

use crate::sys::socket;

/// Takes the next waiting connection, with its peer's address if it has one; `None` if no
/// connection waits.
///
/// A connection that its peer gave up while it waited is passed over. The listening socket must be
/// non-blocking.
///
/// # Errors
///
/// Those that [`is_exhausted`] knows, upon which the connection goes on waiting and the socket
/// stays readable: the caller pauses it. Anything else is of the listening socket itself.
pub fn accept(fd: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, Option<SocketAddrAny>)>> {
    socket::accept(fd)
}

/// Whether the process or the system has run out of something (`EMFILE`, `ENFILE`, `ENOBUFS`,
/// `ENOMEM`) that may come back.
pub fn is_exhausted(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

/// Sends small messages at once (`TCP_NODELAY`). A socket that is not TCP has no such option, and
/// is left as it is.
pub fn set_nodelay(fd: BorrowedFd<'_>) {
    let _not_tcp = sockopt::set_tcp_nodelay(fd, true);
}
