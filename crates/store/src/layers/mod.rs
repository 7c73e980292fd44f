//! Committed layers: what a layer is on the disk, which of them may be used, and their deletion.

pub(crate) mod compare;
pub(crate) mod compare_erofs;
pub(crate) mod lookup;
pub(crate) mod shape;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use base::lock::RwLock;

use crate::content::Content;
use crate::disk::layer::{LayerId, Shape};
use crate::disk::layout::{self, c_name};
use crate::disk::remove_tree;
use crate::error::StoreError;
use crate::records::catalog::Catalog;

#[derive(Debug)]
pub(crate) struct Layers {
    pub(crate) catalog: Arc<Catalog>,
    content: Arc<Content>,
    /// Owners, devices and privileged attributes can be set.
    pub(crate) privileged: bool,
    /// Guards which layers are damaged, or are about to be removed although they still have a record: these cannot be used.
    damaged: RwLock<BTreeSet<LayerId>>,
}

impl Layers {
    pub(crate) fn new(content: &Arc<Content>, privileged: bool) -> Self {
        let (catalog, content) = (Arc::clone(&content.catalog), Arc::clone(content));
        Self { catalog, content, privileged, damaged: RwLock::default() }
    }

    /// Returns true if the layer's tree is present and may be used.
    pub(crate) fn has_layer(&self, id: LayerId) -> bool {
        !self.damaged.read().contains(&id) && Shape::is_there(&self.catalog.disk.layout.layers, id)
    }

    /// Makes these layers unusable from now on.
    pub(crate) fn distrust(&self, layers: impl IntoIterator<Item = LayerId>) {
        self.damaged.write().extend(layers);
    }

    /// Deletes the directories of layers, all at once. Continues after a failure and reports the first one.
    pub(crate) fn delete_directories(&self, ids: &[LayerId]) -> Result<(), StoreError> {
        let (mut trash, mut in_place) = (Vec::new(), Vec::new());
        for id in ids {
            let (name, new) = (id.to_string(), format!("trash-{id}"));
            self.content.note_busy(&new, true);
            match rustix::fs::renameat(
                &self.catalog.disk.layout.layers,
                name.as_str(),
                &self.catalog.disk.layout.ingest,
                new.as_str(),
            ) {
                Ok(()) => trash.push(c_name(new.into())),
                // The directory was removed before its record.
                Err(rustix::io::Errno::NOENT) => self.content.note_busy(&new, false),
                // A full disk may have no room for the new name.
                Err(_) => {
                    self.content.note_busy(&new, false);
                    in_place.push(c_name(name.into()));
                }
            }
        }
        let failed = |directory| {
            let path = self.catalog.disk.layout.path.join(directory);
            move |source| StoreError::io("delete layers in", path, source)
        };
        let first =
            remove_tree::remove_trees(self.catalog.disk.layout.ingest.as_fd(), &trash).map_err(failed(layout::INGEST));
        for name in &trash {
            self.content.note_busy(&name.to_string_lossy(), false);
        }
        let second = remove_tree::remove_trees(self.catalog.disk.layout.layers.as_fd(), &in_place)
            .map_err(failed(layout::LAYERS));
        if first.is_err() || second.is_err() {
            self.catalog.disk.note_untidy();
        }
        first.and(second)
    }
}
