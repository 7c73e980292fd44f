//! Removes a pod's directory: first all mounts in it, then, only when the kernel shows no mount there any more, the
//! files. The content behind a mount does not belong to the pod: it is a path of the node, or a part of one. It is
//! never deleted, and its original mount is never unmounted. Blocks. Called by [`super::Volumes::tear_down`].

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use base::mount::{Mount, mounts_below};

use super::place::OpenDirectory;
use super::remove::remove_tree;
use super::sub_path::{detach, separate};
use super::walk::{SymlinkPolicy, find, mount_id};

/// Maximum number of lists of mounts: mounts below others appear one after another.
const ROUNDS: usize = 32;

/// Removes the directory `uid` below `root`. Absent is fine.
pub(super) fn tear_down(root: &OpenDirectory, uid: &str) -> Result<(), String> {
    // As the table of mounts names it.
    let real =
        std::fs::canonicalize(root.path()).map_err(|error| format!("find {}: {error}", root.path().display()))?;
    unmount_below(root.as_fd(), &real, &real.join(uid))?;
    remove_tree(root.as_fd(), uid).map_err(|error| format!("remove its directory: {error}"))
}

fn unmount_below(root: BorrowedFd<'_>, real: &Path, directory: &Path) -> Result<(), String> {
    let mut last_error = None;
    for _ in 0..ROUNDS {
        let mounts = mounts_below(directory).map_err(|error| format!("read the table of mounts: {error}"))?;
        if mounts.is_empty() {
            return Ok(());
        }
        // First they are separated from their sources: an unmount in one of them must not unmount the source. Then they
        // are detached; later mounts lie on and in earlier ones.
        for step in [separate, detach] {
            for mount in mounts.iter().rev() {
                if let Err(error) = find_mount(root, real, mount).and_then(|found| step(found.as_fd())) {
                    last_error = Some(format!("unmount {}: {error}", mount.target.display()));
                }
            }
        }
    }
    let left = mounts_below(directory).map_err(|error| format!("read the table of mounts: {error}"))?;
    match left.first() {
        None => Ok(()),
        Some(mount) => {
            let still = format!("{} is still mounted", mount.target.display());
            Err(last_error.map_or(still.clone(), |error| format!("{still}: {error}")) + "; nothing is removed")
        }
    }
}

/// Opens this mount and no other: its path is resolved step by step, and the result must have the mount's number.
fn find_mount(root: BorrowedFd<'_>, real: &Path, mount: &Mount) -> io::Result<OwnedFd> {
    let below = mount.target.strip_prefix(real).map_err(io::Error::other)?;
    let found = find(root, below, SymlinkPolicy::Refuse, None).map_err(io::Error::other)?;
    if mount_id(found.as_fd())? == mount.id { Ok(found) } else { Err(io::Error::other("another mount lies on it")) }
}
