//! [`PlacedLayer`]: a layer as it lies in the view, a link to a directory of the store or a mounted EROFS file. Reads and writes the files
//! of one layer. Called by [`super::files`].

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base::layer_mount::{self, LayerMount};

use super::write::{LINKS, make_directory, write_file, write_link};
use crate::disk::layer::LayerId;
use crate::disk::layout::{EROFS_FILE, tree_of};

/// Name of the tree in the directory of a layer.
pub(super) const TREE: &str = "diff";
/// Name of the file with the number of the store's layer, next to a tree that is mounted.
const NUMBER: &str = "store-layer";
/// Name of an EROFS file before it is placed.
const NEW_FILE: &str = "layer.erofs.new";

/// A layer as it lies in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacedLayer {
    pub(super) link: String,
    /// Short names of the layers below, as `l/LINK:l/LINK`.
    pub(super) lower: String,
    /// Path of the tree: a directory of the store, or that of the mounted file.
    pub(super) diff: PathBuf,
    /// The EROFS file, if the layer is one.
    pub(super) file: Option<PlacedFile>,
}

/// An EROFS file: a link to that of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacedFile {
    pub(super) layer: LayerId,
    device: u64,
    inode: u64,
}

impl PlacedFile {
    fn of(layer: LayerId, path: &Path) -> io::Result<Self> {
        let found = std::fs::symlink_metadata(path)?;
        Ok(Self { layer, device: found.dev(), inode: found.ino() })
    }
}

impl PlacedLayer {
    /// The layer as it should lie in the view: a directory of the store.
    pub(super) fn directory(link: String, lower: String, store_layers: &Path, layer: LayerId) -> Self {
        // Absolute: podman takes no other.
        Self { link, lower, diff: store_layers.join(tree_of(layer)), file: None }
    }

    /// The layer as it should lie in the view: an EROFS file of the store.
    pub(super) fn mounted(link: String, lower: String, at: &Path, store: &Path, layer: LayerId) -> io::Result<Self> {
        let file = PlacedFile::of(layer, &file_of(store, layer))?;
        Ok(Self { link, lower, diff: at.join(TREE), file: Some(file) })
    }

    /// Returns the layer of this id, if all of it exists.
    pub(super) fn find(overlay: &Path, id: &str) -> Option<Self> {
        let directory = overlay.join(id);
        let link = std::fs::read_to_string(directory.join("link")).ok()?;
        let lower = match std::fs::read_to_string(directory.join("lower")) {
            Ok(lower) => lower,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(_) => return None,
        };
        let tree = directory.join(TREE);
        let mut diff = std::fs::read_link(&tree).ok()?;
        let mut file = None;
        if diff == Path::new(layer_mount::TREE) {
            let number = std::fs::read_to_string(directory.join(NUMBER)).ok()?.parse().ok()?;
            file = Some(PlacedFile::of(LayerId(number), &directory.join(layer_mount::LAYER_FILE)).ok()?);
            diff = tree;
        }
        let is_linked = std::fs::read_link(overlay.join(LINKS).join(&link)).ok()? == target_of_link(id);
        is_linked.then_some(Self { link, lower, diff, file })
    }

    /// Makes the layer lie in the view.
    pub(super) fn write(&self, overlay: &Path, id: &str, store_layers: &Path) -> io::Result<()> {
        let directory = overlay.join(id);
        make_directory(&directory)?;
        write_file(&directory.join("link"), self.link.as_bytes())?;
        let lower = directory.join("lower");
        if !self.lower.is_empty() {
            write_file(&lower, self.lower.as_bytes())?;
        } else if lower.exists() {
            std::fs::remove_file(lower)?;
        }
        match &self.file {
            None => write_link(&directory.join(TREE), &self.diff)?,
            Some(file) => self.place(&directory, file, store_layers)?,
        }
        write_link(&overlay.join(LINKS).join(&self.link), &target_of_link(id))
    }

    /// Links and mounts the EROFS file. Until it is mounted, the tree leads nowhere.
    fn place(&self, directory: &Path, file: &PlacedFile, store_layers: &Path) -> io::Result<()> {
        let tree = directory.join(TREE);
        write_link(&tree, Path::new(layer_mount::TREE))?;
        write_file(&directory.join(NUMBER), file.layer.to_string().as_bytes())?;
        let mount = LayerMount::of(&tree).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        if PlacedFile::of(file.layer, &mount.file()).is_ok_and(|placed| placed == *file) {
            return mount.make_ready().map(drop).map_err(Into::into);
        }
        let new = directory.join(NEW_FILE);
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => std::fs::hard_link(file_of(store_layers, file.layer), &new)?,
        }
        mount.place(&new)
    }

    /// Mounts the layer if it is an EROFS file that is not mounted.
    pub(super) fn make_ready(&self) -> io::Result<()> {
        match (&self.file, LayerMount::of(&self.diff)) {
            (Some(_), Some(mount)) => mount.make_ready().map(drop).map_err(Into::into),
            _ => Ok(()),
        }
    }
}

/// Unmounts the layer in a directory of the view, if it is an EROFS file, so that the directory can be removed.
pub(super) fn unmount(directory: &Path) -> io::Result<()> {
    let mount = LayerMount::of(&directory.join(TREE)).filter(|mount| mount.is_linked() || mount.is_mounted());
    mount.map_or(Ok(()), |mount| mount.release())
}

/// Makes the directories of new layers durable, so that a start of the machine finds them.
pub(super) fn sync(overlay: &Path) -> io::Result<()> {
    File::open(overlay)?.sync_all()
}

fn file_of(store_layers: &Path, layer: LayerId) -> PathBuf {
    store_layers.join(layer.to_string()).join(EROFS_FILE)
}

fn target_of_link(id: &str) -> PathBuf {
    Path::new("..").join(id).join(TREE)
}
