//! Deadlines in order. This module reads no clock: the time is an argument.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;

/// Items, each with a deadline of type `K`, taken out in the order of their deadlines.
///
/// `K` is whatever the caller measures time in, nanoseconds in a `u64` or seconds in an `f64`.
/// Equal deadlines come out in the order in which they went in. A deadline that compares with
/// nothing, a NaN, is behind all others and never due.
///
/// Inserting and taking out cost O(log n).
///
/// # Examples
///
/// ```
/// use pelton::time::Timers;
///
/// let mut timers = Timers::new();
/// timers.insert(20, "second");
/// timers.insert(10, "first");
/// assert_eq!(timers.next_deadline(), Some(10));
/// assert_eq!(timers.pop_due(9), None);
/// assert_eq!(timers.pop_due(10), Some("first"));
/// assert_eq!(timers.pop_due(10), None);
/// assert_eq!(timers.len(), 1);
/// ```
pub struct Timers<K, T> {
    heap: BinaryHeap<Entry<K, T>>,
    /// How many were ever inserted. At one a nanosecond it lasts 584 years.
    inserted: u64,
}

impl<K: Copy + PartialOrd, T> Timers<K, T> {
    /// No timers, and no memory.
    pub const fn new() -> Self {
        Self { heap: BinaryHeap::new(), inserted: 0 }
    }

    /// Adds `item`, due at `deadline`.
    pub fn insert(&mut self, deadline: K, item: T) {
        let order = self.inserted;
        self.inserted += 1;
        self.heap.push(Entry { deadline, order, item });
    }

    /// The earliest deadline; `None` if there is none that ever comes.
    pub fn next_deadline(&self) -> Option<K> {
        let deadline = self.heap.peek()?.deadline;
        comes(deadline).then_some(deadline)
    }

    /// The item with the earliest deadline.
    pub fn peek(&self) -> Option<&T> {
        self.heap.peek().map(|entry| &entry.item)
    }

    /// Takes out the item with the earliest deadline, if that is `now` or before.
    pub fn pop_due(&mut self, now: K) -> Option<T> {
        if self.heap.peek()?.deadline <= now { self.pop() } else { None }
    }

    /// Takes out the item with the earliest deadline, due or not.
    pub fn pop(&mut self) -> Option<T> {
        self.heap.pop().map(|entry| entry.item)
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Moves every item that `keep` refuses to the end of `dead`, in no particular order.
    ///
    /// They are moved and not dropped, so that a caller whose items run code when they are
    /// dropped can let go of its borrow of the timers first. O(n). If `keep` panics, all items
    /// are dropped.
    pub fn retain_into(&mut self, dead: &mut Vec<T>, mut keep: impl FnMut(&T) -> bool) {
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        let refused = entries.extract_if(.., |entry| !keep(&entry.item));
        dead.extend(refused.map(|entry| entry.item));
        self.heap = entries.into();
    }

    /// The items, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.heap.iter().map(|entry| &entry.item)
    }

    /// Takes everything out, in no particular order.
    pub fn drain(&mut self) -> Vec<T> {
        let entries = std::mem::take(&mut self.heap).into_vec();
        entries.into_iter().map(|entry| entry.item).collect()
    }
}

impl<K: Copy + PartialOrd, T> Default for Timers<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, T> fmt::Debug for Timers<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("len", &self.heap.len()).finish_non_exhaustive()
    }
}

struct Entry<K, T> {
    deadline: K,
    order: u64,
    item: T,
}

/// Whether time can ever reach `deadline`.
fn comes<K: PartialOrd>(deadline: K) -> bool {
    deadline.partial_cmp(&deadline).is_some()
}

/// The order of deadlines, with those that compare with nothing behind all others.
fn compare<K: Copy + PartialOrd>(a: K, b: K) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| comes(b).cmp(&comes(a)))
}

impl<K: Copy + PartialOrd, T> Ord for Entry<K, T> {
    /// Greatest is what comes out first, as the standard heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        compare(other.deadline, self.deadline).then_with(|| other.order.cmp(&self.order))
    }
}

impl<K: Copy + PartialOrd, T> PartialOrd for Entry<K, T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Copy + PartialOrd, T> PartialEq for Entry<K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K: Copy + PartialOrd, T> Eq for Entry<K, T> {}

#[cfg(all(test, not(loom)))]
mod tests;
