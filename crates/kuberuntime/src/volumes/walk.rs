//! Paths below a directory that no process can redirect elsewhere: [`find`] resolves one step at a time, each by the
//! descriptor of the one before, reads symbolic links itself and never leaves the first directory. It
//! returns a descriptor: the caller mounts or opens the file that was checked, whatever happens to the path. Needs no
//! `openat2`.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// Links that one path may go through, as in the kernel.
const MOST_LINKS: usize = 40;
/// Directories that one path may go down: each is kept open during the walk.
const MOST_STEPS: usize = 200;

/// Treatment of symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SymlinkPolicy {
    /// They are followed as long as they stay below.
    Within,
    /// They are an error.
    Refuse,
}

/// Failure to resolve a path.
#[derive(Debug, thiserror::Error)]
pub(super) enum WalkError {
    /// The path leads out of the root.
    #[error("it leads out of the volume")]
    LeadsOut,
    /// A link where there must be none.
    #[error("it leads over a symbolic link")]
    Link,
    /// Too long a way.
    #[error("it goes over too many symbolic links or directories")]
    TooFar,
    /// Another error.
    #[error("{}", std::io::Error::from(*.0))]
    Other(#[from] Errno),
}

/// Opens `path` below `root` for its path only (`O_PATH`). With `make`, directories that are missing are made with that
/// mode.
pub(super) fn find(
    root: BorrowedFd<'_>,
    path: &Path,
    links: SymlinkPolicy,
    make: Option<Mode>,
) -> Result<OwnedFd, WalkError> {
    let mut went: Vec<OwnedFd> = Vec::new();
    let mut ahead: Vec<OsString> = Vec::new();
    let mut followed = 0;
    put_ahead(&mut ahead, path.as_os_str())?;
    while let Some(name) = ahead.pop() {
        if name == ".." {
            went.pop().ok_or(WalkError::LeadsOut)?;
            continue;
        }
        if went.len() >= MOST_STEPS {
            return Err(WalkError::TooFar);
        }
        let here = went.last().map_or(root, AsFd::as_fd);
        let found = match place(here, &name) {
            Err(Errno::NOENT) => match make {
                Some(mode) => make_directory(here, &name, mode)?,
                None => return Err(Errno::NOENT.into()),
            },
            found => found?,
        };
        if kind(&attributes(found.as_fd(), StatxFlags::TYPE)?) != FileType::Symlink {
            went.push(found);
            continue;
        }
        if links == SymlinkPolicy::Refuse {
            return Err(WalkError::Link);
        }
        followed += 1;
        if followed > MOST_LINKS {
            return Err(WalkError::TooFar);
        }
        let target = OsString::from_vec(rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes());
        put_ahead(&mut ahead, &target)?;
    }
    match went.pop() {
        Some(found) => Ok(found),
        None => Ok(place(root, OsStr::new("."))?),
    }
}

/// Pushes the parts of a path, the first one last.
fn put_ahead(ahead: &mut Vec<OsString>, path: &OsStr) -> Result<(), WalkError> {
    let bytes = path.as_bytes();
    if bytes.first() == Some(&b'/') {
        return Err(WalkError::LeadsOut);
    }
    let parts = bytes.split(|b| *b == b'/').rev().filter(|part| !matches!(*part, b"" | b"."));
    ahead.extend(parts.map(|part| OsStr::from_bytes(part).to_owned()));
    Ok(())
}

/// Opens the file of this name for its path only, links not followed.
pub(super) fn place(directory: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Makes a directory of exactly this mode, whatever the mask of this process is.
fn make_directory(parent: BorrowedFd<'_>, name: &OsStr, mode: Mode) -> Result<OwnedFd, WalkError> {
    match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => {}
        // Another process made it first: it is treated like any other file.
        Err(Errno::EXIST) => return Ok(place(parent, name)?),
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    // A container that can write there may have put another directory in its place: the mode is changed only on an
    // empty directory of ours, from which no process gains access to anything.
    let stat = rustix::fs::fstat(&made)?;
    if stat.st_uid == rustix::process::geteuid().as_raw() && is_empty(made.as_fd())? {
        rustix::fs::fchmod(&made, mode)?;
    }
    Ok(made)
}

fn is_empty(directory: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    for entry in rustix::fs::Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Attributes that the kernel has of an open file, without asking a file system that may not answer.
pub(super) fn attributes(place: BorrowedFd<'_>, what: StatxFlags) -> rustix::io::Result<Statx> {
    rustix::fs::statx(place, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, what)
}

/// Type of a file.
pub(super) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// Which mount an open place is in. A directory on which something is mounted is in that mount.
pub(super) fn mount_id(place: BorrowedFd<'_>) -> std::io::Result<u64> {
    let stat = attributes(place, StatxFlags::MNT_ID)?;
    if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID) {
        return Ok(stat.stx_mnt_id);
    }
    // Kernels of before 5.8.
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", place.as_raw_fd()))?;
    info.lines()
        .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
        .ok_or_else(|| std::io::Error::other("the kernel does not tell which mount it is in"))
}

/// Returns a path for mount calls to an open file, independent of the path by which it was opened.
pub(super) fn by_descriptor(place: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", place.as_raw_fd()).into()
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
