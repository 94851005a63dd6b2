//! Maps and sets as sorted lists: for tables that are small, or that grow at their end.
//!
//! Everything with a bound of some thousand entries uses them. A hash map costs the agent one kilobyte of
//! code for each type of entry, a B-tree four to seven, and these a few hundred bytes; up to such a size they
//! are also the fastest. Ids and process numbers grow, so new ones go to the end. Input that a peer may send
//! in any order is collected, which sorts once.

use std::borrow::Borrow;

/// Sorts `items`. Equal ones end up in any order.
///
/// It is a heap sort of a few hundred bytes of code for each type of item, where the standard library's
/// sorts take four kilobytes. It is slower, which lists of some thousand items do not show.
pub fn sort_by<T>(items: &mut [T], is_less: impl Fn(&T, &T) -> bool) {
    for top in (0..items.len() / 2).rev() {
        sift_down(items, top, &is_less);
    }
    for end in (1..items.len()).rev() {
        items.swap(0, end);
        sift_down(&mut items[..end], 0, &is_less);
    }
}

/// Moves the item at `at` down a heap until nothing below it is larger.
fn sift_down<T>(heap: &mut [T], mut at: usize, is_less: &impl Fn(&T, &T) -> bool) {
    loop {
        let mut child = 2 * at + 1;
        if child >= heap.len() {
            return;
        }
        if child + 1 < heap.len() && is_less(&heap[child], &heap[child + 1]) {
            child += 1;
        }
        if !is_less(&heap[at], &heap[child]) {
            return;
        }
        heap.swap(at, child);
        at = child;
    }
}

/// Values by their keys, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The index of a key, or where it belongs.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(&self.0[at].1)
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(&mut self.0[at].1)
    }

    /// Puts a value under a key, in the place of one that is there.
    pub fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(self.0.remove(at).1)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub fn into_keys(self) -> impl Iterator<Item = K> {
        self.0.into_iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

/// Of entries with the same key, one is kept.
impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(K, V)> = entries.into_iter().collect();
        sort_by(&mut entries, |(one, _), (other, _)| one < other);
        entries.dedup_by(|(later, _), (earlier, _)| later == earlier);
        Self(entries)
    }
}

/// Keys in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedSet<K>(Vec<K>);

impl<K> Default for SortedSet<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord> SortedSet<K> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|known| known.borrow().cmp(key)).is_ok()
    }

    /// Whether it was not there.
    pub fn insert(&mut self, key: K) -> bool {
        match self.0.binary_search(&key) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, key);
                true
            }
        }
    }

    /// Whether it was there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        match self.0.binary_search_by(|known| known.borrow().cmp(key)) {
            Ok(at) => {
                self.0.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &K> {
        self.0.iter()
    }

    pub fn into_vec(self) -> Vec<K> {
        self.0
    }
}

impl<K: Ord> FromIterator<K> for SortedSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut keys: Vec<K> = keys.into_iter().collect();
        sort_by(&mut keys, |one, other| one < other);
        keys.dedup();
        Self(keys)
    }
}

#[cfg(test)]
mod tests;
