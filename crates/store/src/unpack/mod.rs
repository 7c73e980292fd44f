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
mod options;
mod outcome;
mod parents;
mod tree;
mod unpacker;
mod whiteout;
mod xattrs;

use std::io::BufRead;
use std::os::fd::BorrowedFd;

pub use error::UnpackError;
pub(crate) use files::{DEFERRED, DEFERRED_BELOW, find, is_opaque, link_tree, patch_implicit};
pub(crate) use lookup::{Attributes, Below, PathLookup};
pub use options::UnpackOptions;
pub use outcome::{Largest, UnpackOutcome};
pub(crate) use whiteout::OPAQUE;
pub(crate) use xattrs::LABELS;

use crate::disk::beneath::Beneath;
use crate::tar::Reader;
pub use crate::tar::{Limits, PrintableName, TarError};

/// Unpacks a tar stream into `fs/` of the private directory `layer_dir`, and reads `tar` to its end, trailing bytes included.
/// File data is written from the buffers of `tar`, which are best some hundred KiB long and a multiple of 512. `recipe.zst` and,
/// where needed, `deferred.jsonl` and `replaced/` are created next to `fs/`, which must be empty.
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

/// Unpacks a tar stream into the EROFS file `layer.erofs` of the private directory `layer_dir`, with `recipe.zst` next to it.
/// Works like [`unpack`] otherwise, except that nothing is deferred, whichever user unpacks, and that disk usage is not counted.
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

#[cfg(test)]
pub(crate) mod tests;
