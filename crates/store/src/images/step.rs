//! A step of a commit: what becomes of one layer of an image. [`crate::images::plan`] decides it.

use std::sync::Arc;

use oci::Digest;

use crate::disk::layer::{LayerId, Shape};
use crate::ingest::layer::UnpackedLayer;

/// A step of a commit, for one layer.
pub(crate) enum Step {
    /// The store has it.
    Use(LayerId, Shape),
    /// The same layer occurs lower down in this very image, and gets that number there; until then it is in this private
    /// directory.
    Twin { id: LayerId, number: u64, shape: Shape },
    /// A new layer, which gets a number.
    Move(Move),
}

impl Step {
    pub(crate) fn id(&self) -> LayerId {
        match self {
            Self::Use(id, _) | Self::Twin { id, .. } => *id,
            Self::Move(step) => step.id,
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        match self {
            Self::Use(_, shape) | Self::Twin { shape, .. } => *shape,
            Self::Move(step) => step.layer.shape,
        }
    }

    pub(crate) fn as_move(&self) -> Option<&Move> {
        match self {
            Self::Use(..) | Self::Twin { .. } => None,
            Self::Move(step) => Some(step),
        }
    }
}

/// A directory that moves from `ingest/` to `layers/`.
pub(crate) struct Move {
    pub(crate) id: LayerId,
    pub(crate) number: u64,
    pub(crate) layer: Arc<UnpackedLayer>,
    pub(crate) diff_id: Digest,
    /// Set when its directories depend on what is below.
    pub(crate) chain_id: Option<Digest>,
    /// A record of the same layer whose directory is missing.
    pub(crate) replaces: Option<LayerId>,
}

/// Returns true if the layer has no entry for its root, which is the first of its implicit directories.
pub(crate) fn has_implicit_root(layer: &UnpackedLayer) -> bool {
    layer.outcome.implicit_dirs.first().is_some_and(Vec::is_empty)
}
