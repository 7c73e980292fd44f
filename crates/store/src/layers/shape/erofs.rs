//! Layers that are one EROFS file: `layer.erofs` in the layer's directory, with owners, devices and attributes as the layer has
//! them, independent of the user who unpacked it. The unpacker and the format's crate do the work; this module has what
//! [`super::Shape`] needs, which alone calls it.

use std::fs::File;
use std::io::{self, BufRead};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use erofs::{InodeInfo, Kind, Nid, PatchError, ReadError, Reader, Source, WriteError};
use rustix::fs::{AtFlags, FileType, OFlags, Timespec, Timestamps};

use super::file_type::kind_of;
use crate::disk::layer::LayerId;
use crate::disk::layout::EROFS_FILE;
use crate::disk::usage::bytes_on_disk;
use crate::disk::xattr::{Xattrs, is_of_overlayfs};
use crate::recipe;
use crate::records::entries::LayerStats;
use crate::tar::shown;
use crate::unpack::{self, Attributes, Below, OPAQUE, PathLookup, UnpackError, UnpackOptions, UnpackOutcome};

/// All that a layer is on the disk: its directory, and what is in it.
const PARTS: [&str; 3] = [".", EROFS_FILE, recipe::FILE];

pub(super) fn apply(
    tar: &mut dyn BufRead,
    private: BorrowedFd<'_>,
    options: &UnpackOptions<'_>,
) -> Result<(UnpackOutcome, LayerStats), UnpackError> {
    let outcome = unpack::unpack_erofs(tar, private, options)?;
    let (disk_bytes, inodes) = measure(private).map_err(|source| UnpackError::Io {
        operation: "looking at",
        path: EROFS_FILE.into(),
        source,
    })?;
    let stats = LayerStats {
        entries: outcome.entries,
        files: outcome.files,
        content_bytes: outcome.content_bytes,
        disk_bytes,
        inodes,
        deferred: 0,
        exact: outcome.exact,
        root_opaque: outcome.root_opaque,
    };
    Ok((outcome, stats))
}

/// Bytes and inodes that the layer takes.
pub(super) fn measure(layer: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let (mut bytes, mut inodes) = (0, 0);
    for name in PARTS {
        bytes += bytes_on_disk(|| rustix::fs::statat(layer, name, AtFlags::SYMLINK_NOFOLLOW))?;
        inodes += 1;
    }
    Ok((bytes, inodes))
}

pub(super) fn patch(layer: BorrowedFd<'_>, implicit: &[Vec<u8>], below: Below<'_>) -> io::Result<()> {
    let mut file = recipe::open_erofs(layer, OFlags::RDWR)?;
    // All are found first: what is written for one may lie beyond what the reader took for the end.
    let erofs = Reader::open(&file)?;
    let mut places = Vec::with_capacity(implicit.len());
    for path in implicit {
        // An opaque directory of the layer itself, above this one, hides everything below.
        places.push(match walk(&erofs, path)? {
            ErofsPath::Here { directory, hides_above: false } => {
                // Its overlayfs marks stay.
                let mut marks = erofs.xattrs(&directory)?;
                marks.retain(|(name, _)| is_of_overlayfs(name));
                Some((directory.nid, marks))
            }
            _ => None,
        });
    }
    for (path, place) in implicit.iter().zip(places) {
        if let Some((nid, marks)) = place
            && let Some(attributes) = below(path)?
        {
            give(&mut file, nid, marks, attributes).map_err(|error| {
                let name = if path.is_empty() { "/".into() } else { shown(path) };
                io::Error::new(error.kind(), format!("taking over the attributes of {name:?}: {error}"))
            })?;
        }
    }
    Ok(())
}

fn give(file: &mut File, nid: Nid, marks: Xattrs, attributes: Attributes) -> io::Result<()> {
    let Attributes { mode, uid, gid, times, mut xattrs } = attributes;
    xattrs.retain(|(name, value)| !is_of_overlayfs(name) && erofs::can_hold(name, value));
    xattrs.extend(marks);
    let nanos = u32::try_from(times.last_modification.tv_nsec).unwrap_or(0);
    let mtime = (times.last_modification.tv_sec, nanos);
    let attributes = erofs::Attributes { mode, uid, gid, mtime, xattrs };
    erofs::patch(file, nid, &attributes).map_err(|error| match error {
        PatchError::Read(source) | PatchError::Write(WriteError::Sink(source)) => source,
        error => io::Error::other(error),
    })
}

pub(super) fn find(layer: BorrowedFd<'_>, path: &[u8]) -> io::Result<PathLookup> {
    let erofs = recipe::read_erofs(layer)?;
    Ok(match walk(&erofs, path)? {
        ErofsPath::Here { directory, .. } => PathLookup::Here(attributes(&erofs, &directory)?),
        ErofsPath::Hidden => PathLookup::Hidden,
        ErofsPath::Absent => PathLookup::Absent,
    })
}

pub(super) fn file_path(directory: &Path) -> PathBuf {
    directory.join(EROFS_FILE)
}

pub(super) fn is_there(layers: &OwnedFd, id: LayerId) -> bool {
    kind_of(layers, &format!("{id}/{EROFS_FILE}"), id).is_some_and(FileType::is_file)
}

/// The way to a directory.
enum ErofsPath {
    /// The directory; whether one above it (the root included) is opaque.
    Here {
        directory: InodeInfo,
        hides_above: bool,
    },
    Hidden,
    Absent,
}

fn walk<R: Source>(erofs: &Reader<R>, path: &[u8]) -> Result<ErofsPath, ReadError> {
    let mut directory = erofs.inode(erofs.root())?;
    let mut opaque = false;
    for part in path.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
        opaque |= is_opaque(erofs, &directory)?;
        let Some(entry) = erofs.lookup(&directory, part)? else {
            return Ok(if opaque { ErofsPath::Hidden } else { ErofsPath::Absent });
        };
        let inode = erofs.inode(entry.nid)?;
        if inode.kind != Kind::Directory {
            return Ok(ErofsPath::Hidden);
        }
        directory = inode;
    }
    Ok(ErofsPath::Here { directory, hides_above: opaque })
}

fn is_opaque<R: Source>(erofs: &Reader<R>, directory: &InodeInfo) -> Result<bool, ReadError> {
    let has =
        |name: &str| erofs.xattr(directory, name.as_bytes()).map(|value| value.is_some_and(|value| value == b"y"));
    Ok(has(OPAQUE[0])? || has(OPAQUE[1])?)
}

fn attributes<R: Source>(erofs: &Reader<R>, directory: &InodeInfo) -> Result<Attributes, ReadError> {
    let time = Timespec { tv_sec: directory.mtime.0, tv_nsec: directory.mtime.1.into() };
    Ok(Attributes {
        mode: directory.mode,
        uid: directory.uid,
        gid: directory.gid,
        times: Timestamps { last_access: time, last_modification: time },
        xattrs: erofs.xattrs(directory)?,
    })
}
