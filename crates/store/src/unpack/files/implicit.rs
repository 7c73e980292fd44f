//! Attributes for directories that a layer makes without an entry: those of the same directory in the layers below.
//!
//! containerd does this while it unpacks, one layer after the other. This store unpacks layers in parallel, and does this when
//! all are unpacked. Follows no symbolic link, and changes nothing but the implicit directories.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::super::whiteout::OPAQUE;
use super::deferred::{Deferred, DeferredLine};
use crate::disk::beneath::Beneath;
use crate::disk::xattr::{XattrFile, is_of_overlayfs};
use crate::tar::shown;
use crate::unpack::{Attributes, Below, PathLookup};

/// Gives implicit directories the attributes (mode, owner, times, extended attributes) of the same directory in the
/// topmost lower layer that has it, unless a whiteout, an opaque directory or something that is no directory hides it.
/// A directory that no lower layer has keeps mode 0755, owner 0:0 and the beginning of 1970 as its times.
///
/// Attributes that an ordinary user cannot set are recorded in `below.jsonl`, in `layer`.
///
/// # Errors
/// A system call failed; the message names the path.
pub(crate) fn patch_implicit(
    layer: BorrowedFd<'_>,
    layer_fs: BorrowedFd<'_>,
    implicit: &[Vec<u8>],
    below: Below<'_>,
    privileged: bool,
) -> io::Result<()> {
    let beneath = Beneath::default();
    let mut deferred = if privileged { None } else { Some(Deferred::below(layer)?) };
    for path in implicit {
        let patched = patch(&beneath, layer_fs, path, below, privileged);
        let patched = patched.and_then(|given| match (given, &mut deferred) {
            (Some(attributes), Some(deferred)) => note(&attributes, path, deferred),
            _ => Ok(()),
        });
        patched.map_err(|error| {
            let name = if path.is_empty() { "/".into() } else { shown(path) };
            io::Error::new(error.kind(), format!("taking over the attributes of {name:?}: {error}"))
        })?;
    }
    deferred.map_or(Ok(0), Deferred::finish).map(drop)
}

/// Writes down what was not given.
fn note(attributes: &Attributes, path: &[u8], deferred: &mut Deferred) -> io::Result<()> {
    let mut line = DeferredLine { kind: "directory", ..DeferredLine::default() };
    if (attributes.uid, attributes.gid) != (0, 0) {
        line.owner = Some((attributes.uid, attributes.gid));
    }
    if attributes.mode != mode_given(attributes, false) {
        line.mode = Some(attributes.mode);
    }
    for (name, value) in attributes.xattrs.iter().filter(|(name, _)| !is_of_overlayfs(name) && !may_give(name, false)) {
        line.add_xattr(name, value);
    }
    if line.says_something() { deferred.write(path, line) } else { Ok(()) }
}

fn patch(
    beneath: &Beneath,
    layer_fs: BorrowedFd<'_>,
    path: &[u8],
    below: Below<'_>,
    privileged: bool,
) -> io::Result<Option<Attributes>> {
    // An opaque directory of the layer itself, above this one, hides everything below.
    if let DirPath::Here { hides_above: true, .. } = walk(layer_fs, path)? {
        return Ok(None);
    }
    let Some(attributes) = below(path)? else { return Ok(None) };
    let target = if path.is_empty() { reopen(layer_fs)? } else { beneath.directory(layer_fs, path)? };
    give(&attributes, &target, privileged)?;
    Ok(Some(attributes))
}

/// Looks up a path in a layer that is a directory.
pub(crate) fn find(layer_fs: BorrowedFd<'_>, path: &[u8]) -> Result<PathLookup, Errno> {
    Ok(match walk(layer_fs, path)? {
        DirPath::Here { fd, .. } => PathLookup::Here(attributes(&fd)?),
        DirPath::Hidden => PathLookup::Hidden,
        DirPath::Absent => PathLookup::Absent,
    })
}

/// The way to a directory.
enum DirPath {
    /// The directory; whether one above it (the root included) is opaque.
    Here {
        fd: OwnedFd,
        hides_above: bool,
    },
    Hidden,
    Absent,
}

fn walk(layer: BorrowedFd<'_>, path: &[u8]) -> Result<DirPath, Errno> {
    let mut fd = reopen(layer)?;
    let mut opaque = false;
    for part in path.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
        opaque |= is_opaque(&fd)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&fd, part, flags, Mode::empty()) {
            Ok(next) => fd = next,
            Err(Errno::NOENT) => return Ok(if opaque { DirPath::Hidden } else { DirPath::Absent }),
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(DirPath::Hidden),
            Err(error) => return Err(error),
        }
    }
    Ok(DirPath::Here { fd, hides_above: opaque })
}

fn reopen(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns true if a directory hides what the layers below have there.
pub(crate) fn is_opaque(dir: &OwnedFd) -> Result<bool, Errno> {
    let mut value = [0_u8; 2];
    for name in OPAQUE {
        match rustix::fs::fgetxattr(dir, name, &mut value[..]) {
            Ok(1) if value[0] == b'y' => return Ok(true),
            // ERANGE: longer than "y", so that it is something else.
            Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::RANGE) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

pub(super) fn attributes(from: &OwnedFd) -> Result<Attributes, Errno> {
    let stat = rustix::fs::fstat(from)?;
    let xattrs = XattrFile::Open(from.as_fd()).read(|_| true)?;
    let time = |seconds, nanos| -> Result<Timespec, Errno> {
        let nanos = i64::try_from(nanos).map_err(|_| Errno::RANGE)?;
        Ok(Timespec { tv_sec: seconds, tv_nsec: nanos })
    };
    Ok(Attributes {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        times: Timestamps {
            last_access: time(stat.st_atime, stat.st_atime_nsec)?,
            last_modification: time(stat.st_mtime, stat.st_mtime_nsec)?,
        },
        xattrs,
    })
}

fn give(attributes: &Attributes, to: &OwnedFd, privileged: bool) -> Result<(), Errno> {
    if privileged {
        rustix::fs::fchown(to, Some(Uid::from_raw(attributes.uid)), Some(Gid::from_raw(attributes.gid)))?;
    }
    for (name, value) in &attributes.xattrs {
        if is_of_overlayfs(name) || !may_give(name, privileged) {
            continue;
        }
        match rustix::fs::fsetxattr(to, name.as_slice(), value, XattrFlags::empty()) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::fs::fchmod(to, Mode::from_raw_mode(mode_given(attributes, privileged)))?;
    rustix::fs::futimens(to, &attributes.times)
}

/// A layer below may be one that keeps every mode; an ordinary user must still be able to remove this one.
fn mode_given(attributes: &Attributes, privileged: bool) -> u32 {
    if privileged { attributes.mode } else { attributes.mode | 0o700 }
}

fn may_give(name: &[u8], privileged: bool) -> bool {
    privileged || name.starts_with(b"user.") || name.starts_with(b"system.")
}
