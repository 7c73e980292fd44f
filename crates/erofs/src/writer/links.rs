//! [`Links`]: how many names inodes have. Every inode is written with one, which is nearly always right; what differs is kept
//! here, and corrected at the end. Beyond some ten thousand inodes it goes to the spill in sorted rows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::entry::Inode;
use super::error::WriteError;
use super::spill::Spill;
use crate::Nid;

/// Bytes of a row's record.
const RECORD: usize = 12;
/// Bytes of a row that are read at once.
const PIECE: usize = 16 << 10;

/// Names of an inode in addition to the first one.
pub(super) struct Links {
    /// By number and form.
    changes: HashMap<u64, i32>,
    most: usize,
    rows: Vec<LinkRow>,
}

/// Sorted records in the spill.
#[derive(Clone, Default)]
struct LinkRow {
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    next: usize,
}

impl Links {
    /// `most` inodes are kept in memory.
    pub(super) fn new(most: usize) -> Self {
        Self { changes: HashMap::new(), most, rows: Vec::new() }
    }

    /// The inode has one name more, or one less.
    pub(super) fn change(&mut self, inode: Inode, by: i32, spill: &mut Spill) -> Result<(), WriteError> {
        let key = inode.nid.0 << 1 | u64::from(inode.extended);
        let count = self.changes.entry(key).or_default();
        *count = count.checked_add(by).ok_or_else(|| too_many(key))?;
        if *count == 0 {
            self.changes.remove(&key);
        }
        if self.changes.len() > self.most {
            self.spill_to(spill)?;
        }
        Ok(())
    }

    fn spill_to(&mut self, spill: &mut Spill) -> Result<(), WriteError> {
        let mut all: Vec<_> = self.changes.drain().collect();
        all.sort_unstable();
        let mut bytes = Vec::with_capacity(all.len() * RECORD);
        for (key, count) in all {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        let at = spill.append(&bytes)?;
        self.rows.push(LinkRow { at, end: at + bytes.len() as u64, ..LinkRow::default() });
        Ok(())
    }

    /// Tells every inode whose number of names is not one, and the number, in order.
    pub(super) fn each(
        mut self,
        spill: &mut Spill,
        visit: &mut dyn FnMut(Nid, bool, u32) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut memory: Vec<_> = self.changes.drain().collect();
        memory.sort_unstable();
        let mut memory = memory.into_iter().peekable();
        // The next inode of each row, the least first.
        let mut heap = BinaryHeap::with_capacity(self.rows.len());
        for (n, row) in self.rows.iter_mut().enumerate() {
            heap.extend(row.peek(spill)?.map(|(key, _)| Reverse((key, n))));
        }
        loop {
            let rows = heap.peek().map(|Reverse((key, _))| *key);
            let Some(key) = memory.peek().map(|(key, _)| *key).into_iter().chain(rows).min() else { return Ok(()) };
            let mut names = 1_i64;
            while let Some((_, count)) = memory.next_if(|(other, _)| *other == key) {
                names += i64::from(count);
            }
            while let Some(n) = heap.peek().filter(|Reverse((other, _))| *other == key).map(|Reverse((_, n))| *n) {
                heap.pop();
                let row = &mut self.rows[n];
                if let Some((_, count)) = row.peek(spill)? {
                    names += i64::from(count);
                    row.next += RECORD;
                }
                heap.extend(row.peek(spill)?.map(|(key, _)| Reverse((key, n))));
            }
            let extended = key & 1 == 1;
            let most = if extended { u32::MAX } else { u32::from(u16::MAX) };
            let names = u32::try_from(names).ok().filter(|names| *names <= most).ok_or_else(|| too_many(key))?;
            if names != 1 {
                visit(Nid(key >> 1), extended, names)?;
            }
        }
    }
}

fn too_many(key: u64) -> WriteError {
    WriteError::Beyond { what: format!("so many names of inode {}", key >> 1) }
}

impl LinkRow {
    fn peek(&mut self, spill: &Spill) -> Result<Option<(u64, i32)>, WriteError> {
        if self.next == self.buffer.len() {
            let length = usize::try_from(self.end - self.at).map_or(PIECE, |left| left.min(PIECE)) / RECORD * RECORD;
            self.buffer.resize(length, 0);
            self.next = 0;
            if length == 0 {
                return Ok(None);
            }
            spill.read(self.at, &mut self.buffer)?;
            self.at += length as u64;
        }
        let record = &self.buffer[self.next..self.next + RECORD];
        let (key, count) = record.split_at(8);
        let count = i32::from_le_bytes(count.try_into().expect("four bytes"));
        Ok(Some((u64::from_le_bytes(key.try_into().expect("eight bytes")), count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// Changes in an order of their own, in many rows, against a map.
    #[test]
    fn link_rows_are_visited_in_order() {
        let mut spill = Spill::new(Box::new(tempfile::tempfile));
        let (mut links, mut map) = (Links::new(3), std::collections::BTreeMap::new());
        for n in 0..2000_u64 {
            let (nid, by) = (n * 7919 % 301, if n % 3 == 0 { 2 } else { 1 });
            let inode = Inode { nid: Nid(nid), kind: Kind::File, extended: nid % 2 == 1 };
            links.change(inode, by, &mut spill).expect("changed");
            *map.entry((nid, nid % 2 == 1)).or_insert(1_u32) += by.unsigned_abs();
        }
        assert!(links.rows.len() > 100);
        let mut told = Vec::new();
        let mut visit = |nid: Nid, extended, names| {
            told.push(((nid.0, extended), names));
            Ok(())
        };
        links.each(&mut spill, &mut visit).expect("visited");
        assert_eq!(told, map.into_iter().collect::<Vec<_>>());
    }
}
