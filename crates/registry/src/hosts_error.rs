//! [`HostsError`]: an error in the configuration of a registry's hosts, with its line, key or file. The parser in
//! `hosts` makes most of them; loaders outside of this crate add the file.

use std::io;

/// An error in the configuration of a registry's hosts.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The text is no TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// The TOML parser's message.
        message: String,
    },
    /// A key is unknown, or its value is of no use.
    #[error("line {line}: {key}: {message}")]
    Key {
        /// Line, from 1.
        line: usize,
        /// The key with its tables, for example `host."https://m.example".ca`.
        key: String,
        /// The fault, as a text.
        message: String,
    },
    /// A file that the text names cannot be read or used.
    #[error("{key}: {path}: {message}")]
    Certificate {
        /// The key that names it.
        key: String,
        /// The path as it stands in the text.
        path: String,
        /// The fault, as a text.
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
        /// The file or directory.
        path: String,
        /// The I/O error.
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
    /// Wraps the error with the path of the file that it is about.
    #[must_use]
    pub fn in_file(self, path: impl Into<String>) -> Self {
        Self::In { path: path.into(), source: Box::new(self) }
    }
}
