//! The directories against the records: what lies under `layers/`, `blobs/` and `ingest/` for nobody. Called with commits and
//! removals held up, so that nothing is on its way from one to the other.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};

use crate::check::{Problem, ProblemKind};
use crate::disk::layout;
use crate::disk::remove_tree;
use crate::error::StoreError;
use crate::maintenance::sweep::{c_name, number};
use crate::records::entries::LayerId;
use crate::store::open::Inner;

impl Inner {
    pub(crate) fn look_for_orphans(
        &self,
        keep: &BTreeSet<LayerId>,
        blobs: &BTreeSet<u64>,
        repair: bool,
    ) -> Result<Vec<Problem>, StoreError> {
        let mut problems = Vec::new();
        let names = self.names_in(layout::LAYERS)?;
        for name in names.into_iter().filter(|name| !number(name).is_some_and(|id| keep.contains(&LayerId(id)))) {
            problems.push(self.stray(&self.layout.layers, layout::LAYERS, name, repair));
        }
        let names = self.blob_names()?.into_iter();
        for name in names.filter(|name| !number(name).is_some_and(|number| blobs.contains(&number))) {
            let directory = layout::open_directory(&self.layout.root, layout::BLOBS)
                .map_err(|source| StoreError::io("open", self.layout.path.join(layout::BLOBS), source))?;
            problems.push(self.stray(&directory, layout::BLOBS, name, repair));
        }
        // A directory too deep to be deleted in one go is moved up while somebody deletes it.
        let deep = format!("deep-{}-", std::process::id());
        let busy = self.busy.lock().clone();
        // Beside what is busy lies a file that says what it is.
        let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let is_busy = |name: &OsString| {
            name.to_str()
                .is_some_and(|name| busy.contains(name) || busy.contains(&stem(name)) || name.starts_with(&deep))
        };
        for name in self.names_in(layout::INGEST)?.into_iter().filter(|name| !is_busy(name)) {
            problems.push(self.stray(&self.layout.ingest, layout::INGEST, name, repair));
        }
        Ok(problems)
    }

    fn names_in(&self, directory: &str) -> Result<Vec<OsString>, StoreError> {
        let path = self.layout.path.join(directory);
        layout::names(&path).map_err(|source| StoreError::io("list", &path, source))
    }

    fn stray(&self, directory: &OwnedFd, place: &str, name: OsString, repair: bool) -> Problem {
        let subject = format!("{place}/{}", name.to_string_lossy());
        let (kind, detail) = if place == layout::INGEST {
            (ProblemKind::LeftOver, "no pull works with it")
        } else {
            (ProblemKind::Orphan, "no record names it")
        };
        let mut problem = Problem::new(kind, subject, detail);
        if repair {
            let name: CString = c_name(name);
            match remove_tree::remove_tree(directory.as_fd(), &name) {
                Ok(()) => problem.repaired = true,
                Err(error) => problem.detail = format!("{detail}, and it cannot be deleted: {error}"),
            }
        }
        problem
    }
}
