//! The files of one log: [`LogLocation`] of the one that is written now, and the rotated ones next to it. Opens regular files only
//! and follows no link. Used by reading and by rotation.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cri_api::ContainerStatus;

use crate::config::pod_log_directory_name;
use crate::labels::PodOwner;
use crate::volumes::place::OpenDirectory;

/// Suffix of compressed files.
pub(super) const COMPRESSED: &str = ".gz";
/// Suffix of files that are not complete.
pub(super) const UNFINISHED: &str = ".tmp";

/// A log file after a rotation.
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

/// Files that belong to a log, without the one that is written now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogFiles {
    /// Rotated logs, the oldest first.
    pub(super) rotated: Vec<RotatedLog>,
    /// Names of files that a killed program left: unfinished ones, and plain ones of which there is a compressed one.
    pub(super) left: Vec<String>,
}

/// Sorts the names in a log's directory into rotated logs and leftovers of this log.
pub(super) fn rotated_and_leftovers(log: &str, names: impl IntoIterator<Item = String>) -> LogFiles {
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
            found.rotated.push(RotatedLog { when: when.to_owned(), compressed });
        }
    }
    found.rotated.sort();
    // A compressed file is complete once it has its name, so a plain one of the same time is a leftover. Plain ones sort first.
    let mut index = 1;
    while index < found.rotated.len() {
        if found.rotated[index - 1].when == found.rotated[index].when {
            found.left.push(found.rotated.remove(index - 1).name(log));
        } else {
            index += 1;
        }
    }
    found
}

/// Location of a container's log as its runtime reports it. The directory of all logs is where an administrator wants it; below it
/// no link is followed, because a pod that may write there could put one in the place of a log or of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLocation {
    path: PathBuf,
    /// Directory up to which links are followed.
    root: PathBuf,
    /// Names of the directories below it.
    directories: Vec<String>,
    file: String,
}

impl LogLocation {
    /// Returns the location of a container's log by the container's status; `None` if the runtime keeps no log.
    #[must_use]
    pub fn of(status: &ContainerStatus) -> Option<Self> {
        (!status.log_path.is_empty()).then(|| Self::new(Path::new(&status.log_path), &status.labels))
    }

    /// Returns the location of the log at `path`. A log of a pod is at `POD/CONTAINER/N.log` in the directory of all logs, where a
    /// kubelet and this program put it; the log of another container is in a directory of its own.
    pub(crate) fn new(path: &Path, labels: &BTreeMap<String, String>) -> Self {
        let name = |path: &Path| path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let file = name(path);
        let directory = path.parent().unwrap_or(Path::new(""));
        let pod = directory.parent().unwrap_or(Path::new(""));
        let is_of_pod = PodOwner::from_labels(labels).is_some_and(|owner| name(pod) == pod_log_directory_name(&owner));
        let (root, directories) = match pod.parent().filter(|_| is_of_pod) {
            Some(root) => (root, vec![name(pod), name(directory)]),
            None => (directory, Vec::new()),
        };
        Self { path: path.to_owned(), root: root.to_owned(), directories, file }
    }

    /// Path of the log, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Name of the log in its directory.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Opens the directory of the log.
    pub(crate) fn open_directory(&self) -> io::Result<OpenDirectory> {
        let mut directory = OpenDirectory::open(&self.root)?;
        for name in &self.directories {
            directory = directory.child(name)?;
        }
        Ok(directory)
    }
}

/// Device and inode: what identifies a file whatever its name is.
pub(super) fn identity(file: &File) -> io::Result<(u64, u64)> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_above_the_directory_of_all_logs_only() {
        let labels: BTreeMap<String, String> = [
            ("io.kubernetes.pod.namespace", "shop"),
            ("io.kubernetes.pod.name", "web"),
            ("io.kubernetes.pod.uid", "u"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        std::fs::create_dir_all(at("disk/pods/shop_web_u/main")).unwrap();
        std::fs::create_dir_all(at("secret/main")).unwrap();
        std::fs::write(at("disk/pods/shop_web_u/main/0.log"), "log").unwrap();
        std::fs::write(at("secret/main/0.log"), "secret").unwrap();
        std::os::unix::fs::symlink(at("disk"), at("log")).unwrap();
        let read = || {
            let location = LogLocation::new(&at("log/pods/shop_web_u/main/0.log"), &labels);
            assert_eq!(location.path(), at("log/pods/shop_web_u/main/0.log"));
            let directory = location.open_directory()?;
            std::io::read_to_string(directory.read(location.file())?)
        };
        assert_eq!(read().unwrap(), "log");
        // The file, the directory of the container and that of the pod.
        for (link, to) in [
            ("disk/pods/shop_web_u/main/0.log", "secret/main/0.log"),
            ("disk/pods/shop_web_u/main", "secret/main"),
            ("disk/pods/shop_web_u", "secret"),
        ] {
            std::fs::rename(at(link), at("kept")).unwrap();
            std::os::unix::fs::symlink(at(to), at(link)).unwrap();
            assert!(read().is_err(), "{link}");
            std::fs::remove_file(at(link)).unwrap();
            std::fs::rename(at("kept"), at(link)).unwrap();
        }
        assert_eq!(read().unwrap(), "log");
    }

    #[test]
    fn files_next_to_a_log_are_classified() {
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
        let found = rotated_and_leftovers("0.log", names.map(str::to_owned));
        let rotated: Vec<String> = found.rotated.iter().map(|rotated| rotated.name("0.log")).collect();
        assert_eq!(rotated, ["0.log.20260101-000000.gz", "0.log.20260102-000000", "0.log.20260103-000000.gz"]);
        assert_eq!(found.left, ["0.log.20260104-000000.gz.tmp", "0.log.20260104-000000.tmp", "0.log.20260103-000000"]);
    }
}
