//! [`ManifestError`] and [`ObjectOrigin`]: why a manifest is refused, and the place that the error names. Used by all readers of
//! manifests.

use std::fmt;

use crate::yaml::Position;

/// Where an object was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOrigin {
    /// File name as given; `-` is standard input.
    pub file: String,
    /// Number of the document in the file; empty ones are not counted.
    pub document: usize,
    /// First line of the object.
    pub line: u64,
}

impl fmt::Display for ObjectOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: document {}", shown(&self.file), self.line, self.document)
    }
}

fn shown(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// Why a manifest is refused: one line that says where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("{}{}: {message}", shown(file), position.map(|p| format!(":{}:{}", p.line, p.column)).unwrap_or_default())]
    Yaml { file: String, position: Option<Position>, message: String },
    #[error("{}: there is no pod in it", shown(file))]
    Empty { file: String },
    #[error("there is no pod in any of the manifests")]
    NoPod,
    #[error("{at}: {message}")]
    Object { at: ObjectOrigin, message: String },
}
