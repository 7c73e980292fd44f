//! [`NameTable`]: names in memory, found by a hash with a random key, so that names cannot be chosen to collide.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use super::entry::EntryCode;

/// Names by directory.
#[derive(Default)]
pub(super) struct NameTable {
    nodes: Vec<NameNode>,
    /// Each name behind its length.
    text: Vec<u8>,
    /// Half of a hash, and the number of a node and one; zero where there is none. Its length is a power of two.
    index: Vec<u64>,
}

#[derive(Clone, Copy)]
struct NameNode {
    dir: u32,
    text: u32,
    value: EntryCode,
}

/// The hash of names, of this writer's own.
#[derive(Default)]
pub(super) struct Hash(RandomState);

impl Hash {
    pub(super) fn of(&self, dir: u32, name: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u32(dir);
        hasher.write(name);
        hasher.finish()
    }
}

impl NameTable {
    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<NameNode>() + self.text.len() + self.index.len() * size_of::<u64>()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The value of a name, to be read or changed.
    pub(super) fn get(&mut self, dir: u32, name: &[u8], hash: u64) -> Option<&mut EntryCode> {
        if self.index.is_empty() {
            return None;
        }
        let mask = self.index.len() - 1;
        let mut at = half(hash) & mask;
        loop {
            let slot = self.index[at];
            let node = low(slot).checked_sub(1)?;
            if slot >> 32 == hash >> 32 {
                let found = &self.nodes[node];
                if found.dir == dir && text(&self.text, found.text) == name {
                    return Some(&mut self.nodes[node].value);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a name that is not there.
    pub(super) fn add(&mut self, dir: u32, name: &[u8], hash: u64, value: EntryCode) {
        if (self.nodes.len() + 1) * 4 > self.index.len() * 3 {
            self.rehash();
        }
        grow(&mut self.nodes, 1);
        grow(&mut self.text, name.len() + 1);
        let text = u32::try_from(self.text.len()).expect("put aside long before");
        self.text.push(u8::try_from(name.len()).expect("names have at most 255 bytes"));
        self.text.extend_from_slice(name);
        self.nodes.push(NameNode { dir, text, value });
        insert(&mut self.index, hash >> 32 << 32 | self.nodes.len() as u64);
    }

    fn rehash(&mut self) {
        let mut index = vec![0; (self.index.len() * 2).max(1 << 10)];
        for slot in self.index.iter().filter(|slot| **slot != 0) {
            insert(&mut index, *slot);
        }
        self.index = index;
    }

    /// Puts the names into order; nothing can be found any more.
    pub(super) fn sort(&mut self) {
        self.index = Vec::new();
        let all = &self.text;
        self.nodes.sort_unstable_by(|a, b| a.dir.cmp(&b.dir).then_with(|| text(all, a.text).cmp(text(all, b.text))));
    }

    /// A name by its number, in order after [`Self::sort`].
    pub(super) fn at(&self, n: usize) -> Option<(u32, &[u8], EntryCode)> {
        self.nodes.get(n).map(|node| (node.dir, text(&self.text, node.text), node.value))
    }

    /// Forgets everything, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.text.clear();
        self.index = Vec::new();
    }
}

/// Makes room by a quarter at a time: what is not used stays little.
fn grow<T>(vec: &mut Vec<T>, by: usize) {
    if vec.capacity() - vec.len() < by {
        vec.reserve_exact((vec.len() / 4).max(by).max(1 << 10));
    }
}

fn insert(index: &mut [u64], slot: u64) {
    let mask = index.len() - 1;
    let mut at = half(slot) & mask;
    while index[at] != 0 {
        at = (at + 1) & mask;
    }
    index[at] = slot;
}

/// The upper half, which the index is addressed by.
fn half(hash: u64) -> usize {
    usize::try_from(hash >> 32).expect("32 bits")
}

fn low(slot: u64) -> usize {
    usize::try_from(slot & 0xffff_ffff).expect("32 bits")
}

fn text(all: &[u8], at: u32) -> &[u8] {
    let at = at as usize;
    &all[at + 1..at + 1 + usize::from(all[at])]
}
