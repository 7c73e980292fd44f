//! [`PodDiskUse`]: the parts of a node's disk that a pod uses. [`measure`] counts a directory tree without following links. Blocks.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, CString};
use std::ops::AddAssign;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::pod::Pod;

/// A part of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskAmount {
    /// Allocated bytes.
    pub bytes: u64,
    pub inodes: u64,
}

impl AddAssign for DiskAmount {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// Disk use of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerDiskUse {
    pub writable_layer: DiskAmount,
    pub logs: DiskAmount,
}

/// Disk use of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodDiskUse {
    pub pod: Arc<Pod>,
    /// Containers by name.
    pub containers: BTreeMap<String, ContainerDiskUse>,
    /// Volumes on the node's disk by name.
    pub volumes: BTreeMap<String, DiskAmount>,
}

impl PodDiskUse {
    /// The sum of everything.
    pub(super) fn total(&self) -> DiskAmount {
        let mut total = DiskAmount::default();
        for container in self.containers.values() {
            total += container.writable_layer;
            total += container.logs;
        }
        self.volumes.values().for_each(|volume| total += *volume);
        total
    }
}

/// Measures a directory and everything below it, on its file system. A file with several names counts once; what vanishes meanwhile is
/// passed over, and a directory that is not there takes nothing.
///
/// # Errors
/// A directory cannot be read.
pub(super) fn measure(root: &Path) -> std::io::Result<DiskAmount> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = match rustix::fs::openat(CWD, root, flags, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Ok(DiskAmount::default()),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&root)?;
    let mut tree =
        DiskUseTree { root: root.as_fd(), device: stat.st_dev, linked: HashSet::new(), amount: DiskAmount::default() };
    tree.count(&stat);
    let mut ahead = vec![CString::from(c".")];
    while let Some(path) = ahead.pop() {
        match tree.directory(&path, &mut ahead) {
            // Deleted since, or somebody mounted or linked something there.
            Ok(()) | Err(Errno::NOENT | Errno::XDEV | Errno::LOOP | Errno::NOTDIR | Errno::NAMETOOLONG) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(tree.amount)
}

/// A tree that is counted.
struct DiskUseTree<'a> {
    root: BorrowedFd<'a>,
    device: u64,
    /// Inodes with several names that were counted.
    linked: HashSet<u64>,
    amount: DiskAmount,
}

impl DiskUseTree<'_> {
    fn count(&mut self, stat: &rustix::fs::Stat) {
        if stat.st_nlink > 1 && !is_directory(stat) && !self.linked.insert(stat.st_ino) {
            return;
        }
        self.amount += DiskAmount { bytes: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512), inodes: 1 };
    }

    /// Counts the entries of a directory, and adds the directories among them to `ahead`.
    fn directory(&mut self, path: &CStr, ahead: &mut Vec<CString>) -> Result<(), Errno> {
        let directory = self.open(path)?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if stat.st_dev == self.device => stat,
                Ok(_) | Err(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            };
            self.count(&stat);
            if is_directory(&stat) {
                let below = [path.to_bytes(), b"/", name.to_bytes()].concat();
                ahead.extend(CString::new(below));
            }
        }
        Ok(())
    }

    /// Opens a directory below the root over no link and no mount.
    fn open(&self, path: &CStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        rustix::fs::openat2(self.root, path, flags, Mode::empty(), resolve)
    }
}

fn is_directory(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_tree_is_counted_once_and_without_links() {
        let outside = tempfile::tempdir().expect("a directory");
        fs::write(outside.path().join("big"), vec![1; 1 << 20]).expect("write");
        let root = tempfile::tempdir().expect("a directory");
        let empty = measure(root.path()).expect("measured");
        assert_eq!(empty.inodes, 1);
        fs::create_dir_all(root.path().join("a/b")).expect("directories");
        fs::write(root.path().join("a/b/file"), vec![1; 64 << 10]).expect("write");
        fs::hard_link(root.path().join("a/b/file"), root.path().join("again")).expect("a link");
        symlink(outside.path(), root.path().join("out")).expect("a link");
        let full = measure(root.path()).expect("measured");
        assert_eq!(full.inodes - empty.inodes, 4);
        assert!((64 << 10..512 << 10).contains(&(full.bytes - empty.bytes)), "{full:?}");
    }

    #[test]
    fn what_is_not_there_takes_nothing() {
        assert_eq!(measure(Path::new("/nonexistent/volume")).expect("measured"), DiskAmount::default());
    }
}
