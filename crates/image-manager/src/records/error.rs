//! [`RecordsError`]: what can go wrong with the files of pull intents and pulled records.

use std::io;
use std::path::PathBuf;

use oci::ReferenceError;

/// Why a record could not be read, written or removed.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The file system refused.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation that failed, a verb for the message: `read`, `write`, `lock`.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// A file does not hold what its name says.
    #[error("{} holds no {kind}: {what}", path.display())]
    Content {
        /// The file of the record.
        path: PathBuf,
        /// `ImagePullIntent` or `ImagePulledRecord`.
        kind: &'static str,
        /// The fault.
        what: String,
    },
    /// An image under whose name nothing can be recorded.
    #[error("invalid image name {image:?}: {source}")]
    Name {
        /// The image as it was requested.
        image: String,
        /// The parser's error.
        source: ReferenceError,
    },
    /// The work was given up because the process ends.
    #[error("records are closed: the process ends")]
    Closed,
}

impl RecordsError {
    /// Returns true if there was no space for the record.
    pub(crate) fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if base::is_disk_full(source))
    }

    pub(super) fn io(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { operation, path, source }
    }
}
