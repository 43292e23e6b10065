//! Every interleaving of a poller and of threads that wake it:
//! `RUSTFLAGS="--cfg loom" cargo test -p pelton --release loom`. Half a minute;
//! `LOOM_MAX_PREEMPTIONS=3` before it makes that half a second, and still finds a swap that is
//! skipped, made a store, or relaxed.

use ::loom::sync::Arc;
use ::loom::sync::Notify;
use ::loom::sync::atomic::{AtomicUsize, Ordering};
use ::loom::thread;

use super::Handshake;

/// The poller's side of `wake`'s protocol until it has seen `total` pieces of work. The bell is
/// the eventfd: a ring is kept until a wait takes it. loom reports a wait that nothing ends.
fn poll_until(handshake: &Handshake, bell: &Notify, work: &AtomicUsize, total: usize) {
    // Relaxed: the handshake alone has to make the work visible.
    while work.load(Ordering::Relaxed) < total {
        if handshake.prepare_sleep() {
            bell.wait();
        }
        handshake.awake();
    }
}

fn model(threads: usize, wakes: usize) {
    ::loom::model(move || {
        let shared = Arc::new((Handshake::new(), Notify::new(), AtomicUsize::new(0)));
        let wakers: Vec<_> = (0..threads)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (handshake, bell, work) = &*shared;
                    for _ in 0..wakes {
                        work.fetch_add(1, Ordering::Relaxed);
                        if handshake.notify() {
                            bell.notify();
                        }
                    }
                })
            })
            .collect();
        let (handshake, bell, work) = &*shared;
        poll_until(handshake, bell, work, threads * wakes);
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
    });
}

#[test]
fn one_waker_twice() {
    model(1, 2);
}

#[test]
fn two_wakers() {
    model(2, 1);
}
