use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::sockopt;

use super::{Listener, accept, connect, connect_result, is_exhausted, set_nodelay};

fn local(ipv6: bool) -> SocketAddr {
    if ipv6 { "[::1]:0" } else { "127.0.0.1:0" }.parse().unwrap()
}

fn wait_until_writable(fd: &OwnedFd) {
    let limit = Duration::from_secs(30).try_into().unwrap();
    let mut fds = [PollFd::new(fd, PollFlags::OUT)];
    assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1);
}

#[test]
fn a_connection_is_made_and_accepted() {
    for ipv6 in [false, true] {
        let listener = match Listener::bind(local(ipv6), 8) {
            Err(error) if ipv6 && error.kind() == io::ErrorKind::AddrNotAvailable => continue,
            answer => answer.unwrap(),
        };
        assert!(listener.accept().unwrap().is_none());
        let client = connect(listener.local_addr().unwrap()).unwrap();
        wait_until_writable(&client);
        connect_result(client.as_fd()).unwrap();
        let (server, peer) = accept(listener.as_fd()).unwrap().expect("it is connected");
        let client_addr: SocketAddr =
            rustix::net::getsockname(&client).unwrap().try_into().unwrap();
        assert_eq!(SocketAddr::try_from(peer.unwrap()).unwrap(), client_addr);
        for fd in [client.as_fd(), server.as_fd(), listener.as_fd()] {
            assert!(fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK));
            assert_eq!(fcntl_getfd(fd).unwrap(), FdFlags::CLOEXEC);
        }
        set_nodelay(server.as_fd());
        assert!(sockopt::tcp_nodelay(&server).unwrap());
        assert!(accept(listener.as_fd()).unwrap().is_none());
    }
}

#[test]
fn a_refused_connection_says_so() {
    let listener = Listener::bind(local(false), 1).unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let error = match connect(addr) {
        Err(error) => error,
        Ok(client) => {
            wait_until_writable(&client);
            connect_result(client.as_fd()).unwrap_err()
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn an_address_in_use_is_refused() {
    let listener = Listener::bind(local(false), 1).unwrap();
    let error = Listener::bind(listener.local_addr().unwrap(), 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn sockets_that_are_not_tcp_are_left_as_they_are() {
    let (unix, _) = std::os::unix::net::UnixStream::pair().unwrap();
    set_nodelay(unix.as_fd());
    let error = accept(unix.as_fd()).unwrap_err();
    assert!(!is_exhausted(&error));
}

#[test]
fn exhaustion_is_four_errors() {
    for (errno, expected) in [
        (Errno::MFILE, true),
        (Errno::NFILE, true),
        (Errno::NOBUFS, true),
        (Errno::NOMEM, true),
        (Errno::CONNABORTED, false),
        (Errno::BADF, false),
    ] {
        assert_eq!(is_exhausted(&errno.into()), expected, "{errno:?}");
    }
    assert!(!is_exhausted(&io::Error::other("not of the kernel")));
}
