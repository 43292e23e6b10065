use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::{FlowControl, Flushed, LimitsError, Read, Sent, State, Stream, WriteShutdown};
use crate::reactor::Interest;

fn pair() -> (UnixStream, UnixStream) {
    let (a, b) = UnixStream::pair().expect("a socket pair");
    a.set_nonblocking(true).expect("non-blocking");
    (a, b)
}

#[test]
fn a_write_reaches_the_peer_before_it_returns() {
    let (ours, mut peer) = pair();
    let mut stream = Stream::new();
    assert_eq!(stream.write(ours.as_fd(), b"ping".to_vec()).unwrap(), Sent::All);
    assert_eq!(stream.queued(), 0);
    let mut got = [0; 4];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"ping");
}

#[test]
fn what_the_kernel_refuses_is_queued_and_arrives_in_order() {
    let (ours, mut peer) = pair();
    let mut stream = Stream::new();
    let big: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(stream.write(ours.as_fd(), big.clone()).unwrap(), Sent::Queued);
    assert!(stream.interest().contains(Interest::WRITE));
    let queued = stream.queued();
    assert!(queued > 0 && queued < big.len());
    assert_eq!(stream.write(ours.as_fd(), b"tail".to_vec()).unwrap(), Sent::Queued);
    assert_eq!(stream.queued(), queued + 4);

    let mut got = Vec::new();
    let mut space = vec![0; 65_536];
    peer.set_nonblocking(true).unwrap();
    while got.len() < big.len() + 4 {
        let flushed = stream.flush(ours.as_fd()).unwrap();
        assert_eq!(flushed == Flushed::Drained, stream.queued() == 0);
        match peer.read(&mut space) {
            Ok(count) => got.extend_from_slice(&space[..count]),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert_eq!(&got[..big.len()], &big[..]);
    assert_eq!(&got[big.len()..], b"tail");
    assert_eq!(stream.interest(), Interest::READ);
}

#[test]
fn many_held_chunks_leave_together_in_order() {
    let (ours, mut peer) = pair();
    let mut stream = Stream::new();
    (0..200_u8).for_each(|byte| stream.hold(vec![byte]));
    assert_eq!(stream.flush(ours.as_fd()).unwrap(), Flushed::Drained);
    let mut got = [0; 200];
    peer.read_exact(&mut got).unwrap();
    assert!(got.iter().copied().eq(0..200));
}

#[test]
fn a_read_tells_data_nothing_and_the_end_apart() {
    let (ours, mut peer) = pair();
    let mut space = [0; 16];
    assert_eq!(Stream::<Vec<u8>>::read(ours.as_fd(), &mut space).unwrap(), Read::WouldBlock);
    peer.write_all(b"abc").unwrap();
    assert_eq!(Stream::<Vec<u8>>::read(ours.as_fd(), &mut space).unwrap(), Read::Data(3));
    drop(peer);
    assert_eq!(Stream::<Vec<u8>>::read(ours.as_fd(), &mut space).unwrap(), Read::Eof);
}

#[test]
fn a_peer_that_is_gone_is_an_error_and_no_signal() {
    let (ours, peer) = pair();
    drop(peer);
    let mut stream = Stream::new();
    let error = stream.write(ours.as_fd(), b"late".to_vec()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(stream.queued(), 0);
}

#[test]
fn marks_are_crossed_once() {
    let mut flow = FlowControl::new();
    assert_eq!(flow.limits(), (16 * 1024, 64 * 1024));
    assert!(!flow.on_grow(64 * 1024));
    assert!(flow.on_grow(64 * 1024 + 1));
    assert!(!flow.on_grow(1 << 20));
    assert!(!flow.on_shrink(16 * 1024 + 1));
    assert!(flow.on_shrink(16 * 1024));
    assert!(!flow.on_shrink(0));
}

/// asyncio's `_FlowControlMixin._set_write_buffer_limits`.
#[test]
fn marks_have_asyncios_defaults() {
    let mut flow = FlowControl::new();
    for (high, low, expected) in [
        (None, None, (16 * 1024, 64 * 1024)),
        (Some(100), None, (25, 100)),
        (None, Some(100), (100, 400)),
        (Some(0), None, (0, 0)),
        (Some(7), Some(7), (7, 7)),
    ] {
        flow.set_limits(high, low).unwrap();
        assert_eq!(flow.limits(), expected);
    }
    assert_eq!(flow.set_limits(Some(1), Some(2)), Err(LimitsError { high: 1, low: 2 }));
    assert_eq!(flow.limits(), (7, 7));
}

#[test]
fn the_write_side_shuts_once() {
    let mut state = State::new();
    assert_eq!(state.shut_write(false), WriteShutdown::AfterFlush);
    assert_eq!(state.shut_write(true), WriteShutdown::Ignored);
    let mut state = State::new();
    assert_eq!(state.shut_write(true), WriteShutdown::Now);
    let mut state = State::new();
    state.close();
    assert_eq!(state.shut_write(true), WriteShutdown::Ignored);
    assert!(!state.is_write_shut());
}

proptest! {
    /// Whatever happens: nothing that has ended begins again, and loss is told once.
    #[test]
    fn nothing_leads_back(events in proptest::collection::vec(0_u8..6, 0..40)) {
        let mut state = State::new();
        let mut losses = 0;
        for event in events {
            let before = state.clone();
            match event {
                0 => { state.pause(); }
                1 => { state.resume(); }
                2 => state.peer_eof(),
                3 => { state.shut_write(true); }
                4 => { state.close(); }
                _ => losses += usize::from(state.lose()),
            }
            prop_assert!(!before.is_closing() || state.is_closing());
            prop_assert!(!before.is_lost() || state.is_lost());
            prop_assert!(!before.is_write_shut() || state.is_write_shut());
            prop_assert!(!state.is_lost() || state.is_closing());
            prop_assert!(!state.is_closing() || !state.wants_read());
            prop_assert!(!(state.is_paused() && state.wants_read()));
        }
        prop_assert_eq!(losses, usize::from(state.is_lost()));
    }
}
