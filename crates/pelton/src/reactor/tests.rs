use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd};

use super::{Events, Interest, Reactor, Token};

/// What is ready now and still registered: whose, readable, writable.
fn ready<S>(reactor: &Reactor<S>) -> Vec<(Token, bool, bool)> {
    let mut events = Events::with_capacity(16);
    reactor.poller().wait(&mut events, Some(Duration::ZERO)).unwrap();
    let known = events.iter().filter_map(|event| reactor.resolve(&event));
    known.map(|(token, _, ready)| (token, ready.readable(), ready.writable())).collect()
}

/// A pair whose first descriptor has a number that no other test is given meanwhile.
fn pair_at(least: i32) -> (OwnedFd, UnixStream) {
    let (ours, peer) = UnixStream::pair().unwrap();
    (fcntl_dupfd_cloexec(ours, least).unwrap(), peer)
}

#[test]
fn readiness_follows_interest() {
    let mut reactor = Reactor::new().unwrap();
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::NONE, "ours").unwrap();
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&reactor), []);
    for (interest, expected) in [
        (Interest::READ, vec![(token, true, false)]),
        (Interest::BOTH, vec![(token, true, true)]),
        (Interest::BOTH, vec![(token, true, true)]),
        (Interest::WRITE, vec![(token, false, true)]),
        (Interest::NONE, vec![]),
        (Interest::NONE, vec![]),
        (Interest::READ, vec![(token, true, false)]),
    ] {
        reactor.set_interest(token, interest).unwrap();
        assert_eq!(ready(&reactor), expected);
        assert_eq!(reactor.interest(token), Some(interest));
    }
    (&ours).read_exact(&mut [0]).unwrap();
    assert_eq!(ready(&reactor), []);
    *reactor.get_mut(token).unwrap() = "changed";
    assert_eq!(reactor.iter().copied().collect::<Vec<_>>(), ["changed"]);
    assert_eq!(reactor.deregister(token), Some("changed"));
    assert_eq!((reactor.deregister(token), reactor.get(token)), (None, None));
    assert!(reactor.is_empty());
    reactor.set_interest(token, Interest::READ).unwrap();
}

#[test]
fn a_hang_up_is_told_in_both_directions() {
    let mut reactor = Reactor::new().unwrap();
    let (ours, peer) = UnixStream::pair().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::READ, ()).unwrap();
    drop(peer);
    let mut events = Events::default();
    assert_eq!(reactor.poller().wait(&mut events, None).unwrap(), 1);
    let event = events.get(0);
    assert_eq!(event.token, token);
    assert!(event.readiness.readable() && event.readiness.writable() && event.readiness.hangup());
    assert!(!event.readiness.error());
}

#[test]
fn an_event_of_a_registration_that_is_gone_names_nothing() {
    let mut reactor = Reactor::new().unwrap();
    let (ours, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(b"x").unwrap();
    let first = reactor.register(ours.as_fd(), Interest::READ, 1).unwrap();
    let mut events = Events::with_capacity(4);
    assert_eq!(reactor.poller().wait(&mut events, None).unwrap(), 1);
    assert_eq!(reactor.deregister(first), Some(1));
    let second = reactor.register(ours.as_fd(), Interest::READ, 2).unwrap();
    assert!(reactor.resolve(&events.get(0)).is_none());
    assert_eq!(ready(&reactor), [(second, true, false)]);
}

/// The owner closed the descriptor without a word, and its number came back.
#[test]
fn a_stale_registration_cannot_speak_for_its_number() {
    let mut reactor = Reactor::new().unwrap();
    let (first, _peer) = pair_at(700);
    let number = first.as_raw_fd();
    let stale = reactor.register(first.as_fd(), Interest::READ, "stale").unwrap();
    drop(first);
    let (second, mut peer) = pair_at(700);
    assert_eq!(second.as_raw_fd(), number);
    let fresh = reactor.register(second.as_fd(), Interest::READ, "fresh").unwrap();
    peer.write_all(b"x").unwrap();

    let error = reactor.set_interest(stale, Interest::WRITE).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
    reactor.set_interest(stale, Interest::NONE).unwrap();
    assert_eq!(ready(&reactor), [(fresh, true, false)]);
    assert_eq!(reactor.deregister(stale), Some("stale"));
    assert_eq!(ready(&reactor), [(fresh, true, false)]);
    assert_eq!(reactor.deregister(fresh), Some("fresh"));
    assert_eq!(ready(&reactor), []);
}

/// As above, but nobody registers the new file: the registration now watches that one.
#[test]
fn a_registration_whose_number_came_back_is_made_anew() {
    let mut reactor = Reactor::new().unwrap();
    let (first, _peer) = pair_at(720);
    let token = reactor.register(first.as_fd(), Interest::READ, ()).unwrap();
    drop(first);
    let (second, mut peer) = pair_at(720);
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&reactor), []);
    reactor.set_interest(token, Interest::BOTH).unwrap();
    assert_eq!(ready(&reactor), [(token, true, true)]);
    drop(second);
    reactor.set_interest(token, Interest::NONE).unwrap();
    assert_eq!(reactor.deregister(token), Some(()));
}

