use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::reactor::{Events, Reactor, Token};

#[test]
fn a_wake_before_the_sleep_prevents_it() {
    let reactor: Reactor<()> = Reactor::new().unwrap();
    let waker = reactor.waker();
    waker.wake();
    assert!(!waker.prepare_sleep());
    assert!(waker.prepare_sleep(), "one wake-up prevents one sleep");
    waker.awake();
}

#[test]
fn a_sleeping_poll_is_woken_and_the_signal_is_taken_back() {
    let reactor: Reactor<()> = Reactor::new().unwrap();
    let (waker, poller) = (reactor.waker(), reactor.poller());
    assert!(waker.prepare_sleep());
    let other = waker.clone();
    let thread = thread::spawn(move || other.wake());
    let mut events = Events::with_capacity(4);
    assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
    assert_eq!(events.get(0).token, Token::WAKE);
    thread.join().unwrap();
    waker.awake();
    assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
}

/// A poller that sleeps without a deadline, and threads that give it a hundred thousand pieces of
/// work: one lost wake-up would leave it asleep.
#[test]
fn many_threads_lose_no_wake_up() {
    const THREADS: usize = 8;
    const EACH: usize = 12_500;
    let reactor: Reactor<()> = Reactor::new().unwrap();
    let (waker, poller) = (reactor.waker(), reactor.poller());
    let work = AtomicUsize::new(0);
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    work.fetch_add(1, Ordering::Release);
                    waker.wake();
                }
            });
        }
        let mut events = Events::with_capacity(4);
        let mut seen = 0;
        while seen < THREADS * EACH {
            if waker.prepare_sleep() && work.load(Ordering::Acquire) == seen {
                // Long enough to be taken for a hang.
                let count = poller.wait(&mut events, Some(Duration::from_secs(20))).unwrap();
                assert!(count > 0, "slept through a wake-up");
            }
            waker.awake();
            seen = work.load(Ordering::Acquire);
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(20));
}
