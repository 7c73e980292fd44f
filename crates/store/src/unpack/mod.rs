//! Layers onto disk: applies a tar stream to a private directory, the overlayfs way.
//!
//! Everything goes through directory file descriptors; no path string of the archive ever reaches a system call that
//! would follow a symbolic link. It does not verify digests (the caller hashes through its `BufRead`), does not make
//! anything visible and does not know what lies below the layer, except in `patch_implicit`. The shape of
//! directories calls it.

mod entries;
mod erofs;
mod error;
mod files;
mod finish;
mod form;
mod lookup;
mod name;
mod parents;
mod tree;
mod unpacker;
mod whiteout;
mod xattrs;

use std::collections::BTreeSet;
use std::io::BufRead;
use std::os::fd::BorrowedFd;

pub(crate) use erofs::EROFS_FILE;
pub use error::UnpackError;
pub(crate) use files::{Beneath, DEFERRED, DEFERRED_BELOW, find, is_opaque, patch_implicit};
pub(crate) use lookup::{Attributes, Below, PathLookup};
pub(crate) use whiteout::OPAQUE;
pub(crate) use xattrs::LABELS;

pub use crate::tar::Limits;
use crate::tar::Reader;

/// How to unpack.
#[derive(Clone, Copy)]
pub struct UnpackOptions<'a> {
    /// Limits of one layer.
    pub limits: &'a Limits,
    /// True if owners, devices and privileged attributes can be set. If not, they are recorded in `deferred.jsonl`. An image has
    /// them in any case.
    pub privileged: bool,
    /// Asked before every entry and between pieces of big files.
    pub cancelled: &'a dyn Fn() -> bool,
    /// Somebody will wait until everything is on the disk: the kernel is asked to begin to write big files while they grow, and
    /// this is told of the bytes of every file.
    pub write_back: Option<&'a dyn Fn(u64)>,
    /// Files get their lengths and attributes, but no content: a copy to compare with, which takes hardly any space.
    pub hollow: bool,
}

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
    /// What an ordinary user could not create: lines of `deferred.jsonl`.
    pub deferred: u64,
    /// Extended attributes that were left out: `trusted.*`, those of overlayfs, and those the file system cannot hold.
    pub skipped_xattrs: u64,
    /// The layer hides everything below it (`.wh..wh..opq` in its root). overlayfs does not look at this attribute on
    /// the root of a layer: who mounts has to leave the layers below out.
    pub root_opaque: bool,
    /// The recipe can rebuild the tar stream.
    pub exact: bool,
}

/// Unpacks a tar stream into `fs/` of the private directory `layer_dir`, and reads `tar` to its end, trailing bytes
/// included. File data is written from the buffers of `tar`, which are best some hundred KiB long and a multiple of 512. `recipe.zst` and, where needed, `deferred.jsonl` and `replaced/` are created beside `fs/`, which must be
/// empty.
///
/// # Errors
/// See [`UnpackError`]. What was written so far stays; the caller removes the directory.
pub fn unpack(
    tar: &mut dyn BufRead,
    layer_dir: BorrowedFd<'_>,
    options: &UnpackOptions<'_>,
) -> Result<UnpackOutcome, UnpackError> {
    unpack_beneath(tar, layer_dir, options, Beneath::default())
}

/// Unpacks a tar stream into the EROFS file `layer.erofs` of the private directory `layer_dir`, with `recipe.zst` beside it. All
/// else is as with [`unpack`], but that nothing is deferred, whoever unpacks, and that what is on the disk is not counted.
///
/// # Errors
/// See [`UnpackError`]. What was written so far stays; the caller removes the directory.
pub fn unpack_erofs(
    tar: &mut dyn BufRead,
    layer_dir: BorrowedFd<'_>,
    options: &UnpackOptions<'_>,
) -> Result<UnpackOutcome, UnpackError> {
    let mut reader = Reader::new(tar, options.limits);
    let mut unpacker = erofs::unpacker(layer_dir, options)?;
    unpacker.run(&mut reader)?;
    unpacker.finish(reader.offset())
}

fn unpack_beneath(
    tar: &mut dyn BufRead,
    layer_dir: BorrowedFd<'_>,
    options: &UnpackOptions<'_>,
    beneath: Beneath,
) -> Result<UnpackOutcome, UnpackError> {
    let mut reader = Reader::new(tar, options.limits);
    let mut unpacker = files::unpacker(layer_dir, options, beneath)?;
    unpacker.run(&mut reader)?;
    unpacker.finish(reader.offset())
}

/// So many are looked at again.
const LARGEST: usize = 16;

/// A few files by their size, with the bytes that were counted for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Largest(BTreeSet<(u64, Vec<u8>)>);

impl Largest {
    fn note(&mut self, bytes: u64, path: &[u8]) {
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

#[cfg(test)]
pub(crate) mod tests;