#[test]
fn registering_again_takes_the_kernels_entry_over() {
    let mut reactor = Reactor::new().unwrap();
    let (ours, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(b"x").unwrap();
    let first = reactor.register(ours.as_fd(), Interest::READ, 1).unwrap();
    assert_eq!(reactor.forget(first), Some(1));
    let second = reactor.register(ours.as_fd(), Interest::BOTH, 2).unwrap();
    assert_eq!(ready(&reactor), [(second, true, true)]);
    let third = reactor.register(ours.as_fd(), Interest::READ, 3).unwrap();
    assert_eq!(ready(&reactor), [(third, true, false)]);
    let mut sources = reactor.drain();
    sources.sort_unstable();
    assert_eq!((sources, reactor.len()), (vec![2, 3], 0));
    assert_eq!(ready(&reactor), []);
}

#[test]
fn a_refused_registration_leaves_nothing_behind() {
    let mut reactor = Reactor::new().unwrap();
    let file = File::open("Cargo.toml").unwrap();
    let error = reactor.register(file.as_fd(), Interest::READ, ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!((reactor.len(), reactor.iter().count()), (0, 0));
    // With no interest the kernel is not asked, so it does not mind.
    let token = reactor.register(file.as_fd(), Interest::NONE, ()).unwrap();
    assert!(reactor.set_interest(token, Interest::READ).is_err());
    assert_eq!(reactor.interest(token), Some(Interest::NONE));
}

#[test]
fn what_does_not_fit_is_reported_next() {
    let mut reactor = Reactor::new().unwrap();
    let pairs: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
    for (ours, _) in &pairs {
        reactor.register(ours.as_fd(), Interest::WRITE, ()).unwrap();
    }
    let mut events = Events::with_capacity(4);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let count = reactor.poller().wait(&mut events, None).unwrap();
        assert!(count == events.len() && count <= 4 && !events.is_empty());
        seen.extend(events.iter().map(|event| event.token));
    }
    assert_eq!(seen.len(), 10);
}

#[test]
fn a_wait_is_never_shorter_than_its_timeout() {
    let reactor: Reactor<()> = Reactor::new().unwrap();
    let mut events = Events::default();
    for micros in [1, 300, 1000, 1500] {
        let timeout = Duration::from_micros(micros);
        let begin = Instant::now();
        assert_eq!(reactor.poller().wait(&mut events, Some(timeout)).unwrap(), 0);
        assert!(begin.elapsed() >= timeout);
    }
}

#[test]
fn descriptors_are_closed_on_exec_and_with_the_reactor() {
    let reactor: Reactor<()> = Reactor::new().unwrap();
    let (epoll, waker) = (reactor.epoll.clone(), reactor.waker());
    assert_eq!(fcntl_getfd(&*epoll).unwrap(), FdFlags::CLOEXEC);
    assert_eq!(fcntl_getfd(&waker).unwrap(), FdFlags::CLOEXEC);
    drop(reactor);
    assert_eq!(std::sync::Arc::strong_count(&epoll), 1);
}

#[test]
fn no_fork_costs_nothing_and_changes_nothing() {
    let mut reactor: Reactor<()> = Reactor::new().unwrap();
    let before = reactor.epoll.clone();
    assert!(!reactor.fork_check().unwrap());
    assert!(std::sync::Arc::ptr_eq(&before, &reactor.epoll));
}
