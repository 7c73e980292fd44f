//! Files in chunks: the inode says how long a chunk is, and behind it (and its extended attributes, at a multiple of four) stands the
//! address of every chunk: four bytes each, or eight with a device. A chunk is a row of blocks; [`super::NO_BLOCK`] means zeros.

/// log2 of a chunk in blocks, at most.
pub(crate) const BITS_MAX: u8 = 31;
/// Addresses are of the longer form of eight bytes, with a device.
pub(crate) const INDEXES: u16 = 0x20;
/// Bytes of an address.
pub(crate) const ADDRESS: usize = 4;
/// Bytes of an address with a device. They stand at a multiple of it.
pub(crate) const INDEX: usize = 8;

/// The chunk format in the inode, for chunks of this length.
pub(crate) fn form(bits: u8) -> u32 {
    u32::from(bits & BITS_MAX)
}

/// An address with a device.
pub(crate) fn index(device: u16, block: u32) -> [u8; INDEX] {
    let mut to = [0; INDEX];
    to[2..4].copy_from_slice(&device.to_le_bytes());
    to[4..8].copy_from_slice(&block.to_le_bytes());
    to
}
