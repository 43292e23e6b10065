use std::os::fd::AsFd;

use rustix::event::epoll::EventFlags;

use super::EventFd;
use crate::sys::epoll::{Epoll, Watched};

/// The waker never drains it.
#[test]
fn every_ring_is_a_new_edge() {
    let (epoll, eventfd) = (Epoll::new().unwrap(), EventFd::new().unwrap());
    epoll.add(Watched::new(eventfd.as_fd()), 1, EventFlags::IN | EventFlags::ET).unwrap();
    let reported = || {
        let mut events = Vec::with_capacity(4);
        epoll.wait(&mut events, Some(std::time::Duration::ZERO)).unwrap()
    };
    assert_eq!(reported(), 0);
    for _ in 0..3 {
        eventfd.ring();
        assert_eq!((reported(), reported()), (1, 0));
    }
    eventfd.ring();
    eventfd.ring();
    assert_eq!((reported(), reported()), (1, 0));

    // A full counter refuses one more; the ring must be heard all the same.
    rustix::io::write(&eventfd, &(u64::MAX - 1 - 5).to_ne_bytes()).unwrap();
    assert_eq!(reported(), 1);
    eventfd.ring();
    assert_eq!((reported(), reported()), (1, 0));
}
