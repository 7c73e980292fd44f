//! [`Lower`]: the files of a layer that lies below others, for mounts and for reading. Used by layers, views and mounts.

use std::path::{Path, PathBuf};

/// A lower layer for the mounter: a directory, or an EROFS file that is to be mounted first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lower {
    /// A directory as overlayfs takes it.
    Directory(PathBuf),
    /// A file with an EROFS file system, in which whiteouts and opaque directories are as overlayfs takes them.
    Erofs(PathBuf),
}

impl Lower {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Erofs(path) => path,
        }
    }
}
