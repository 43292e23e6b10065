use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;

use super::{Flushed, GATHER, Pipe, Read, Sent, Stream, WriteShutdown};
use crate::reactor::Interest;

type Bytes = Stream<Vec<u8>>;

/// Neither is non-blocking: the stream's own flags must do.
fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    sockopt::set_socket_send_buffer_size(&ours, 4096).unwrap();
    theirs.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    (ours, theirs)
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// Flushes and reads by turns until `len` bytes have arrived.
fn pump(stream: &mut Bytes, ours: &UnixStream, theirs: &mut UnixStream, len: usize) -> Vec<u8> {
    let mut got = Vec::new();
    let mut buffer = vec![0; 3000];
    while got.len() < len {
        let flushed = stream.flush(ours.as_fd()).unwrap();
        assert_eq!(flushed == Flushed::Drained, stream.queued() == 0);
        let count = theirs.read(&mut buffer).unwrap();
        got.extend(&buffer[..count]);
    }
    got
}

#[test]
fn a_write_is_with_the_kernel_before_it_returns() {
    let (ours, mut theirs) = pair();
    let mut stream = Bytes::new();
    assert_eq!(stream.write(ours.as_fd(), b"ping".to_vec()).unwrap(), Sent::All);
    assert_eq!((stream.queued(), stream.interest()), (0, Interest::READ));
    let mut got = [0; 4];
    theirs.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"ping");
    assert_eq!(stream.write(ours.as_fd(), vec![]).unwrap(), Sent::All);
}

#[test]
fn what_the_kernel_refuses_is_queued_and_arrives_in_order() {
    let (ours, mut theirs) = pair();
    let mut stream = Bytes::new();
    let big = numbered(500_000);
    assert_eq!(stream.write(ours.as_fd(), big.clone()).unwrap(), Sent::Queued);
    let queued = stream.queued();
    assert!(0 < queued && queued < big.len(), "a part of it was sent: {queued}");
    assert_eq!(stream.interest(), Interest::BOTH);
    assert_eq!(stream.write(ours.as_fd(), b"tail".to_vec()).unwrap(), Sent::Queued);
    stream.hold(b"!".to_vec());
    assert_eq!(stream.queued(), queued + 5);
    assert_eq!(stream.flush(ours.as_fd()).unwrap(), Flushed::Partial, "nobody has read");

    let got = pump(&mut stream, &ours, &mut theirs, big.len() + 5);
    assert!(got[..big.len()] == big && &got[big.len()..] == b"tail!");
    assert_eq!((stream.queued(), stream.interest()), (0, Interest::READ));
}

#[test]
fn many_chunks_are_gathered_over_many_calls() {
    for count in [1, 2, GATHER - 1, GATHER, GATHER + 1, 5 * GATHER + 7] {
        let (ours, mut theirs) = pair();
        let mut stream = Bytes::new();
        let bytes = numbered(count * 3);
        bytes.chunks(3).for_each(|chunk| stream.hold(chunk.to_vec()));
        assert_eq!(stream.queued(), bytes.len());
        assert_eq!(pump(&mut stream, &ours, &mut theirs, bytes.len()), bytes);
    }
}

#[test]
fn offered_bytes_are_taken_in_part_or_not_at_all() {
    let (ours, _theirs) = pair();
    let bytes = numbered(500_000);
    let sent = Bytes::try_send(ours.as_fd(), &bytes).unwrap();
    assert!(0 < sent && sent < bytes.len());
    while Bytes::try_send(ours.as_fd(), &bytes).unwrap() > 0 {}
    let mut stream = Bytes::new();
    assert_eq!(stream.write(ours.as_fd(), bytes).unwrap(), Sent::Queued);
    assert_eq!(stream.queued(), 500_000, "a full socket: the whole chunk waits");
}

#[test]
fn a_read_tells_data_and_nothing_and_the_end_apart() {
    let (ours, mut theirs) = pair();
    let mut buffer = [0; 4];
    let mut uninit = [MaybeUninit::uninit(); 4];
    assert_eq!(Bytes::read(ours.as_fd(), &mut buffer).unwrap(), Read::WouldBlock);
    assert_eq!(Bytes::read_uninit(ours.as_fd(), &mut uninit).unwrap(), Read::WouldBlock);
    theirs.write_all(b"abcdefg").unwrap();
    assert_eq!(Bytes::read(ours.as_fd(), &mut buffer).unwrap(), Read::Data(4));
    assert_eq!(&buffer, b"abcd");
    assert_eq!(Bytes::read_uninit(ours.as_fd(), &mut uninit).unwrap(), Read::Data(3));
    drop(theirs);
    assert_eq!(Bytes::read(ours.as_fd(), &mut buffer).unwrap(), Read::Eof);
    assert_eq!(Bytes::read_uninit(ours.as_fd(), &mut uninit).unwrap(), Read::Eof);
}

