//! [`HostsError`]: why the hosts of a registry cannot be told, with the line, key or file that is to blame. The parser in
//! `hosts` makes most of them; loaders outside add the file.

use std::io;

/// Why the hosts of a registry cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The text is no TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// A key is unknown, or its value is of no use.
    #[error("line {line}: {key}: {message}")]
    Key {
        /// Line, from 1.
        line: usize,
        /// The key with its tables, for example `host."https://m.example".ca`.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// A file that the text names cannot be read or used.
    #[error("{key}: {path}: {message}")]
    Certificate {
        /// The key that names it.
        key: String,
        /// The path as it stands in the text.
        path: String,
        /// What is wrong with it.
        message: String,
    },
    /// The domain is not `host[:port]`.
    #[error("{domain:?} is not a registry host")]
    Domain {
        /// The text.
        domain: String,
    },
    /// A loader could not read a file or directory.
    #[error("{path}: {source}")]
    Read {
        /// What it was.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// An error with the file that it is in.
    #[error("{path}: {source}")]
    In {
        /// The file.
        path: String,
        /// The error.
        source: Box<HostsError>,
    },
}

impl HostsError {
    /// The same error, with the path of the file that it is about.
    #[must_use]
    pub fn in_file(self, path: impl Into<String>) -> Self {
        Self::In { path: path.into(), source: Box::new(self) }
    }
}
