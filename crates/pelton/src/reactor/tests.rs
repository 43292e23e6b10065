use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{Events, Interest, Reactor, Token};

fn ready<S>(reactor: &Reactor<S>) -> Vec<(Token, bool, bool)> {
    let mut events = Events::with_capacity(16);
    reactor.poller().wait(&mut events, Some(Duration::ZERO)).unwrap();
    let known = events.iter().filter(|event| reactor.get(event.token).is_some());
    known.map(|e| (e.token, e.readiness.readable(), e.readiness.writable())).collect()
}

#[test]
fn readiness_follows_interest() {
    let mut reactor = Reactor::new().unwrap();
    let (ours, mut peer) = UnixStream::pair().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::NONE, "ours").unwrap();
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&reactor), []);
    reactor.set_interest(token, Interest::READ).unwrap();
    assert_eq!(ready(&reactor), [(token, true, false)]);
    reactor.set_interest(token, Interest::BOTH).unwrap();
    assert_eq!(ready(&reactor), [(token, true, true)]);
    (&ours).read_exact(&mut [0]).unwrap();
    assert_eq!(ready(&reactor), [(token, false, true)]);
    assert_eq!(reactor.deregister(token), Some("ours"));
    assert_eq!(ready(&reactor), []);
    assert_eq!(reactor.deregister(token), None);
}

#[test]
fn a_hang_up_is_told_in_both_directions() {
    let mut reactor = Reactor::new().unwrap();
    let (ours, peer) = UnixStream::pair().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::READ, ()).unwrap();
    drop(peer);
    assert_eq!(ready(&reactor), [(token, true, true)]);
}

#[test]
fn an_event_of_a_registration_that_is_gone_has_no_source() {
    let mut reactor = Reactor::new().unwrap();
    let (ours, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(b"x").unwrap();
    let first = reactor.register(ours.as_fd(), Interest::READ, 1).unwrap();
    let mut events = Events::with_capacity(4);
    assert_eq!(reactor.poller().wait(&mut events, Some(Duration::ZERO)).unwrap(), 1);
    reactor.deregister(first);
    let second = reactor.register(ours.as_fd(), Interest::READ, 2).unwrap();
    assert_eq!(first.slot(), second.slot(), "the slot is used again");
    assert_eq!(reactor.get(events.get(0).token), None);
    assert_eq!(reactor.get(second), Some(&2));
}

/// The owner closed the descriptor without a word and its number came back.
#[test]
fn a_recycled_number_can_be_registered_and_changed() {
    let mut reactor = Reactor::new().unwrap();
    let (first, _peer) = UnixStream::pair().unwrap();
    let number = first.as_raw_fd();
    let stale = reactor.register(first.as_fd(), Interest::READ, "stale").unwrap();
    drop(first);
    let (second, mut peer) = UnixStream::pair().unwrap();
    // Another test's descriptors may have taken the number: then there is nothing to show.
    if second.as_raw_fd() != number {
        return;
    }
    // The registration is for a file that the kernel no longer watches: changing it watches anew.
    reactor.set_interest(stale, Interest::BOTH).unwrap();
    peer.write_all(b"x").unwrap();
    assert_eq!(ready(&reactor), [(stale, true, true)]);
    assert_eq!(reactor.forget(stale), Some("stale"));
    let fresh = reactor.register(second.as_fd(), Interest::READ, "fresh").unwrap();
    assert_eq!(ready(&reactor), [(fresh, true, false)]);
}

#[test]
fn a_refused_registration_leaves_nothing_behind() {
    let mut reactor = Reactor::new().unwrap();
    let file = File::open("/proc/self/status").and_then(|_| File::open("Cargo.toml")).unwrap();
    let error = reactor.register(file.as_fd(), Interest::READ, ()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert_eq!(reactor.iter().count(), 0);
}

#[test]
fn a_poll_lasts_until_its_deadline() {
    let reactor: Reactor<()> = Reactor::new().unwrap();
    let begin = Instant::now();
    let mut events = Events::with_capacity(1);
    let timeout = Duration::from_micros(1500);
    assert_eq!(reactor.poller().wait(&mut events, Some(timeout)).unwrap(), 0);
    assert!(begin.elapsed() >= timeout);
}
