//! What is known of the peers that were heard or written to of late.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

/// A bounded map that forgets what was not asked for the longest.
///
/// The entry used last is compared before anything is hashed, so an endpoint with one peer never
/// hashes. An empty cache has no memory; a full one asks the heap for nothing.
///
/// # Examples
///
/// ```
/// use pelton::datagram::Cache;
///
/// let mut cache = Cache::new(2);
/// assert_eq!(cache.insert("a", 1), None);
/// assert_eq!(cache.insert("b", 2), None);
/// assert_eq!(cache.get("a"), Some(&1));
/// assert_eq!(cache.insert("c", 3), Some(("b", 2)), "not asked for the longest");
/// ```
pub struct Cache<K, V> {
    capacity: usize,
    places: HashMap<K, Place>,
    /// Invariant: the entries form one ring through `newer` and `older`, and `places` has the
    /// place of each key.
    entries: Vec<Entry<K, V>>,
    /// The entry used last; meaningless while there is none.
    newest: Place,
}

/// An index into `entries`.
type Place = u32;

struct Entry<K, V> {
    key: K,
    value: V,
    newer: Place,
    older: Place,
}

impl<K, V> Cache<K, V> {
    /// An empty cache of at most `capacity` entries.
    ///
    /// # Panics
    ///
    /// If `capacity` is 0 or does not fit 32 bits.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0 && Place::try_from(capacity).is_ok(), "a capacity within 32 bits");
        Self { capacity, places: HashMap::new(), entries: Vec::new(), newest: 0 }
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: Clone + Eq + Hash, V> Cache<K, V> {
    /// The value of `key`, which becomes the one used last.
    #[inline]
    pub fn get<Q>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let newest = self.entries.get(self.newest as usize)?;
        if newest.key.borrow() != key {
            let place = *self.places.get(key)?;
            self.touch(place);
        }
        Some(&self.entries[self.newest as usize].value)
    }

    /// Adds an entry, or gives `key` another value. What has to go for it is answered, for the
    /// caller to drop: the entry not used the longest, or the former one of the key.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some(&place) = self.places.get(&key) {
            self.touch(place);
            let former = std::mem::replace(&mut self.entries[place as usize].value, value);
            return Some((key, former));
        }
        if self.entries.len() < self.capacity {
            self.add(key, value);
            return None;
        }
        // The ring is full: its oldest is just before its newest, and becomes the newest.
        let place = self.entries[self.newest as usize].newer;
        let entry = &mut self.entries[place as usize];
        let former_value = std::mem::replace(&mut entry.value, value);
        let former_key = std::mem::replace(&mut entry.key, key.clone());
        self.places.remove(&former_key);
        self.places.insert(key, place);
        self.newest = place;
        Some((former_key, former_value))
    }

    fn add(&mut self, key: K, value: V) {
        let place = self.entries.len() as Place;
        self.places.insert(key.clone(), place);
        self.entries.push(Entry { key, value, newer: place, older: place });
        self.link(place);
    }

    fn touch(&mut self, place: Place) {
        if place != self.newest {
            let Entry { newer, older, .. } = self.entries[place as usize];
            self.entries[newer as usize].older = older;
            self.entries[older as usize].newer = newer;
            self.link(place);
        }
    }

    /// Puts a loose entry between the newest and the oldest, as the newest.
    fn link(&mut self, place: Place) {
        if self.entries.len() > 1 {
            let older = self.newest;
            let newer = self.entries[older as usize].newer;
            self.entries[older as usize].newer = place;
            self.entries[newer as usize].older = place;
            let entry = &mut self.entries[place as usize];
            (entry.newer, entry.older) = (newer, older);
        }
        self.newest = place;
    }
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("len", &self.len()).field("capacity", &self.capacity).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
