//! [`Reader`]: an EROFS file read without mounting it: inodes, names, data, extended attributes; and a check of all of it.
//!
//! Nothing in the file is believed. Every place is held against the file's end before it is read, no number from the file makes
//! anything larger than a few hundred kilobytes (lists of shared attributes: 16 MiB), and no call reads more than it answers, but for one
//! directory's blocks. What contradicts itself is an error, compressed data and other features that are not known are
//! another. An EROFS file with data on further devices is refused: without them, its files would be wrong. The reader reads what the
//! writer makes of one layer and ordinary uncompressed EROFS files of `mkfs.erofs`. It follows no symbolic link and knows no layers.
//! Called by the store.

mod check;
mod data;
mod directory;
mod error;
mod ranges;
mod xattrs;

pub use check::Checked;
pub use data::Extent;
pub use directory::{DirEntry, Entries};
pub use error::ReadError;
pub use xattrs::Xattr;

use crate::format::superblock::{self, Superblock};
use crate::format::{BLOCK, BLOCK_BITS, SLOT, inode, u16_at};
use crate::{Kind, NESTED_ROOT, Nid, Source};

use inode::RawInode;

/// Features that matter for compressed files alone, of which `mkfs.erofs` notes this one in every EROFS file.
const INCOMPAT_PADDING: u32 = 0x1;
const KNOWN: u32 = INCOMPAT_PADDING | superblock::INCOMPAT_CHUNKED;
/// Others by name.
const FEATURES: [(u32, &str); 7] = [
    (0x2, "compression settings or big clusters"),
    (superblock::INCOMPAT_DEVICES, "further devices"),
    (0x10, "compressed tails"),
    (0x20, "packed fragments"),
    (0x40, "prefixes of attribute names of its own"),
    (0x80, "addresses of 48 bits"),
    (0x100, "metadata in an inode of its own"),
];
const NANOS: u32 = 1_000_000_000;

/// An EROFS file.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    size: u64,
    superblock: Superblock,
    /// Directory that the file tree lies in.
    root: Nid,
}

/// The attributes of an inode, without its content and its extended attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeInfo {
    /// The number.
    pub nid: Nid,
    /// The kind.
    pub kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky: 12 bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Seconds since 1970 (negative before it), and nanoseconds from there on.
    pub mtime: (i64, u32),
    /// Bytes of a file, of a directory's blocks, or of a symbolic link's target.
    pub size: u64,
    /// How many names it has; of a directory, two and those that it holds.
    pub links: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    pub(super) raw: RawInode,
}

impl InodeInfo {
    /// Returns true if it hides a name of the layers below, as overlayfs has it.
    #[must_use]
    pub fn is_whiteout(&self) -> bool {
        self.kind == Kind::Char && self.device == (0, 0)
    }

    /// Bytes of the inode and its extended attributes.
    fn head(&self) -> u64 {
        (RawInode::len(self.raw.extended) + crate::format::xattr::area(self.raw.xattr_count)) as u64
    }
}

