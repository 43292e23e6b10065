use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::reactor::{Events, Reactor, Token};

/// Long enough to be taken for a hang.
const HANG: Duration = Duration::from_secs(30);

fn woken(events: &Events) -> bool {
    events.iter().any(|event| event.token == Token::WAKE)
}

#[test]
fn a_wake_before_the_sleep_prevents_it_and_rings_no_bell() {
    let reactor: Reactor<()> = Reactor::new().unwrap();
    let (waker, poller) = (reactor.waker(), reactor.poller());
    let mut events = Events::with_capacity(4);
    waker.wake();
    assert!(!waker.prepare_sleep());
    assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
    waker.awake();
    assert!(waker.prepare_sleep(), "one wake-up prevents one sleep");
}

#[test]
fn each_sleep_is_ended_by_its_own_ring() {
    let reactor: Reactor<()> = Reactor::new().unwrap();
    let (waker, poller) = (reactor.waker(), reactor.poller());
    let mut events = Events::default();
    for _ in 0..100 {
        assert!(waker.prepare_sleep());
        let other = waker.clone();
        let thread = thread::spawn(move || other.wake());
        assert_eq!(poller.wait(&mut events, Some(HANG)).unwrap(), 1);
        assert!(woken(&events) && reactor.resolve(&events.get(0)).is_none());
        thread.join().unwrap();
        waker.awake();
        // Nothing was drained, and yet nothing is reported twice.
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
    }
}

/// A poller that sleeps without a deadline of its own, and threads that give it work and wait
/// until it was seen: one lost wake-up would leave them all asleep.
#[test]
fn many_threads_lose_no_wake_up() {
    const THREADS: usize = 8;
    const EACH: usize = 2_000;
    let reactor: Reactor<()> = Reactor::new().unwrap();
    let (waker, poller) = (reactor.waker(), reactor.poller());
    let work = AtomicUsize::new(0);
    let start = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                for turn in 0..EACH {
                    // Relaxed: the waker makes it visible.
                    work.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                    if turn % 16 == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        start.wait();
        let mut events = Events::with_capacity(4);
        while work.load(Ordering::Relaxed) < THREADS * EACH {
            let timeout = if waker.prepare_sleep() { HANG } else { Duration::ZERO };
            let count = poller.wait(&mut events, Some(timeout)).unwrap();
            assert!(timeout.is_zero() || count > 0, "slept through a wake-up");
            waker.awake();
        }
    });
}
