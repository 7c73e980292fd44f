//! Why a layer's tar stream cannot be built again.

use std::io;

use crate::tar::PrintableName;

/// Why a tar stream could not be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The output failed.
    #[error("writing the layer")]
    Write(#[source] io::Error),
    /// The layer has no recipe.
    #[error("the layer has no recipe")]
    Missing,
    /// The recipe, or a file that it needs, is not what it was.
    #[error("the layer is damaged: {what}")]
    Damaged {
        /// The fault.
        what: String,
    },
    /// A system call failed.
    #[error("reading {path:?} of the layer")]
    Read {
        /// The recipe, or a file below `fs/`.
        path: PrintableName,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl RecipeError {
    /// Returns true if it is the layer that is damaged, and not the system that lacks something.
    pub(crate) fn is_of_the_medium(&self) -> bool {
        match self {
            Self::Missing | Self::Damaged { .. } => true,
            Self::Read { source, .. } => crate::io_error::is_of_the_medium(source),
            Self::Write(_) => false,
        }
    }
}

pub(super) fn damaged(what: impl Into<String>) -> RecipeError {
    RecipeError::Damaged { what: what.into() }
}
