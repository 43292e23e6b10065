//! What one call to the kernel received.

use std::fmt;

use crate::sys::address::Address;
use crate::sys::datagram::{Head, MOST_RECEIVED};

/// Bytes for one message of IP: the longest there is.
const SLOT: usize = 64 * 1024;

/// Room for what one call receives, made once and lent to one endpoint after the other.
///
/// It is 1 MiB of address space, of which only the pages that datagrams were received into are
/// memory.
pub struct ReceiveBatch {
    pub(super) memory: Box<[u8]>,
    pub(super) heads: Box<[Head; MOST_RECEIVED]>,
    /// Bytes of each slot in use; nothing is received where it is 0.
    pub(super) slot: usize,
    /// How many slots were filled.
    pub(super) filled: usize,
}

/// One received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its content; of a truncated one, what there was room for.
    pub data: &'a [u8],
    /// Who sent it.
    pub from: &'a Address,
    /// Whether it was longer than there was room for: never of UDP.
    pub truncated: bool,
}

impl ReceiveBatch {
    /// Room for one call.
    pub fn new() -> Self {
        Self {
            memory: vec![0; MOST_RECEIVED * SLOT].into(),
            heads: Box::new([const { Head::EMPTY }; MOST_RECEIVED]),
            slot: 0,
            filled: 0,
        }
    }

    /// The datagrams received last, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        let slots = self.memory.chunks(self.slot.max(1));
        self.heads[..self.filled].iter().zip(slots).flat_map(|(head, slot)| {
            let data = &slot[..head.len];
            // What the kernel put together is cut apart; an empty datagram is one.
            let size = if head.segment == 0 { data.len() } else { head.segment };
            let count = data.len().div_ceil(size.max(1)).max(1);
            (0..count).map(move |number| {
                let start = number * size;
                Datagram {
                    data: &data[start..data.len().min(start + size)],
                    from: &head.from,
                    truncated: head.truncated && number + 1 == count,
                }
            })
        })
    }
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// How many slots the next call offers.
///
/// An endpoint that gets one datagram at a time shall not pay for a look at many slots; one under
/// load shall get them all at once. So: twice as many as last time when they were all filled, and
/// half as many when most stayed empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window(usize);

impl Window {
    /// Two, so that a second datagram that waits is seen.
    pub(super) const fn new() -> Self {
        Self(2)
    }

    pub(super) const fn slots(self) -> usize {
        self.0
    }

    pub(super) fn on_filled(&mut self, filled: usize) {
        if filled >= self.0 {
            self.0 = (self.0 * 2).min(MOST_RECEIVED);
        } else if filled * 2 <= self.0 {
            self.0 = (self.0 / 2).max(2);
        }
    }

    /// Whether datagrams come faster than they are taken.
    pub(super) const fn is_widest(self) -> bool {
        self.0 == MOST_RECEIVED
    }
}

/// Bytes of a slot for messages of a unix socket, which have no bound of their own. CPython's
/// `_SelectorTransport.max_size`.
const WIDE_SLOT: usize = 256 * 1024;

/// The size of a slot: IP has a bound, other families get what asyncio gives them.
pub(super) const fn slot_size(bounded: bool) -> usize {
    if bounded { SLOT } else { WIDE_SLOT }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the kernel put together comes out as it was sent.
        #[test]
        fn cuts_apart_what_was_joined(
            slots in prop::collection::vec((1_usize..40, 0_usize..6, 0_usize..40), 0..16),
        ) {
            let mut batch = ReceiveBatch::new();
            batch.slot = SLOT;
            let mut sent: Vec<Vec<u8>> = Vec::new();
            for (index, (size, whole, last)) in slots.into_iter().enumerate() {
                let last = last.min(size);
                let mut pieces = vec![vec![whole as u8; size]; whole];
                if last > 0 || whole == 0 {
                    pieces.push(vec![77; last]);
                }
                let joined = pieces.concat();
                batch.memory[index * SLOT..][..joined.len()].copy_from_slice(&joined);
                let segment = if pieces.len() > 1 { size } else { 0 };
                batch.heads[index] = Head { len: joined.len(), segment, ..Head::EMPTY };
                batch.filled += 1;
                sent.append(&mut pieces);
            }
            let received: Vec<_> = batch.iter().map(|datagram| datagram.data.to_vec()).collect();
            prop_assert_eq!(received, sent);
        }
    }

    #[test]
    fn the_window_follows_the_load() {
        let mut window = Window::new();
        for expected in [4, 8, 16, 16] {
            window.on_filled(window.slots());
            assert_eq!(window.slots(), expected);
        }
        assert!(window.is_widest());
        window.on_filled(9);
        assert_eq!(window.slots(), 16, "most were filled");
        for expected in [8, 4, 2, 2] {
            window.on_filled(1);
            assert_eq!(window.slots(), expected);
        }
    }
}
