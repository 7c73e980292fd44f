//! Why something of an image could not be read or copied.

use std::io;
use std::path::PathBuf;

use oci::Digest;

use super::attributes::Kind;
use crate::tar::PrintableName;

/// Why a view does not answer. Paths are cut and their control characters written out.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// No file exists at the path.
    #[error("{path}: no such file or directory in the image")]
    NotFound {
        /// The path that was asked for.
        path: String,
    },
    /// Something else than was asked for.
    #[error("{path} is {}, not {}", is.a(), wanted.a())]
    Kind {
        /// The path.
        path: String,
        /// The kind.
        is: Kind,
        /// The wanted type.
        wanted: Kind,
    },
    /// Symbolic links that lead to each other, or too many of them.
    #[error("{path}: too many symbolic links")]
    Links {
        /// The path that was asked for.
        path: String,
    },
    /// A directory has a name that none can have.
    #[error("{path} of layer {diff_id} holds a name that is none: {name:?}")]
    Name {
        /// The directory.
        path: String,
        /// The layer.
        diff_id: Digest,
        /// The name.
        name: PrintableName,
    },
    /// Another version of the program describes the leased layers in a form that this one does not know.
    #[error("read the description of leased layers")]
    Lease(#[source] serde_json::Error),
    /// A layer could not be opened.
    #[error("open layer {diff_id}")]
    Layer {
        /// The layer.
        diff_id: Digest,
        /// The fault.
        source: io::Error,
    },
    /// A layer could not be read.
    #[error("read {path} of layer {diff_id}")]
    Read {
        /// The path.
        path: String,
        /// The layer.
        diff_id: Digest,
        /// The fault.
        source: io::Error,
    },
    /// The copy could not be written.
    #[error("{operation} {}", path.display())]
    Write {
        /// The operation.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Something exists where the copy is to be made, and is not replaced by it.
    #[error("{} is there already, and {there}: {kept}", path.display())]
    InTheWay {
        /// Where.
        path: PathBuf,
        /// The entry there.
        there: &'static str,
        /// Why it stays.
        kept: &'static str,
    },
    /// The caller wants no more.
    #[error("the copy was given up")]
    Cancelled,
}
