//! Comparison of two open files: content, and the attributes that hard links share. Reads only.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::io::{Errno, retry_on_intr};

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
    Ok(all(one)? == all(two)?)
}

/// Returns true if a write would take rights of the file away.
pub(super) fn has_capabilities(file: &OwnedFd) -> io::Result<bool> {
    Ok(names(file)?.iter().any(|name| name == CAPABILITIES))
}

/// Returns true if the file of this name has any extended attributes.
pub(super) fn has_attributes(directory: &OwnedFd, name: &[u8]) -> io::Result<bool> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    let path = CString::new(path).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut list = vec![0_u8; 64 << 10];
    match rustix::fs::llistxattr(path.as_c_str(), list.as_mut_slice()) {
        Ok(length) => Ok(length > 0),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn names(file: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut list = vec![0_u8; 64 << 10];
    let length = match rustix::fs::flistxattr(file, list.as_mut_slice()) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

fn all(file: &OwnedFd) -> io::Result<BTreeSet<(Vec<u8>, Vec<u8>)>> {
    let mut found = BTreeSet::new();
    for name in names(file)? {
        let mut value = vec![0_u8; 64 << 10];
        let length = rustix::fs::fgetxattr(file, name.as_slice(), value.as_mut_slice())?;
        value.truncate(length);
        found.insert((name, value));
    }
    Ok(found)
}
