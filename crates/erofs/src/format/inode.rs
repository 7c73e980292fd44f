//! Inodes: compact ones of 32 bytes, whose time is the superblock's, and extended ones of 64. Extended attributes, an inline
//! tail or a map of chunks stand right behind them.

use super::{u16_at, u32_at, u64_at};
use crate::Kind;

/// Bytes of a compact inode.
pub(crate) const COMPACT: usize = 32;
/// Bytes of an extended one.
pub(crate) const EXTENDED: usize = 64;

/// Where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In whole blocks, one after the other.
    Plain,
    /// As above, but what is beyond the last whole block stands behind the inode, in the same block as its own end.
    Inline,
    /// In chunks, whose addresses stand behind the inode.
    Chunks,
}

/// An inode's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawInode {
    pub(crate) extended: bool,
    pub(crate) layout: Layout,
    /// The encoded length of the extended attributes: `xattr::area`.
    pub(crate) xattr_count: u16,
    /// Type and permission bits.
    pub(crate) mode: u16,
    pub(crate) links: u32,
    pub(crate) size: u64,
    /// First block of the data, number of a device, or form of the chunks.
    pub(crate) union: u32,
    /// A number for `stat` on 32-bit machines.
    pub(crate) number: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Not in a compact inode.
    pub(crate) mtime: (i64, u32),
}

impl RawInode {
    /// Bytes that it takes.
    pub(crate) fn len(extended: bool) -> usize {
        if extended { EXTENDED } else { COMPACT }
    }

    /// Puts it at the beginning of `to`. What does not fit into a compact inode must not be in it: the writer sees to that.
    pub(crate) fn encode(&self, to: &mut [u8]) {
        let layout: u16 = match self.layout {
            Layout::Plain => 0,
            Layout::Inline => 2,
            Layout::Chunks => 4,
        };
        let format = layout << 1 | u16::from(self.extended);
        to[0..2].copy_from_slice(&format.to_le_bytes());
        to[2..4].copy_from_slice(&self.xattr_count.to_le_bytes());
        to[4..6].copy_from_slice(&self.mode.to_le_bytes());
        to[16..20].copy_from_slice(&self.union.to_le_bytes());
        to[20..24].copy_from_slice(&self.number.to_le_bytes());
        if self.extended {
            to[6..8].fill(0);
            to[8..16].copy_from_slice(&self.size.to_le_bytes());
            to[24..28].copy_from_slice(&self.uid.to_le_bytes());
            to[28..32].copy_from_slice(&self.gid.to_le_bytes());
            to[32..40].copy_from_slice(&self.mtime.0.to_le_bytes());
            to[40..44].copy_from_slice(&self.mtime.1.to_le_bytes());
            to[44..48].copy_from_slice(&self.links.to_le_bytes());
            to[48..64].fill(0);
        } else {
            to[6..8].copy_from_slice(&self.links.to_le_bytes()[..2]);
            to[8..12].copy_from_slice(&self.size.to_le_bytes()[..4]);
            to[12..16].fill(0);
            to[24..26].copy_from_slice(&self.uid.to_le_bytes()[..2]);
            to[26..28].copy_from_slice(&self.gid.to_le_bytes()[..2]);
            to[28..32].fill(0);
        }
    }

    /// Decodes the inode at the start of `from`: `None` if it is too short or no layout that is known here.
    pub(crate) fn decode(from: &[u8]) -> Option<Self> {
        let format = u16::from_le_bytes(from.get(..2)?.try_into().ok()?);
        let extended = format & 1 == 1;
        let from = from.get(..Self::len(extended))?;
        let layout = match format >> 1 {
            0 => Layout::Plain,
            2 => Layout::Inline,
            4 => Layout::Chunks,
            _ => return None,
        };
        let (xattr_count, mode, union, number) = (u16_at(from, 2), u16_at(from, 4), u32_at(from, 16), u32_at(from, 20));
        let (links, size, uid, gid, mtime) = if extended {
            let mtime = (u64_at(from, 32).cast_signed(), u32_at(from, 40));
            (u32_at(from, 44), u64_at(from, 8), u32_at(from, 24), u32_at(from, 28), mtime)
        } else {
            let owners = (u32::from(u16_at(from, 24)), u32::from(u16_at(from, 26)));
            (u32::from(u16_at(from, 6)), u64::from(u32_at(from, 8)), owners.0, owners.1, (0, 0))
        };
        Some(Self { extended, layout, xattr_count, mode, links, size, union, number, uid, gid, mtime })
    }

    /// Where in an inode its number of names is, and in how many bytes.
    pub(crate) fn links_at(extended: bool) -> (u64, usize) {
        if extended { (44, 4) } else { (6, 2) }
    }
}

/// The bits of a mode that say the kind.
pub(crate) const KIND_MASK: u16 = 0o170_000;

/// A kind as it stands in a mode.
pub(crate) fn kind_bits(kind: Kind) -> u16 {
    match kind {
        Kind::Fifo => 0o010_000,
        Kind::Char => 0o020_000,
        Kind::Directory => 0o040_000,
        Kind::Block => 0o060_000,
        Kind::File => 0o100_000,
        Kind::Symlink => 0o120_000,
        Kind::Socket => 0o140_000,
    }
}

/// The kind that a mode says.
pub(crate) fn kind_of(mode: u16) -> Option<Kind> {
    Some(match mode & KIND_MASK {
        0o010_000 => Kind::Fifo,
        0o020_000 => Kind::Char,
        0o040_000 => Kind::Directory,
        0o060_000 => Kind::Block,
        0o100_000 => Kind::File,
        0o120_000 => Kind::Symlink,
        0o140_000 => Kind::Socket,
        _ => return None,
    })
}

/// A device number as it stands in an inode; `None` if it has more than 12 bits of major or 20 of minor.
pub(crate) fn device(major: u32, minor: u32) -> Option<u32> {
    (major < 1 << 12 && minor < 1 << 20).then_some(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}

/// Major and minor of a device number from an inode.
pub(crate) fn device_parts(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}
