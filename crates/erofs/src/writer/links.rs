//! [`Links`]: how many names inodes have. Every inode is written with one, which is nearly always right; what differs is kept
//! here, and corrected at the end. Beyond some ten thousand inodes it goes to the spill in sorted rows.

use std::collections::HashMap;

use super::error::WriteError;
use super::spill::Spill;
use super::{Inode, Nid};

/// Bytes of a row's record.
const RECORD: usize = 12;
/// Bytes of a row that are read at once.
const PIECE: usize = 16 << 10;

/// Names beside the one that was written.
pub(super) struct Links {
    /// By number and form.
    changes: HashMap<u64, i32>,
    most: usize,
    rows: Vec<Row>,
}

/// Sorted records in the spill.
#[derive(Clone, Default)]
struct Row {
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
            self.put_aside(spill)?;
        }
        Ok(())
    }

    fn put_aside(&mut self, spill: &mut Spill) -> Result<(), WriteError> {
        let mut all: Vec<_> = self.changes.drain().collect();
        all.sort_unstable();
        let mut bytes = Vec::with_capacity(all.len() * RECORD);
        for (key, count) in all {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        let at = spill.append(&bytes)?;
        self.rows.push(Row { at, end: at + bytes.len() as u64, ..Row::default() });
        Ok(())
    }

    /// Tells every inode whose number of names is not one, and the number, in order. Few rows: each is looked at each time.
    pub(super) fn each(
        mut self,
        spill: &mut Spill,
        tell: &mut dyn FnMut(Nid, bool, u32) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut memory: Vec<_> = self.changes.drain().collect();
        memory.sort_unstable();
        let mut memory = memory.into_iter().peekable();
        loop {
            let mut least = memory.peek().map(|(key, _)| *key);
            for row in &mut self.rows {
                if let Some((key, _)) = row.peek(spill)? {
                    least = Some(least.map_or(key, |least| least.min(key)));
                }
            }
            let Some(key) = least else { return Ok(()) };
            let mut names = 1_i64;
            while let Some((_, count)) = memory.next_if(|(other, _)| *other == key) {
                names += i64::from(count);
            }
            for row in &mut self.rows {
                if let Some((_, count)) = row.peek(spill)?.filter(|(other, _)| *other == key) {
                    names += i64::from(count);
                    row.next += RECORD;
                }
            }
            let extended = key & 1 == 1;
            let most = if extended { u32::MAX } else { u32::from(u16::MAX) };
            let names = u32::try_from(names).ok().filter(|names| *names <= most).ok_or_else(|| too_many(key))?;
            if names != 1 {
                tell(Nid(key >> 1), extended, names)?;
            }
        }
    }
}

fn too_many(key: u64) -> WriteError {
    WriteError::Beyond { what: format!("so many names of inode {}", key >> 1) }
}

impl Row {
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