impl<R: Source> Reader<R> {
    /// Looks at the superblock: whether this is an EROFS file that can be read here, and whether the superblock is whole.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open(source: R) -> Result<Self, ReadError> {
        let size = source.size().map_err(ReadError::Source)?;
        let mut first = [0; BLOCK];
        let there = source.read_at(0, &mut first).map_err(ReadError::Source)?;
        if there < superblock::OFFSET + superblock::LENGTH {
            return Err(ReadError::NotErofs);
        }
        let bytes = first[superblock::OFFSET..superblock::OFFSET + superblock::LENGTH].try_into().expect("its length");
        let superblock = Superblock::decode(bytes);
        if superblock.magic != superblock::MAGIC {
            return Err(ReadError::NotErofs);
        }
        if superblock.block_bits != BLOCK_BITS {
            return Err(ReadError::unsupported(format!("blocks of 2^{} bytes", superblock.block_bits)));
        }
        if there < BLOCK {
            return Err(ReadError::damaged("it is shorter than a block"));
        }
        if superblock.compat & superblock::COMPAT_CHECKSUM != 0 {
            let sum = superblock::checksum(&first);
            if sum != superblock.checksum {
                return Err(ReadError::damaged("the checksum of the superblock is wrong"));
            }
        }
        refuse_features(&superblock)?;
        let top = Nid(superblock.root_nid.into());
        let mut image = Self { source, size, superblock, root: top };
        let blocks = |count: u32| u64::from(count) << BLOCK_BITS;
        if blocks(image.superblock.blocks) > size.next_multiple_of(BLOCK as u64) {
            let said = image.superblock.blocks;
            return Err(ReadError::damaged(format!(
                "the image has {size} bytes, and the superblock says {said} blocks"
            )));
        }
        if blocks(image.superblock.meta_block) >= size {
            return Err(ReadError::damaged("its metadata begins beyond its end"));
        }
        if image.superblock.time.1 >= NANOS {
            return Err(ReadError::damaged("the superblock's time is none"));
        }
        let root = image.inode(top)?;
        if root.kind != Kind::Directory {
            return Err(ReadError::damaged("its root is no directory"));
        }
        if image.superblock.volume == superblock::NESTED {
            let tree = image.lookup(&root, NESTED_ROOT.as_bytes())?.map(|entry| entry.nid);
            image.root = tree.ok_or_else(|| ReadError::damaged(format!("it has no directory {NESTED_ROOT}")))?;
            if image.inode(image.root)?.kind != Kind::Directory {
                return Err(ReadError::damaged(format!("{NESTED_ROOT} is no directory")));
            }
        }
        Ok(image)
    }

    /// The number of the root of its file tree.
    #[must_use]
    pub fn root(&self) -> Nid {
        self.root
    }

    /// The number of the directory that a mount of the file shows: the root, or the directory above a nested one.
    pub(crate) fn top(&self) -> Nid {
        Nid(self.superblock.root_nid.into())
    }

    /// Returns true if the file tree lies in the directory [`NESTED_ROOT`] and not at the top.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        self.root != self.top()
    }

    /// Returns the length of the EROFS file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where it is read from.
    #[must_use]
    pub fn source(&self) -> &R {
        &self.source
    }

    /// An inode by its number.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn inode(&self, nid: Nid) -> Result<InodeInfo, ReadError> {
        let damaged = |what: String| ReadError::damaged(format!("inode {}: {what}", nid.0));
        let place = self.place(nid).filter(|place| place + RawInode::len(false) as u64 <= self.size);
        let place = place.ok_or_else(|| damaged("it lies beyond the end".to_owned()))?;
        let mut bytes = [0; inode::EXTENDED];
        let there = self.source.read_at(place, &mut bytes).map_err(ReadError::Source)?;
        let bytes = &bytes[..there];
        if bytes.len() < inode::COMPACT {
            return Err(damaged("it lies beyond the end".to_owned()));
        }
        let format = u16_at(bytes, 0);
        match (format >> 1 & 7, format >> 4) {
            (1 | 3, _) => return Err(ReadError::unsupported(format!("compressed data (inode {})", nid.0))),
            (_, 1..) => return Err(ReadError::unsupported(format!("inodes of form {format:#x} (inode {})", nid.0))),
            _ => {}
        }
        let raw = RawInode::decode(bytes).ok_or_else(|| damaged(format!("invalid format {format:#x}")))?;
        let kind = inode::kind_of(raw.mode).ok_or_else(|| damaged(format!("invalid mode {:o}", raw.mode)))?;
        let mtime = if raw.extended { raw.mtime } else { self.superblock.time };
        if mtime.1 >= NANOS {
            return Err(damaged(format!("its time has {} nanoseconds", mtime.1)));
        }
        let is_device = matches!(kind, Kind::Char | Kind::Block);
        let info = InodeInfo {
            nid,
            kind,
            mode: u32::from(raw.mode & !inode::KIND_MASK),
            uid: raw.uid,
            gid: raw.gid,
            mtime,
            size: if matches!(kind, Kind::File | Kind::Directory | Kind::Symlink) { raw.size } else { 0 },
            links: raw.links,
            device: if is_device { inode::device_parts(raw.union) } else { (0, 0) },
            raw,
        };
        if place + info.head() > self.size {
            return Err(damaged("its extended attributes end beyond the end".to_owned()));
        }
        self.hold_data(&info, place)?;
        Ok(info)
    }

    /// Where an inode with this number would be.
    fn place(&self, nid: Nid) -> Option<u64> {
        let begin = u64::from(self.superblock.meta_block) << BLOCK_BITS;
        nid.0.checked_mul(SLOT)?.checked_add(begin).filter(|place| *place < self.size)
    }

    /// Fills the whole buffer from a place.
    fn exactly(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let read = self.source.read_at(offset, buffer).map_err(ReadError::Source)?;
        if read < buffer.len() {
            return Err(ReadError::damaged(format!("offset {offset} is past the end")));
        }
        Ok(())
    }

    /// Returns true if the EROFS file has this many bytes from `offset` on.
    fn holds(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.size)
    }
}

fn refuse_features(superblock: &Superblock) -> Result<(), ReadError> {
    let unknown = superblock.incompat & !KNOWN;
    if unknown != 0 {
        let named = FEATURES.iter().filter(|(bit, _)| unknown & bit != 0);
        let mut names: Vec<String> = named.map(|(_, name)| (*name).to_owned()).collect();
        let nameless = FEATURES.iter().fold(unknown, |left, (bit, _)| left & !bit);
        if nameless != 0 {
            names.push(format!("unknown features {nameless:#x}"));
        }
        return Err(ReadError::unsupported(names.join(" and ")));
    }
    if superblock.devices != 0 {
        return Err(ReadError::damaged("it has further devices, and no table of them"));
    }
    if superblock.directory_bits != 0 {
        return Err(ReadError::unsupported("directories in larger blocks"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
