//! [`Entry`]: the names of a directory lead to a [`Dir`] or to an [`Inode`]. Callers of the writer hold them; its tables keep them as
//! `EntryCode`.

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
    /// The number, which is what it will be in the image.
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
