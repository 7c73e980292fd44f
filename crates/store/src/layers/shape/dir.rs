//! Layers that are directory trees: `fs/` in the layer's directory, as overlayfs takes it. The unpacker does the work; this
//! module has what [`super::Shape`] needs, which alone calls it.

use std::collections::BTreeSet;
use std::io::{self, BufRead};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::file_type::kind_of;
use crate::disk::beneath::Beneath;
use crate::disk::layer::LayerId;
use crate::disk::layout::{self, FS};
use crate::disk::usage::bytes_on_disk;
use crate::recipe;
use crate::records::entries::LayerStats;
use crate::unpack::{self, Below, DEFERRED, DEFERRED_BELOW, PathLookup, UnpackError, UnpackOptions, UnpackOutcome};

/// The parts of a layer's directory other than its tree, including the directory itself. `replaced/` is counted with the tree.
const NEXT_TO_TREE: [&str; 4] = [".", recipe::FILE, DEFERRED, DEFERRED_BELOW];

pub(super) fn begin(private: &OwnedFd) -> io::Result<()> {
    let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
    rustix::fs::mkdirat(private, FS, mode)?;
    // Exactly these bits, whatever the umask.
    rustix::fs::chmodat(private, FS, mode, AtFlags::empty())?;
    Ok(())
}

pub(super) fn apply(
    tar: &mut dyn BufRead,
    private: BorrowedFd<'_>,
    options: &UnpackOptions<'_>,
) -> Result<(UnpackOutcome, LayerStats), UnpackError> {
    let outcome = unpack::unpack(tar, private, options)?;
    let mut stats = LayerStats {
        entries: outcome.entries,
        files: outcome.files,
        content_bytes: outcome.content_bytes,
        disk_bytes: outcome.disk_bytes,
        inodes: outcome.inodes,
        deferred: outcome.deferred,
        exact: outcome.exact,
        root_opaque: outcome.root_opaque,
    };
    let (bytes, inodes) = files_next_to_tree(private).map_err(|source| UnpackError::Io {
        operation: "looking at",
        path: ".".into(),
        source,
    })?;
    stats.disk_bytes += bytes;
    stats.inodes += inodes;
    Ok((outcome, stats))
}

/// Returns the bytes and inodes of the files next to the tree.
fn files_next_to_tree(layer: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let mut sum = (0, 0);
    for name in NEXT_TO_TREE {
        match bytes_on_disk(|| rustix::fs::statat(layer, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(bytes) => sum = (sum.0 + bytes, sum.1 + 1),
            // Not every layer has all of them.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sum)
}

/// Returns the bytes and inodes that the layer takes now that it is written: those that were counted for the tree, and a new
/// measurement of the files next to it. Where one of the largest files does not take what was counted for it, the disk has little
/// room in one piece, or counts in another way: then everything is measured. `outcome` is `None` where nothing was counted on
/// this disk.
pub(super) fn measure(layer: BorrowedFd<'_>, outcome: Option<&UnpackOutcome>) -> io::Result<(u64, u64)> {
    let beneath = Beneath::default();
    let tree = match outcome {
        Some(outcome) if is_as_counted(&beneath, tree(layer)?.as_fd(), outcome) => (outcome.disk_bytes, outcome.inodes),
        _ => measure_trees(&beneath, layer)?,
    };
    let extra = files_next_to_tree(layer)?;
    Ok((tree.0 + extra.0, tree.1 + extra.1))
}

fn is_as_counted(beneath: &Beneath, fs: BorrowedFd<'_>, outcome: &UnpackOutcome) -> bool {
    outcome.largest.files().all(|(counted, path)| {
        // Without the right to read it, the way to it is enough.
        let file = beneath.open(fs, path, OFlags::PATH);
        // A file that a later entry has replaced was moved.
        file.and_then(|file| bytes_on_disk(|| rustix::fs::fstat(&file))).is_ok_and(|bytes| bytes == counted)
    })
}

/// All that lies in the trees of a layer, each inode once.
fn measure_trees(beneath: &Beneath, layer: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let (mut bytes, mut inodes) = (0, 0);
    let mut linked = BTreeSet::new();
    let mut todo = vec![FS.as_bytes().to_vec(), recipe::REPLACED.as_bytes().to_vec()];
    while let Some(path) = todo.pop() {
        let directory = match beneath.directory(layer, &path) {
            Ok(directory) => directory,
            // Most layers have nothing that was replaced.
            Err(Errno::NOENT) if path == recipe::REPLACED.as_bytes() => continue,
            Err(error) => return Err(error.into()),
        };
        bytes += bytes_on_disk(|| rustix::fs::fstat(&directory))?;
        inodes += 1;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                todo.push([&path, &b"/"[..], name.to_bytes()].concat());
                continue;
            }
            if stat.st_nlink > 1 && !linked.insert(stat.st_ino) {
                continue;
            }
            bytes += bytes_on_disk(|| rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW))?;
            inodes += 1;
        }
    }
    Ok((bytes, inodes))
}

/// Returns the additional bytes and inodes of the layer: attributes that an ordinary user cannot set are recorded.
pub(super) fn patch(
    layer: BorrowedFd<'_>,
    implicit: &[Vec<u8>],
    below: Below<'_>,
    privileged: bool,
) -> io::Result<(u64, u64)> {
    if privileged {
        unpack::patch_implicit(layer, tree(layer)?.as_fd(), implicit, below, privileged)?;
        return Ok((0, 0));
    }
    // An attempt before this one may have written something already.
    let before = files_next_to_tree(layer)?;
    unpack::patch_implicit(layer, tree(layer)?.as_fd(), implicit, below, privileged)?;
    let after = files_next_to_tree(layer)?;
    Ok((after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)))
}

pub(super) fn find(layer: BorrowedFd<'_>, path: &[u8]) -> io::Result<PathLookup> {
    Ok(unpack::find(tree(layer)?.as_fd(), path)?)
}

pub(super) fn tree_path(directory: &Path) -> PathBuf {
    directory.join(FS)
}

pub(super) fn is_there(layers: &OwnedFd, id: LayerId) -> bool {
    kind_of(layers, layout::tree_of(id).as_str(), id).is_some_and(FileType::is_dir)
}

fn tree(layer: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(layer, FS, flags, Mode::empty())?)
}
