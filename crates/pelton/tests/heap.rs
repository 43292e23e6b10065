//! What the read and write paths ask of the heap in steady state: nothing. A counting allocator
//! tells, by thread, so that tests can run beside each other.
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use pelton::datagram::{Address, Cache, Destination, Endpoint, Flushed as Sends, ReceiveBatch};
use pelton::reactor::{Events, Interest, Reactor};
use pelton::stream::{Flushed, Read, Sent, Stream};
use pelton::time::Timers;

thread_local! {
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator with its own arguments; counting
// touches a thread-local that needs neither memory nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.set(REQUESTS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        REQUESTS.set(REQUESTS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        REQUESTS.set(REQUESTS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn requests(body: impl FnOnce()) -> usize {
    let before = REQUESTS.get();
    body();
    REQUESTS.get() - before
}

type Shared = Stream<Arc<[u8]>>;

#[test]
fn the_counter_counts() {
    assert_eq!(requests(|| drop(std::hint::black_box(vec![1_u8]))), 1);
}

#[test]
fn ten_thousand_echoes() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut reactor = Reactor::new().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::READ, Shared::new()).unwrap();
    let (poller, waker) = (reactor.poller(), reactor.waker());
    let mut events = Events::with_capacity(16);
    let message: Arc<[u8]> = [7; 1024].into();
    let mut buffer = vec![0; 64 * 1024];

    let asked = requests(|| {
        for _ in 0..10_000 {
            assert_eq!(Shared::try_send(theirs.as_fd(), &message).unwrap(), 1024);
            assert!(!reactor.fork_check().unwrap() && waker.prepare_sleep());
            assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
            waker.awake();
            let event = events.get(0);
            let stream = reactor.get_mut(event.token).unwrap();
            assert!(event.token == token && event.readiness.readable());
            assert_eq!(Shared::read(ours.as_fd(), &mut buffer).unwrap(), Read::Data(1024));
            assert_eq!(stream.write(ours.as_fd(), message.clone()).unwrap(), Sent::All);
            let interest = stream.interest();
            reactor.set_interest(token, interest).unwrap();
            assert_eq!(Shared::read(theirs.as_fd(), &mut buffer).unwrap(), Read::Data(1024));
        }
    });
    assert_eq!(asked, 0);
}

/// A peer that reads slowly: each message is taken in part, and its rest waits in the queue.
#[test]
fn a_message_that_waits() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let message: Arc<[u8]> = vec![7; 1 << 20].into();
    let mut stream = Shared::new();
    let mut buffer = vec![0; 64 * 1024];

    let asked = requests(|| {
        for _ in 0..20 {
            assert_eq!(stream.write(ours.as_fd(), message.clone()).unwrap(), Sent::Queued);
            let mut received = 0;
            while received < message.len() {
                if let Read::Data(count) = Shared::read(theirs.as_fd(), &mut buffer).unwrap() {
                    received += count;
                }
                let flushed = stream.flush(ours.as_fd()).unwrap();
                assert_eq!(flushed == Flushed::Drained, stream.queued() == 0);
            }
        }
    });
    assert_eq!((asked, Arc::strong_count(&message)), (0, 1));
}

/// Watched and not watched, at each message.
#[test]
fn interest_that_comes_and_goes() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut reactor = Reactor::new().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::NONE, ()).unwrap();
    let poller = reactor.poller();
    let mut events = Events::with_capacity(16);
    let asked = requests(|| {
        for _ in 0..1000 {
            reactor.set_interest(token, Interest::BOTH).unwrap();
            assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 1);
            reactor.set_interest(token, Interest::NONE).unwrap();
            assert_eq!(poller.wait(&mut events, Some(Duration::from_nanos(1))).unwrap(), 0);
        }
    });
    assert_eq!(asked, 0);
}

#[test]
fn timers_once_there_is_room() {
    let mut timers = Timers::new();
    (0..100_u64).for_each(|deadline| timers.insert(deadline, deadline));
    let asked = requests(|| {
        for now in 0..10_000 {
            assert_eq!(timers.pop_due(now), Some(now));
            timers.insert(now + 100, now + 100);
        }
    });
    assert_eq!(asked, 0);
}

/// A burst of datagrams to one peer and to many, from the cache of peers to the kernel and back.
#[test]
fn datagrams_once_their_peers_are_known() {
    let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sockets: Vec<_> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let message: Arc<[u8]> = [7; 1000].into();
    let mut endpoint = Endpoint::<Arc<[u8]>>::new(ours.as_fd()).unwrap();
    let mut peers: Vec<_> =
        sockets.iter().map(|socket| Endpoint::<Arc<[u8]>>::new(socket.as_fd()).unwrap()).collect();
    let mut cache = Cache::new(1024);
    for (number, socket) in sockets.iter().enumerate() {
        cache.insert(number, Address::from(socket.local_addr().unwrap()));
    }
    let mut batch = ReceiveBatch::new();
    let mut burst = |mix: usize| {
        for number in 0..64 {
            let to = *cache.get(&(number % mix)).unwrap();
            if number == 0 {
                assert!(Endpoint::<Arc<[u8]>>::send(ours.as_fd(), &to, &message).unwrap());
            } else {
                endpoint.hold(Destination::To(to), message.clone());
            }
        }
        assert!(matches!(endpoint.flush(ours.as_fd()), Sends::Drained));
        let mut received = 0;
        for (socket, peer) in sockets.iter().zip(&mut peers) {
            while peer.receive(socket.as_fd(), &mut batch).unwrap() {
                received += batch.iter().filter(|datagram| *datagram.data == *message).count();
            }
        }
        assert_eq!(received, 64);
    };
    burst(8); // makes room for as many as a burst has
    let asked = requests(|| (0..100).for_each(|number| burst([1, 2, 8][number % 3])));
    assert_eq!(asked, 0);
}
