//! [`temporary`]: files for what does not fit into memory, which are gone when nobody has them open. The log and the writer of an EROFS
//! file ask for them.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags};

/// A file that has no name any more.
pub(super) fn temporary(dir: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
    rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
    Ok(File::from(file))
}
