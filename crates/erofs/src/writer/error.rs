//! [`WriteError`]: why an EROFS file could not be written.

use std::io;

use crate::ReadError;

/// Why an EROFS file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Where the EROFS file goes to.
    #[error("cannot write the image")]
    Sink(#[source] io::Error),
    /// Where names go that do not fit into memory.
    #[error("cannot access the temporary file of names")]
    Spill(#[source] io::Error),
    /// The EROFS file that has a file's blocks.
    #[error("cannot read the referenced image")]
    Other(#[from] ReadError),
    /// The format has no place for it.
    #[error("an EROFS image cannot hold {what}")]
    Beyond {
        /// The limit, with the value.
        what: String,
    },
    /// The caller is wrong: calls in another order, or another length than was said.
    #[error("invalid use of the EROFS writer: {0}")]
    Misused(&'static str),
    /// A call failed before.
    #[error("the EROFS writer has failed before")]
    Broken,
}

impl WriteError {
    /// An extended attribute that has no place.
    pub(crate) fn attribute(name: &[u8], value: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name);
        Self::Beyond { what: format!("the extended attribute {name:?} of {} bytes", value.len()) }
    }
}
