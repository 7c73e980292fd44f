//! The table of further devices: 128 bytes for each, anywhere in the first megabytes, where the superblock says. The EROFS file's own
//! blocks are device 0; the others are numbered from 1 on, in the order of the table.

/// Bytes of an entry; the superblock counts in them where the table begins.
pub(crate) const LENGTH: usize = 128;
/// Bytes of the tag that names a device. This crate does not read it, but the kernel requires a tag.
pub(crate) const TAG: usize = 64;

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) tag: [u8; TAG],
    /// How many blocks it has.
    pub(crate) blocks: u32,
    /// Where it begins in addresses that name no device; 0 for nowhere.
    pub(crate) unified: u32,
}

impl Device {
    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut to = [0; LENGTH];
        to[..TAG].copy_from_slice(&self.tag);
        to[TAG..TAG + 4].copy_from_slice(&self.blocks.to_le_bytes());
        to[TAG + 4..TAG + 8].copy_from_slice(&self.unified.to_le_bytes());
        to
    }
}
