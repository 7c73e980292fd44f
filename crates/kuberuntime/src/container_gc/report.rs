//! [`ContainerGcReport`] and [`ContainerGcError`]: what a round did, and what it could not do. Plain data.

use super::plan::Row;

/// Result of a round, which goes on where a part of it fails.
#[derive(Debug, Default)]
pub struct ContainerGcReport {
    /// Containers that went.
    pub containers: Vec<Row>,
    /// Sandboxes that went.
    pub sandboxes: Vec<Row>,
    /// Log directories that went.
    pub log_directories: Vec<Row>,
    /// Links that went.
    pub log_links: Vec<Row>,
    /// Log files of containers that went with them.
    pub log_files: usize,
    /// Failures.
    pub errors: Vec<ContainerGcError>,
}

impl ContainerGcReport {
    /// Returns true if nothing was removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.containers, &self.sandboxes, &self.log_directories, &self.log_links].iter().all(|rows| rows.is_empty())
    }

    /// All failures in one line; `None` if there are none.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let texts: Vec<String> = self.errors.iter().map(chain).collect();
        match texts.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            // As the kubelet prints several errors.
            more => Some(format!("[{}]", more.join(", "))),
        }
    }
}

/// A failure of a round.
#[derive(Debug, thiserror::Error)]
pub enum ContainerGcError {
    /// The runtime did not answer with a list.
    #[error("{what}")]
    List {
        /// The request.
        what: &'static str,
        /// Error of the runtime.
        source: cri_api::Error,
    },
    /// A container or sandbox stays.
    #[error("{what} {id}")]
    Runtime {
        /// The operation.
        what: &'static str,
        /// On what.
        id: String,
        /// Why it stays.
        source: cri_api::Error,
    },
    /// Logs stay.
    #[error("{what} {name}")]
    Logs {
        /// The operation.
        what: &'static str,
        /// On what.
        name: String,
        /// Why they stay.
        source: std::io::Error,
    },
    /// The process ends.
    #[error("the process ends")]
    ShuttingDown,
}

/// An error with its causes, in one line.
fn chain(error: &ContainerGcError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
