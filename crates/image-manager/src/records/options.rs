//! [`RecordsOptions`]: where and how pull records are kept. Plain data; the binary makes it of its configuration.

use std::path::PathBuf;
use std::sync::Arc;

use super::VerificationPolicy;
use crate::{Metrics, WallClock};

/// Directory, policy and limits of pull records.
#[derive(Clone)]
pub struct RecordsOptions {
    /// The directory of `pulling` and `pulled` (`image_manager` in the kubelet's root); made where it is missing.
    pub directory: PathBuf,
    /// For which images credentials are verified.
    pub policy: VerificationPolicy,
    /// How many intents are kept in memory; with more the files are asked.
    pub max_intents: usize,
    /// How many records are kept in memory; with more the files are asked.
    pub max_records: usize,
    /// The time that records carry.
    pub wall_clock: WallClock,
    /// Counters of records and answers.
    pub metrics: Arc<Metrics>,
    /// True if a record is on the disk before it counts. Without it a stop of the machine (not of the process) may leave
    /// records unreadable, and images with such are verified again.
    pub durable: bool,
}

impl RecordsOptions {
    /// Records in `directory`, with the kubelet's defaults for a node of 110 pods, and metrics of their own.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>, wall_clock: WallClock) -> Self {
        Self {
            directory: directory.into(),
            policy: VerificationPolicy::default(),
            max_intents: 220,
            max_records: 550,
            wall_clock,
            metrics: Metrics::new(),
            durable: true,
        }
    }
}
