//! Names: what a directory holds, in its order, and one name found by binary search. Every block that is read is held against its
//! form first; a name that is none, or is out of order, is damage.

use std::cmp::Ordering;

use super::{InodeInfo, ReadError, Reader};
use crate::format::BLOCK;
use crate::format::dirent::{self, LENGTH, NAME_MAX, RawDirent};
use crate::{Kind, Nid, Source};

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode.
    pub nid: Nid,
    /// The kind, as the directory says.
    pub kind: Kind,
}

/// A block of a directory, whose form is right.
struct DirBlock {
    bytes: Box<[u8; BLOCK]>,
    length: usize,
    count: usize,
}

impl DirBlock {
    fn raw(&self, index: usize) -> RawDirent {
        let at = index * LENGTH;
        RawDirent::decode(self.bytes[at..at + LENGTH].try_into().expect("the length of an entry"))
    }

    fn name(&self, index: usize) -> &[u8] {
        let begin = usize::from(self.raw(index).name_at);
        if index + 1 < self.count {
            return &self.bytes[begin..usize::from(self.raw(index + 1).name_at)];
        }
        let rest = &self.bytes[begin..self.length];
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Verifies that every name lies in the block, behind the one before, and is valid.
    fn is_right(&self) -> Result<(), &'static str> {
        let mut before = self.count * LENGTH;
        for index in 0..self.count {
            let at = usize::from(self.raw(index).name_at);
            let first = index == 0 && at == before;
            if !(first || index > 0 && at > before) || at >= self.length {
                return Err("its names do not lie behind each other");
            }
            before = at;
        }
        for index in 0..self.count {
            let name = self.name(index);
            if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) || name.contains(&b'/') {
                return Err("it holds a name that is none");
            }
            if index > 0 && self.name(index - 1) >= name {
                return Err("its names are not in order");
            }
        }
        Ok(())
    }
}

/// The entries of a directory in the order of bytes, without itself and its parent.
pub struct Entries<'a, R> {
    image: &'a Reader<R>,
    dir: InodeInfo,
    block: Option<DirBlock>,
    /// Which block comes next, and which entry of the one that is here.
    next: (u64, usize),
    last: Option<Vec<u8>>,
    failed: bool,
}

impl<R: Source> Iterator for Entries<'_, R> {
    type Item = Result<DirEntry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.any()? {
                Ok(entry) if matches!(entry.name.as_slice(), b"." | b"..") => {}
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
                entry => return Some(entry),
            }
        }
    }
}

impl<R: Source> Entries<'_, R> {
    /// The next entry, whichever it is.
    pub(super) fn any(&mut self) -> Option<Result<DirEntry, ReadError>> {
        if self.failed {
            return None;
        }
        loop {
            if let Some(block) = &self.block
                && self.next.1 < block.count
            {
                let entry = self.image.entry(&self.dir, block, self.next.1);
                self.next.1 += 1;
                return Some(entry);
            }
            if self.next.0 >= self.dir.size.div_ceil(BLOCK as u64) {
                return None;
            }
            if let Some(block) = self.block.take() {
                self.last = Some(block.name(block.count - 1).to_vec());
            }
            let block = match self.image.block(&self.dir, self.next.0) {
                Ok(block) => block,
                Err(error) => return Some(Err(error)),
            };
            if self.last.as_deref().is_some_and(|last| last >= block.name(0)) {
                return Some(Err(damaged(&self.dir, "its names are not in order")));
            }
            self.next = (self.next.0 + 1, 0);
            self.block = Some(block);
        }
    }
}

impl<R: Source> Reader<R> {
    /// Lists a directory.
    ///
    /// # Errors
    /// No directory; the iterator answers with [`ReadError`] once and ends where the directory is damaged.
    pub fn entries(&self, dir: &InodeInfo) -> Result<Entries<'_, R>, ReadError> {
        must_be_directory(dir)?;
        Ok(Entries { image: self, dir: dir.clone(), block: None, next: (0, 0), last: None, failed: false })
    }

    /// Looks up a name in a directory, without reading all of it. `.` and `..` are names here.
    ///
    /// # Errors
    /// See [`ReadError`]; it is no directory.
    pub fn lookup(&self, dir: &InodeInfo, name: &[u8]) -> Result<Option<DirEntry>, ReadError> {
        must_be_directory(dir)?;
        // The name is in the last block whose first name is not behind it.
        let (mut low, mut high) = (0, dir.size.div_ceil(BLOCK as u64));
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let block = self.block(dir, middle)?;
            if block.name(0) <= name {
                low = middle + 1;
                found = Some(block);
            } else {
                high = middle;
            }
        }
        let Some(block) = found else { return Ok(None) };
        let (mut low, mut high) = (0, block.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match block.name(middle).cmp(name) {
                Ordering::Equal => return self.entry(dir, &block, middle).map(Some),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// Looks up a path of names joined by slashes, from the root on; empty names and `.` count for nothing, `..` is a name that
    /// leads up. No symbolic link is followed.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn walk_path(&self, path: &[u8]) -> Result<Option<InodeInfo>, ReadError> {
        let mut here = self.inode(self.root())?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            if here.kind != Kind::Directory {
                return Ok(None);
            }
            let Some(entry) = self.lookup(&here, name)? else { return Ok(None) };
            here = self.inode(entry.nid)?;
        }
        Ok(Some(here))
    }

    fn entry(&self, dir: &InodeInfo, block: &DirBlock, index: usize) -> Result<DirEntry, ReadError> {
        let raw = block.raw(index);
        let nid = Nid(raw.nid);
        let kind = match raw.kind {
            // It may leave that to the inode.
            0 => self.inode(nid)?.kind,
            number => dirent::kind_of(number).ok_or_else(|| damaged(dir, "it holds something of no kind"))?,
        };
        Ok(DirEntry { name: block.name(index).to_vec(), nid, kind })
    }

    fn block(&self, dir: &InodeInfo, number: u64) -> Result<DirBlock, ReadError> {
        let mut bytes = Box::new([0; BLOCK]);
        let length = self.read(dir, number * BLOCK as u64, &mut bytes[..])?;
        if length < LENGTH {
            return Err(damaged(dir, "its last block is too short"));
        }
        let first = usize::from(RawDirent::decode(bytes[..LENGTH].try_into().expect("that long")).name_at);
        if first < LENGTH || first % LENGTH != 0 || first > length {
            return Err(damaged(dir, "the first name of a block is not where entries end"));
        }
        let block = DirBlock { bytes, length, count: first / LENGTH };
        block.is_right().map_err(|what| damaged(dir, what))?;
        Ok(block)
    }
}

fn must_be_directory(dir: &InodeInfo) -> Result<(), ReadError> {
    if dir.kind == Kind::Directory { Ok(()) } else { Err(damaged(dir, "it is no directory")) }
}

fn damaged(dir: &InodeInfo, what: &str) -> ReadError {
    ReadError::damaged(format!("directory {}: {what}", dir.nid.0))
}
