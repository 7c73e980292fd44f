//! The superblock: 128 bytes at offset 1024, with a checksum over everything from there to the end of the first block.

use super::{BLOCK, crc32c, u16_at, u32_at, u64_at};

/// Where it begins.
pub(crate) const OFFSET: usize = 1024;
/// The bytes.
pub(crate) const LENGTH: usize = 128;
/// Where the writer puts the root: right behind it, so that its number fits into 16 bits.
pub(crate) const ROOT_AT: u64 = (OFFSET + LENGTH) as u64;
pub(crate) const MAGIC: u32 = 0xe0f5_e1e2;

/// Name of the volume whose file tree lies in the directory [`crate::NESTED_ROOT`].
pub(crate) const NESTED: [u8; 16] = *b"imagelet/root\0\0\0";

/// There is a checksum.
pub(crate) const COMPAT_CHECKSUM: u32 = 0x1;
/// Extended inodes have times of modification (and not of change).
pub(crate) const COMPAT_MTIME: u32 = 0x2;
/// Some file has its data in chunks.
pub(crate) const INCOMPAT_CHUNKED: u32 = 0x4;
/// There is a table of further devices.
pub(crate) const INCOMPAT_DEVICES: u32 = 0x8;

/// The fields that an uncompressed EROFS file uses. Everything else is zero when it is encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) magic: u32,
    pub(crate) checksum: u32,
    pub(crate) compat: u32,
    /// log2 of a block.
    pub(crate) block_bits: u8,
    pub(crate) root_nid: u16,
    /// Inodes in all.
    pub(crate) inodes: u64,
    /// The time of compact inodes.
    pub(crate) time: (i64, u32),
    /// Blocks in all.
    pub(crate) blocks: u32,
    /// Inode numbers count from this block.
    pub(crate) meta_block: u32,
    /// Numbers of shared extended attributes count from this block.
    pub(crate) xattr_block: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) volume: [u8; 16],
    pub(crate) incompat: u32,
    /// Number of further devices.
    pub(crate) devices: u16,
    /// Where their table begins, in entries of it.
    pub(crate) table: u16,
    /// log2 of a directory's block, in blocks.
    pub(crate) directory_bits: u8,
}

impl Superblock {
    /// The bytes, with the checksum that is in the value.
    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut to = [0; LENGTH];
        to[0..4].copy_from_slice(&self.magic.to_le_bytes());
        to[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        to[8..12].copy_from_slice(&self.compat.to_le_bytes());
        to[12] = self.block_bits;
        to[14..16].copy_from_slice(&self.root_nid.to_le_bytes());
        to[16..24].copy_from_slice(&self.inodes.to_le_bytes());
        to[24..32].copy_from_slice(&self.time.0.to_le_bytes());
        to[32..36].copy_from_slice(&self.time.1.to_le_bytes());
        to[36..40].copy_from_slice(&self.blocks.to_le_bytes());
        to[40..44].copy_from_slice(&self.meta_block.to_le_bytes());
        to[44..48].copy_from_slice(&self.xattr_block.to_le_bytes());
        to[48..64].copy_from_slice(&self.uuid);
        to[64..80].copy_from_slice(&self.volume);
        to[80..84].copy_from_slice(&self.incompat.to_le_bytes());
        to[86..88].copy_from_slice(&self.devices.to_le_bytes());
        to[88..90].copy_from_slice(&self.table.to_le_bytes());
        to[90] = self.directory_bits;
        to
    }

    /// Decodes the bytes of a superblock.
    pub(crate) fn decode(from: &[u8; LENGTH]) -> Self {
        Self {
            magic: u32_at(from, 0),
            checksum: u32_at(from, 4),
            compat: u32_at(from, 8),
            block_bits: from[12],
            root_nid: u16_at(from, 14),
            inodes: u64_at(from, 16),
            time: (u64_at(from, 24).cast_signed(), u32_at(from, 32)),
            blocks: u32_at(from, 36),
            meta_block: u32_at(from, 40),
            xattr_block: u32_at(from, 44),
            uuid: from[48..64].try_into().expect("16 bytes"),
            volume: from[64..80].try_into().expect("16 bytes"),
            incompat: u32_at(from, 80),
            devices: u16_at(from, 86),
            table: u16_at(from, 88),
            directory_bits: from[90],
        }
    }
}

/// The checksum that the superblock in this first block should have.
pub(crate) fn checksum(block: &[u8; BLOCK]) -> u32 {
    let at = OFFSET + 4;
    let register = crc32c::update(u32::MAX, &block[OFFSET..at]);
    let register = crc32c::update(register, &[0; 4]);
    crc32c::update(register, &block[at + 4..])
}

/// Puts the right checksum into the superblock in this first block.
pub(crate) fn seal(block: &mut [u8; BLOCK]) {
    let sum = checksum(block);
    block[OFFSET + 4..OFFSET + 8].copy_from_slice(&sum.to_le_bytes());
}
