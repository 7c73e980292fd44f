//! [`GcReport`] and [`GcError`]: what a round of collection did, and why it did not do all. Plain data.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disk::DiskSpace;
use super::keep_rules::PatternError;
use super::plan::RemovedBecause;
use super::state_files::StateError;

/// Report of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Removed images, in order.
    pub removed: Vec<RemovedImage>,
    /// Bytes that were to be freed; 0 when there was no need.
    pub wanted_bytes: u64,
    /// Bytes that were freed.
    pub freed_bytes: u64,
    /// The file system afterwards, where it was measured.
    pub disk: Option<DiskSpace>,
    /// Number of pulled records that were removed with their images.
    pub pruned_records: usize,
}

/// A removed image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedImage {
    /// Id of the image.
    pub id: String,
    /// Names of the image, tags first.
    pub names: Vec<String>,
    /// Freed bytes: exact, measured, or the size reported by the runtime.
    pub freed_bytes: u64,
    /// Why the image was removed.
    pub because: RemovedBecause,
    /// Time until which the image was protected, if it was removed nevertheless because nothing else sufficed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_until: Option<Timestamp>,
}

/// Why a round did not do all that it should.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    /// The runtime did not answer with its lists.
    #[error("{what}")]
    Runtime {
        /// The call that failed, for people: `list images`.
        what: &'static str,
        /// Error of the runtime.
        source: cri_api::Error,
    },
    /// The file system could not be measured.
    #[error("measure the image file system {}", path.display())]
    Disk {
        /// A directory on the file system.
        path: PathBuf,
        /// Why it could not be measured.
        source: std::io::Error,
    },
    /// The runtime names no file system for its images.
    #[error("imageFs information is unavailable")]
    NoImageFs,
    /// The file system says that it has no bytes.
    #[error("invalid capacity 0 on image filesystem")]
    InvalidCapacity,
    /// Removals failed. What else was to be done has been done.
    #[error("wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {failures}")]
    Removal {
        /// Bytes to free.
        wanted: u64,
        /// Bytes that were.
        freed: u64,
        /// The causes, one for each image.
        failures: String,
    },
    /// Removals by age failed.
    #[error("wanted to free images older than {}, encountered errors in image deletion: {failures}", base::GoDuration::from_millis_of(*limit))]
    AgeRemoval {
        /// The age beyond which unused images go: `imageMaximumGCAge`.
        limit: Duration,
        /// The causes, one for each image.
        failures: String,
    },
    /// There was not enough to remove.
    #[error("{0}")]
    NotEnough(String),
    /// The state could not be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// Several parts of a round failed.
    #[error("{}", .0.iter().map(chain).collect::<Vec<_>>().join("; "))]
    Several(Vec<GcError>),
    /// The process ends.
    #[error("the process ends")]
    ShuttingDown,
    /// The pattern of a pin is none.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &GcError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Result of a round: its report, and the error that kept it from doing everything.
pub(super) type Done = (GcReport, Option<GcError>);

/// Returns the report of a round that did everything, and otherwise its error.
pub(super) fn all_done((report, error): Done) -> Result<GcReport, GcError> {
    error.map_or(Ok(report), Err)
}
