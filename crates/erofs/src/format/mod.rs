//! The structures on the disk: superblock, inodes, directory entries and extended attributes as plain values, into bytes and
//! out of them. Little endian throughout. It decides nothing, and what it decodes is not checked but where it says so: that is the reader's.
//! Called by the writer, `patch` and the reader.

pub(crate) mod chunk;
pub(crate) mod crc32c;
pub(crate) mod device;
pub(crate) mod dirent;
pub(crate) mod inode;
pub(crate) mod superblock;
pub(crate) mod xattr;

/// log2 of a block.
pub(crate) const BLOCK_BITS: u8 = 12;
/// Bytes of a block.
pub(crate) const BLOCK: usize = 1 << BLOCK_BITS;
/// Inodes begin at multiples of this; their numbers count it.
pub(crate) const SLOT: u64 = 32;
/// A block address that means: nothing is there, it reads as zeros.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

/// The two, four or eight bytes at a place. The slice is long enough: callers hand over whole structures.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
