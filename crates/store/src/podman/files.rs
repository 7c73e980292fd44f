//! The files of the view: which ones exist, and how they are updated. Each file and link appears by a rename, layers and
//! documents of images before the rows that name them, and is removed after these. Knows nothing of records.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use super::contents::{Contents, ViewImage, ViewLayer};
use super::documents::file_name;
use super::locks::Locks;
use super::users::KnownLayers;
use crate::disk::layer::LayerId;
use crate::disk::layout::{c_name, names, tree_of};
use crate::disk::remove_tree::remove_trees;

/// Short names of layers, below the layers.
const LINKS: &str = "l";
const LAYERS_JSON: &str = "layers.json";
const IMAGES_JSON: &str = "images.json";

/// A layer as it lies in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlacedLayer {
    link: String,
    lower: String,
    diff: PathBuf,
}

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
        let [overlay, layers, images] = ["overlay", "overlay-layers", "overlay-images"].map(|name| view.join(name));
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

    /// The layer of the store that a directory is.
    pub(super) fn layer_at(&self, diff: &Path) -> Option<LayerId> {
        let number = diff.strip_prefix(&self.store_layers).ok()?.iter().next()?.to_str()?.parse().ok()?;
        Some(LayerId(number))
    }

    /// Updates the view to `contents`. `users` returns the short names of layers that are in use: these stay, if unlisted.
    pub(super) fn bring(
        &mut self,
        contents: &Contents,
        users: &dyn Fn() -> io::Result<BTreeSet<String>>,
    ) -> io::Result<()> {
        for layer in &contents.layers {
            self.place(layer)?;
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

    fn place(&mut self, layer: &ViewLayer) -> io::Result<()> {
        let id = &layer.row.id;
        let wanted = PlacedLayer {
            link: layer.link.clone(),
            lower: layer.lower.iter().map(|link| format!("{LINKS}/{link}")).collect::<Vec<_>>().join(":"),
            // Absolute: podman takes no other.
            diff: self.store_layers.join(tree_of(layer.layer)),
        };
        if self.placed.get(id).is_some_and(|placed| placed.as_ref() == Some(&wanted)) {
            return Ok(());
        }
        self.placed.insert(id.clone(), None);
        if wanted.write(&self.overlay, id).is_err() {
            // Something else lies in the way.
            remove(&self.overlay, [id.clone()])?;
            wanted.write(&self.overlay, id)?;
        }
        self.placed.insert(id.clone(), Some(wanted));
        Ok(())
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
            let gone: Vec<String> = self
                .placed
                .iter()
                .filter(|(id, placed)| unlisted(id) && !is_used(placed))
                .map(|(id, _)| id.clone())
                .collect();
            self.placed.retain(|id, _| !gone.contains(id));
            remove(&self.overlay, gone)?;
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

impl PlacedLayer {
    /// Returns the layer of this id, if all of it exists.
    fn find(overlay: &Path, id: &str) -> Option<Self> {
        let directory = overlay.join(id);
        let link = std::fs::read_to_string(directory.join("link")).ok()?;
        let lower = match std::fs::read_to_string(directory.join("lower")) {
            Ok(lower) => lower,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(_) => return None,
        };
        let diff = std::fs::read_link(directory.join("diff")).ok()?;
        let is_linked = std::fs::read_link(overlay.join(LINKS).join(&link)).ok()? == target_of_link(id);
        is_linked.then_some(Self { link, lower, diff })
    }

    fn write(&self, overlay: &Path, id: &str) -> io::Result<()> {
        let directory = overlay.join(id);
        make_directory(&directory)?;
        write_file(&directory.join("link"), self.link.as_bytes())?;
        let lower = directory.join("lower");
        if !self.lower.is_empty() {
            write_file(&lower, self.lower.as_bytes())?;
        } else if lower.exists() {
            std::fs::remove_file(lower)?;
        }
        write_link(&directory.join("diff"), &self.diff)?;
        write_link(&overlay.join(LINKS).join(&self.link), &target_of_link(id))
    }
}

fn target_of_link(id: &str) -> PathBuf {
    Path::new("..").join(id).join("diff")
}

/// Ids of layers and images are 64 digits; podman has no other names of its own among them.
fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn make_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match path.symlink_metadata()?.is_dir() {
            true => Ok(()),
            false => Err(io::Error::other(format!("{} is no directory", path.display()))),
        },
        made => made,
    }
}

/// The name under which something is made before it gets its own.
fn temporary(path: &Path) -> PathBuf {
    path.with_extension("new")
}

pub(super) fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = temporary(path);
    std::fs::write(&new, content)?;
    std::fs::rename(&new, path)
}

fn write_link(path: &Path, target: &Path) -> io::Result<()> {
    let new = temporary(path);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, &new)?;
    std::fs::rename(&new, path)
}

/// Removes these from a directory, with all that is in them.
fn remove(directory: &Path, gone: impl IntoIterator<Item = String>) -> io::Result<()> {
    let gone: Vec<CString> = gone.into_iter().map(|name| c_name(name.into())).collect();
    if gone.is_empty() {
        return Ok(());
    }
    remove_trees(File::open(directory)?.as_fd(), &gone)
}
