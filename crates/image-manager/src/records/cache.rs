//! [`Cache`]: what is known of a directory's files without opening them, bounded, least recently used out first.
//!
//! Other processes may change the directory, so nothing is believed for its age: each answer is asked for with the
//! directory's present stamp (its time of change). As long as that stays, entries hold, and after a complete listing a
//! missing entry is a definite no ("authoritative" in the kubelet). When it changed, a new generation begins: entries
//! are compared with their file once before they count again, and what is missing is looked for on disk.

use std::collections::HashMap;
use std::sync::Arc;

use super::files::{DirectoryStamp, FileStamp};

/// Result of a look-up in the cache.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known<V> {
    /// This, now.
    Fresh(V),
    /// This, if the file is still the same.
    Stale(V, FileStamp),
    /// There is no such file.
    Absent,
    /// Nothing.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Cache<V> {
    lru: Lru<Slot<V>>,
    stamp: Option<DirectoryStamp>,
    generation: u64,
    /// The generation in which everything was listed and found room.
    complete_at: Option<u64>,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    file: FileStamp,
    /// The last generation in which the file was looked at.
    seen_at: u64,
}

impl<V: Clone> Cache<V> {
    /// With room for `capacity` entries, but at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self { lru: Lru::new(capacity.max(1)), stamp: None, generation: 0, complete_at: None }
    }

    pub(super) fn len(&self) -> usize {
        self.lru.index.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.lru.capacity
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
        self.lru.index.contains_key(key)
    }

    pub(super) fn get(&mut self, key: &str, generation: u64) -> Known<V> {
        let authoritative = self.authoritative(generation);
        match self.lru.get(key) {
            Some(slot) if slot.seen_at >= generation => Known::Fresh(slot.value.clone()),
            Some(slot) => Known::Stale(slot.value.clone(), slot.file),
            None if authoritative => Known::Absent,
            None => Known::Unknown,
        }
    }

    /// Takes what the file said when it was read in `generation`.
    pub(super) fn put(&mut self, key: &str, value: V, file: FileStamp, generation: u64) {
        if self.lru.insert(key, Slot { value, file, seen_at: generation }) {
            self.complete_at = None;
        }
    }

    /// The file was compared in `generation` and is the same.
    pub(super) fn renew(&mut self, key: &str, generation: u64) {
        if let Some(slot) = self.lru.get_mut(key) {
            slot.seen_at = slot.seen_at.max(generation);
        }
    }

    pub(super) fn forget(&mut self, key: &str) {
        self.lru.remove(key);
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

/// No entry.
const NONE: usize = usize::MAX;

/// A map with an order of use: nodes in a vector, linked by their places.
#[derive(Debug)]
struct Lru<V> {
    capacity: usize,
    index: HashMap<Arc<str>, usize>,
    nodes: Vec<Node<V>>,
    free: Vec<usize>,
    /// Used last.
    head: usize,
    /// To go first.
    tail: usize,
}

#[derive(Debug)]
struct Node<V> {
    key: Arc<str>,
    value: Option<V>,
    newer: usize,
    older: usize,
}

impl<V> Lru<V> {
    fn new(capacity: usize) -> Self {
        Self { capacity, index: HashMap::new(), nodes: Vec::new(), free: Vec::new(), head: NONE, tail: NONE }
    }

    fn get(&mut self, key: &str) -> Option<&V> {
        let at = *self.index.get(key)?;
        if at != self.head {
            self.unlink(at);
            self.link(at);
        }
        self.nodes[at].value.as_ref()
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        let at = *self.index.get(key)?;
        self.nodes[at].value.as_mut()
    }

    /// Returns true if another entry was evicted.
    fn insert(&mut self, key: &str, value: V) -> bool {
        if let Some(&at) = self.index.get(key) {
            self.nodes[at].value = Some(value);
            self.unlink(at);
            self.link(at);
            return false;
        }
        let evicted = self.index.len() >= self.capacity;
        if evicted {
            let oldest = Arc::clone(&self.nodes[self.tail].key);
            self.remove(&oldest);
        }
        let key: Arc<str> = key.into();
        let node = Node { key: Arc::clone(&key), value: Some(value), newer: NONE, older: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.index.insert(key, at);
        self.link(at);
        evicted
    }

    fn remove(&mut self, key: &str) {
        if let Some(at) = self.index.remove(key) {
            self.unlink(at);
            self.nodes[at].value = None;
            self.free.push(at);
        }
    }

    /// Makes a node that is in no order the one used last.
    fn link(&mut self, at: usize) {
        self.nodes[at].newer = NONE;
        self.nodes[at].older = self.head;
        match self.head {
            NONE => self.tail = at,
            head => self.nodes[head].newer = at,
        }
        self.head = at;
    }

    fn unlink(&mut self, at: usize) {
        let Node { newer, older, .. } = self.nodes[at];
        match newer {
            NONE => self.head = older,
            newer => self.nodes[newer].older = older,
        }
        match older {
            NONE => self.tail = newer,
            older => self.nodes[older].newer = newer,
        }
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
