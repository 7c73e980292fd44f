//! Layers of the view that are EROFS files: where they are possible, and which layers of the store have the form for it. The host mounts
//! them, and a start of the machine finds them by the recorded directory. Called by [`super::view`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use base::layer_mount::LayerRoots;
use erofs::Reader;

use super::files::LAYERS;
use super::placed::TREE;
use crate::disk::layer::LayerId;
use crate::disk::layout::EROFS_FILE;
use crate::layers::Layers;

/// Mounted layers of a view.
#[derive(Debug)]
pub(super) struct MountedFiles {
    /// `None`: layers are directories.
    roots: Option<LayerRoots>,
    view: PathBuf,
    /// Returns why files in a directory cannot be mounted for good.
    why_not: fn(&Path) -> Option<String>,
    /// The answer for the view, which does not change.
    are_possible: OnceLock<bool>,
    is_recorded: AtomicBool,
}

impl MountedFiles {
    pub(super) fn new(roots: Option<LayerRoots>, view: &Path, why_not: fn(&Path) -> Option<String>) -> Self {
        Self {
            roots,
            view: view.to_owned(),
            why_not,
            are_possible: OnceLock::new(),
            is_recorded: AtomicBool::new(false),
        }
    }

    /// Returns true if layers of the view can be EROFS files. Tries it once, in a view that exists.
    pub(super) fn are_possible(&self) -> bool {
        self.roots.is_some()
            && *self.are_possible.get_or_init(|| {
                let why_not = (self.why_not)(&self.view);
                if let Some(why) = &why_not {
                    tracing::info!(reason = why, "podman is shown directories, and no EROFS files");
                }
                why_not.is_none()
            })
    }

    /// Records the directory of layers for a start of the machine, before the first layer is mounted.
    pub(super) fn record_if(&self, has_files: bool) -> io::Result<()> {
        if let Some(roots) = &self.roots
            && has_files
            && !self.is_recorded.load(Ordering::Relaxed)
        {
            roots.record(&self.view.join(LAYERS), TREE)?;
            self.is_recorded.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The layers of the store that are EROFS files with nested trees. The file of a layer never changes.
#[derive(Debug, Default)]
pub(super) struct NestedLayers(BTreeMap<LayerId, bool>);

impl NestedLayers {
    /// Returns true if the tree of a layer is nested.
    pub(super) fn has(&mut self, layers: &Layers, layer: LayerId) -> bool {
        if let Some(known) = self.0.get(&layer) {
            return *known;
        }
        let path = layers.catalog.disk.layout.layer_path(layer).join(EROFS_FILE);
        let Ok(file) = File::open(path) else { return false };
        let is_nested = Reader::open(&file).is_ok_and(|reader| reader.is_nested());
        self.0.insert(layer, is_nested);
        is_nested
    }
}
