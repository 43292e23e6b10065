use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

use super::*;

type Queue = Endpoint<Vec<u8>>;

fn udp() -> (UdpSocket, Address) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().into();
    (socket, address)
}

/// Everything that has arrived, in order.
fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut endpoint = Queue::new(socket.as_fd()).unwrap();
    let mut batch = ReceiveBatch::new();
    let mut all = Vec::new();
    while endpoint.receive(socket.as_fd(), &mut batch).unwrap() {
        all.extend(batch.iter().map(|datagram| datagram.data.to_vec()));
    }
    all
}

fn numbered(count: usize, size: impl Fn(usize) -> usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number as u8; size(number)]).collect()
}

#[test]
fn addresses() {
    for text in ["127.0.0.1:53", "[::1]:65535", "[fe80::2%7]:9"] {
        let ip: std::net::SocketAddr = text.parse().unwrap();
        let address = Address::from(ip);
        assert_eq!((address.ip(), address.unix_name()), (Some(ip), None));
        assert!(address == ip.into() && address != Address::NONE);
        assert!(format!("{address:?}").contains(text), "{address:?}");
    }
    let longest = [b'x'; 108];
    assert_eq!(Address::unix(&longest), None, "no room for the end of a path");
    assert_eq!(Address::unix(&longest[1..]).unwrap().unix_name(), Some(&longest[1..]));
    let name = [&[0], &longest[1..]].concat();
    assert_eq!(Address::unix(&name).unwrap().unix_name(), Some(name.as_slice()));
    assert_eq!(Address::unix(&[&name[..], b"x"].concat()), None);
    assert_eq!((Address::NONE.ip(), Address::NONE.unix_name()), (None, None));
    assert!(Address::NONE.is_none());
}

#[test]
fn sizes_of_all_sorts_keep_their_order() {
    let sizes: [fn(usize) -> usize; 5] = [
        |_| 120,
        |_| 0,
        |number| if number % 5 == 4 { 30 } else { 120 },
        |number| number * 7 % 11,
        |number| 200 - number,
    ];
    for (size, offload) in sizes.iter().flat_map(|size| [(size, true), (size, false)]) {
        let ((ours, _), (theirs, to)) = (udp(), udp());
        let mut endpoint = Queue::new(ours.as_fd()).unwrap();
        if !offload {
            endpoint = endpoint.without_offload();
        }
        let sent = numbered(100, size);
        for datagram in &sent {
            endpoint.hold(Destination::To(to), datagram.clone());
        }
        let bytes: usize = sent.iter().map(Vec::len).sum();
        assert_eq!((endpoint.queued(), endpoint.len()), (bytes + 800, 100));
        assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Drained));
        assert_eq!((endpoint.queued(), endpoint.is_empty()), (0, true));
        assert!(received(&theirs) == sent, "the same datagrams in the same order");
    }
}

#[test]
fn several_peers() {
    let (ours, _) = udp();
    let peers: Vec<_> = (0..5).map(|_| udp()).collect();
    let mut endpoint = Queue::new(ours.as_fd()).unwrap();
    let sent = numbered(60, |_| 500);
    for (number, datagram) in sent.iter().enumerate() {
        endpoint.hold(Destination::To(peers[number / 2 % 5].1), datagram.clone());
    }
    assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Drained));
    for (number, (socket, _)) in peers.iter().enumerate() {
        let mine = sent.iter().enumerate().filter(|(at, _)| at / 2 % 5 == number);
        assert_eq!(received(socket), mine.map(|(_, sent)| sent.clone()).collect::<Vec<_>>());
    }
}

#[test]
fn one_that_fails_leaves_the_others() {
    let ((ours, _), (theirs, to)) = (udp(), udp());
    let mut endpoint = Queue::new(ours.as_fd()).unwrap();
    for size in [10, 10, 70_000, 70_000, 10, 10] {
        endpoint.hold(Destination::To(to), vec![1; size]);
    }
    for _ in 0..2 {
        let Flushed::Failed(error) = endpoint.flush(ours.as_fd()) else { panic!("it is too long") };
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
    assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Drained));
    assert_eq!(received(&theirs), vec![vec![1; 10]; 4]);
    assert_eq!((endpoint.queued(), endpoint.largest), (0, usize::MAX));
}

/// A run whose peer is at fault does not end runs to other peers.
#[test]
fn a_bad_peer_is_not_the_fault_of_runs() {
    let (ours, _) = udp();
    let nobody = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut endpoint = Queue::new(ours.as_fd()).unwrap();
    (0..3).for_each(|_| endpoint.hold(Destination::To(nobody), vec![1; 10]));
    for _ in 0..3 {
        let Flushed::Failed(error) = endpoint.flush(ours.as_fd()) else { panic!("port 0") };
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
    assert_eq!(endpoint.largest, usize::MAX);
}

/// What the kernel refuses as a run goes out datagram by datagram, and is not tried again.
#[test]
fn a_refused_run_goes_out_piece_by_piece() {
    let ((ours, _), (theirs, to)) = (udp(), udp());
    // Without a checksum there is nothing to cut: EINVAL (`udp_send_skb` of the kernel).
    sys::set_no_check(ours.as_fd());
    let mut endpoint = Queue::new(ours.as_fd()).unwrap();
    let sent = numbered(10, |_| 900);
    sent.iter().for_each(|datagram| endpoint.hold(Destination::To(to), datagram.clone()));
    assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Drained));
    assert!(received(&theirs) == sent, "the same datagrams in the same order");
    assert!(endpoint.largest < 900, "not asked again");
}

