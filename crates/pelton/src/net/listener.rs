//! A listening TCP socket, for programs in Rust.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
    sockopt,
};

/// A listening TCP socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Listens at `addr`; port 0 lets the kernel choose. At most `backlog` connections wait to be
    /// accepted; the kernel has a limit of its own (`net.core.somaxconn`). An address whose last
    /// connections are not forgotten yet can be taken (`SO_REUSEADDR`).
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`, or a lack of descriptors.
    pub fn bind(addr: SocketAddr, backlog: i32) -> io::Result<Self> {
        let fd = tcp_socket(addr)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        bind(&fd, &addr)?;
        listen(&fd, backlog)?;
        Ok(Self { fd })
    }

    /// The address that it listens at.
    ///
    /// # Errors
    ///
    /// A lack of memory in the kernel.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(getsockname(&self.fd)?.try_into()?)
    }

    /// As [`accept`](super::accept()).
    ///
    /// # Errors
    ///
    /// As [`accept`](super::accept()).
    pub fn accept(&self) -> io::Result<Option<(OwnedFd, Option<SocketAddrAny>)>> {
        super::accept(self.fd.as_fd())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(super) fn tcp_socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}
