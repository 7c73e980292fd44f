//! Lists directories and reads files, for [`super::directory`], on threads that may block. Opens nothing that is not a
//! regular file, and reads no more than a manifest has.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::FileIdentity;
use jiff::Timestamp;

use super::files::ListedFile;
use super::inotify::Watcher;
use super::options::MAX_MANIFEST;

/// Age of the last write from which a file counts as complete. Some file systems count in whole seconds.
const RESTED: Duration = Duration::from_secs(2);

/// The watches of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Watches {
    /// Watch of the path, if that is a directory.
    pub(super) own: Option<i32>,
    /// Watch of the parent directory.
    pub(super) parent: Option<i32>,
}

/// Files at a path.
pub(super) struct Listing {
    pub(super) watches: Watches,
    /// True if the path is a directory; `None` if it is absent.
    pub(super) is_directory: Option<bool>,
    /// The device of the directory.
    pub(super) device: Option<u64>,
    /// The files by name, which is empty for a single file. An absent path is an error, since its content is unknown.
    pub(super) files: io::Result<BTreeMap<OsString, ListedFile>>,
}

/// Watches `path`, and then lists it.
pub(super) fn list(path: &Path, watcher: Option<&Watcher>, before: Watches, now: Timestamp) -> Listing {
    let mut watches = Watches::default();
    if let Some(watcher) = watcher {
        watches.parent = path.parent().and_then(|parent| watcher.add(parent).ok());
        watches.own = watcher.add(path).ok();
        for old in [before.own, before.parent].into_iter().flatten() {
            if ![watches.own, watches.parent].contains(&Some(old)) {
                watcher.remove(old);
            }
        }
    }
    let (is_directory, device, files) = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => (Some(true), Some(metadata.dev()), entries(path, now)),
        Ok(metadata) => (Some(false), None, Ok(BTreeMap::from([(OsString::new(), listed(&metadata, now))]))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match std::fs::symlink_metadata(path) {
            Ok(_) => (None, None, Err(io::Error::other("it is a link to what is not there"))),
            Err(error) => (None, None, Err(error)),
        },
        Err(error) => (None, None, Err(error)),
    };
    Listing { watches, is_directory, device, files }
}

/// Returns true if a file that is absent from the directory at `path` was removed from it: the directory can be read, and is on the
/// device on which its files were.
pub(super) fn absence_is_certain(path: &Path, device: Option<u64>) -> bool {
    let directory = std::fs::metadata(path).ok().filter(Metadata::is_dir);
    directory.is_some_and(|directory| device.is_none_or(|device| directory.dev() == device))
}

fn entries(directory: &Path, now: Timestamp) -> io::Result<BTreeMap<OsString, ListedFile>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_hidden(&name) {
            continue;
        }
        match std::fs::metadata(entry.path()).or_else(|_| std::fs::symlink_metadata(entry.path())) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) => {
                files.insert(name, listed(&metadata, now));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// Returns true for ignored names: temporary files, and the links and directories of a mounted volume.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// Returns the path of a listed file.
pub(super) fn path_of(path: &Path, name: &OsStr) -> PathBuf {
    if name.is_empty() { path.to_owned() } else { path.join(name) }
}

fn listed(metadata: &Metadata, now: Timestamp) -> ListedFile {
    let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    let age = i128::from(now.as_second()) * 1_000_000_000 - modified;
    let rested = u128::try_from(age).is_ok_and(|age| age >= RESTED.as_nanos());
    ListedFile { ident: FileIdentity::from(metadata), rested }
}

/// Returns true if every user can enter the directory of a file. Otherwise the file's own permissions do not matter.
pub(super) fn is_open(path: &Path) -> bool {
    path.parent().and_then(|parent| std::fs::metadata(parent).ok()).is_none_or(|metadata| metadata.mode() & 0o001 != 0)
}

/// Result of reading a file.
pub(super) enum FileContent {
    /// Content of the file, and its mode if every user can read it.
    Read(FileIdentity, Vec<u8>, Option<u32>),
    /// The reason why the file cannot be used.
    Unusable(Option<FileIdentity>, String),
    Absent,
    Directory,
}

pub(super) fn read(path: &Path) -> FileContent {
    for _ in 0..3 {
        match read_once(path) {
            Ok(Some(text)) => return text,
            // The file changed meanwhile.
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match std::fs::symlink_metadata(path) {
                    Ok(_) => FileContent::Unusable(None, "it is a link to what is not there".to_owned()),
                    Err(_) => FileContent::Absent,
                };
            }
            Err(error) => return FileContent::Unusable(None, error.to_string()),
        }
    }
    FileContent::Unusable(None, "it changes all the time".to_owned())
}

fn read_once(path: &Path) -> io::Result<Option<FileContent>> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).expect("the flags are small numbers");
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let before = FileIdentity::from(&metadata);
    if metadata.is_dir() {
        return Ok(Some(FileContent::Directory));
    }
    let unusable = |reason: String| Ok(Some(FileContent::Unusable(Some(before), reason)));
    if !metadata.is_file() {
        return unusable("it is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    (&file).take(MAX_MANIFEST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_MANIFEST {
        return unusable(format!("it has more than {} MiB, which no manifest has", MAX_MANIFEST >> 20));
    }
    let after = FileIdentity::from(&file.metadata()?);
    let open = (metadata.mode() & 0o004 != 0).then_some(metadata.mode() & 0o7777);
    Ok((before == after).then_some(FileContent::Read(before, bytes, open)))
}