#[test]
fn refused_peers_are_told_and_cost_one_datagram() {
    for size in [10, 1200] {
        let (ours, theirs) = (udp().0, udp());
        ours.connect(theirs.0.local_addr().unwrap()).unwrap();
        drop(theirs);
        let mut endpoint = Queue::new(ours.as_fd()).unwrap();
        assert!(endpoint.is_connected());
        for number in 0..9 {
            // Of different sizes: each is sent by itself.
            endpoint.hold(Destination::To(Address::NONE), vec![0; size + number]);
        }
        // Over the loopback a refusal is there at once: every second one fails.
        let mut failed = 0;
        while let Flushed::Failed(error) = endpoint.flush(ours.as_fd()) {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            failed += 1;
        }
        assert_eq!((failed, endpoint.len()), (4, 0));
    }
}

#[test]
fn unix_datagrams_wait_for_their_reader() {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let mut endpoint = Queue::new(ours.as_fd()).unwrap();
    assert_eq!((endpoint.family(), endpoint.is_connected()), (Family::Unix, true));
    let sent = numbered(2000, |number| number % 300);
    for datagram in &sent {
        endpoint.hold(Destination::To(Address::NONE), datagram.clone());
    }
    assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Blocked));
    assert!(endpoint.interest().contains(Interest::WRITE));
    let mut other = Queue::new(theirs.as_fd()).unwrap();
    let (mut batch, mut all) = (ReceiveBatch::new(), Vec::new());
    while all.len() < sent.len() {
        assert!(other.receive(theirs.as_fd(), &mut batch).unwrap());
        all.extend(batch.iter().map(|datagram| datagram.data.to_vec()));
        endpoint.flush(ours.as_fd());
    }
    assert!(all == sent && endpoint.is_empty() && endpoint.queue.capacity() == 0);
}

#[test]
fn a_truncated_message_says_so() {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    sockopt::set_socket_send_buffer_size(&ours, 1 << 20).unwrap();
    let mut batch = ReceiveBatch::new();
    let mut endpoint = Queue::new(theirs.as_fd()).unwrap();
    for (size, truncated) in [(256 * 1024, false), (300 * 1024, true)] {
        if !Queue::send(ours.as_fd(), &Address::NONE, &vec![1; size]).is_ok_and(|sent| sent) {
            continue; // the kernel's limit is below what would be cut off
        }
        assert!(endpoint.receive(theirs.as_fd(), &mut batch).unwrap());
        let datagram = batch.iter().next().unwrap();
        assert_eq!((datagram.data.len(), datagram.truncated), (256 * 1024, truncated));
        assert!(datagram.from.is_none());
    }
}

#[test]
fn the_kernel_hands_over_together_what_came_together() {
    let ((ours, from), (theirs, to)) = (udp(), udp());
    let mut endpoint = Queue::new(ours.as_fd()).unwrap();
    let mut other = Queue::new(theirs.as_fd()).unwrap();
    let mut batch = ReceiveBatch::new();
    let (mut sent, mut all, mut calls) = (0_u32, Vec::new(), 0);
    for _ in 0..20 {
        for _ in 0..40 {
            endpoint.hold(Destination::To(to), sent.to_be_bytes().repeat(250));
            sent += 1;
        }
        assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Drained));
        calls = 1;
        while other.receive(theirs.as_fd(), &mut batch).unwrap() {
            calls += 1;
            for datagram in batch.iter() {
                assert!(datagram.data.len() == 1000 && *datagram.from == from);
                all.push(u32::from_be_bytes(*datagram.data.first_chunk().unwrap()));
            }
        }
    }
    assert!(all.iter().copied().eq(0..sent));
    if sys::receive_coalesced(theirs.as_fd()) {
        assert_eq!(calls, 2, "40 datagrams were cut apart, and then there was nothing");
    }
}

#[test]
fn foreign_destinations_are_the_callers() {
    let ((ours, _), (theirs, to)) = (udp(), udp());
    let mut endpoint = Queue::new(ours.as_fd()).unwrap();
    for (to, data) in
        [(Destination::To(to), 1), (Destination::Foreign, 2), (Destination::To(to), 3)]
    {
        endpoint.hold(to, vec![data]);
    }
    assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Foreign));
    assert_eq!(received(&theirs), [[1]]);
    let (to, data) = endpoint.take_first().unwrap();
    assert_eq!((to, data.as_slice(), endpoint.queued()), (Destination::Foreign, &[2][..], 9));
    endpoint.put_back(to, data);
    assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Foreign));
    assert!(endpoint.take_first().is_some());
    assert!(matches!(endpoint.flush(ours.as_fd()), Flushed::Drained));
    assert_eq!(received(&theirs), [[3]]);
    assert!(endpoint.take_queue().is_empty());
}
