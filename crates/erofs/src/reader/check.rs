//! The check of a whole EROFS file: every inode that has a name, and that no two of them lie on each other. That is also why it ends:
//! what a directory holds is claimed before it is read, so that nothing is read twice, whatever leads to it. The content of files
//! is not read. It takes some fifty bytes of memory for an inode.

use std::collections::{HashMap, HashSet};

use super::data::offset_of;
use super::ranges::Ranges;
use super::{InodeInfo, ReadError, Reader};
use crate::format::inode::Layout;
use crate::format::superblock;
use crate::{Kind, Nid, Source};

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Inodes that have names.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Regular files among them.
    pub files: u64,
    /// Bytes of these, as their readers see them.
    pub content_bytes: u64,
}

struct ErofsCheck<'a, R> {
    image: &'a Reader<R>,
    claimed: Ranges,
    /// Inodes with several names: how many they say, and how many were found.
    linked: HashMap<Nid, (u32, u32)>,
    shared: HashSet<u32>,
    found: Checked,
    /// Directories that are still to be read, with the one that holds them.
    left: Vec<(Nid, Nid)>,
}

impl<R: Source> Reader<R> {
    /// Checks all of the EROFS file but the content of files.
    ///
    /// # Errors
    /// See [`ReadError`]: the first thing that is wrong.
    pub fn check(&self) -> Result<Checked, ReadError> {
        let mut check = ErofsCheck {
            image: self,
            claimed: Ranges::default(),
            linked: HashMap::new(),
            shared: HashSet::new(),
            found: Checked::default(),
            left: vec![(self.top(), self.top())],
        };
        let superblock = superblock::OFFSET as u64;
        check.claimed.claim(superblock, superblock + superblock::LENGTH as u64);
        let top = self.inode(self.top())?;
        check.claim(&top)?;
        while let Some((dir, parent)) = check.left.pop() {
            check.directory(dir, parent)?;
        }
        for (nid, (said, found)) in &check.linked {
            if said != found {
                return Err(ReadError::damaged(format!(
                    "inode {} has the link count {said}, found {found} names",
                    nid.0
                )));
            }
        }
        if check.found.inodes > self.superblock.inodes {
            let (found, said) = (check.found.inodes, self.superblock.inodes);
            return Err(ReadError::damaged(format!("there are {found} inodes, and the superblock says {said}")));
        }
        Ok(check.found)
    }
}

impl<R: Source> ErofsCheck<'_, R> {
    /// Everything that a directory holds. The directory itself was claimed before.
    fn directory(&mut self, nid: Nid, parent: Nid) -> Result<(), ReadError> {
        let image = self.image;
        let dir = image.inode(nid)?;
        let damaged = |what: String| ReadError::damaged(format!("directory {}: {what}", nid.0));
        let (mut itself, mut above, mut below) = (None, None, 0_u32);
        let mut entries = image.entries(&dir)?;
        while let Some(entry) = entries.any() {
            let entry = entry?;
            match entry.name.as_slice() {
                b"." => itself = Some(entry.nid),
                b".." => above = Some(entry.nid),
                name => {
                    let info = image.inode(entry.nid)?;
                    if info.kind != entry.kind {
                        let name = String::from_utf8_lossy(name);
                        return Err(damaged(format!("the entry {name:?} differs from its inode")));
                    }
                    if info.kind == Kind::Directory {
                        below = below.saturating_add(1);
                        self.claim(&info)?;
                        self.left.push((entry.nid, nid));
                    } else {
                        self.thing(&info)?;
                    }
                }
            }
        }
        if itself != Some(nid) || above != Some(parent) {
            return Err(damaged("the entries . and .. are missing or wrong".to_owned()));
        }
        if dir.links != below.saturating_add(2) {
            return Err(damaged(format!("link count {}, found {}", dir.links, below.saturating_add(2))));
        }
        Ok(())
    }

    /// Anything but a directory, under one of its names.
    fn thing(&mut self, info: &InodeInfo) -> Result<(), ReadError> {
        if info.links > 1 {
            let (_, found) = self.linked.entry(info.nid).or_insert((info.links, 0));
            *found = found.saturating_add(1);
            if *found > 1 {
                return Ok(());
            }
        }
        if info.links == 0 {
            return Err(ReadError::damaged(format!("inode {} has the link count 0", info.nid.0)));
        }
        self.claim(info)?;
        if info.kind == Kind::Symlink {
            self.image.link_target(info)?;
        }
        Ok(())
    }

    /// Takes an inode with its data and looks at what it says of both.
    fn claim(&mut self, info: &InodeInfo) -> Result<(), ReadError> {
        let image = self.image;
        let twice = || ReadError::damaged(format!("inode {} overlaps other data or has too many names", info.nid.0));
        let place = image.place(info.nid).ok_or_else(twice)?;
        let head = place + info.head();
        let (mut end, mut data) = (head, (0, 0));
        if info.size > 0 {
            match info.raw.layout {
                Layout::Chunks => {
                    let chunks = image.chunks(info, place)?;
                    end = chunks.map + chunks.map_len();
                }
                Layout::Plain | Layout::Inline => {
                    let (begin, whole) = (offset_of(info.raw.union), image.whole(info));
                    data = (begin, begin + whole);
                    end = head + (info.size - whole);
                }
            }
        }
        if !self.claimed.claim(place, end) || !self.claimed.claim(data.0, data.1) {
            return Err(twice());
        }
        let shared = &mut self.shared;
        image.examine_xattrs(info, &mut |number| shared.insert(number))?;
        if info.raw.layout == Layout::Chunks && info.size > 0 {
            self.chunks(info, place)?;
        }
        self.found.inodes += 1;
        match info.kind {
            Kind::Directory => self.found.directories += 1,
            Kind::File => {
                self.found.files += 1;
                self.found.content_bytes = self.found.content_bytes.saturating_add(info.size);
            }
            _ => {}
        }
        Ok(())
    }

    /// Holds every chunk against the end of the EROFS file.
    fn chunks(&self, info: &InodeInfo, place: u64) -> Result<(), ReadError> {
        let chunks = self.image.chunks(info, place)?;
        for number in 0..chunks.count {
            let Some(at) = self.image.chunk_at(info.nid, chunks, number)? else { continue };
            let length = (info.size - (number << chunks.bits)).min(1 << chunks.bits);
            if !self.image.holds(at, length) {
                return Err(ReadError::damaged(format!("inode {}: a chunk ends beyond the end", info.nid.0)));
            }
        }
        Ok(())
    }
}
