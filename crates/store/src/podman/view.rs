//! [`View`]: the view of one store, on or off. Follows the records, reports which layers podman uses, and blocks podman while
//! images are removed. A failure to write the view fails nothing else: the view then lists nothing, and is written again at the
//! next opportunity.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::layer_mount::LayerRoots;
use base::lock::Mutex;
use cri_api::engine::HiddenImage;
use serde::{Deserialize, Serialize};

use super::DIRECTORY;
use super::contents::{Contents, LayerFacts};
use super::files::Files;
use super::mounted::{MountedFiles, NestedLayers};
use super::sizes::Sizes;
use super::users::{self, DEFAULT_GRAPH_ROOT, LinkUser};
use super::write::write_file;
use crate::disk::layer::LayerId;
use crate::disk::layout::LAYERS;
use crate::error::StoreError;
use crate::layers::Layers;

/// The file that marks the directory as ours and has the parameters of the view.
const SWITCH: &str = "imagelet.json";
const VERSION: u32 = 1;

/// Attempts to lock before the view is written without the lock: that harms no reader, for each file is replaced by a rename.
const ATTEMPTS_TO_WRITE: u32 = 20;
/// Attempts to lock before a removal gives up.
const ATTEMPTS_TO_HOLD: u32 = 200;

/// Parameters of a view, from when it was switched on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Switch {
    version: u32,
    /// Further places where podman keeps containers.
    #[serde(default)]
    pub(crate) graph_roots: BTreeSet<PathBuf>,
}

/// A view that is on.
#[derive(Debug)]
struct On {
    switch: Switch,
    /// `None` after a failure.
    files: Option<Files>,
    sizes: Sizes,
    nested: NestedLayers,
    /// A removal holds the locks.
    held: bool,
}

/// The view of a store.
#[derive(Debug)]
pub(crate) struct View {
    layers: Arc<Layers>,
    pub(crate) directory: PathBuf,
    is_on: AtomicBool,
    /// Layers that are EROFS files, and mounted.
    mounted: MountedFiles,
    /// Guards the files of the view.
    state: Mutex<Option<On>>,
}

/// Podman makes no container while this lives.
pub(crate) struct Still<'a>(&'a View);

/// Layers that a container or an image of podman uses.
pub(crate) struct LayerUser {
    /// Where it is mounted, or lies.
    pub(crate) place: PathBuf,
    pub(crate) layers: Vec<LayerId>,
}

