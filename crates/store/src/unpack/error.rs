//! [`UnpackError`]: why a layer could not be unpacked.

use std::io;

use crate::tar::{PrintableName, TarError, shown};

/// Why a layer could not be unpacked. Paths are those inside the layer, made printable.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive cannot be read, is malformed, or holds more than the limits permit.
    #[error(transparent)]
    Archive(TarError),
    /// The caller gave up.
    #[error("unpacking was cancelled")]
    Cancelled,
    /// An entry asks for something that is refused.
    #[error("layer entry {path:?} is refused: {reason}")]
    Refused {
        /// The name.
        path: PrintableName,
        /// Why.
        reason: String,
    },
    /// A system call failed. A full disk is seen in the kind of the source.
    #[error("{operation} {path:?}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// On what.
        path: PrintableName,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl From<TarError> for UnpackError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Raw(source) => recipe(source),
            error => Self::Archive(error),
        }
    }
}

/// The recipe could not be written.
pub(super) fn recipe(source: io::Error) -> UnpackError {
    UnpackError::Io { operation: "writing", path: crate::recipe::FILE.into(), source }
}

/// A system call on a path of the layer failed.
pub(super) fn failed(operation: &'static str, path: &[u8], source: impl Into<io::Error>) -> UnpackError {
    let path = if path.is_empty() { "/".into() } else { shown(path) };
    UnpackError::Io { operation, path, source: source.into() }
}

/// An entry is refused.
pub(super) fn refused(path: &[u8], reason: impl Into<String>) -> UnpackError {
    UnpackError::Refused { path: shown(path), reason: reason.into() }
}
