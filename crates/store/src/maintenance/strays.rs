//! Compares the directories with the records: finds unreferenced files under `layers/`, `blobs/` and `ingest/`. Called while
//! commits and removals are blocked, so that nothing is in one of the two and not yet in the other.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};

use crate::disk::layer::LayerId;
use crate::disk::layout::{self, c_name, number};
use crate::disk::remove_tree;
use crate::error::StoreError;
use crate::maintenance::Maintenance;

/// A file or a directory that nothing references.
pub(crate) struct Stray {
    /// Relative to the store's root.
    pub(crate) path: String,
    /// Under `ingest/`, where pulls work.
    pub(crate) of_a_pull: bool,
    /// The fault, in words.
    pub(crate) detail: String,
    pub(crate) deleted: bool,
}

impl Maintenance {
    /// Finds files that neither the records (`keep`, `blobs`) nor a running pull name, and deletes them with `repair`.
    pub(crate) fn find_strays(
        &self,
        keep: &BTreeSet<LayerId>,
        blobs: &BTreeSet<u64>,
        repair: bool,
    ) -> Result<Vec<Stray>, StoreError> {
        let mut strays = Vec::new();
        let names = self.names_in(layout::LAYERS)?;
        for name in names.into_iter().filter(|name| !number(name).is_some_and(|id| keep.contains(&LayerId(id)))) {
            strays.push(self.stray(&self.catalog.disk.layout.layers, layout::LAYERS, name, repair));
        }
        let names = self.content.blob_names()?.into_iter();
        for name in names.filter(|name| !number(name).is_some_and(|number| blobs.contains(&number))) {
            let directory = layout::open_directory(&self.catalog.disk.layout.root, layout::BLOBS)
                .map_err(|source| StoreError::io("open", self.catalog.disk.layout.path.join(layout::BLOBS), source))?;
            strays.push(self.stray(&directory, layout::BLOBS, name, repair));
        }
        // A directory too deep to be deleted in one go is moved up during its deletion.
        let deep = format!("deep-{}-", std::process::id());
        let busy = self.content.busy.lock().clone();
        // Next to a busy name there can be a file that describes it.
        let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let is_busy = |name: &OsString| {
            name.to_str()
                .is_some_and(|name| busy.contains(name) || busy.contains(&stem(name)) || name.starts_with(&deep))
        };
        for name in self.names_in(layout::INGEST)?.into_iter().filter(|name| !is_busy(name)) {
            strays.push(self.stray(&self.catalog.disk.layout.ingest, layout::INGEST, name, repair));
        }
        Ok(strays)
    }

    fn names_in(&self, directory: &str) -> Result<Vec<OsString>, StoreError> {
        let path = self.catalog.disk.layout.path.join(directory);
        layout::names(&path).map_err(|source| StoreError::io("list", &path, source))
    }

    fn stray(&self, directory: &OwnedFd, place: &str, name: OsString, repair: bool) -> Stray {
        let detail = if place == layout::INGEST { "no pull works with it" } else { "no record names it" };
        let mut stray = Stray {
            path: format!("{place}/{}", name.to_string_lossy()),
            of_a_pull: place == layout::INGEST,
            detail: detail.to_owned(),
            deleted: false,
        };
        if repair {
            let name: CString = c_name(name);
            match remove_tree::remove_tree(directory.as_fd(), &name) {
                Ok(()) => stray.deleted = true,
                Err(error) => stray.detail = format!("{detail}, and it cannot be deleted: {error}"),
            }
        }
        stray
    }
}
