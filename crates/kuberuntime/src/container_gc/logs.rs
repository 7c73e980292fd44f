//! Logs on disk: `/var/log/pods/NAMESPACE_NAME_UID/CONTAINER/N.log`, and the links `/var/log/containers/*.log` to them. Scans
//! and removes below the two directories it is given and nowhere else: no link is ever followed. Everything here blocks;
//! the collector calls it off the async threads.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use crate::volumes::place::{OpenDirectory, one_name};
use crate::volumes::remove::remove_tree;

/// Directories of logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirectories {
    /// Directory with a subdirectory for each pod.
    pub pods: PathBuf,
    /// Directory with a link for each container; `None` where no links are made.
    pub links: Option<PathBuf>,
}

impl Default for LogDirectories {
    /// Returns the kubelet's directories.
    fn default() -> Self {
        Self { pods: "/var/log/pods".into(), links: Some("/var/log/containers".into()) }
    }
}

/// Result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogInventory {
    /// Entries of the pods' directory.
    pub directories: Vec<PodLogDirectory>,
    /// Links to logs of pods that are not there.
    pub dangling: Vec<ContainerLink>,
}

/// An entry of the pods' directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodLogDirectory {
    /// Name in the directory of links.
    pub name: String,
    /// The pod that it is of; `None`: it is no directory, or has another name.
    pub pod: Option<LogOwner>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogOwner {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A link to a container's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerLink {
    /// Name of the directory.
    pub name: String,
    /// The container's id, or the beginning of it where the whole name would be too long; empty: not to be seen.
    pub container_id: String,
}

const SUFFIX: &str = ".log";
/// Longest name of a file.
const LONGEST_NAME: usize = 255;

impl LogOwner {
    /// Parses the name of a pod's log directory.
    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('_').filter(|part| !part.is_empty());
        let owner = Self { namespace: parts.next()?.into(), name: parts.next()?.into(), uid: parts.next()?.into() };
        // No part has an underscore: another one, or two in a row, make it another name.
        (name.matches('_').count() == 2).then_some(owner)
    }
}

/// Returns the name of the link to a container's log, cut like in the kubelet.
pub(crate) fn link_name(pod: &str, namespace: &str, container: &str, id: &str) -> String {
    let mut name = format!("{pod}_{namespace}_{container}-{id}");
    let mut longest = LONGEST_NAME - SUFFIX.len();
    while !name.is_char_boundary(longest.min(name.len())) {
        longest -= 1;
    }
    name.truncate(longest);
    name + SUFFIX
}

