//! A child of a fork leaves what it shares with its parent alone, and gets a reactor of its own.
//!
//! Runs without the test harness: the child is a copy of a process with one thread.
#![allow(unsafe_code, reason = "fork is unsafe in a process with threads, and this has one")]

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pelton::reactor::{Events, Interest, Poller, Reactor, Token};

/// What is ready now: whose, readable, writable.
fn ready(poller: &Poller) -> Vec<(Token, bool, bool)> {
    let mut events = Events::default();
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    let all = events.iter().map(|e| (e.token, e.readiness.readable(), e.readiness.writable()));
    all.collect()
}

/// Runs `child` in a fork; it must not panic. Whatever it changes, the parent keeps its own.
fn in_child(mut child: impl FnMut()) {
    // SAFETY: the harness' own thread waits for this one and holds no lock that the child needs;
    // the C library puts its allocator in order.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", std::io::Error::last_os_error()),
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut child));
            // SAFETY: ends the child at once: what its parent would run is not run twice.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: our own child, and a place for its status.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert_eq!(status, 0, "the child failed");
        }
    }
}

#[test]
fn forks() {
    a_child_gets_its_own_reactor();
    a_child_that_only_lets_go_changes_nothing();
    a_child_that_does_not_ask_first_is_told_later();
}

fn a_child_gets_its_own_reactor() {
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let (other, mut other_peer) = UnixStream::pair().unwrap();
    let mut reactor = Reactor::new().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::READ, "ours").unwrap();
    let idle = reactor.register(other.as_fd(), Interest::NONE, "idle").unwrap();
    let (poller, waker) = (reactor.poller(), reactor.waker());
    assert!(!reactor.fork_check().unwrap());
    assert!(waker.prepare_sleep());

    in_child(|| {
        assert!(reactor.fork_check().unwrap());
        assert!(!reactor.fork_check().unwrap(), "it answers true once");
        let (poller, new_waker) = (reactor.poller(), reactor.waker());
        assert!(!new_waker.prepare_sleep(), "the old one may have been woken");
        new_waker.awake();
        waker.wake(); // the parent's: it must not hear of it

        peer.write_all(b"x").unwrap();
        assert_eq!(ready(&poller), [(token, true, false)], "all registrations are there");
        (&ours).read_exact(&mut [0]).unwrap();
        reactor.set_interest(token, Interest::BOTH).unwrap();
        assert_eq!(ready(&poller), [(token, false, true)]);
        assert_eq!(reactor.deregister(token), Some("ours"));
        reactor.set_interest(idle, Interest::WRITE).unwrap();
        assert_eq!(ready(&poller), [(idle, false, true)]);
    });

    assert_eq!(ready(&poller), [], "neither woken nor told to watch for more");
    peer.write_all(b"y").unwrap();
    other_peer.write_all(b"z").unwrap();
    assert_eq!(ready(&poller), [(token, true, false)], "and still registered");
}

/// As a child that tears everything down before it ever polls.
fn a_child_that_only_lets_go_changes_nothing() {
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let mut reactor = Reactor::new().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::READ, ()).unwrap();
    let poller = reactor.poller();
    let mut all = Some((reactor, ours));
    in_child(|| {
        let (mut reactor, ours) = all.take().unwrap();
        assert_eq!(reactor.deregister(token), Some(()));
        drop((reactor, ours));
    });
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&poller), [(token, true, false)]);
}

/// As a child that changes registrations before it calls `fork_check`.
fn a_child_that_does_not_ask_first_is_told_later() {
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let (closed, _other_peer) = UnixStream::pair().unwrap();
    let mut reactor = Reactor::new().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::READ, ()).unwrap();
    let gone = reactor.register(closed.as_fd(), Interest::READ, ()).unwrap();
    let poller = reactor.poller();
    let mut closed = Some(closed);
    in_child(|| {
        drop(closed.take());
        reactor.set_interest(token, Interest::WRITE).unwrap();
        assert_eq!(reactor.interest(gone), Some(Interest::NONE), "closed in the child");
        assert!(reactor.fork_check().unwrap(), "the handles are new all the same");
        assert_eq!(ready(&reactor.poller()), [(token, false, true)]);
        in_child(|| {
            assert!(reactor.fork_check().unwrap(), "and again in a child of the child");
            assert_eq!(ready(&reactor.poller()), [(token, false, true)]);
        });
    });
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&poller), [(token, true, false)]);
}
