//! [`GcOptions`]: how the collector works. Plain values and the two things that it does not do itself: telling the time and
//! measuring a file system.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::disk::DiskProbe;
use super::metrics::GcMetrics;
use super::policy::GcPolicy;
use super::rules::KeepRule;
use super::select::Order;
use crate::{ObjectRef, PullRecords, WallClock};

/// How collection works.
#[derive(Clone)]
pub struct GcOptions {
    /// Thresholds and ages.
    pub policy: GcPolicy,
    /// In which order images go.
    pub order: Order,
    /// Of each repository so many images stay.
    pub minimum_copies: usize,
    /// What stays, or is dearer, by rule.
    pub keep: Vec<KeepRule>,
    /// The sandbox image, which is always in use; empty: the runtime pins it.
    pub sandbox_image: String,
    /// Where usage and pins are kept; `None`: in memory only.
    pub directory: Option<PathBuf>,
    /// The time of day.
    pub wall_clock: WallClock,
    /// Measures file systems.
    pub disk: DiskProbe,
    /// How long a removal may take to show on the file system before its effect is taken as it is.
    pub settle: Duration,
    /// Records of pulls, which go with their images.
    pub records: Option<PullRecords>,
    /// Counts.
    pub metrics: Arc<GcMetrics>,
    /// How often the loops run.
    pub intervals: Intervals,
    /// What node events are about.
    pub node: ObjectRef,
}

/// How often the loops run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Detection.
    pub detect: Duration,
    /// The image cache.
    pub cache: Duration,
    /// Collection.
    pub collect: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { detect: Duration::from_secs(300), cache: Duration::from_secs(30), collect: Duration::from_secs(300) }
    }
}
