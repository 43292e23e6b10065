//! Bytes that the kernel has not taken yet.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;

/// Bytes waiting for the kernel, oldest first, in the chunks in which they were written.
///
/// Chunks are kept by value and never copied or joined: `B` is whatever owns the bytes, a
/// `Vec<u8>`, an `Arc<[u8]>`, a reference to another runtime's object. Its `as_ref` must give the
/// same bytes every time.
///
/// The first chunk is held in place, so the usual case, one message of which a part is left,
/// asks the heap for nothing. A queue that has drained holds no memory.
///
/// # Examples
///
/// ```
/// use std::io::IoSlice;
/// use pelton::buf::WriteQueue;
///
/// let mut queue = WriteQueue::new();
/// queue.push_rest(b"hello".as_slice(), 2);
/// queue.push(b"world");
/// assert_eq!(queue.len(), 8);
///
/// let mut slices = [IoSlice::new(&[]); 4];
/// assert_eq!(queue.gather(&mut slices), 2);
/// assert_eq!(&*slices[0], b"llo");
///
/// queue.advance(5);
/// assert_eq!(queue.iter().collect::<Vec<_>>(), [b"rld"]);
/// ```
pub struct WriteQueue<B> {
    /// Invariant: `Some` if anything is queued, and then not wholly sent.
    first: Option<B>,
    /// How many bytes of `first` the kernel has. Invariant: 0 if `first` is `None`.
    sent: usize,
    /// What is behind `first`. Invariant: no chunk is empty.
    rest: VecDeque<B>,
    /// Bytes not sent, over all chunks.
    len: usize,
}

impl<B> WriteQueue<B> {
    /// An empty queue, without memory.
    pub const fn new() -> Self {
        Self { first: None, sent: 0, rest: VecDeque::new(), len: 0 }
    }

    /// How many bytes wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops everything.
    ///
    /// Chunks that run code when they are dropped run it while the queue is borrowed; a caller
    /// that must not allow that uses [`take_all`](Self::take_all).
    pub fn clear(&mut self) {
        drop(self.take_all());
    }

    /// Takes every chunk out, oldest first; the first one may have been sent in part.
    #[must_use = "`clear` drops them in place"]
    pub fn take_all(&mut self) -> VecDeque<B> {
        let Self { first, mut rest, .. } = std::mem::take(self);
        if let Some(first) = first {
            rest.push_front(first);
        }
        rest
    }
}

impl<B: AsRef<[u8]>> WriteQueue<B> {
    /// Adds `chunk` behind all others. An empty chunk is dropped: it would look like one that
    /// was sent.
    pub fn push(&mut self, chunk: B) {
        let len = chunk.as_ref().len();
        if len == 0 {
            return;
        }
        self.len += len;
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.rest.push_back(chunk);
        }
    }

    /// Adds a chunk whose first `sent` bytes the kernel has taken already.
    ///
    /// # Panics
    ///
    /// If the queue is not empty, or if the chunk has fewer than `sent` bytes.
    pub fn push_rest(&mut self, chunk: B, sent: usize) {
        assert!(self.is_empty(), "bytes went out ahead of bytes that were waiting");
        let len = chunk.as_ref().len();
        assert!(sent <= len, "more bytes sent than the chunk has");
        if sent < len {
            self.len = len - sent;
            self.sent = sent;
            self.first = Some(chunk);
        }
    }

    /// Points `slices` at the waiting bytes, oldest first, and answers how many were set.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(self.iter()) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        count
    }

    /// The waiting bytes if they are all of one chunk.
    pub(crate) fn single(&self) -> Option<&[u8]> {
        if self.rest.is_empty() { self.iter().next() } else { None }
    }

    /// Forgets the `count` oldest bytes, which the kernel has taken; drops the chunks that were
    /// sent whole.
    ///
    /// # Panics
    ///
    /// If fewer bytes wait.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len, "more bytes sent than were waiting");
        self.len -= count;
        self.sent += count;
        while let Some(first) = &self.first {
            let len = first.as_ref().len();
            if self.sent < len {
                return;
            }
            self.sent -= len;
            self.first = self.rest.pop_front();
        }
        // Drained: an idle connection holds no memory.
        self.rest = VecDeque::new();
    }

    /// The waiting bytes, oldest first, chunk by chunk.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let first = self.first.iter().map(|first| &first.as_ref()[self.sent..]);
        first.chain(self.rest.iter().map(B::as_ref))
    }
}

impl<B> Default for WriteQueue<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> fmt::Debug for WriteQueue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks = usize::from(self.first.is_some()) + self.rest.len();
        f.debug_struct("WriteQueue").field("len", &self.len).field("chunks", &chunks).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
