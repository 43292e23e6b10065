//! Sockets before they are connections: listen, accept, connect. Nothing here blocks.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use crate::sys::socket;

/// Takes a connection that waits on a listening socket, non-blocking and closed on exec, with
/// the peer's address as the kernel gave it; `None` where no connection waits.
///
/// # Errors
/// What accept4(2) reports; see [`is_exhausted`].
pub fn accept(fd: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, Option<SocketAddrAny>)>> {
    socket::accept(fd)
}

/// Whether an error means that descriptors or memory are used up, so that trying again at once
/// would fail for ever.
#[must_use]
pub fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Sends small writes without waiting for an acknowledgement (TCP_NODELAY); on a socket that is
/// not TCP this does nothing.
pub fn set_nodelay(fd: BorrowedFd<'_>) {
    let _not_tcp = sockopt::set_tcp_nodelay(fd, true);
}

/// A listening TCP socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Binds and listens; `backlog` connections may wait. Port 0 is any free one.
    ///
    /// # Errors
    /// What socket(2), bind(2) or listen(2) reports.
    pub fn bind(address: SocketAddr, backlog: i32) -> io::Result<Self> {
        let fd = tcp_socket(&address)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        net::bind(&fd, &address)?;
        net::listen(&fd, backlog)?;
        Ok(Self(fd))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What getsockname(2) reports.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = net::getsockname(&self.0)?;
        Ok(SocketAddr::try_from(address)?)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Begins to connect. When the socket is writable, [`connect_result`] tells how it went.
///
/// # Errors
/// What socket(2) or connect(2) reports at once.
pub fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = tcp_socket(&address)?;
    match net::connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(fd),
        Err(error) => Err(error.into()),
    }
}

/// How a connection attempt went.
///
/// # Errors
/// Why it failed.
pub fn connect_result(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::socket_error(fd)??)
}

fn tcp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}
