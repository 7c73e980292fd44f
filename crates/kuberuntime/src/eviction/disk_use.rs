//! [`PodDiskUse`]: the parts of a node's disk that a pod uses. [`measure`] counts a directory tree without following links. Blocks.

use std::collections::BTreeMap;
use std::io;
use std::ops::AddAssign;
use std::sync::Arc;

use base::{TreeWalkError, walk_tree};
use rustix::fs::{FileType, Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::pod::Pod;
use crate::volumes::place::OpenDirectory;

/// Measurements of one tree before it counts as one that changes too fast.
const TRIES: usize = 3;

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

/// Disk use of a directory tree to which a pod writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskUse {
    Measured(DiskAmount),
    /// The tree cannot be measured, for this reason. It counts as more than any limit: a pod cannot hide data in a tree that is hard to read.
    Unmeasurable(String),
}

impl Default for DiskUse {
    fn default() -> Self {
        Self::Measured(DiskAmount::default())
    }
}

impl DiskUse {
    /// Returns the amount, or the reason for which it is not known.
    pub(super) fn amount(&self) -> Result<DiskAmount, &str> {
        match self {
            Self::Measured(amount) => Ok(*amount),
            Self::Unmeasurable(reason) => Err(reason),
        }
    }
}

/// Disk use of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerDiskUse {
    /// Reported by the runtime.
    pub writable_layer: DiskAmount,
    pub logs: DiskUse,
}

impl ContainerDiskUse {
    /// Returns the bytes of the writable layer and the logs, or the reason for which they are unknown.
    pub(super) fn bytes(&self) -> Result<u64, &str> {
        Ok(self.writable_layer.bytes.saturating_add(self.logs.amount()?.bytes))
    }
}

/// Disk use of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodDiskUse {
    pub pod: Arc<Pod>,
    /// Containers by name.
    pub containers: BTreeMap<String, ContainerDiskUse>,
    /// Volumes on the node's disk by name.
    pub volumes: BTreeMap<String, DiskUse>,
}

impl PodDiskUse {
    /// Returns the sum of all parts, or the reason for which it is unknown.
    pub(super) fn total(&self) -> Result<DiskAmount, &str> {
        let mut total = DiskAmount::default();
        for container in self.containers.values() {
            total += container.writable_layer;
        }
        for tree in self.trees() {
            total += tree.amount()?;
        }
        Ok(total)
    }

    /// Returns the trees that were measured on this node.
    pub(super) fn trees(&self) -> impl Iterator<Item = &DiskUse> {
        self.containers.values().map(|container| &container.logs).chain(self.volumes.values())
    }
}

/// Reason for which a tree was not measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeasureError {
    /// This process is short of descriptors or memory, which is not the pod's fault: the next round measures again.
    #[error("{0}")]
    Shortage(io::Error),
    /// The tree itself.
    #[error("{0}")]
    Tree(io::Error),
}

impl From<io::Error> for MeasureError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Self::Shortage(error),
            _ => Self::Tree(error),
        }
    }
}

impl From<TreeWalkError> for MeasureError {
    fn from(error: TreeWalkError) -> Self {
        match error {
            TreeWalkError::Call { source: Errno::MFILE | Errno::NFILE | Errno::NOMEM, .. } => {
                Self::Shortage(io::Error::other(error))
            }
            error => Self::Tree(io::Error::other(error)),
        }
    }
}

/// Measures a directory and everything below it on its mount. A directory that is absent uses nothing.
pub(super) fn measure(root: io::Result<OpenDirectory>) -> Result<DiskAmount, MeasureError> {
    let root = match root {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DiskAmount::default()),
        opened => opened?,
    };
    let mut tries = 0;
    loop {
        tries += 1;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(&root, c".", flags, Mode::empty()).map_err(io::Error::from)?;
        let mut shares = Shares::default();
        match walk_tree(top, |file| shares.add(file)) {
            Ok(()) => return Ok(shares.amount()),
            Err(TreeWalkError::Moved) if tries < TRIES => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The sum of the files of a tree. A file with several names counts once, without a memory of the files that were counted: each name adds its share. All
/// names are in the tree, because a container can link within a mount only.
#[derive(Default)]
struct Shares {
    bytes: u128,
    inodes: u128,
}

impl Shares {
    /// Parts of a byte or an inode that are counted.
    const UNIT: u128 = 1 << 32;

    fn add(&mut self, file: &Statx) {
        let is_directory = FileType::from_raw_mode(file.stx_mode.into()) == FileType::Directory;
        let names = if is_directory { 1 } else { u128::from(file.stx_nlink.max(1)) };
        self.bytes += u128::from(file.stx_blocks) * 512 * Self::UNIT / names;
        self.inodes += Self::UNIT / names;
    }

    fn amount(&self) -> DiskAmount {
        let whole = |parts: u128| u64::try_from(parts.div_ceil(Self::UNIT)).unwrap_or(u64::MAX);
        DiskAmount { bytes: whole(self.bytes), inodes: whole(self.inodes) }
    }
}

#[cfg(test)]
#[path = "disk_use_tests.rs"]
mod tests;
