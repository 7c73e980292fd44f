//! [`FileIdentity`]: which file is at a path, and in which state. Makes no system calls. Called by code that reads a file again
//! when it has changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Attributes that distinguish one state of a file from another: two equal identities mean the same content, unless it changed
/// twice within a tick of the file system's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Seconds and nanoseconds since 1970 of the last write.
    pub modified: (i64, i64),
    /// Seconds and nanoseconds since 1970 of the last change of content or attributes.
    pub changed: (i64, i64),
}

impl FileIdentity {
    /// Returns true if both are states of one file.
    #[must_use]
    pub fn is_same_file(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
