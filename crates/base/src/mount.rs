//! The mounts that this process sees, from `/proc/self/mountinfo` (proc(5)).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// A mount of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Number that the kernel gave it.
    pub id: u64,
    /// Mount point.
    pub target: PathBuf,
    /// Type of the file system, as `overlay`.
    pub kind: String,
    /// Source, as `/dev/sda1`.
    pub source: OsString,
    /// True if mounts below it appear in all mount namespaces that share it: it is shared, and no slave of another one.
    pub is_shared: bool,
}

/// Returns all mounts, in the order in which they were made: a mount on top of another one is listed after it.
///
/// # Errors
/// The table cannot be read, or has a line of another form.
pub fn mounts() -> io::Result<Vec<Mount>> {
    let table = std::fs::read(MOUNTINFO)?;
    let lines = table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let other_form = || io::Error::other(format!("{MOUNTINFO} has a line of another form"));
    lines.map(|line| parse(line).ok_or_else(other_form)).collect()
}

/// Returns all mounts without those whose line has another form, in the same order: for callers that search for mounts of their
/// own.
///
/// # Errors
/// The table cannot be read.
pub fn mounts_lenient() -> io::Result<Vec<Mount>> {
    Ok(parse_lenient(&std::fs::read(MOUNTINFO)?))
}

fn parse_lenient(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// The mounts at `directory` and below, in the same order. The path is a real one, without links.
///
/// # Errors
/// As [`mounts`].
pub fn mounts_below(directory: &Path) -> io::Result<Vec<Mount>> {
    let mut mounts = mounts()?;
    mounts.retain(|mount| mount.target.starts_with(directory));
    Ok(mounts)
}

/// The mount that is seen at this path: the last one there.
#[must_use]
pub fn topmost<'a>(mounts: &'a [Mount], target: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.target == target)
}

/// `36 35 98:0 /root /target rw,noatime master:1 - ext3 /dev/root rw` (proc(5)).
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let target = PathBuf::from(OsString::from_vec(unescape(fields.nth(3)?)));
    let optional: Vec<&[u8]> = fields.by_ref().skip(1).take_while(|field| *field != b"-").collect();
    let has = |prefix: &[u8]| optional.iter().any(|field| field.starts_with(prefix));
    let is_shared = has(b"shared:") && !has(b"master:");
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = OsString::from_vec(unescape(fields.next()?));
    Some(Mount { id, target, kind, source, is_shared })
}

/// Replaces three octal digits behind a backslash, which stand for space, tab, newline and backslash.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
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
        type Fields = Option<(u64, &'static str, &'static str, &'static str, bool)>;
        let cases: [(&[u8], Fields); 6] = [
            (b"36 35 98:0 /a /b rw,noatime master:1 - ext3 /dev/root rw", Some((36, "/b", "ext3", "/dev/root", false))),
            (
                br"36 35 98:0 / /a\040b\134c\1x rw shared:1 - tmpfs tmpfs rw",
                Some((36, r"/a b\c\1x", "tmpfs", "tmpfs", true)),
            ),
            (
                b"40 30 0:50 / /x ro shared:1 master:2 - fuse.erofs imagelet ro",
                Some((40, "/x", "fuse.erofs", "imagelet", false)),
            ),
            (b"40 30 0:50 / /x ro", None),
            (b"what is this", None),
            (b"", None),
        ];
        for (line, want) in cases {
            let want = want.map(|(id, target, kind, source, is_shared)| Mount {
                id,
                target: target.into(),
                kind: kind.to_owned(),
                source: source.into(),
                is_shared,
            });
            assert_eq!(parse(line), want, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn malformed_lines_are_skipped() {
        let table = b"36 35 98:0 / /a rw - ext3 /dev/root rw\nwhat is this\n\n37 35 98:0 / /b rw - tmpfs tmpfs rw\n";
        let targets: Vec<PathBuf> = parse_lenient(table).into_iter().map(|mount| mount.target).collect();
        assert_eq!(targets, [Path::new("/a"), Path::new("/b")]);
    }

    #[test]
    fn last_mount_at_a_path_wins() {
        let mount = |id, kind: &str| Mount {
            id,
            target: "/t".into(),
            kind: kind.into(),
            source: "none".into(),
            is_shared: true,
        };
        let mounts = [mount(1, "ext4"), mount(2, "overlay")];
        assert_eq!(topmost(&mounts, Path::new("/t")), Some(&mounts[1]));
        assert_eq!(topmost(&mounts, Path::new("/u")), None);
    }

    #[test]
    fn root_mount_of_this_process_is_found() {
        assert!(topmost(&mounts_lenient().expect("readable"), Path::new("/")).is_some());
        let all = mounts_below(Path::new("/")).expect("readable");
        assert!(topmost(&all, Path::new("/")).is_some());
        assert_eq!(topmost(&all, Path::new("/no/such/mount")), None);
    }
}
