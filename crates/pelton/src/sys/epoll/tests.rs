use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::{Epoll, RawEvent, Watched, in_milliseconds};
use crate::sys::eventfd::EventFd;

type Wait = fn(&Epoll, &mut Vec<RawEvent>, Duration) -> Result<usize, Errno>;

/// Both ways of waiting, the second as on a kernel that lacks the first.
const WAITS: [(&str, Wait); 2] = [
    ("nanoseconds", |epoll, events, timeout| epoll.wait_precisely(events, timeout)),
    ("milliseconds", |epoll, events, timeout| epoll.wait_in_milliseconds(events, Some(timeout))),
];

#[test]
fn events_are_appended_up_to_the_capacity() {
    let epoll = Epoll::new().unwrap();
    let ready: Vec<_> = (0..3).map(|_| EventFd::new().unwrap()).collect();
    for (eventfd, data) in ready.iter().zip(10..) {
        eventfd.ring();
        epoll.add(Watched::new(eventfd.as_fd()), data, EventFlags::IN).unwrap();
    }
    for (name, wait) in WAITS {
        let mut events = Vec::with_capacity(2);
        assert_eq!(wait(&epoll, &mut events, Duration::from_secs(30)), Ok(2), "{name}");
        assert!(events.iter().all(|event| (10..13).contains(&{ event.data }.u64())), "{name}");
        let mut events = Vec::with_capacity(8);
        assert_eq!(wait(&epoll, &mut events, Duration::from_secs(30)), Ok(3), "{name}");
        assert_eq!(wait(&epoll, &mut events, Duration::from_secs(30)), Ok(3), "{name}");
        assert_eq!((events.len(), { events[0].flags }), (6, EventFlags::IN), "{name}");
    }
}

#[test]
fn without_events_a_wait_lasts_its_timeout() {
    let epoll = Epoll::new().unwrap();
    let timeout = Duration::from_nanos(1_200_300);
    for (name, wait) in WAITS {
        let mut events = Vec::with_capacity(2);
        let begin = Instant::now();
        assert_eq!(wait(&epoll, &mut events, timeout), Ok(0), "{name}");
        assert!(begin.elapsed() >= timeout && events.is_empty(), "{name}");
    }
}

#[test]
fn the_kernels_errors_come_through() {
    let epoll = Epoll::new().unwrap();
    let eventfd = EventFd::new().unwrap();
    let watched = Watched::new(eventfd.as_fd());
    assert_eq!(epoll.delete(watched), Err(Errno::NOENT));
    epoll.add(watched, 1, EventFlags::IN).unwrap();
    assert_eq!(epoll.add(watched, 2, EventFlags::IN), Err(Errno::EXIST));
    drop(eventfd);
    // A wait on what is no epoll, as if its number had been given out again.
    let not_epoll = Epoll { fd: std::os::unix::net::UnixStream::pair().unwrap().0.into() };
    for (name, wait) in WAITS {
        let mut events = Vec::with_capacity(1);
        assert_eq!(wait(&not_epoll, &mut events, Duration::ZERO), Err(Errno::INVAL), "{name}");
    }
}

#[test]
fn milliseconds_are_rounded_up() {
    for (nanos, millis) in [
        (0, 0),
        (1, 1),
        (999_999, 1),
        (1_000_000, 1),
        (1_000_001, 2),
        (999_000_001, 1000),
        (1_999_999_999, 2000),
        (u64::MAX, i32::MAX.into()),
    ] {
        let rounded = in_milliseconds(Duration::from_nanos(nanos));
        assert_eq!(rounded.tv_sec * 1000 + rounded.tv_nsec / 1_000_000, millis, "{nanos}");
        assert_eq!(rounded.tv_nsec % 1_000_000, 0);
    }
    assert_eq!(in_milliseconds(Duration::MAX).tv_sec, i64::from(i32::MAX) / 1000);
}