#[test]
fn a_closed_peer_is_an_error_and_no_signal() {
    let (ours, theirs) = pair();
    drop(theirs);
    let mut stream = Bytes::new();
    let error = stream.write(ours.as_fd(), b"late".to_vec()).unwrap_err();
    assert_eq!((error.kind(), stream.queued()), (io::ErrorKind::BrokenPipe, 0));
    for _ in 0..2 {
        stream.hold(b"later".to_vec());
    }
    let error = stream.flush(ours.as_fd()).unwrap_err();
    assert_eq!((error.kind(), stream.queued()), (io::ErrorKind::BrokenPipe, 10));
    assert_eq!(stream.take_queue(), [b"later".to_vec(), b"later".to_vec()]);
    assert_eq!(stream.queued(), 0);
}

/// RFC 9293, section 3.10.7.4: a reset is told to the receiver.
#[test]
fn a_reset_is_an_error_of_the_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    sockopt::set_socket_linger(&theirs, Some(Duration::ZERO)).unwrap();
    drop(theirs);
    ours.set_nonblocking(true).unwrap();
    let error = loop {
        match Bytes::read(ours.as_fd(), &mut [0; 8]) {
            Ok(Read::WouldBlock) => std::thread::yield_now(),
            Ok(read) => panic!("{read:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn ending_our_side_is_an_end_of_file_for_the_peer() {
    let (ours, mut theirs) = pair();
    let mut stream = Bytes::new();
    stream.hold(b"last".to_vec());
    assert_eq!(stream.state_mut().shut_write(false), WriteShutdown::AfterFlush);
    assert_eq!(stream.flush(ours.as_fd()).unwrap(), Flushed::Drained);
    Bytes::shutdown_write(ours.as_fd()).unwrap();
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"last");
    assert_eq!(Bytes::read(ours.as_fd(), &mut [0; 4]).unwrap(), Read::WouldBlock);
}

#[test]
fn interest_is_what_state_and_queue_want() {
    let mut stream = Bytes::new();
    assert_eq!(stream.interest(), Interest::READ);
    stream.state_mut().pause();
    assert_eq!(stream.interest(), Interest::NONE);
    stream.hold(vec![1]);
    assert_eq!(stream.interest(), Interest::WRITE);
    stream.state_mut().resume();
    assert_eq!(stream.interest(), Interest::BOTH);
    stream.state_mut().close();
    assert_eq!(stream.interest(), Interest::WRITE, "what is queued still goes out");
    stream.state_mut().lose();
    assert_eq!(stream.interest(), Interest::NONE);
}

/// A full pipe takes nothing, a drained one goes on where it stopped, and a lost one says so.
#[test]
fn a_pipe_takes_what_fits_and_the_rest_when_it_is_read() {
    let (reader, writer) = io::pipe().unwrap();
    for fd in [reader.as_fd(), writer.as_fd()] {
        rustix::io::ioctl_fionbio(fd, true).unwrap();
    }
    let mut space = [MaybeUninit::uninit(); 5000];
    assert_eq!(Pipe::read_uninit(reader.as_fd(), &mut space).unwrap(), Read::WouldBlock);

    let data = numbered(1 << 18);
    let mut stream = Stream::pipe();
    assert_eq!(stream.write(writer.as_fd(), data.clone()).unwrap(), Sent::Queued);
    stream.hold(b"tail".to_vec());
    assert_eq!(stream.flush(writer.as_fd()).unwrap(), Flushed::Partial);
    let mut got = 0;
    while let Read::Data(count) = Pipe::read_uninit(reader.as_fd(), &mut space).unwrap() {
        got += count;
        stream.flush(writer.as_fd()).unwrap();
    }
    assert_eq!(got, data.len() + 4);
    assert_eq!(stream.queued(), 0);

    drop(reader);
    let error = stream.write(writer.as_fd(), b"nobody".to_vec()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn the_end_of_a_pipe_is_read() {
    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"last").unwrap();
    drop(writer);
    let mut space = [MaybeUninit::uninit(); 8];
    assert_eq!(Pipe::read_uninit(reader.as_fd(), &mut space).unwrap(), Read::Data(4));
    assert_eq!(Pipe::read_uninit(reader.as_fd(), &mut space).unwrap(), Read::Eof);
}
