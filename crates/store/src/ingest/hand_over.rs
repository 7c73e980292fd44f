//! Layers that leave this store for another one on the same file system: their directories get the attributes of the layers below
//! them in that store, and the caller moves them.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use oci::Digest;
use rustix::fs::{Mode, OFlags};

use crate::Lower;
use crate::disk::layer::Shape;
use crate::disk::layout;
use crate::error::StoreError;
use crate::ingest::layer::{LayerPlace, UnpackedLayer};
use crate::unpack::{Attributes, PathLookup};

impl UnpackedLayer {
    /// Returns true if its files are the same on top of any layers, except for the attributes of its root.
    #[must_use]
    pub fn is_independent(&self) -> bool {
        self.outcome.implicit_dirs.iter().all(Vec::is_empty)
    }

    /// Returns the place of the layer's files as long as only this store has them.
    #[must_use]
    pub fn files(&self) -> Option<Lower> {
        let LayerPlace::Private { number, .. } = self.place() else { return None };
        Some(self.shape.lower(&self.ingests.catalog.disk.layout.ingest_path(number)))
    }

    /// Gives directories that the layer has no entries for the attributes that they have in the layers `below`, the highest first.
    /// The root stays as it is. Returns false if the layer is not to be had any more, or was made fit for another chain.
    ///
    /// # Errors
    /// The disk refused something.
    pub fn fit_on(&self, chain_id: &Digest, below: &[Lower]) -> Result<bool, StoreError> {
        let LayerPlace::Private { number, patched_for } = self.place() else { return Ok(false) };
        let implicit: Vec<Vec<u8>> =
            self.outcome.implicit_dirs.iter().filter(|path| !path.is_empty()).cloned().collect();
        if implicit.is_empty() {
            return Ok(true);
        }
        if patched_for.is_some_and(|patched_for| patched_for != *chain_id) {
            return Ok(false);
        }
        let layout = &self.ingests.catalog.disk.layout;
        let failed =
            |source| StoreError::io("set the attributes of directories in", layout.ingest_path(number), source);
        let directory = layout::open_directory(&layout.ingest, &number.to_string()).map_err(failed)?;
        self.note_patch(chain_id);
        let opened = RefCell::new(Opened { below, layers: Vec::new() });
        let below = |path: &[u8]| opened.borrow_mut().find(path);
        let privileged = self.ingests.layers.privileged;
        self.shape.patch(directory.as_fd(), &implicit, &below, privileged).map_err(failed)?;
        Ok(true)
    }

    /// Has `place` move its files away, from the path that it is called with. Returns false if the layer is not to be had any more.
    ///
    /// # Errors
    /// The files could not be moved; they are still in this store, or lost.
    pub fn hand_over(&self, place: impl FnOnce(&Path) -> io::Result<()>) -> Result<bool, StoreError> {
        let Some(files) = self.files() else { return Ok(false) };
        place(files.path()).map_err(|source| StoreError::io("move a layer from", files.path(), source))?;
        self.note_lost();
        Ok(true)
    }
}

/// Layers below, opened at the first lookup.
struct Opened<'a> {
    below: &'a [Lower],
    layers: Vec<OwnedFd>,
}

impl Opened<'_> {
    /// Open files of layers at a time.
    const MOST: usize = 128;

    fn find(&mut self, path: &[u8]) -> io::Result<Option<Attributes>> {
        for (number, lower) in self.below.iter().enumerate() {
            let found = if number < Self::MOST {
                while self.layers.len() <= number {
                    self.layers.push(open(&self.below[self.layers.len()])?);
                }
                find_in_layer(lower, &self.layers[number], path)?
            } else {
                find_in_layer(lower, &open(lower)?, path)?
            };
            match found {
                PathLookup::Here(attributes) => return Ok(Some(attributes)),
                PathLookup::Hidden => return Ok(None),
                PathLookup::Absent => {}
            }
        }
        Ok(None)
    }
}

/// The tree of a layer of directories, or the directory with the file of another one.
fn open(lower: &Lower) -> io::Result<OwnedFd> {
    let path = match lower {
        Lower::Directory(path) => path.as_path(),
        Lower::Erofs(path) => path.parent().unwrap_or(path),
    };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("{}: {error}", path.display())))
}

fn find_in_layer(lower: &Lower, opened: &OwnedFd, path: &[u8]) -> io::Result<PathLookup> {
    match lower {
        Lower::Directory(_) => Ok(crate::unpack::find(opened.as_fd(), path)?),
        Lower::Erofs(_) => Shape::Erofs.find(opened.as_fd(), path),
    }
}
