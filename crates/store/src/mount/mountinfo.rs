//! Reading `/proc/self/mountinfo`, as far as the store needs it: which mounts are there, and which of them are ours.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The source that our mounts name, so that they can be told from others.
pub(crate) const SOURCE: &str = "imagelet";
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) target: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: OsString,
}

impl Mount {
    pub(crate) fn is_ours(&self) -> bool {
        let is_composed = self.kind == "erofs" && Path::new(&self.source).file_name() == Some(OsStr::new(SOURCE));
        is_composed || self.source == SOURCE && (matches!(self.kind.as_str(), "overlay" | "tmpfs") || self.is_fuse())
    }

    /// Returns true if a process serves it.
    pub(crate) fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }
}

/// All mounts that this process sees, in the order in which they were made.
pub(crate) fn read() -> io::Result<Vec<Mount>> {
    Ok(std::fs::read(MOUNTINFO)?.split(|b| *b == b'\n').filter_map(parse_line).collect())
}

/// The mount that shows at this path: the last one there.
pub(crate) fn topmost<'a>(mounts: &'a [Mount], target: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.target == target)
}

/// `36 35 98:0 /root /target rw,noatime master:1 - ext3 /dev/root rw` (proc(5)).
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let target = fields.nth(4)?;
    let mut after = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(after.next()?).into_owned();
    let source = OsString::from_vec(unescape(after.next()?));
    Some(Mount { target: PathBuf::from(OsString::from_vec(unescape(target))), kind, source })
}

/// Space, tab, newline and backslash stand there as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = |digits: &[u8]| digits.iter().all(|d| matches!(d, b'0'..=b'7'));
        match tail.get(..3) {
            Some(digits) if first == b'\\' && octal(digits) => {
                let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                plain.push(u8::try_from(value).unwrap_or(b'?'));
                rest = &tail[3..];
            }
            _ => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let none = ("", "", "", false);
        let cases = [
            ("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw", ("/mnt2", "ext3", "/dev/root", false)),
            (
                "40 30 0:50 / /a\\040b\\134c ro - overlay imagelet ro,lowerdir=x",
                ("/a b\\c", "overlay", "imagelet", true),
            ),
            ("40 30 0:50 / /x ro shared:1 master:2 - tmpfs imagelet ro", ("/x", "tmpfs", "imagelet", true)),
            ("40 30 0:50 / /x ro - fuse.erofs imagelet ro", ("/x", "fuse.erofs", "imagelet", true)),
            ("40 30 0:50 / /x ro - ext4 imagelet ro", ("/x", "ext4", "imagelet", false)),
            ("40 30 0:50 / /x ro - erofs /a/3/imagelet ro", ("/x", "erofs", "/a/3/imagelet", true)),
            ("40 30 0:50 / /x ro - erofs /a/imagelet/3 ro", ("/x", "erofs", "/a/imagelet/3", false)),
            ("40 30 0:50 / /x ro - ext4 /a/3/imagelet ro", ("/x", "ext4", "/a/3/imagelet", false)),
            ("40 30 0:50 / /x ro", none),
            ("", none),
        ];
        for (line, want) in cases {
            let got = parse_line(line.as_bytes());
            let got = got.as_ref().map_or(none, |m| {
                (m.target.to_str().expect("text"), m.kind.as_str(), m.source.to_str().expect("text"), m.is_ours())
            });
            assert_eq!(got, want, "{line}");
        }
    }

    #[test]
    fn the_last_mount_wins() {
        let mount = |kind: &str| Mount { target: "/t".into(), kind: kind.into(), source: SOURCE.into() };
        let mounts = [mount("ext4"), mount("overlay")];
        assert_eq!(topmost(&mounts, Path::new("/t")), Some(&mounts[1]));
        assert_eq!(topmost(&mounts, Path::new("/u")), None);
    }

    #[test]
    fn this_process_has_a_root() {
        assert!(topmost(&read().expect("readable"), Path::new("/")).is_some());
    }
}
