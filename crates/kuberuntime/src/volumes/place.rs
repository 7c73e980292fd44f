//! Paths of pods' files, by the kubelet's names: `UID/volumes/PLUGIN/VOLUME`, `UID/volume-subpaths/…`,
//! `UID/containers/…`. [`OpenDirectory`] is one of these directories, open: everything in it is reached over its
//! descriptor, and no link in it is followed. Used by all code of this folder, and by the rotation of logs.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::pod::VolumeSource;

/// Mode of the directories that only this program reads.
pub(crate) const PRIVATE: u32 = 0o750;
/// Longest name of a file.
const LONGEST_NAME: usize = 255;

/// A directory of ours.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    handle: OwnedFd,
    path: PathBuf,
}

impl OpenDirectory {
    /// Opens one that lies where an administrator wants it: links on the way are theirs.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { handle: rustix::fs::open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// Returns the path, for runtimes and messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the directory of this name in it.
    pub(crate) fn child(&self, name: &str) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.handle, one_name(name)?, flags, Mode::empty())?;
        Ok(Self { handle, path: self.path.join(name) })
    }

    /// Opens the directory of this name, and creates it with this mode if it is missing.
    pub(crate) fn made(&self, name: &str, mode: u32) -> io::Result<Self> {
        match self.child(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        match rustix::fs::mkdirat(&self.handle, name, Mode::from_raw_mode(mode)) {
            Ok(()) => {
                let made = self.child(name)?;
                rustix::fs::fchmod(&made.handle, Mode::from_raw_mode(mode))?;
                Ok(made)
            }
            Err(Errno::EXIST) => self.child(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file of this name, which must not exist yet.
    pub(crate) fn new_file(&self, name: &str, mode: u32) -> io::Result<std::fs::File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.handle, one_name(name)?, flags, Mode::from_raw_mode(mode & 0o600))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(file.into())
    }

    /// Opens a file of this name for reading and writing, and creates it if it is missing.
    pub(crate) fn file(&self, name: &str, mode: u32) -> io::Result<std::fs::File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.handle, one_name(name)?, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Opens a regular file of this name for reading.
    pub(crate) fn read(&self, name: &str) -> io::Result<std::fs::File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = std::fs::File::from(rustix::fs::openat(&self.handle, one_name(name)?, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no ordinary file")) }
    }

    /// Type and length in bytes of the file of this name, links not followed.
    pub(crate) fn stat(&self, name: &str) -> io::Result<(FileType, u64)> {
        let found = rustix::fs::statat(&self.handle, one_name(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((FileType::from_raw_mode(found.st_mode), u64::try_from(found.st_size).unwrap_or_default()))
    }

    /// Gives what is called `from` the name `to`, whatever has that.
    pub(crate) fn rename_over(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, one_name(from)?, &self.handle, one_name(to)?)?)
    }

    /// Gives what is called `from` the name `to`, which must be free.
    pub(crate) fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let handle = &self.handle;
        match rustix::fs::renameat_with(handle, one_name(from)?, handle, one_name(to)?, RenameFlags::NOREPLACE) {
            // The file system does not support the flag. No other process creates names in these directories.
            Err(Errno::INVAL) => Ok(rustix::fs::renameat(handle, from, handle, to)?),
            done => Ok(done?),
        }
    }

    /// Takes a name away that is no directory's. Absent is fine.
    pub(crate) fn unlink(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.handle, one_name(name)?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the names in it, sorted. Names that are not UTF-8 belong to no pod and are skipped.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.handle)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Checks that a text is a name in a directory, and not a path.
pub(crate) fn one_name(text: &str) -> io::Result<&str> {
    let way_out = text.is_empty() || text == "." || text == ".." || text.len() > LONGEST_NAME;
    if way_out || text.bytes().any(|b| b == b'/' || b == 0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{text:?} is not a name in a directory")));
    }
    Ok(text)
}

/// Returns the path as text: runtimes accept no other.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not text", path.display())))
}

/// Returns true for names of files that are not complete, or are of the volume's own making.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"..")
}

/// The directory of all volumes of a pod.
pub(super) const VOLUMES: &str = "volumes";
/// The directory of the files of a pod's containers.
pub(crate) const CONTAINERS: &str = "containers";

/// Returns the directory of a volume's plugin, by the kubelet's name; `None` for volumes without one on the node.
pub(super) fn plugin_directory(source: VolumeSource<'_>) -> Option<&'static str> {
    match source {
        VolumeSource::EmptyDir(_) => Some("kubernetes.io~empty-dir"),
        VolumeSource::ConfigMap(_) => Some("kubernetes.io~configmap"),
        VolumeSource::Secret(_) => Some("kubernetes.io~secret"),
        VolumeSource::DownwardApi(_) => Some("kubernetes.io~downward-api"),
        VolumeSource::Projected(_) => Some("kubernetes.io~projected"),
        VolumeSource::HostPath(_) | VolumeSource::Image(_) => None,
    }
}
