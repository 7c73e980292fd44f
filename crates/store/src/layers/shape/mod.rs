//! [`Shape`]: the form of a layer on the disk, and the one place where it is distinguished. The record of a layer has its shape;
//! ingest, commit, mounts and checks call this module, and nothing above the unpacker and the mounter depends on the shape.
//!
//! Every shape keeps to this: all files of a layer are in a directory of its own, which is made under `ingest/`, moves to
//! `layers/` when it is committed, and is deleted as a whole. So removal, the sweep and the reserve do not depend on the shape.
//! The recipe is in that directory too, and the layer's tar stream can be rebuilt. A shape whose directories' attributes cannot
//! be changed once it is written is written out at the latest by [`Shape::patch`], which runs before the sync.

mod dir;
mod erofs;
mod file_type;

use std::io::{self, BufRead, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use crate::Lower;
use crate::disk::layer::{LayerId, Shape};
use crate::recipe::RecipeError;
use crate::records::entries::LayerStats;
use crate::unpack::{Below, PathLookup, UnpackError, UnpackOptions, UnpackOutcome};
use crate::view::Deferred;

impl Shape {
    /// Makes what an ingest needs in the private directory of a new layer.
    pub(crate) fn begin(self, private: &OwnedFd) -> io::Result<()> {
        match self {
            Self::Dir => dir::begin(private),
            // The unpacker makes its file.
            Self::Erofs => Ok(()),
        }
    }

    /// Applies a tar stream, which is read to its end, and counts what the layer takes on the disk, all that lies in its private
    /// directory and that directory included.
    pub(crate) fn apply(
        self,
        tar: &mut dyn BufRead,
        private: BorrowedFd<'_>,
        options: &UnpackOptions<'_>,
    ) -> Result<(UnpackOutcome, LayerStats), UnpackError> {
        match self {
            Self::Dir => dir::apply(tar, private, options),
            Self::Erofs => erofs::apply(tar, private, options),
        }
    }

    /// Gives the layer's implicit directories the attributes of the same directories in the layers below. The layer cannot be
    /// mounted before. Returns the additional bytes and inodes of the layer beyond those counted.
    pub(crate) fn patch(
        self,
        layer: BorrowedFd<'_>,
        implicit: &[Vec<u8>],
        below: Below<'_>,
        privileged: bool,
    ) -> io::Result<(u64, u64)> {
        match self {
            Self::Dir => dir::patch(layer, implicit, below, privileged),
            Self::Erofs => erofs::patch(layer, implicit, below).map(|()| (0, 0)),
        }
    }

    /// Looks up a path in the layer, for the layers above it. The empty path is its root.
    pub(crate) fn find(self, layer: BorrowedFd<'_>, path: &[u8]) -> io::Result<PathLookup> {
        match self {
            Self::Dir => dir::find(layer, path),
            Self::Erofs => erofs::find(layer, path),
        }
    }

    /// Returns the lower layer that the mounter takes for the layer in `directory`.
    pub(crate) fn lower(self, directory: &Path) -> Lower {
        match self {
            Self::Dir => Lower::Directory(dir::tree_path(directory)),
            Self::Erofs => Lower::Erofs(erofs::file_path(directory)),
        }
    }

    /// Returns true if a layer with this number exists, of any shape.
    pub(crate) fn is_there(layers: &OwnedFd, id: LayerId) -> bool {
        Self::ALL.iter().any(|shape| match shape {
            Self::Dir => dir::is_there(layers, id),
            Self::Erofs => erofs::is_there(layers, id),
        })
    }

    /// Bytes and inodes of a layer that is written out, which can be more than was counted when it was applied. `outcome` says
    /// what that was, if it was on this disk.
    pub(crate) fn measure(self, layer: BorrowedFd<'_>, outcome: Option<&UnpackOutcome>) -> io::Result<(u64, u64)> {
        match self {
            Self::Dir => dir::measure(layer, outcome),
            Self::Erofs => erofs::measure(layer),
        }
    }

    /// Reads the owners and similar attributes that are recorded next to the layer's files, where the files cannot have them.
    pub(crate) fn deferred(self, layer: BorrowedFd<'_>, privileged: bool) -> io::Result<Option<Deferred>> {
        match self {
            Self::Dir if !privileged => Deferred::read(layer).map(Some),
            Self::Dir | Self::Erofs => Ok(None),
        }
    }

    /// Writes the tar stream that the layer was made from, bit for bit. It does not hash.
    pub(crate) fn rebuild(self, layer: BorrowedFd<'_>, out: &mut dyn Write) -> Result<(), RecipeError> {
        match self {
            Self::Dir | Self::Erofs => crate::recipe::rebuild(layer, out),
        }
    }

    /// Checks the metadata that holds the layer's files together, which is neither in the files nor in the recipe.
    pub(crate) fn verify(self, layer: BorrowedFd<'_>) -> Result<(), RecipeError> {
        match self {
            // The file system's business.
            Self::Dir => Ok(()),
            Self::Erofs => crate::recipe::check_erofs(layer),
        }
    }

    /// Checks that everything is present from which the stream is built, without reading it.
    pub(crate) fn examine(self, layer: BorrowedFd<'_>) -> Result<u64, RecipeError> {
        self.verify(layer)?;
        match self {
            Self::Dir | Self::Erofs => crate::recipe::examine(layer),
        }
    }

    /// The first difference between the layer and a copy of the same shape whose files have no content, in words. Directories
    /// of `implicit` may differ in what they took over from layers below.
    pub(crate) fn difference(
        self,
        there: BorrowedFd<'_>,
        copy: BorrowedFd<'_>,
        implicit: &[Vec<u8>],
        cancelled: &dyn Fn() -> bool,
    ) -> crate::layers::compare::Compared {
        match self {
            Self::Dir => crate::layers::compare::difference(there, copy, implicit, cancelled),
            Self::Erofs => crate::layers::compare_erofs::erofs_difference(there, copy, implicit, cancelled),
        }
    }
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
