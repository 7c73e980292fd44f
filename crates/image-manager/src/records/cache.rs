//! [`Cache`]: cached contents of a directory's files, bounded, evicting the least recently used first.
//!
//! Other processes may change the directory, so entries do not expire by age: each look-up passes the directory's present
//! stamp (its time of change). As long as that stays the same, entries are valid, and after a complete listing a missing
//! entry is a definite no ("authoritative" in the kubelet). When it has changed, a new generation begins: entries are
//! compared with their file once before they are valid again, and missing ones are searched on disk.

use hashlink::LruCache;

use super::files::{DirectoryStamp, FileStamp};

/// Result of a look-up in the cache.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CacheState<V> {
    /// This, now.
    Fresh(V),
    /// This, if the file is still the same.
    Stale(V, FileStamp),
    /// There is no such file.
    Absent,
    /// Nothing.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Cache<V> {
    entries: LruCache<String, CacheEntry<V>>,
    stamp: Option<DirectoryStamp>,
    generation: u64,
    /// The generation in which everything was listed and found room.
    complete_at: Option<u64>,
}

#[derive(Debug)]
struct CacheEntry<V> {
    value: V,
    file: FileStamp,
    /// The last generation in which the file was compared.
    seen_at: u64,
}

impl<V: Clone> Cache<V> {
    /// With room for `capacity` entries, but at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: LruCache::new(capacity.max(1)), stamp: None, generation: 0, complete_at: None }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// The generation for a stamp that was just taken.
    pub(super) fn generation(&mut self, stamp: DirectoryStamp) -> u64 {
        if !self.stamp.is_some_and(|known| known.still_is(&stamp)) {
            self.generation += 1;
            self.stamp = Some(stamp);
        }
        self.generation
    }

    /// Returns true if there is an entry, fresh or stale.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn get(&mut self, key: &str, generation: u64) -> CacheState<V> {
        let authoritative = self.authoritative(generation);
        match self.entries.get(key) {
            Some(entry) if entry.seen_at >= generation => CacheState::Fresh(entry.value.clone()),
            Some(entry) => CacheState::Stale(entry.value.clone(), entry.file),
            None if authoritative => CacheState::Absent,
            None => CacheState::Unknown,
        }
    }

    /// Takes what the file said when it was read in `generation`.
    pub(super) fn put(&mut self, key: &str, value: V, file: FileStamp, generation: u64) {
        if self.entries.len() == self.entries.capacity() && !self.entries.contains_key(key) {
            // Another entry is evicted.
            self.complete_at = None;
        }
        self.entries.insert(key.to_owned(), CacheEntry { value, file, seen_at: generation });
    }

    /// The file was compared in `generation` and is the same.
    pub(super) fn renew(&mut self, key: &str, generation: u64) {
        if let Some(entry) = self.entries.peek_mut(key) {
            entry.seen_at = entry.seen_at.max(generation);
        }
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// Everything that was there in `generation` has been put in, if `complete`; a listing that failed changes nothing.
    pub(super) fn listed(&mut self, generation: u64, complete: bool) {
        if complete {
            self.complete_at = Some(generation);
        }
    }

    /// Returns true if a missing entry means that there is no file.
    pub(super) fn authoritative(&self, generation: u64) -> bool {
        self.complete_at.is_some_and(|complete| complete >= generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_evicted_and_absence_becomes_unknown() {
        let mut cache = Cache::new(2);
        let put = |cache: &mut Cache<u8>, key, value| cache.put(key, value, FileStamp::UNKNOWN, 1);
        put(&mut cache, "a", 1);
        put(&mut cache, "b", 2);
        cache.listed(1, true);
        assert_eq!(cache.get("a", 1), CacheState::Fresh(1));
        assert_eq!(cache.get("c", 1), CacheState::Absent);
        put(&mut cache, "b", 3);
        cache.renew("a", 1);
        assert!(cache.authoritative(1), "none was evicted");
        put(&mut cache, "c", 4);
        assert_eq!(cache.get("a", 1), CacheState::Unknown, "neither a replacement nor a renewal is a use of it");
        assert_eq!((cache.get("b", 1), cache.get("c", 1)), (CacheState::Fresh(3), CacheState::Fresh(4)));
    }
}
