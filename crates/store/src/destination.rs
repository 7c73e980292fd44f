//! [`find`]: how a file that a person named is written, as an archive or a copy. A regular file is replaced when the new one is
//! whole, and a symbolic link leads to it; devices, pipes and files that a process has open already are written to as they are.
//! Knows no image. The exports of the image service and `imagelet cp` call it.

use std::fs::{File, FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

/// How a file is written.
#[derive(Debug)]
pub enum Destination {
    /// Written to as it is; nothing replaces it. [`flushed`] is called last.
    Stream(File),
    /// A regular file, or nothing yet: this path is free, or replaced by a rename. No symbolic link is at its end.
    File(PathBuf),
}

/// As many symbolic links as the kernel follows.
const LINKS: usize = 40;
/// How long to wait before the next attempt to open a pipe that has no reader.
const PAUSE: Duration = Duration::from_millis(20);

/// Finds out how `path` is written, and opens what is written to as it is. A pipe with a name waits for its reader, until it is
/// `cancelled`.
///
/// # Errors
/// A directory, symbolic links that come to no end, what cannot be opened. [`io::ErrorKind::Interrupted`]: cancelled.
pub fn find(path: &Path, cancelled: &dyn Fn() -> bool) -> io::Result<Destination> {
    let mut at = path.to_owned();
    for _ in 0..=LINKS {
        let metadata = match at.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A slash at the end asks for a directory, which is never created.
                let is_name = at.file_name().is_some() && !at.as_os_str().as_bytes().ends_with(b"/");
                return if is_name { Ok(Destination::File(at)) } else { Err(error) };
            }
            looked => looked?,
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if kind.is_file() {
            return Ok(Destination::File(at));
        }
        if !kind.is_symlink() {
            return open(&at, kind, cancelled).map(Destination::Stream);
        }
        let parent = parent(&at);
        if rustix::fs::statfs(parent)?.f_type == rustix::fs::PROC_SUPER_MAGIC {
            // The text of such a link is no path: it leads to what some process has open.
            return of_process(&at, cancelled).map(Destination::Stream);
        }
        at = parent.join(std::fs::read_link(&at)?);
    }
    Err(Errno::LOOP.into())
}

/// Where a path's last name is.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that a process has open. Of this process it is the same open file, whose place and rights count: a socket cannot be opened
/// once more, and in a regular file what was written before stays.
fn of_process(link: &Path, cancelled: &dyn Fn() -> bool) -> io::Result<File> {
    let metadata = std::fs::metadata(link)?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let same = |a: Metadata, b: Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let ours = std::fs::metadata("/proc/self/fd").and_then(|ours| Ok(same(ours, std::fs::metadata(parent(link))?)));
    let number = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    if let (Ok(true), Some(number)) = (ours, number) {
        let duplicate = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
            .and_then(|this| rustix::process::pidfd_getfd(&this, number, PidfdGetfdFlags::empty()));
        match duplicate {
            // Kernels before 5.6, or a filter of system calls.
            Err(Errno::NOSYS | Errno::PERM) => {}
            duplicate => return Ok(File::from(duplicate?)),
        }
    }
    open(link, metadata.file_type(), cancelled)
}

/// Opens an existing file for writing.
fn open(path: &Path, kind: FileType, cancelled: &dyn Fn() -> bool) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    if !kind.is_fifo() {
        return Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?));
    }
    loop {
        // Before each try: one that was given up must not take the reader of the next.
        if cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::empty()) {
            Err(Errno::NXIO) => std::thread::sleep(PAUSE),
            opened => {
                let file = File::from(opened?);
                rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
                return Ok(file);
            }
        }
    }
}

/// Syncs what was written to a stream. A pipe, socket or terminal, which cannot be synced, is no error.
///
/// # Errors
/// The disk.
pub fn flushed(file: &File) -> io::Result<()> {
    match rustix::fs::fdatasync(file) {
        Err(Errno::INVAL | Errno::ROFS | Errno::NOTSUP) => Ok(()),
        synced => Ok(synced?),
    }
}

/// Returns a unique name for a file that is not whole yet, short enough for every file system.
#[must_use]
pub fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!(".imagelet.{}-{}.partial", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the path of a new temporary file in the directory of `path`.
#[must_use]
pub fn temporary_path(path: &Path) -> PathBuf {
    path.with_file_name(temporary_name())
}

#[cfg(test)]
#[path = "destination_tests.rs"]
mod tests;
