//! Bytes that wait for the kernel.

use std::collections::VecDeque;
use std::io::IoSlice;

/// Chunks of bytes, oldest first, of which the kernel has taken a part.
///
/// Chunks are never copied. When the queue drains it gives its memory back.
#[derive(Debug)]
pub struct WriteQueue<B> {
    /// No chunk here is empty.
    chunks: VecDeque<B>,
    /// How much of the first chunk has been sent; less than its length.
    sent: usize,
    /// Bytes not yet sent.
    len: usize,
}

impl<B: AsRef<[u8]>> WriteQueue<B> {
    /// An empty queue; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: VecDeque::new(), sent: 0, len: 0 }
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a chunk. An empty one never enters.
    pub fn push(&mut self, chunk: B) {
        let length = chunk.as_ref().len();
        if length > 0 {
            self.len += length;
            self.chunks.push_back(chunk);
        }
    }

    /// Adds the first chunk, of which `sent` bytes have gone out already.
    ///
    /// # Panics
    /// If the queue is not empty, or if `sent` is more than the chunk.
    pub fn push_rest(&mut self, chunk: B, sent: usize) {
        assert!(self.is_empty(), "only the first chunk can be sent in part");
        let length = chunk.as_ref().len();
        assert!(sent <= length, "more sent than there was");
        if sent < length {
            self.push(chunk);
            self.sent = sent;
            self.len -= sent;
        }
    }

    /// Fills `slices` with what waits, oldest first, and answers how many it filled.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut sent = self.sent;
        let mut filled = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(&chunk.as_ref()[sent..]);
            sent = 0;
            filled += 1;
        }
        filled
    }

    /// Forgets the `count` oldest bytes: the kernel has them.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "more sent than there was");
        self.len -= count;
        while count > 0 {
            let left = self.chunks[0].as_ref().len() - self.sent;
            if count < left {
                self.sent += count;
                return;
            }
            count -= left;
            self.sent = 0;
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }

    /// Takes everything out, for the caller to drop when it borrows nothing.
    pub fn take(&mut self) -> Vec<B> {
        self.sent = 0;
        self.len = 0;
        std::mem::take(&mut self.chunks).into()
    }
}

impl<B: AsRef<[u8]>> Default for WriteQueue<B> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
