//! [`ReadError`]: why an EROFS file could not be read.

use std::io;

/// Why an EROFS file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Where the EROFS file comes from.
    #[error("cannot read the image")]
    Source(#[source] io::Error),
    /// Something else.
    #[error("not an EROFS image")]
    NotErofs,
    /// An EROFS file of a kind that is not read here.
    #[error("the image uses {feature}, which is not supported")]
    Unsupported {
        /// The feature.
        feature: String,
    },
    /// The EROFS file contradicts itself.
    #[error("the image is damaged: {what}")]
    Damaged {
        /// Where, and what is wrong.
        what: String,
    },
}

impl ReadError {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    pub(super) fn unsupported(feature: impl Into<String>) -> Self {
        Self::Unsupported { feature: feature.into() }
    }
}

/// For readers of files: one error for all.
impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Source(source) => source,
            ReadError::Unsupported { .. } => Self::new(io::ErrorKind::Unsupported, error),
            ReadError::NotErofs | ReadError::Damaged { .. } => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}
