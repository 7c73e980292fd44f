//! A layer as a view reads it, and the one place of the view that asks for its shape. Paths are relative to the layer's root;
//! they are made of names that were found in it, and never of symbolic links.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use super::attributes::LayerNode;
use super::dir::DirLayer;
use super::erofs::{ErofsContent, ErofsLayer};
use super::path::join;
use crate::Lower;
use crate::disk::layer::Shape;

/// A place in a layer: its path, and its number where the shape has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    pub(super) path: &'a [u8],
    pub(super) nid: u64,
}

/// An open layer.
#[derive(Debug)]
pub(super) enum OpenLayer {
    Dir(DirLayer),
    Erofs(ErofsLayer),
}

impl OpenLayer {
    /// Opens the layer in this directory. `owners_on_disk`: files of a directory tree have their owners themselves.
    pub(super) fn open(directory: &OwnedFd, shape: Shape, owners_on_disk: bool) -> io::Result<Self> {
        match shape {
            Shape::Dir => Ok(Self::Dir(DirLayer::open(directory, owners_on_disk)?)),
            Shape::Erofs => Ok(Self::Erofs(ErofsLayer::open(directory)?)),
        }
    }

    /// Opens a layer that lies in a runtime's store. Its files have their owners themselves.
    pub(super) fn at(layer: &Lower) -> io::Result<Self> {
        match layer {
            Lower::Directory(path) => Ok(Self::Dir(DirLayer::at(path)?)),
            Lower::Erofs(path) => Ok(Self::Erofs(ErofsLayer::at(path)?)),
        }
    }

    pub(super) fn root(&self) -> io::Result<LayerNode> {
        match self {
            Self::Dir(layer) => layer.find(b"")?.ok_or_else(|| io::ErrorKind::NotFound.into()),
            Self::Erofs(layer) => layer.root(),
        }
    }

    /// Looks up a name in a directory. `path` is that of the name.
    pub(super) fn child(&self, dir: At<'_>, name: &[u8]) -> io::Result<Option<LayerNode>> {
        match self {
            Self::Dir(layer) => layer.find(&join(dir.path, name)),
            Self::Erofs(layer) => layer.child(dir.nid, name),
        }
    }

    pub(super) fn list(&self, dir: At<'_>) -> io::Result<Vec<(Vec<u8>, LayerNode)>> {
        match self {
            Self::Dir(layer) => layer.list(dir.path),
            Self::Erofs(layer) => layer.list(dir.nid),
        }
    }

    /// Returns true if nothing of the layers below shows in a directory.
    pub(super) fn is_opaque(&self, dir: At<'_>) -> io::Result<bool> {
        match self {
            Self::Dir(layer) => layer.is_opaque(dir.path),
            Self::Erofs(layer) => layer.is_opaque(dir.nid),
        }
    }

    pub(super) fn target(&self, link: At<'_>) -> io::Result<Vec<u8>> {
        match self {
            Self::Dir(layer) => layer.target(link.path),
            Self::Erofs(layer) => layer.target(link.nid),
        }
    }

    /// Extended attributes, but for what overlayfs keeps in them.
    pub(super) fn xattrs(&self, at: At<'_>) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self {
            Self::Dir(layer) => layer.xattrs(at.path),
            Self::Erofs(layer) => layer.xattrs(at.nid),
        }
    }

    pub(super) fn content(&self, file: At<'_>) -> io::Result<LayerContent<'_>> {
        match self {
            Self::Dir(layer) => Ok(LayerContent::File(layer.file(file.path)?)),
            Self::Erofs(layer) => Ok(LayerContent::Erofs(layer.content(file.nid)?)),
        }
    }
}

/// An open file of a layer.
#[derive(Debug)]
pub(super) enum LayerContent<'a> {
    File(File),
    Erofs(ErofsContent<'a>),
}

impl LayerContent<'_> {
    /// Reads from `offset` on; nothing at the end.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(buffer, offset),
            Self::Erofs(file) => file.read_at(offset, buffer),
        }
    }

    /// Where the hole ends that begins at `offset`; `offset` itself where there is none.
    pub(super) fn hole(&self, offset: u64) -> io::Result<u64> {
        match self {
            Self::File(file) => super::dir::hole(file, offset),
            Self::Erofs(file) => file.hole(offset),
        }
    }
}
