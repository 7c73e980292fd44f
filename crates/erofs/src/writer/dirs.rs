//! [`Dirs`]: what directories have, by number. Pages of them are in memory up to a budget; beyond it, the one that was not used for the longest
//! goes to the spill. A directory's number is greater than its parent's.

use super::entry::Dir;
use super::error::WriteError;
use super::spill::Spill;
use crate::format::{u32_at, u64_at};

/// Directories of a page.
const PAGE: usize = 64;
/// Bytes of one in the spill.
const RECORD: usize = 72;
const NONE: u64 = u64::MAX;

/// A directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) parent: u32,
    pub(super) mode: u16,
    /// The directory exists only because an entry lies below it.
    pub(super) implicit: bool,
    /// Without a name now.
    pub(super) dead: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: (i64, u32),
    /// Extended attributes as they came, and in the end the area behind its inode: place and length in `Blobs`.
    pub(super) xattrs: (u64, u32),
    /// Set at the end: bytes of its entries, directories in it, where the inode and the entries are.
    pub(super) size: u64,
    pub(super) subdirs: u32,
    pub(super) at: u64,
    pub(super) data: u64,
}

impl Record {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.parent.to_le_bytes());
        to.extend_from_slice(&self.mode.to_le_bytes());
        to.extend_from_slice(&[u8::from(self.implicit), u8::from(self.dead)]);
        for value in [self.uid, self.gid, self.mtime.1, self.xattrs.1, self.subdirs, 0] {
            to.extend_from_slice(&value.to_le_bytes());
        }
        for value in [self.mtime.0.cast_unsigned(), self.xattrs.0, self.size, self.at, self.data] {
            to.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn decode(from: &[u8]) -> Self {
        Self {
            parent: u32_at(from, 0),
            mode: crate::format::u16_at(from, 4),
            implicit: from[6] == 1,
            dead: from[7] == 1,
            uid: u32_at(from, 8),
            gid: u32_at(from, 12),
            mtime: (u64_at(from, 32).cast_signed(), u32_at(from, 16)),
            xattrs: (u64_at(from, 40), u32_at(from, 20)),
            subdirs: u32_at(from, 24),
            size: u64_at(from, 48),
            at: u64_at(from, 56),
            data: u64_at(from, 64),
        }
    }
}

/// All directories.
pub(super) struct Dirs {
    count: u32,
    pages: Vec<DirPage>,
    held: Vec<LoadedPage>,
    most: usize,
    hand: usize,
}

struct DirPage {
    /// In memory.
    held: Option<u32>,
    /// In the spill; `NONE` if it never was.
    at: u64,
}

struct LoadedPage {
    page: usize,
    records: Vec<Record>,
    changed: bool,
    used: bool,
}

impl Dirs {
    /// `budget` bytes of them in memory.
    pub(super) fn new(budget: usize) -> Self {
        let most = (budget / (PAGE * size_of::<Record>())).max(4);
        Self { count: 0, pages: Vec::new(), held: Vec::new(), most, hand: 0 }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Adds a directory.
    pub(super) fn add(&mut self, record: Record, spill: &mut Spill) -> Result<Dir, WriteError> {
        let id = self.count;
        let next = id.checked_add(1).ok_or_else(|| WriteError::Beyond { what: "so many directories".to_owned() })?;
        if (id as usize).is_multiple_of(PAGE) {
            self.pages.push(DirPage { held: None, at: NONE });
        }
        let held = self.hold(id as usize / PAGE, spill)?;
        held.changed = true;
        held.records.push(record);
        self.count = next;
        Ok(Dir(id))
    }

    pub(super) fn get(&mut self, dir: Dir, spill: &mut Spill) -> Result<Record, WriteError> {
        Ok(*self.there(dir, spill)?)
    }

    /// To be changed.
    pub(super) fn change(&mut self, dir: Dir, spill: &mut Spill) -> Result<&mut Record, WriteError> {
        self.check(dir)?;
        let held = self.hold(dir.0 as usize / PAGE, spill)?;
        held.changed = true;
        Ok(&mut held.records[dir.0 as usize % PAGE])
    }

    fn there(&mut self, dir: Dir, spill: &mut Spill) -> Result<&Record, WriteError> {
        self.check(dir)?;
        let held = self.hold(dir.0 as usize / PAGE, spill)?;
        Ok(&held.records[dir.0 as usize % PAGE])
    }

    /// Refuses directories that are not there.
    pub(super) fn check(&self, dir: Dir) -> Result<(), WriteError> {
        if dir.0 < self.count { Ok(()) } else { Err(WriteError::Misused("a directory of another image")) }
    }

    fn hold(&mut self, page: usize, spill: &mut Spill) -> Result<&mut LoadedPage, WriteError> {
        let n = match self.pages[page].held {
            Some(n) => n as usize,
            None => self.fetch(page, spill)?,
        };
        let held = &mut self.held[n];
        held.used = true;
        Ok(held)
    }

    fn fetch(&mut self, page: usize, spill: &mut Spill) -> Result<usize, WriteError> {
        let n = if self.held.len() < self.most {
            self.held.push(LoadedPage { page, records: Vec::with_capacity(PAGE), changed: false, used: true });
            self.held.len() - 1
        } else {
            self.make_room(spill)?
        };
        let held = &mut self.held[n];
        (held.page, held.changed) = (page, false);
        held.records.clear();
        if self.pages[page].at != NONE {
            let mut bytes = [0; PAGE * RECORD];
            spill.read(self.pages[page].at, &mut bytes)?;
            let here = (self.count as usize - page * PAGE).min(PAGE);
            held.records.extend(bytes.chunks_exact(RECORD).take(here).map(Record::decode));
        }
        self.pages[page].held = Some(u32::try_from(n).expect("fewer than directories"));
        Ok(n)
    }

    /// Puts the page aside that was not used since the hand was there last.
    fn make_room(&mut self, spill: &mut Spill) -> Result<usize, WriteError> {
        loop {
            let n = self.hand;
            self.hand = (n + 1) % self.held.len();
            let held = &mut self.held[n];
            if std::mem::take(&mut held.used) {
                continue;
            }
            let page = &mut self.pages[held.page];
            if held.changed {
                let mut bytes = Vec::with_capacity(PAGE * RECORD);
                held.records.iter().for_each(|record| record.encode(&mut bytes));
                bytes.resize(PAGE * RECORD, 0);
                if page.at == NONE {
                    page.at = spill.append(&bytes)?;
                } else {
                    spill.write(page.at, &bytes)?;
                }
            }
            page.held = None;
            return Ok(n);
        }
    }
}
