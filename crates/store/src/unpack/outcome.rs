//! [`UnpackOutcome`]: counts of what was unpacked, for the record of a layer.

use std::collections::BTreeSet;

/// Counts of what was unpacked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnpackOutcome {
    /// Entries of the archive, meta headers not counted.
    pub entries: u64,
    /// Regular files, hard links not counted.
    pub files: u64,
    /// Bytes of regular files as their readers see them.
    pub content_bytes: u64,
    /// Bytes taken on disk (blocks, not lengths), directories included, the recipe not. The blocks of plain files are
    /// computed from their lengths, everything else is asked from the file system.
    pub disk_bytes: u64,
    /// The largest of the files of which `disk_bytes` has what follows from their lengths. A file in many pieces takes more, for
    /// blocks that list them; where none of these does, no file does.
    pub largest: Largest,
    /// Inodes taken, `fs/` itself included.
    pub inodes: u64,
    /// Directories that had no entry of their own and that may exist in a layer below, relative to `fs/`, parents
    /// first; the empty path is the root.
    pub implicit_dirs: Vec<Vec<u8>>,
    /// Files and attributes that an ordinary user could not create: lines of `deferred.jsonl`.
    pub deferred: u64,
    /// Extended attributes that were left out: `trusted.*`, those of overlayfs, and those the file system cannot hold.
    pub skipped_xattrs: u64,
    /// The layer hides everything below it (`.wh..wh..opq` in its root). overlayfs ignores this attribute on the root of a layer:
    /// the mounter has to leave the layers below out.
    pub root_opaque: bool,
    /// The recipe can rebuild the tar stream.
    pub exact: bool,
}

/// The number of largest files that are inspected again.
const LARGEST: usize = 16;

/// A few files by their size, with the bytes that were counted for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Largest(BTreeSet<(u64, Vec<u8>)>);

impl Largest {
    pub(super) fn note(&mut self, bytes: u64, path: &[u8]) {
        if self.0.len() >= LARGEST {
            if self.0.first().is_some_and(|(least, _)| *least >= bytes) {
                return;
            }
            self.0.pop_first();
        }
        self.0.insert((bytes, path.to_vec()));
    }

    /// Each with its path below `fs/`.
    pub(crate) fn files(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.0.iter().map(|(bytes, path)| (*bytes, path.as_slice()))
    }
}
