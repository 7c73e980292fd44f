//! [`Entry`]: the names of a directory lead to a [`Dir`] or to an [`Inode`]. Callers of the writer hold them; its tables and runs keep
//! them as [`EntryCode`].

use crate::format::dirent;
use crate::{Kind, Nid};

/// A directory of the tree that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dir(pub(super) u32);

/// An inode that is no directory. It is complete but for its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    pub(super) nid: Nid,
    pub(super) kind: Kind,
    pub(super) extended: bool,
}

impl Inode {
    /// The number, which is what it will be in the EROFS file.
    #[must_use]
    pub fn nid(self) -> Nid {
        self.nid
    }

    /// The kind; never a directory.
    #[must_use]
    pub fn kind(self) -> Kind {
        self.kind
    }
}

/// The entry under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Dir(Dir),
    /// Something else.
    Inode(Inode),
}

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
