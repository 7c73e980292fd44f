//! Where things are under the store's root, and the directories that are held open. Knows names and file descriptors;
//! what the directories mean is the business of the other modules.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};

use crate::disk::layer::LayerId;

pub(crate) const LOCK: &str = "lock";
pub(crate) const VERSION: &str = "version";
pub(crate) const VERSION_NEW: &str = "version.new";
pub(crate) const DATABASE: &str = "meta.redb";
pub(crate) const INGEST: &str = "ingest";
pub(crate) const LAYERS: &str = "layers";
/// Made with the first blob that is kept.
pub(crate) const BLOBS: &str = "blobs";
pub(crate) const RESERVE: &str = "reserve";
/// Within a layer's directory: the tree itself.
pub(crate) const FS: &str = "fs";
/// Within a layer's directory: the EROFS file.
pub(crate) const EROFS_FILE: &str = "layer.erofs";
/// Within a layer's directory: an empty directory for overlayfs, which wants two lower ones.
pub(crate) const EMPTY: &str = "empty";

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// The open directories of a store.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) path: PathBuf,
    pub(crate) root: OwnedFd,
    pub(crate) ingest: OwnedFd,
    pub(crate) layers: OwnedFd,
}

impl Layout {
    /// Opens the directories, and makes those that are missing.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        for name in [INGEST, LAYERS] {
            match rustix::fs::mkdirat(&root, name, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ingest = open_directory(&root, INGEST)?;
        let layers = open_directory(&root, LAYERS)?;
        Ok(Self { path: path.to_owned(), root, ingest, layers })
    }

    pub(crate) fn layer_path(&self, id: LayerId) -> PathBuf {
        self.path.join(LAYERS).join(id.to_string())
    }

    pub(crate) fn blob_path(&self, number: u64) -> PathBuf {
        self.path.join(BLOBS).join(number.to_string())
    }

    pub(crate) fn ingest_path(&self, number: u64) -> PathBuf {
        self.path.join(INGEST).join(number.to_string())
    }

    /// The layer's own directory.
    pub(crate) fn open_layer(&self, id: LayerId) -> io::Result<OwnedFd> {
        open_directory(&self.layers, &id.to_string())
    }

    /// Returns true if files of a layer are left that was to be deleted.
    pub(crate) fn has_remains(&self, id: LayerId) -> bool {
        let is_there =
            |directory: &OwnedFd, name: &str| rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        is_there(&self.layers, &id.to_string()) || is_there(&self.ingest, &format!("trash-{id}"))
    }

    /// Returns true if a blob is left that was to be deleted.
    pub(crate) fn has_blob(&self, number: u64) -> bool {
        rustix::fs::statat(&self.root, format!("{BLOBS}/{number}"), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}

/// Where the tree of a layer of directories is under `layers/`.
pub(crate) fn tree_of(id: LayerId) -> String {
    format!("{id}/{FS}")
}

/// Opens a directory below another one; the last component is never followed.
pub(crate) fn open_directory(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?)
}

/// The names in a directory that is given by path.
pub(crate) fn names(path: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Writes a small file so that after a kill it is whole or absent. Nothing is synced.
pub(crate) fn write_whole(directory: &OwnedFd, name: &str, temporary: &str, content: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(rustix::fs::openat(directory, temporary, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(content)?;
    rustix::fs::renameat(directory, temporary, directory, name)?;
    Ok(())
}

/// Makes `path` and its parents; only what is new gets the narrow mode.
pub(crate) fn create_root(path: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => return Ok(()),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    match rustix::fs::mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The number that a directory is named by.
pub(crate) fn number(name: &OsString) -> Option<u64> {
    name.to_str()?.parse().ok()
}

pub(crate) fn c_name(name: OsString) -> CString {
    CString::new(name.into_vec()).expect("file names have no zero byte")
}

/// Removes the notes that vouch for whole layers. Something could not be written, and it is unknown to which layer it belonged:
/// none of the noted layers can be trusted, not by another process either, which would find in memory what is not on the disk.
pub(crate) fn forget_layers(root: &OwnedFd) -> std::io::Result<()> {
    let ingest = open_directory(root, INGEST)?;
    for entry in Dir::read_from(&ingest)? {
        let entry = entry?;
        if entry.file_name().to_bytes().ends_with(b".layer") {
            rustix::fs::unlinkat(&ingest, entry.file_name(), AtFlags::empty())?;
        }
    }
    Ok(())
}
