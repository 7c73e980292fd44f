//! [`Entry`]: one member of an archive, with the extended headers already applied.

/// The kind of file that an entry makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file.
    #[default]
    File,
    /// Another name of a file of the same layer.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A character device.
    Char,
    /// A block device.
    Block,
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
}

impl Kind {
    /// The word for messages and records.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::HardLink => "hard link",
            Self::Symlink => "symbolic link",
            Self::Char => "character device",
            Self::Block => "block device",
            Self::Directory => "directory",
            Self::Fifo => "fifo",
        }
    }
}

/// A point in time: seconds since 1970 (negative before it), and nanoseconds from there on, below 1 000 000 000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time {
    /// Whole seconds, rounded down.
    pub(crate) seconds: i64,
    /// Nanoseconds after them.
    pub(crate) nanos: u32,
}

/// A run of data in a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// The length.
    pub(crate) len: u64,
}

/// A member. The reader fills the same value again and again, so that its buffers are used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name as recorded in the archive.
    pub(crate) path: Vec<u8>,
    /// The target of a link as recorded in the archive.
    pub(crate) link: Vec<u8>,
    /// The kind of file that the entry makes.
    pub(crate) kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky: 12 bits.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Time of the last change.
    pub(crate) mtime: Time,
    /// Time of the last access, where the archive has one.
    pub(crate) atime: Option<Time>,
    /// Length of a file as its readers will see it.
    pub(crate) size: u64,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
    /// Extended attributes.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the data of a sparse file belongs. `None` = the data is the whole file.
    pub(crate) pieces: Option<Vec<Piece>>,
}
