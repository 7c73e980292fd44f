//! Switches the view for podman on and off: [`Store::make_podman_view`] and [`Store::remove_podman_view`]. Refuses a directory that
//! imagelet did not create.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use cri_api::engine::PodmanStoreReport;

use crate::disk::remove_tree::remove_tree;
use crate::error::StoreError;
use crate::podman::DIRECTORY;
use crate::store::Store;

/// The name under which a view is deleted.
const TRASH: &std::ffi::CStr = c"trash-podman";

/// Why the view was not made or removed.
#[derive(Debug, thiserror::Error)]
pub enum PodmanViewError {
    /// Owners and devices are not on the disk.
    #[error(
        "the store of an ordinary user has owners and devices of files only on record, and podman would show others: use a store of root"
    )]
    NotPrivileged,
    /// A file that imagelet did not create has the name.
    #[error("{} is there, and imagelet did not make it: move it away", path.display())]
    NotOurs {
        /// The place of the view.
        path: PathBuf,
    },
    /// A container needs it.
    #[error("podman uses layers of it ({}): remove its containers, and images that were built on ours, first", place.display())]
    InUse {
        /// A mount, or a layer of podman's.
        place: PathBuf,
    },
    /// Disk and database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Makes the view that podman reads, or updates it. From now on it follows the images. `graph_roots` are places where podman
    /// keeps containers, besides those that are known already.
    ///
    /// # Errors
    /// See [`PodmanViewError`].
    pub fn make_podman_view(&self, graph_roots: &[PathBuf]) -> Result<PodmanStoreReport, PodmanViewError> {
        if !self.is_privileged() {
            return Err(PodmanViewError::NotPrivileged);
        }
        let view = &self.mounts.view;
        let failed = |source: io::Error| StoreError::io("make", &view.directory, source);
        let before = match std::fs::DirBuilder::new().mode(0o700).create(&view.directory) {
            Ok(()) => None,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match view.read_switch().map_err(failed)? {
                None if !is_empty_directory(&view.directory) => {
                    return Err(PodmanViewError::NotOurs { path: view.directory.clone() });
                }
                switch => switch,
            },
            Err(error) => return Err(failed(error).into()),
        };
        let mut roots: BTreeSet<PathBuf> = before.as_ref().map(|switch| switch.graph_roots.clone()).unwrap_or_default();
        roots.extend(graph_roots.iter().cloned());
        if !view.is_on() || before.is_none_or(|switch| switch.graph_roots != roots) {
            view.write_switch(roots).map_err(failed)?;
        }
        let (images, hidden) = view.make()?;
        Ok(PodmanStoreReport { directory: Some(view.directory.clone()), images, hidden })
    }

    /// Removes the view. Returns false if there is none.
    ///
    /// # Errors
    /// See [`PodmanViewError`].
    pub fn remove_podman_view(&self) -> Result<bool, PodmanViewError> {
        let view = &self.mounts.view;
        if !view.is_on() {
            return match std::fs::symlink_metadata(&view.directory) {
                Ok(_) => Err(PodmanViewError::NotOurs { path: view.directory.clone() }),
                Err(_) => Ok(false),
            };
        }
        let _mounting = self.mounts.mounting.lock();
        let still = view.hold_still()?;
        if let Some(user) = view.users()?.into_iter().find(|user| !user.layers.is_empty()) {
            return Err(PodmanViewError::InUse { place: user.place });
        }
        let removed = view.unmount_layers().and_then(|()| self.delete_view());
        drop(still);
        if removed.is_ok() {
            view.switch_off();
        }
        removed.map_err(|source| StoreError::io("remove", &view.directory, source))?;
        Ok(true)
    }

    /// Deletes the directory of the view, all at once: a kill leaves it whole, or what the next open sweeps.
    fn delete_view(&self) -> io::Result<()> {
        let layout = &self.catalog.disk.layout;
        remove_tree(layout.ingest.as_fd(), TRASH)?;
        rustix::fs::renameat(&layout.root, DIRECTORY, &layout.ingest, TRASH)?;
        remove_tree(layout.ingest.as_fd(), TRASH)
    }
}

/// A kill after the directory was made and before it was written that it is ours leaves one.
fn is_empty_directory(path: &Path) -> bool {
    let is_directory = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    is_directory && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}
