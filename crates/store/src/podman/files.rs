//! The files of the view: which ones exist, and how they are updated. Each file and link appears by a rename, layers and
//! documents of images before the rows that name them, and is removed after these. Knows nothing of records.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use base::is_disk_full;

use super::contents::{Contents, ViewImage, ViewLayer};
use super::documents::file_name;
use super::locks::Locks;
use super::placed::{PlacedLayer, unmount};
use super::users::KnownLayers;
use super::write::{LINKS, make_directory, write_file};
use crate::disk::layer::LayerId;
use crate::disk::layout::{c_name, names};
use crate::disk::remove_tree::remove_trees;

/// Directory of the layers.
pub(super) const LAYERS: &str = "overlay";
const LAYERS_JSON: &str = "layers.json";
const IMAGES_JSON: &str = "images.json";

/// The directories of the view, and what this process knows to lie there.
#[derive(Debug)]
pub(super) struct Files {
    overlay: PathBuf,
    layers: PathBuf,
    images: PathBuf,
    /// The store's own layers.
    store_layers: PathBuf,
    pub(super) locks: Locks,
    /// By id. One that is not as it should be has no value.
    placed: BTreeMap<String, Option<PlacedLayer>>,
    /// Images whose documents were compared, by id.
    documents: BTreeMap<String, Vec<String>>,
    /// The last content of both.
    layers_json: Option<Vec<u8>>,
    images_json: Option<Vec<u8>>,
}

impl Files {
    /// Makes the directories where they are missing, and reads the existing content.
    pub(super) fn open(view: &Path, store_layers: &Path) -> io::Result<Self> {
        let [overlay, layers, images] = [LAYERS, "overlay-layers", "overlay-images"].map(|name| view.join(name));
        let links = overlay.join(LINKS);
        for directory in [&overlay, &links, &layers, &images] {
            make_directory(directory)?;
        }
        let locks = Locks::open(&layers, &images)?;
        let read = |path: PathBuf| std::fs::read(path).ok();
        let (layers_json, images_json) = (read(layers.join(LAYERS_JSON)), read(images.join(IMAGES_JSON)));
        let ids = names(&overlay)?.into_iter().filter_map(|name| name.into_string().ok()).filter(|name| is_id(name));
        let placed = ids.map(|id| (id.clone(), PlacedLayer::find(&overlay, &id))).collect();
        let documents = BTreeMap::new();
        let store_layers = store_layers.to_owned();
        Ok(Self { overlay, layers, images, store_layers, locks, placed, documents, layers_json, images_json })
    }

    pub(super) fn layers_json(&self) -> &[u8] {
        self.layers_json.as_deref().unwrap_or_default()
    }

    /// Returns the short names of the existing layers, and the directories that they show.
    pub(super) fn links(&self) -> BTreeMap<String, PathBuf> {
        self.placed.values().flatten().map(|placed| (placed.link.clone(), placed.diff.clone())).collect()
    }

    /// Returns the names by which users of the existing layers are found.
    pub(super) fn known_layers(&self) -> KnownLayers {
        let mut known = KnownLayers::default();
        for (id, placed) in &self.placed {
            let Some(placed) = placed else { continue };
            let below = placed.lower.split(':').filter_map(|lower| lower.strip_prefix("l/")).map(str::to_owned);
            known.stacks.insert(id.clone(), below.chain([placed.link.clone()]).collect());
            known.links.insert(placed.link.clone());
        }
        known
    }

    /// Returns the layer of the store whose tree is at this path.
    pub(super) fn layer_at(&self, diff: &Path) -> Option<LayerId> {
        let mounted = |placed: &&PlacedLayer| placed.file.is_some() && placed.diff == diff;
        if let Some(file) = self.placed.values().flatten().find(mounted).and_then(|placed| placed.file.as_ref()) {
            return Some(file.layer);
        }
        let number = diff.strip_prefix(&self.store_layers).ok()?.iter().next()?.to_str()?.parse().ok()?;
        Some(LayerId(number))
    }

