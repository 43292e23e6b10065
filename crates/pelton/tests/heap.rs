//! Heap requests of the read and write paths, by a counting allocator: none in steady state.
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use pelton::reactor::{Events, Interest, Reactor};
use pelton::stream::{Read, Sent, Stream};

thread_local! {
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTS.with(|requests| requests.set(requests.get() + 1));
        // SAFETY: the caller's contract, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn ten_thousand_echoes_ask_the_heap_for_nothing() {
    let (ours, peer) = UnixStream::pair().unwrap();
    let mut reactor = Reactor::new().unwrap();
    let token = reactor.register(ours.as_fd(), Interest::READ, ()).unwrap();
    let poller = reactor.poller();
    let mut events = Events::with_capacity(16);
    let mut stream: Stream<Arc<[u8]>> = Stream::new();
    let message: Arc<[u8]> = Arc::from(&[7_u8; 1024][..]);
    let mut space = vec![0; 64 * 1024];

    let before = REQUESTS.with(Cell::get);
    for _ in 0..10_000 {
        Stream::<Arc<[u8]>>::try_send(peer.as_fd(), &message).unwrap();
        assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
        assert_eq!(events.get(0).token, token);
        assert_eq!(Stream::<Arc<[u8]>>::read(ours.as_fd(), &mut space).unwrap(), Read::Data(1024));
        assert_eq!(stream.write(ours.as_fd(), Arc::clone(&message)).unwrap(), Sent::All);
        reactor.set_interest(token, stream.interest()).unwrap();
        assert_eq!(Stream::<Arc<[u8]>>::read(peer.as_fd(), &mut space).unwrap(), Read::Data(1024));
    }
    assert_eq!(REQUESTS.with(Cell::get) - before, 0);
}

#[test]
fn the_counter_counts() {
    let before = REQUESTS.with(Cell::get);
    drop(std::hint::black_box(vec![1_u8]));
    assert_eq!(REQUESTS.with(Cell::get) - before, 1);
}
