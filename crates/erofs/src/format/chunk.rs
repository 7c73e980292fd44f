//! Files in chunks: the inode says how long a chunk is, and behind it (and its extended attributes, at a multiple of four) stands the
//! address of every chunk, four bytes each. A chunk is a row of blocks; [`super::NO_BLOCK`] means zeros.

/// log2 of a chunk in blocks, at most.
pub(crate) const BITS_MAX: u8 = 31;
/// Addresses are of the longer form of eight bytes, with a device.
pub(crate) const INDEXES: u16 = 0x20;
/// Bytes of an address.
pub(crate) const ADDRESS: usize = 4;

/// What stands in the inode for chunks of this length.
pub(crate) fn form(bits: u8) -> u32 {
    u32::from(bits & BITS_MAX)
}
