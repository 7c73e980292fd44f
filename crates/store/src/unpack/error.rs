//! [`UnpackError`]: why a layer could not be unpacked.

use std::io;

use crate::tar::{TarError, shown};

/// Why a layer could not be unpacked. Paths are those inside the layer, made printable.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The source of the stream failed.
    #[error("reading the layer")]
    Read(#[source] io::Error),
    /// The caller gave up.
    #[error("unpacking was cancelled")]
    Cancelled,
    /// The stream ends too early.
    #[error("the layer ends inside {inside}, at byte {offset}")]
    Truncated {
        /// The header or the entry.
        inside: String,
        /// Where it ends.
        offset: u64,
    },
    /// The stream is no archive with one meaning.
    #[error("malformed layer at byte {offset}: {what}")]
    Malformed {
        /// Where.
        offset: u64,
        /// The fault.
        what: String,
    },
    /// The layer holds more than the limits permit.
    #[error("{subject} has {seen} {limit_name}, over the limit of {limit}")]
    Limit {
        /// The layer, or the entry.
        subject: String,
        /// The limit, in words.
        limit_name: &'static str,
        /// The limit.
        limit: u64,
        /// The value that was seen, at least.
        seen: u64,
    },
    /// An entry asks for something that is refused.
    #[error("layer entry {path:?} is refused: {reason}")]
    Refused {
        /// The name.
        path: String,
        /// Why.
        reason: String,
    },
    /// A system call failed. A full disk is seen in the kind of the source.
    #[error("{operation} {path:?}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// On what.
        path: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl From<TarError> for UnpackError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Read(source) => Self::Read(source),
            TarError::Raw(source) => recipe(source),
            TarError::Truncated { inside, offset } => Self::Truncated { inside, offset },
            TarError::Malformed { offset, what } => Self::Malformed { offset, what },
            TarError::Limit { subject, limit_name, limit, seen } => Self::Limit { subject, limit_name, limit, seen },
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
