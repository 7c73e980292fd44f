//! Attributes of a file in an image, and of what one layer has at a path ([`LayerNode`]): plain values, the same for every shape of layer.

use serde::Serialize;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    Char,
    /// A block device.
    Block,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A whiteout, which hides a name of the layers below. Shows in a single layer only.
    Whiteout,
}

impl Kind {
    /// The word for messages, with its article.
    #[must_use]
    pub fn a(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Char => "a character device",
            Self::Block => "a block device",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Whiteout => "a whiteout",
        }
    }
}

/// The attributes of a file other than its name and content. Owners are those of the image, whichever owners the files have on
/// the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The kind.
    pub kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of a file, or of a symbolic link's target.
    pub size: u64,
    /// How many names it has in its layer.
    pub links: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Time of the last change: seconds since 1970 and nanoseconds from there on.
    pub mtime: (i64, u32),
    /// The number in its layer: names with the same number are the same thing.
    pub(crate) inode: u64,
}

impl Stat {
    /// The root of an image without layers.
    pub(crate) fn empty_root() -> Self {
        Self {
            kind: Kind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            size: 0,
            links: 1,
            device: (0, 0),
            mtime: (0, 0),
            inode: 0,
        }
    }
}

/// A file of a layer, found by its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerNode {
    pub(super) stat: Stat,
    /// The number by which an EROFS file finds it again; nothing for directories.
    pub(super) nid: u64,
}
