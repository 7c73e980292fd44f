//! Which mounts there are at or below a directory, as `/proc/self/mountinfo` tells it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// A mount of the kernel's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The number that the kernel gave it.
    pub(super) id: u64,
    /// Where it is.
    pub(super) target: PathBuf,
}

/// The mounts at `directory` and below, in the kernel's order: one that lies on another comes after it. The path is a
/// real one, without links.
pub(super) fn below(directory: &Path) -> io::Result<Vec<Mount>> {
    let mut found = Vec::new();
    for line in std::fs::read("/proc/self/mountinfo")?.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        let mount = parse(line).ok_or_else(|| io::Error::other("/proc/self/mountinfo has a line of another form"))?;
        if mount.target.starts_with(directory) {
            found.push(mount);
        }
    }
    Ok(found)
}

/// `36 35 98:0 /root /target rw,noatime master:1 - ext3 /dev/root rw` (proc(5)).
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let target = unescape(fields.nth(3)?);
    Some(Mount { id, target: PathBuf::from(OsString::from_vec(target)) })
}

/// Space, tab, newline and backslash stand there as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let digits = tail.get(..3).filter(|d| first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        let value = digits.map(|d| d.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0')));
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &tail[3..];
            }
            None => plain.push(first),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = br"36 35 98:0 / /a\040b\134c\1x rw,noatime master:1 - tmpfs tmpfs rw";
        assert_eq!(parse(line), Some(Mount { id: 36, target: r"/a b\c\1x".into() }));
        assert_eq!(parse(b"what is this"), None);
        assert!(below(Path::new("/")).unwrap().iter().any(|mount| mount.target == Path::new("/")));
    }
}
