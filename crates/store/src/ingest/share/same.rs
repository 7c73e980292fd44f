//! Comparison of two open files: content, and the attributes that hard links share. Reads only.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::retry_on_intr;

use crate::disk::xattr::XattrFile;

/// Files are compared in pieces of this size, the first one small: most files that differ do so early.
const PIECE: usize = 128 << 10;
const CAPABILITIES: &[u8] = b"security.capability";

/// Returns true if both have the same bytes. Given up, they have not.
pub(super) fn content(one: &OwnedFd, two: &OwnedFd, cancelled: &dyn Fn() -> bool) -> io::Result<bool> {
    let (mut first, mut second) = (vec![0; PIECE], vec![0; PIECE]);
    let (mut at, mut piece) = (0, 4096);
    loop {
        if cancelled() {
            return Ok(false);
        }
        let length = fill(one, &mut first[..piece], at)?;
        if length != fill(two, &mut second[..piece], at)? || first[..length] != second[..length] {
            return Ok(false);
        }
        if length < piece {
            return Ok(true);
        }
        at += length as u64;
        piece = PIECE;
    }
}

fn fill(file: &OwnedFd, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let read = |piece: &mut [u8], from| retry_on_intr(|| rustix::io::pread(file, &mut *piece, from));
    Ok(base::fill(buffer, at, read)?)
}

/// Returns true if both have the same extended attributes.
pub(super) fn attributes(one: &OwnedFd, two: &OwnedFd) -> io::Result<bool> {
    let all = |file: &OwnedFd| XattrFile::Open(file.as_fd()).read(|_| true).map(BTreeSet::from_iter);
    Ok(all(one)? == all(two)?)
}

/// Returns true if a write would take rights of the file away.
pub(super) fn has_capabilities(file: &OwnedFd) -> io::Result<bool> {
    Ok(XattrFile::Open(file.as_fd()).names()?.iter().any(|name| name == CAPABILITIES))
}

/// Returns true if the file of this name has any extended attributes.
pub(super) fn has_attributes(directory: &OwnedFd, name: &[u8]) -> io::Result<bool> {
    Ok(!XattrFile::In(directory.as_fd(), name).names()?.is_empty())
}
