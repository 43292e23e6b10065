//! Which datagrams of a queue can leave as one.

use crate::sys::address::Address;
use crate::sys::datagram::MOST_SENT;

/// The most bytes of one send, whatever the headers: IPv6 without options has 40, UDP 8.
const MOST_BYTES: usize = u16::MAX as usize - 40 - 8;

/// How many of the first datagrams, given as destination and size, the kernel can take as one
/// send and cut apart again: they go to one peer and are of one size, at most `largest`, but for
/// the last, which may be shorter. At least 1 if there is any.
///
/// An empty datagram always goes alone: there would be nothing to cut.
pub(super) fn run_length<'a>(
    datagrams: impl Iterator<Item = (&'a Address, usize)>,
    largest: usize,
) -> usize {
    let mut datagrams = datagrams.take(MOST_SENT);
    let Some((peer, size)) = datagrams.next() else { return 0 };
    let (mut count, mut bytes) = (1, size);
    if size == 0 || size > largest {
        return count;
    }
    for (to, len) in datagrams {
        if len == 0 || len > size || bytes + len > MOST_BYTES || to != peer {
            break;
        }
        count += 1;
        bytes += len;
        if len < size {
            break;
        }
    }
    count
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::*;

    fn peer(port: u16) -> Address {
        SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    fn run(sizes: &[usize], largest: usize) -> usize {
        let peer = peer(1);
        run_length(sizes.iter().map(|&size| (&peer, size)), largest)
    }

    #[test]
    fn one_size_and_a_shorter_last() {
        assert_eq!(run(&[], 1500), 0);
        assert_eq!(run(&[1200, 1200, 1200], 1500), 3);
        assert_eq!(run(&[1200, 1200, 700, 700], 1500), 3, "the shorter one ends it");
        assert_eq!(run(&[700, 1200], 1500), 1);
        assert_eq!(run(&[1200, 0, 1200], 1500), 1);
        assert_eq!(run(&[0, 0], 1500), 1, "empty ones cannot be cut apart");
        assert_eq!(run(&[1200, 1200], 1199), 1);
        assert_eq!(run(&[1200, 1200], 0), 1, "turned off");
        assert_eq!(run(&[1; 100], 1500), MOST_SENT);
        assert_eq!(run(&[1500; 64], 1500), 43);
        assert_eq!(run(&[70_000, 70_000], usize::MAX), 1, "the kernel says what it thinks of it");
    }

    proptest! {
        #[test]
        fn a_run_can_be_cut_apart_again(
            datagrams in prop::collection::vec((0_u16..2, 0_usize..4), 0..80),
            scale in 1_usize..20_000,
            largest in 0_usize..60_000,
        ) {
            let datagrams: Vec<_> =
                datagrams.into_iter().map(|(port, size)| (peer(port), size * scale)).collect();
            let count = run_length(datagrams.iter().map(|(to, size)| (to, *size)), largest);
            let run = &datagrams[..count];
            prop_assert_eq!(count == 0, datagrams.is_empty());
            if count > 1 {
                let (to, size) = run[0];
                let bytes: usize = run.iter().map(|(_, size)| size).sum();
                prop_assert!(run.iter().all(|(other, _)| *other == to));
                prop_assert!(count <= MOST_SENT && bytes <= MOST_BYTES && size <= largest);
                prop_assert!(run[..count - 1].iter().all(|(_, other)| *other == size));
                prop_assert!((1..=size).contains(&run[count - 1].1));
            }
            // And it is the longest such.
            if let Some((to, next)) = datagrams.get(count).filter(|_| count < MOST_SENT) {
                let (first, size) = run[0];
                let bytes: usize = run.iter().map(|(_, size)| size).sum();
                prop_assert!(
                    *to != first || size == 0 || size > largest || *next == 0 || *next > size
                        || bytes + next > MOST_BYTES || run[count - 1].1 < size
                );
            }
        }
    }
}