impl View {
    /// The view as an earlier process left it.
    pub(crate) fn open(
        layers: &Arc<Layers>,
        roots: Option<LayerRoots>,
        why_no_mounts: fn(&Path) -> Option<String>,
    ) -> Self {
        let directory = layers.catalog.disk.layout.path.join(DIRECTORY);
        let mounted = MountedFiles::new(roots.filter(|_| layers.privileged), &directory, why_no_mounts);
        let view = Self {
            layers: Arc::clone(layers),
            directory,
            is_on: AtomicBool::new(false),
            mounted,
            state: Mutex::default(),
        };
        match view.read_switch() {
            Ok(Some(switch)) => view.switch_on(switch),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, view = %view.directory.display(), "the view for podman is left as it is");
            }
        }
        view
    }

    /// The words by which the view was switched on; `None` where there is none of ours.
    pub(crate) fn read_switch(&self) -> io::Result<Option<Switch>> {
        match std::fs::symlink_metadata(&self.directory) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let text = match std::fs::read(self.directory.join(SWITCH)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let switch: Switch = serde_json::from_slice(&text)?;
        if switch.version != VERSION {
            return Err(io::Error::other(format!(
                "{SWITCH} has version {}, and only {VERSION} is known",
                switch.version
            )));
        }
        Ok(Some(switch))
    }

    /// Records that the view is on. The directory exists.
    pub(crate) fn write_switch(&self, graph_roots: BTreeSet<PathBuf>) -> io::Result<()> {
        let switch = Switch { version: VERSION, graph_roots };
        write_file(&self.directory.join(SWITCH), &serde_json::to_vec(&switch)?)?;
        self.switch_on(switch);
        Ok(())
    }

    fn switch_on(&self, switch: Switch) {
        let (sizes, nested) = (Sizes::default(), NestedLayers::default());
        *self.state.lock() = Some(On { switch, files: None, sizes, nested, held: false });
        self.is_on.store(true, Ordering::Release);
    }

    /// Stops all updates of the view.
    pub(crate) fn switch_off(&self) {
        self.is_on.store(false, Ordering::Release);
        *self.state.lock() = None;
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Returns true if new layers of the view can be EROFS files.
    pub(crate) fn mounts_files(&self) -> bool {
        self.is_on() && self.mounted.are_possible()
    }

    /// Unmounts all layers, before the view is removed.
    pub(crate) fn unmount_layers(&self) -> io::Result<()> {
        match self.state.lock().as_mut().and_then(|on| on.files.as_mut()) {
            Some(files) => files.unmount_all(),
            None => Ok(()),
        }
    }

    /// Makes of the view what the records say. Called after every change of them.
    pub(crate) fn follow(&self) {
        if self.is_on()
            && let Err(error) = self.make()
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, view = %self.directory.display(), "the view for podman could not be written");
        }
    }

    /// The same, and says which images it leaves out, and how many it shows.
    pub(crate) fn make(&self) -> Result<(usize, Vec<HiddenImage>), StoreError> {
        let mut state = self.state.lock();
        let Some(on) = &mut *state else { return Ok((0, Vec::new())) };
        let failed = |source: io::Error| StoreError::io("write", &self.directory, source);
        on.open(self).map_err(failed)?;
        let On { files, sizes, nested, switch, held } = on;
        let Some(view) = files else { return Ok((0, Vec::new())) };
        let mut size_of = |layer: &_| sizes.of(&self.layers, layer);
        let mut is_mountable = |layer: LayerId| self.mounted.are_possible() && nested.has(&self.layers, layer);
        let mut facts = LayerFacts { size_of: &mut size_of, is_mountable: &mut is_mountable };
        let mut contents =
            self.layers.catalog.db.read(|records| Contents::gather(records, &self.layers, &mut facts))?;
        let locked = !*held && view.locks.lock(ATTEMPTS_TO_WRITE).map_err(failed)?;
        let (known, links, store) = (view.known_layers(), view.links(), &self.layers.catalog.disk.layout.path);
        let used = || {
            let users =
                users::find(&known, &|link| links.get(link).cloned().unwrap_or_else(|| store.clone()), &roots(switch))?;
            Ok(users.into_iter().flat_map(|user| user.links).collect())
        };
        let recorded = self.mounted.record_if(contents.has_files());
        let updated = recorded.and_then(|()| view.update(&mut contents, &used));
        if updated.is_err()
            && let Err(error) = view.list_nothing()
        {
            tracing::warn!(%error, view = %self.directory.display(), "podman may still be shown removed images");
        }
        if locked {
            view.locks.unlock();
        }
        if updated.is_err() && !*held {
            *files = None;
        }
        updated.map_err(failed)?;
        Ok((contents.images.len(), contents.hidden))
    }

    /// Keeps podman from making containers until the result is dropped; `None` if the view is off.
    ///
    /// # Errors
    /// Podman reads the view all the time.
    pub(crate) fn hold_still(&self) -> Result<Option<Still<'_>>, StoreError> {
        if !self.is_on() {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let Some(on) = &mut *state else { return Ok(None) };
        let failed = |source: io::Error| StoreError::io("lock", &self.directory, source);
        on.open(self).map_err(failed)?;
        let Some(files) = &on.files else { return Ok(None) };
        if !files.locks.lock(ATTEMPTS_TO_HOLD).map_err(failed)? {
            return Err(StoreError::ViewBusy { view: self.directory.clone() });
        }
        on.held = true;
        Ok(Some(Still(self)))
    }

    /// Users of layers of the store through the view.
    pub(crate) fn users(&self) -> Result<Vec<LayerUser>, StoreError> {
        if !self.is_on() {
            return Ok(Vec::new());
        }
        let failed = |source: io::Error| StoreError::io("find the containers that use", &self.directory, source);
        let mut state = self.state.lock();
        let Some(on) = &mut *state else { return Ok(Vec::new()) };
        on.open(self).map_err(failed)?;
        let Some(files) = &on.files else { return Ok(Vec::new()) };
        let links = files.links();
        let (known, tree_of) = (files.known_layers(), |link: &str| links[link].clone());
        let users = users::find(&known, &tree_of, &roots(&on.switch)).map_err(failed)?;
        let of = |LinkUser { place, links: used }| LayerUser {
            place,
            layers: used.iter().filter_map(|link| files.layer_at(&links[link])).collect(),
        };
        Ok(users.into_iter().map(of).collect())
    }
}

impl On {
    /// Opens the files, if they are not open or if other processes find different ones.
    fn open(&mut self, view: &View) -> io::Result<()> {
        if self.files.as_ref().is_none_or(|files| !self.held && files.locks.are_displaced()) {
            let layers = view.layers.catalog.disk.layout.path.join(LAYERS);
            let files = Files::open(&view.directory, &layers)?;
            self.sizes = Sizes::of_document(files.layers_json());
            self.files = Some(files);
        }
        Ok(())
    }
}

/// Where podman may keep containers.
fn roots(switch: &Switch) -> Vec<PathBuf> {
    let default = Path::new(DEFAULT_GRAPH_ROOT);
    std::iter::once(default).chain(switch.graph_roots.iter().map(PathBuf::as_path)).map(Path::to_owned).collect()
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        if let Some(on) = &mut *self.0.state.lock() {
            on.held = false;
            if let Some(files) = &on.files {
                files.locks.unlock();
            }
        }
    }
}
