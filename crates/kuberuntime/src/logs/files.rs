//! The files of one log: the one that is written now, and those that were turned away from it. Finds and opens them; what
//! is no ordinary file is passed over. Used by reading and by rotation.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Suffix of compressed files.
pub(super) const COMPRESSED: &str = ".gz";
/// Suffix of files that are not complete.
pub(super) const UNFINISHED: &str = ".tmp";

/// A log that was turned away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RotatedLog {
    /// Suffix behind the log's name: the time of the rotation, which orders rotated logs.
    pub(super) when: String,
    pub(super) compressed: bool,
}

impl RotatedLog {
    pub(super) fn name(&self, log: &str) -> String {
        format!("{log}.{}{}", self.when, if self.compressed { COMPRESSED } else { "" })
    }
}

/// Files beside a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogFiles {
    /// Logs that were turned away, the oldest first.
    pub(super) turned: Vec<RotatedLog>,
    /// Names of files that a program left that was killed: unfinished ones, and those that there are compressed as well.
    pub(super) left: Vec<String>,
}

/// Sorts the names in a log's directory.
pub(super) fn beside(log: &str, names: impl IntoIterator<Item = String>) -> LogFiles {
    let mut found = LogFiles::default();
    for name in names {
        let Some(when) = name.strip_prefix(log).and_then(|rest| rest.strip_prefix('.')) else { continue };
        let (when, compressed) = match when.strip_suffix(COMPRESSED) {
            Some(when) => (when, true),
            None => (when, false),
        };
        if when.ends_with(UNFINISHED) {
            found.left.push(name);
        } else if when.starts_with(|c: char| c.is_ascii_digit()) {
            found.turned.push(RotatedLog { when: when.to_owned(), compressed });
        }
    }
    found.turned.sort();
    // A plain one stands before a compressed one of the same time, which is complete.
    let mut index = 1;
    while index < found.turned.len() {
        if found.turned[index - 1].when == found.turned[index].when {
            found.left.push(found.turned.remove(index - 1).name(log));
        } else {
            index += 1;
        }
    }
    found
}

/// Opens an ordinary file to read; nothing else makes it wait.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no ordinary file")) }
}

/// The names beside a log, and the log's own; a directory that is gone holds none.
pub(super) fn names_beside(path: &Path) -> io::Result<(String, Vec<String>)> {
    let log = path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut names = Vec::new();
    match std::fs::read_dir(directory) {
        Ok(entries) => {
            for entry in entries {
                names.extend(entry?.file_name().into_string());
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok((log, names))
}

/// Device and inode: what identifies a file whatever its name is.
pub(super) fn identity(file: &File) -> io::Result<(u64, u64)> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}

/// The path beside `path` with another name.
pub(super) fn sibling(path: &Path, name: &str) -> std::path::PathBuf {
    path.with_file_name(OsString::from(OsStr::from_bytes(name.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_beside_a_log() {
        let names = [
            "0.log",
            "0.log.20260102-000000",
            "0.log.20260101-000000.gz",
            "0.log.20260103-000000.gz",
            "0.log.20260103-000000",
            "0.log.20260104-000000.gz.tmp",
            "0.log.20260104-000000.tmp",
            "0.log.swp",
            "1.log",
            "10.log.20260101-000000",
        ];
        let found = beside("0.log", names.map(str::to_owned));
        let turned: Vec<String> = found.turned.iter().map(|turned| turned.name("0.log")).collect();
        assert_eq!(turned, ["0.log.20260101-000000.gz", "0.log.20260102-000000", "0.log.20260103-000000.gz"]);
        assert_eq!(found.left, ["0.log.20260104-000000.gz.tmp", "0.log.20260104-000000.tmp", "0.log.20260103-000000"]);
    }
}
