//! Directory entries. A directory is a row of blocks; each begins with its entries of 12 bytes, and behind them come their names,
//! in the same order, with nothing between them. The last name of a block ends at a zero byte or at the end. Names are sorted as bytes over the whole directory, `.` and `..` among them.

use super::{u16_at, u64_at};
use crate::Kind;

/// Bytes of an entry.
pub(crate) const LENGTH: usize = 12;
/// Longest name.
pub(crate) const NAME_MAX: usize = 255;

/// An entry without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawDirent {
    pub(crate) nid: u64,
    /// Where in the block its name begins.
    pub(crate) name_at: u16,
    /// The type as `readdir` reports it.
    pub(crate) kind: u8,
}

impl RawDirent {
    pub(crate) fn encode(self) -> [u8; LENGTH] {
        let mut to = [0; LENGTH];
        to[0..8].copy_from_slice(&self.nid.to_le_bytes());
        to[8..10].copy_from_slice(&self.name_at.to_le_bytes());
        to[10] = self.kind;
        to
    }

    /// `from` is an entry's bytes.
    pub(crate) fn decode(from: &[u8; LENGTH]) -> Self {
        Self { nid: u64_at(from, 0), name_at: u16_at(from, 8), kind: from[10] }
    }
}

/// A kind as it stands in an entry.
pub(crate) fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
        Kind::Char => 3,
        Kind::Block => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
        Kind::Symlink => 7,
    }
}

/// The kind that an entry says.
pub(crate) fn kind_of(number: u8) -> Option<Kind> {
    Some(match number {
        1 => Kind::File,
        2 => Kind::Directory,
        3 => Kind::Char,
        4 => Kind::Block,
        5 => Kind::Fifo,
        6 => Kind::Socket,
        7 => Kind::Symlink,
        _ => return None,
    })
}
