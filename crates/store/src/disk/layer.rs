//! A layer's directory by number, and what lies in it. Plain values: [`crate::layers::shape`] knows how each shape is read and written.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a layer's directory under `layers/`. Numbers are never used twice for different content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerId(pub(crate) u64);

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The shape of a layer on the disk. Records from before there was a choice say nothing, and mean directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shape {
    /// A directory tree as overlayfs takes it, with whiteouts and opaque directories.
    #[default]
    Dir,
    /// A EROFS file.
    Erofs,
}

impl Shape {
    pub(crate) const ALL: [Self; 2] = [Self::Dir, Self::Erofs];

    /// Returns true for directory trees, which records need not mention.
    pub(crate) fn is_dir(&self) -> bool {
        *self == Self::Dir
    }
}
