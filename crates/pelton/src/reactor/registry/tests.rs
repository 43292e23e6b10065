use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::{Registry, Token};
use crate::sys::epoll::Watched;

fn descriptor() -> (OwnedFd, Watched) {
    let fd = OwnedFd::from(UnixStream::pair().unwrap().0);
    let watched = Watched::new(fd.as_fd());
    (fd, watched)
}

#[test]
fn a_token_names_one_registration_and_never_another() {
    let (_fd, watched) = descriptor();
    let mut registry = Registry::new();
    let first = registry.insert(watched, 'a');
    assert_eq!(registry.remove(first).unwrap().source, 'a');
    let second = registry.insert(watched, 'b');
    assert_eq!(first.slot(), second.slot(), "the place is used again");
    assert_ne!(first, second);
    assert!(registry.get(first).is_none() && registry.get_mut(first).is_none());
    assert!(registry.remove(first).is_none());
    assert_eq!(registry.get(second).unwrap().source, 'b');
    assert_eq!(registry.len(), 1);
}

#[test]
fn the_waker_and_unknown_tokens_name_nothing() {
    let registry: Registry<()> = Registry::new();
    for token in [Token::WAKE, Token::new(0, 1), Token::new(7, 1)] {
        assert!(registry.get(token).is_none() && !registry.owns_number(token));
    }
    assert_eq!(Token::from_raw(0), Token::WAKE);
}

#[test]
fn generations_go_round_without_zero_or_the_wakers() {
    let (_fd, watched) = descriptor();
    let mut registry = Registry::new();
    let token = registry.insert(watched, ());
    registry.slots[token.slot()].generation = u32::MAX - 1;
    let last = Token::new(0, u32::MAX - 1);
    assert!(registry.remove(last).is_some());
    assert_eq!(registry.insert(watched, ()), Token::new(0, 1));
}

#[test]
fn the_latest_registration_owns_the_number() {
    let (_fd, watched) = descriptor();
    let mut registry = Registry::new();
    let stale = registry.insert(watched, 1);
    let fresh = registry.insert(watched, 2);
    assert!(!registry.owns_number(stale) && registry.owns_number(fresh));
    registry.remove(stale);
    assert!(registry.owns_number(fresh), "the stale one gives nothing up");
    registry.remove(fresh);
    assert_eq!(registry.owners.get(&watched.index()), None);
    assert_eq!((registry.len(), registry.iter().count(), registry.tokens().count()), (0, 0, 0));
}
