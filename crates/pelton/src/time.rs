//! Deadlines in order. Reads no clock: what time it is, is an argument.

use std::cmp::Ordering;

/// Items with a deadline each, soonest first; equal deadlines in the order they came.
///
/// `K` is any clock's reading: nanoseconds as `u64`, or seconds as `f64`. A deadline that
/// compares with nothing (not a number) is never due.
#[derive(Debug)]
pub struct Timers<K, T> {
    /// A binary heap: an entry is not after those at twice its place, plus one and two.
    heap: Vec<Entry<K, T>>,
    inserted: u64,
}

#[derive(Debug)]
struct Entry<K, T> {
    deadline: K,
    number: u64,
    item: T,
}

impl<K: PartialOrd, T> Entry<K, T> {
    fn is_before(&self, other: &Self) -> bool {
        match self.deadline.partial_cmp(&other.deadline) {
            Some(Ordering::Less) => true,
            Some(Ordering::Equal) => self.number < other.number,
            Some(Ordering::Greater) => false,
            // Not a number comes last, whichever side it is on.
            None => self.is_comparable() && !other.is_comparable(),
        }
    }

    fn is_comparable(&self) -> bool {
        self.deadline.partial_cmp(&self.deadline).is_some()
    }
}

impl<K: Copy + PartialOrd, T> Timers<K, T> {
    /// No timers; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { heap: Vec::new(), inserted: 0 }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Adds an item; O(1) where it is due after most others, O(log n) at worst.
    pub fn insert(&mut self, deadline: K, item: T) {
        self.inserted += 1;
        self.heap.push(Entry { deadline, number: self.inserted, item });
        self.rise(self.heap.len() - 1);
    }

    /// The soonest deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<K> {
        self.heap.first().map(|entry| entry.deadline)
    }

    /// Takes out the soonest item if it is due: never before its deadline.
    pub fn pop_due(&mut self, now: K) -> Option<T> {
        if self.heap.first()?.deadline <= now { self.pop() } else { None }
    }

    /// Takes out the soonest item.
    pub fn pop(&mut self) -> Option<T> {
        if self.heap.is_empty() {
            return None;
        }
        let first = self.heap.swap_remove(0);
        self.sink(0);
        Some(first.item)
    }

    /// Every item, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.heap.iter().map(|entry| &entry.item)
    }

    /// Moves the items that `keep` refuses into `dead`, so that the caller can drop them when it
    /// no longer borrows the timers: dropping an item may run code that adds one. O(n).
    pub fn retain_into(&mut self, dead: &mut Vec<T>, mut keep: impl FnMut(&T) -> bool) {
        let mut place = 0;
        while place < self.heap.len() {
            if keep(&self.heap[place].item) {
                place += 1;
            } else {
                dead.push(self.heap.swap_remove(place).item);
            }
        }
        for parent in (0..self.heap.len() / 2).rev() {
            self.sink(parent);
        }
    }

    /// Takes out everything, in no order.
    pub fn drain(&mut self) -> Vec<T> {
        std::mem::take(&mut self.heap).into_iter().map(|entry| entry.item).collect()
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.heap[place].is_before(&self.heap[parent]) {
                break;
            }
            self.heap.swap(place, parent);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let mut first = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.heap[child].is_before(&self.heap[first]) {
                    first = child;
                }
            }
            if first == place {
                return;
            }
            self.heap.swap(place, first);
            place = first;
        }
    }
}

impl<K: Copy + PartialOrd, T> Default for Timers<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
