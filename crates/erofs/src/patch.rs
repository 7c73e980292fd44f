//! [`patch`]: the attributes of an implicit directory, when they are known at last. The writer gave such directories a block of their own,
//! and the root has the rest of the first one; nothing else in the EROFS file moves. The store calls it before a layer is committed.

use std::io;

use crate::format::inode::{self, RawInode};
use crate::format::superblock::{self, ROOT_AT, Superblock};
use crate::format::xattr::{self, AREA_HEADER, Attribute, SHARED_MAX};
use crate::format::{BLOCK, BLOCK_BITS, SLOT};
use crate::writer::check_attributes;
use crate::{Attributes, Kind, Nid, Sink, Source, WriteError};

const BLOCK_BYTES: u64 = BLOCK as u64;

/// Why an EROFS file could not be patched.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The EROFS file cannot be read.
    #[error("cannot read the image")]
    Read(#[source] io::Error),
    /// The file cannot be written, or the attributes have no place in it.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// No EROFS file of this writer, or no directory with room.
    #[error("the image cannot be patched: {0}")]
    Unfit(&'static str),
}

/// Gives an implicit directory of a finished EROFS file its attributes, instead of all that it had. Extended attributes that do not
/// fit next to the inode are appended to the EROFS file; the superblock is right afterwards. The writes are not synced, and an EROFS file
/// whose patch failed half-way is of no use.
///
/// # Errors
/// Reading or writing; attributes that cannot be held; an inode that [`crate::Writer`] did not make as an implicit directory.
pub fn patch<F: Source + Sink + ?Sized>(image: &mut F, nid: Nid, attributes: &Attributes) -> Result<(), PatchError> {
    let mode = check_attributes(attributes)?;
    let size = image.size().map_err(PatchError::Read)?;
    let mut first = read_block(image, 0)?;
    let mut superblock = superblock_of(&first)?;
    if u64::from(superblock.blocks) * BLOCK_BYTES != size {
        return Err(PatchError::Unfit("it is longer or shorter than it says"));
    }
    let at = nid.0.checked_mul(SLOT).filter(|at| *at < size).ok_or(PatchError::Unfit("no such inode"))?;
    let is_root = at == ROOT_AT;
    if !is_root && (at < BLOCK_BYTES || !at.is_multiple_of(BLOCK_BYTES)) {
        return Err(PatchError::Unfit("the inode has no block of its own"));
    }
    let block_at = at - at % BLOCK_BYTES;
    let mut block = if is_root { first } else { read_block(image, block_at)? };
    let from = if is_root { superblock::OFFSET + superblock::LENGTH } else { 0 };

    let slot = InodeSlot::decode(&block[from..])?;
    let room = slot.bytes - inode::EXTENDED - slot.tail.len();
    let mut appended = Vec::new();
    let area = area(&attributes.xattrs, room, size, &mut appended)?;
    let xattr_count = xattr::count(area.len()).ok_or(PatchError::Unfit("the extended attributes have no number"))?;
    let Attributes { uid, gid, mtime, .. } = *attributes;
    let mode = inode::kind_bits(Kind::Directory) | mode;
    let raw = RawInode { mode, uid, gid, mtime, xattr_count, ..slot.raw };
    let mut bytes = vec![0; inode::EXTENDED];
    raw.encode(&mut bytes);
    bytes.extend_from_slice(&area);
    bytes.extend_from_slice(&slot.tail);
    bytes.resize(slot.bytes, 0);
    block[from..].copy_from_slice(&bytes);

    let write = |error| PatchError::Write(WriteError::Sink(error));
    if !appended.is_empty() {
        appended.resize(appended.len().next_multiple_of(BLOCK), 0);
        image.write_at(size, &appended).map_err(write)?;
        superblock.blocks = u32::try_from((size + appended.len() as u64) / BLOCK_BYTES)
            .map_err(|_| PatchError::Unfit("it would have more than 16 TiB"))?;
    }
    if is_root {
        first = block;
    } else {
        image.write_at(block_at, &block).map_err(write)?;
    }
    if is_root || !appended.is_empty() {
        first[superblock::OFFSET..superblock::OFFSET + superblock::LENGTH].copy_from_slice(&superblock.encode());
        superblock::seal(&mut first);
        image.write_at(0, &first).map_err(write)?;
    }
    Ok(())
}

/// An inode that has all bytes up to the end of its block for itself.
struct InodeSlot {
    raw: RawInode,
    /// Entries that stand behind it.
    tail: Vec<u8>,
    bytes: usize,
}

impl InodeSlot {
    fn decode(bytes: &[u8]) -> Result<Self, PatchError> {
        let raw = RawInode::decode(bytes).ok_or(PatchError::Unfit("the inode is damaged"))?;
        if inode::kind_of(raw.mode) != Some(Kind::Directory) || !raw.extended {
            return Err(PatchError::Unfit("the inode is no directory that was given room"));
        }
        let tail = match raw.layout {
            inode::Layout::Inline => raw.size % BLOCK_BYTES,
            inode::Layout::Plain => 0,
            inode::Layout::Chunks => return Err(PatchError::Unfit("the directory is damaged")),
        };
        let tail = usize::try_from(tail).map_err(|_| PatchError::Unfit("the directory is damaged"))?;
        let begin = inode::EXTENDED + xattr::area(raw.xattr_count);
        let free = bytes.get(begin + tail..).ok_or(PatchError::Unfit("the directory is damaged"))?;
        if free.iter().any(|byte| *byte != 0) {
            return Err(PatchError::Unfit("the directory was given no room"));
        }
        Ok(Self { tail: bytes[begin..begin + tail].to_vec(), raw, bytes: bytes.len() })
    }
}

/// The area of extended attributes for so much room. The longest ones that do not fit are `appended` to an EROFS file of `size` bytes.
fn area(xattrs: &[(Vec<u8>, Vec<u8>)], room: usize, size: u64, appended: &mut Vec<u8>) -> Result<Vec<u8>, PatchError> {
    let mut area = Vec::new();
    if xattrs.is_empty() {
        return Ok(area);
    }
    let mut own = Vec::with_capacity(xattrs.len());
    for (name, value) in xattrs {
        own.push(Attribute::new(name, value).ok_or_else(|| WriteError::attribute(name, value))?);
    }
    own.sort_by_key(|one| (one.head.index, one.name));
    if own.windows(2).any(|two| two[0].is_named_as(&two[1])) {
        return Err(WriteError::Misused("an extended attribute came twice").into());
    }
    own.sort_by_key(Attribute::len);
    let mut length: usize = own.iter().map(Attribute::len).sum();
    let mut shared = Vec::new();
    while AREA_HEADER + 4 * shared.len() + length > room {
        let beyond = || WriteError::Beyond { what: "so many extended attributes of an implicit directory".to_owned() };
        let one = own.pop().filter(|_| shared.len() < SHARED_MAX).ok_or_else(beyond)?;
        shared.push(xattr::shared_id(size + appended.len() as u64).ok_or_else(beyond)?);
        one.encode(appended);
        length -= one.len();
    }
    xattr::encode_area(&shared, &mut area);
    own.iter().for_each(|one| one.encode(&mut area));
    Ok(area)
}

fn superblock_of(first: &[u8; BLOCK]) -> Result<Superblock, PatchError> {
    let bytes = first[superblock::OFFSET..].first_chunk().expect("the first block is longer");
    let superblock = Superblock::decode(bytes);
    let ours = superblock.magic == superblock::MAGIC
        && superblock.checksum == superblock::checksum(first)
        && superblock.block_bits == BLOCK_BITS
        && (superblock.meta_block, superblock.xattr_block) == (0, 0)
        && u64::from(superblock.root_nid) * SLOT == ROOT_AT;
    if ours { Ok(superblock) } else { Err(PatchError::Unfit("it has no superblock of this writer's")) }
}

fn read_block<F: Source + ?Sized>(image: &F, at: u64) -> Result<[u8; BLOCK], PatchError> {
    let mut block = [0; BLOCK];
    match image.read_at(at, &mut block).map_err(PatchError::Read)? {
        BLOCK => Ok(block),
        _ => Err(PatchError::Unfit("it is too short")),
    }
}