    /// Updates the view to `contents`, without the images of layers that cannot be mounted. `users` returns the short names of layers that
    /// are in use: these stay, if unlisted.
    pub(super) fn update(
        &mut self,
        contents: &mut Contents,
        users: &dyn Fn() -> io::Result<BTreeSet<String>>,
    ) -> io::Result<()> {
        let mut failed = BTreeMap::new();
        let mut is_new = false;
        for layer in &contents.layers {
            match self.place(layer) {
                Ok(placed) => is_new |= placed && layer.is_file,
                Err(error) if layer.is_file && !is_disk_full(&error) => {
                    tracing::warn!(%error, layer = %layer.layer, "a layer cannot be mounted for podman");
                    failed.insert(layer.row.id.clone(), format!("a layer of it cannot be mounted: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        contents.leave_out(failed);
        if is_new {
            super::placed::sync(&self.overlay)?;
        }
        for image in &contents.images {
            self.write_documents(image)?;
        }
        let layers: Vec<_> = contents.layers.iter().map(|layer| &layer.row).collect();
        let images: Vec<_> = contents.images.iter().map(|image| &image.row).collect();
        let (layers, images) = (serde_json::to_vec(&layers)?, serde_json::to_vec(&images)?);
        // A reader between the two must not find an image without its layers.
        let grows = layers.len() >= self.layers_json().len();
        if grows {
            self.write_layers(&layers)?;
        }
        self.write_images(&images)?;
        self.write_layers(&layers)?;
        self.remove_others(contents, users)
    }

    /// Lists no image: what is left to do where nothing can be written. Takes no space.
    pub(super) fn list_nothing(&mut self) -> io::Result<()> {
        self.images_json = None;
        match std::fs::remove_file(self.images.join(IMAGES_JSON)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.locks.touch_images(b"nothing"),
        }
    }

    fn write_layers(&mut self, rows: &[u8]) -> io::Result<()> {
        if self.layers_json.as_deref() != Some(rows) {
            write_file(&self.layers.join(LAYERS_JSON), rows)?;
            self.locks.touch_layers(rows)?;
            self.layers_json = Some(rows.to_owned());
        }
        Ok(())
    }

    fn write_images(&mut self, rows: &[u8]) -> io::Result<()> {
        if self.images_json.as_deref() != Some(rows) {
            write_file(&self.images.join(IMAGES_JSON), rows)?;
            self.locks.touch_images(rows)?;
            self.images_json = Some(rows.to_owned());
        }
        Ok(())
    }

    /// Returns true if the layer did not lie in the view as it should.
    fn place(&mut self, layer: &ViewLayer) -> io::Result<bool> {
        let id = &layer.row.id;
        let (link, below) = (layer.link.clone(), layer.lower.iter().map(|link| format!("{LINKS}/{link}")));
        let lower = below.collect::<Vec<_>>().join(":");
        let at = self.overlay.join(id);
        let wanted = match layer.is_file {
            false => PlacedLayer::directory(link, lower, &self.store_layers, layer.layer),
            true => PlacedLayer::mounted(link, lower, &at, &self.store_layers, layer.layer)?,
        };
        if self.placed.get(id).is_some_and(|placed| placed.as_ref() == Some(&wanted)) {
            return wanted.make_ready().map(|()| false);
        }
        self.placed.insert(id.clone(), None);
        if wanted.file.is_none() {
            unmount(&at)?;
        }
        if wanted.write(&self.overlay, id, &self.store_layers).is_err() {
            // Something else lies in the way.
            self.remove_layers([id.clone()])?;
            wanted.write(&self.overlay, id, &self.store_layers)?;
        }
        self.placed.insert(id.clone(), Some(wanted));
        Ok(true)
    }

    /// Unmounts all layers.
    pub(super) fn unmount_all(&mut self) -> io::Result<()> {
        for placed in self.placed.values_mut() {
            if let Some(file) = placed.take().filter(|placed| placed.file.is_some()) {
                unmount(file.diff.parent().unwrap_or(&file.diff))?;
            }
        }
        Ok(())
    }

    /// Removes the directories of layers.
    fn remove_layers(&self, ids: impl IntoIterator<Item = String>) -> io::Result<()> {
        let ids: Vec<String> = ids.into_iter().collect();
        ids.iter().try_for_each(|id| unmount(&self.overlay.join(id)))?;
        remove(&self.overlay, ids)
    }

    fn write_documents(&mut self, image: &ViewImage) -> io::Result<()> {
        let keys = &image.row.big_data_names;
        if self.documents.get(&image.row.id) == Some(keys) {
            return Ok(());
        }
        let directory = self.images.join(&image.row.id);
        make_directory(&directory)?;
        for (key, bytes) in &image.documents {
            let path = directory.join(file_name(key));
            if std::fs::read(&path).ok().as_ref() != Some(bytes) {
                write_file(&path, bytes)?;
            }
        }
        self.documents.insert(image.row.id.clone(), keys.clone());
        Ok(())
    }

    /// Removes images and layers that are not listed. Unknown files stay.
    fn remove_others(
        &mut self,
        contents: &Contents,
        users: &dyn Fn() -> io::Result<BTreeSet<String>>,
    ) -> io::Result<()> {
        let listed: BTreeSet<&str> = contents.images.iter().map(|image| image.row.id.as_str()).collect();
        let images = names(&self.images)?.into_iter().filter_map(|name| name.into_string().ok());
        let images: Vec<String> = images.filter(|name| is_id(name) && !listed.contains(name.as_str())).collect();
        self.documents.retain(|id, _| listed.contains(id.as_str()));
        remove(&self.images, images)?;

        let listed: BTreeSet<&str> = contents.layers.iter().map(|layer| layer.row.id.as_str()).collect();
        let unlisted = |id: &String| !listed.contains(id.as_str());
        if self.placed.keys().any(unlisted) {
            let used = users()?;
            let is_used =
                |placed: &Option<PlacedLayer>| placed.as_ref().is_some_and(|placed| used.contains(&placed.link));
            let removed: Vec<String> = self
                .placed
                .iter()
                .filter(|(id, placed)| unlisted(id) && !is_used(placed))
                .map(|(id, _)| id.clone())
                .collect();
            self.placed.retain(|id, _| !removed.contains(id));
            self.remove_layers(removed)?;
        }
        self.remove_links()
    }

    /// Removes short names of layers that are not there.
    fn remove_links(&self) -> io::Result<()> {
        let directory = self.overlay.join(LINKS);
        let wanted: BTreeSet<&str> = self.placed.values().flatten().map(|placed| placed.link.as_str()).collect();
        for name in names(&directory)?.into_iter().filter_map(|name| name.into_string().ok()) {
            let path = directory.join(&name);
            if !wanted.contains(name.as_str()) && std::fs::read_link(&path).is_ok() {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Ids of layers and images are 64 digits; podman has no other names of its own among them.
fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Removes the entries with these names from a directory, with all that is in them.
fn remove(directory: &Path, names: impl IntoIterator<Item = String>) -> io::Result<()> {
    let names: Vec<CString> = names.into_iter().map(|name| c_name(name.into())).collect();
    if names.is_empty() {
        return Ok(());
    }
    remove_trees(File::open(directory)?.as_fd(), &names)
}
