//! [`EntryCode`]: what stands under a name, in the eight bytes that tables and runs keep of it.

use super::entry::{Dir, Entry, Inode};
use crate::Nid;
use crate::format::dirent;

/// An entry in eight bytes; zero where the name was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryCode(pub(super) u64);

const DIR: u64 = 1 << 63;
const INODE: u64 = 1 << 62;

impl EntryCode {
    /// The name was removed.
    pub(super) const GONE: Self = Self(0);

    /// Numbers of inodes have 39 bits: 44 of a place, without the 5 of an inode's unit.
    pub(super) fn of(entry: Entry) -> Self {
        match entry {
            Entry::Dir(Dir(id)) => Self(DIR | u64::from(id)),
            Entry::Inode(Inode { nid, kind, extended }) => {
                Self(INODE | nid.0 << 4 | u64::from(dirent::kind_number(kind)) << 1 | u64::from(extended))
            }
        }
    }

    pub(super) fn entry(self) -> Option<Entry> {
        if self.0 & DIR != 0 {
            return Some(Entry::Dir(Dir(u32::try_from(self.0 & !DIR).expect("as it was put in"))));
        }
        let kind = dirent::kind_of(u8::try_from(self.0 >> 1 & 7).expect("three bits"))?;
        Some(Entry::Inode(Inode { nid: Nid((self.0 & !INODE) >> 4), kind, extended: self.0 & 1 == 1 }))
    }
}
