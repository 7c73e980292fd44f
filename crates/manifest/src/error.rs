//! [`ManifestError`], [`ManifestNote`] and [`ObjectOrigin`]: why a manifest is refused, what its author should know, and the place
//! that is named. Used by all readers of manifests.

use std::fmt;

use oci::text::escaped;

use crate::yaml::Position;

/// Position of an object in its file.
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

/// A problem of a manifest that is read all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestNote {
    /// The object that has it.
    pub at: ObjectOrigin,
    /// Message in one line, without the place.
    pub message: String,
}

/// The most objects that are named where none of them is a pod.
const NAMED: usize = 5;

/// The reason why a manifest is refused: one line with the position, whatever the names in the manifest are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Text that is no YAML.
    #[error("{}{}: {}", shown(file), position.map(|p| format!(":{}:{}", p.line, p.column)).unwrap_or_default(), escaped(message, &[]))]
    Yaml {
        /// File name as given.
        file: String,
        /// The place of the fault, where the parser knows it.
        position: Option<Position>,
        /// Message in one line, without the place.
        message: String,
    },
    /// No pod in any manifest.
    #[error("{}{}", lack(file), others(passed_by))]
    NoPod {
        /// File name as given, where there is only one.
        file: Option<String>,
        /// The objects that are there, as kubectl names them.
        passed_by: Vec<String>,
    },
    /// An object with a field that is missing or wrong.
    #[error("{at}: {}", escaped(message, &[]))]
    Object {
        /// The place of the object.
        at: ObjectOrigin,
        /// Message in one line, without the place.
        message: String,
    },
}

fn lack(file: &Option<String>) -> String {
    match file {
        Some(file) => format!("{}: there is no pod in it", shown(file)),
        None => "there is no pod in any of the manifests".to_owned(),
    }
}

fn others(passed_by: &[String]) -> String {
    if passed_by.is_empty() {
        return String::new();
    }
    let (named, rest) = passed_by.split_at(passed_by.len().min(NAMED));
    let rest = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    format!(", only {}{rest}", escaped(&named.join(", "), &[]))
}
