//! [`StoreIdentity`]: detects that the root, lock or database of an open store was moved, replaced or deleted. Every change of the
//! database checks it, so that nothing is written to a place that cannot be found again, nor in parallel with a second process
//! that has another lock.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::layout;

/// Device and inode.
type DeviceAndInode = (u64, u64);

/// The identities of the root, lock, database and directories of an open store.
#[derive(Debug)]
pub(crate) struct StoreIdentity {
    root: PathBuf,
    /// By name below the root; the root itself has the empty name.
    parts: Vec<(&'static str, DeviceAndInode)>,
}

impl StoreIdentity {
    /// Reads the identities as they are now.
    pub(crate) fn of(root: &Path) -> io::Result<Self> {
        let parts = ["", layout::LOCK, layout::DATABASE, layout::INGEST, layout::LAYERS];
        let parts = parts.into_iter().map(|name| Ok((name, identity(&path(root, name))?)));
        Ok(Self { root: root.to_owned(), parts: parts.collect::<io::Result<_>>()? })
    }

    /// Describes the first part that is no longer where it was.
    pub(crate) fn displaced(&self) -> io::Result<Option<String>> {
        for (name, known) in &self.parts {
            let path = path(&self.root, name);
            let why = match identity(&path) {
                Ok(found) if found == *known => continue,
                Ok(_) => "another file is in its place",
                Err(error) if error.kind() == io::ErrorKind::NotFound => "it no longer exists",
                Err(error) => return Err(error),
            };
            return Ok(Some(format!("{} is not what was opened: {why}", path.display())));
        }
        Ok(None)
    }
}

fn path(root: &Path, name: &str) -> PathBuf {
    if name.is_empty() { root.to_owned() } else { root.join(name) }
}

/// A symbolic link that was put in the place of the root is not the root.
fn identity(path: &Path) -> io::Result<DeviceAndInode> {
    let stat = rustix::fs::stat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}