impl LogDirectories {
    /// Lists all logs and links. Directories that are absent are empty.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(crate) fn scan(&self) -> io::Result<LogInventory> {
        let mut found = LogInventory::default();
        for (name, kind) in entries(&self.pods)? {
            let pod = if kind.is_dir() { LogOwner::parse(&name) } else { None };
            found.directories.push(PodLogDirectory { name, pod });
        }
        let Some(links) = &self.links else { return Ok(found) };
        for (name, kind) in entries(links)? {
            let Some(stem) = name.strip_suffix(SUFFIX).filter(|_| kind.is_symlink()) else { continue };
            let path = links.join(&name);
            // A link to logs outside of the pods' directory belongs to another program.
            if !fs::read_link(&path).is_ok_and(|to| to.starts_with(&self.pods)) {
                continue;
            }
            // Only whether it leads somewhere is asked; nothing is done there.
            if matches!(fs::metadata(&path), Err(e) if e.kind() == io::ErrorKind::NotFound) {
                let container_id = stem.rsplit_once('-').map(|(_, id)| id.to_owned()).unwrap_or_default();
                found.dangling.push(ContainerLink { name, container_id });
            }
        }
        Ok(found)
    }

    /// Removes the directory of a pod with all that is in it, after the links that lead there.
    ///
    /// # Errors
    /// The first entry that could not be removed; the rest is removed. An absent directory is no error.
    pub(super) fn remove_directory(&self, name: &str) -> io::Result<()> {
        let directory = self.pods.join(one_name(name)?);
        let mut result = Ok(());
        for link in self.links_below(&directory)? {
            result = result.and(self.remove_link(&link));
        }
        let removed = OpenDirectory::open(&self.pods).and_then(|pods| remove_tree(pods.as_fd(), name));
        result.and(ignore_not_found(removed))
    }

    /// Removes a link.
    ///
    /// # Errors
    /// The link could not be removed, or is no link and stays. An absent link is no error.
    pub(crate) fn remove_link(&self, name: &str) -> io::Result<()> {
        let Some(links) = &self.links else { return Ok(()) };
        let path = links.join(one_name(name)?);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => ignore_not_found(fs::remove_file(path)),
            Ok(_) => Err(io::Error::other("it is no link")),
            Err(error) => ignore_not_found(Err(error)),
        }
    }

    /// Returns the numbers of the logs in a container's directory, in order, rotated ones included.
    pub(crate) fn numbers(&self, directory: &Path) -> Vec<u32> {
        let names = self.names_below(directory).unwrap_or_default();
        let number = |name: &str| {
            let (number, rest) = name.split_once('.')?;
            (rest == "log" || rest.starts_with("log.")).then(|| number.parse::<u32>().ok()).flatten()
        };
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| number(name)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns the names in a directory below that of the pods. Links are not followed.
    fn names_below(&self, directory: &Path) -> io::Result<Vec<String>> {
        let Ok(below) = directory.strip_prefix(&self.pods) else { return Ok(Vec::new()) };
        let mut opened = OpenDirectory::open(&self.pods)?;
        for component in below.components() {
            let Component::Normal(name) = component else { return Ok(Vec::new()) };
            opened = opened.child(name.to_str().unwrap_or_default())?;
        }
        opened.names()
    }

    /// Creates a link to a container's log, which is below the pods' directory, and replaces an existing one.
    ///
    /// # Errors
    /// The link cannot be created.
    pub(crate) fn link(&self, name: &str, log: &Path) -> io::Result<()> {
        let Some(links) = &self.links else { return Ok(()) };
        self.remove_link(name)?;
        fs::DirBuilder::new().recursive(true).mode(0o755).create(links)?;
        std::os::unix::fs::symlink(log, links.join(one_name(name)?))
    }

    /// Removes the logs of a pod with the links to them, and nothing else.
    ///
    /// # Errors
    /// The first entry that could not be removed; the rest is removed.
    pub(crate) fn remove_pod(&self, uid: &str) -> io::Result<()> {
        let is_of = |owner: LogOwner| owner.uid == uid;
        let mut result = Ok(());
        for (name, kind) in entries(&self.pods)? {
            if !kind.is_dir() || !LogOwner::parse(&name).is_some_and(is_of) {
                continue;
            }
            result = result.and(self.remove_directory(&name));
        }
        result
    }

    /// Returns the links to files below a directory.
    fn links_below(&self, directory: &Path) -> io::Result<Vec<String>> {
        let Some(links) = &self.links else { return Ok(Vec::new()) };
        let is_below = |name: &str| fs::read_link(links.join(name)).is_ok_and(|to| to.starts_with(directory));
        let names = entries(links)?.into_iter().filter(|(name, kind)| kind.is_symlink() && is_below(name));
        Ok(names.map(|(name, _)| name).collect())
    }

    /// Removes a container's log with its rotated logs: `0.log`, `0.log.20260101-000000`. Returns how many files were
    /// removed. A path that is not below the pods' directory, or leads there over a link, is not touched.
    ///
    /// # Errors
    /// When a file stays.
    pub(crate) fn remove_log(&self, path: &Path) -> io::Result<usize> {
        let Ok(below) = path.strip_prefix(&self.pods) else { return Ok(0) };
        let mut names = Vec::new();
        for component in below.components() {
            let Component::Normal(name) = component else { return Ok(0) };
            names.push(name);
        }
        let Some((file, directories)) = names.split_last() else { return Ok(0) };
        let Some(directory) = open_below(&self.pods, directories)? else { return Ok(0) };
        let turned: Vec<u8> = [file.as_encoded_bytes(), b"."].concat();
        let mut removed = 0;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == file.as_encoded_bytes() || name.starts_with(&turned) {
                match rustix::fs::unlinkat(&directory, entry.file_name(), AtFlags::empty()) {
                    Ok(()) => removed += 1,
                    Err(rustix::io::Errno::NOENT | rustix::io::Errno::ISDIR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(removed)
    }
}

/// Opens the directory below `root` without following links. Returns `None` if it is absent or behind a link.
fn open_below(root: &Path, names: &[&OsStr]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let missing = |error: rustix::io::Errno| {
        use rustix::io::Errno;
        matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
    };
    let mut directory = match rustix::fs::open(root, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(error) if missing(error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    for name in names {
        directory = match rustix::fs::openat(&directory, *name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(below) => below,
            Err(error) if missing(error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Some(directory))
}

fn ignore_not_found(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Lists the entries whose names are UTF-8, sorted, with their types; links are not followed. No pod has logs under
/// other names.
fn entries(directory: &Path) -> io::Result<Vec<(String, fs::FileType)>> {
    let read = match fs::read_dir(directory) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in read {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string() {
            found.push((name, entry.file_type()?));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

#[cfg(test)]
#[path = "logs_tests.rs"]
mod tests;
