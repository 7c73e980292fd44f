//! [`GcOptions`]: options of the collector. Plain values and the two things that it does not do itself: reading the clock
//! and measuring a file system.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::engine::runtime_store::RuntimeImageFacts;
use cri_api::engine::{ImageEngine, RuntimePins};
use oci::ReferenceOrId;
use tokio::time::Instant;

use super::disk::DiskProbe;
use super::evict::EvictPods;
use super::eviction::Thresholds;
use super::keep_rules::KeepRule;
use super::metrics::GcMetrics;
use super::node_time::BootClock;
use super::policy::GcPolicy;
use crate::{Clock, Metrics, ObjectRef, PullRecords, SandboxImageLookup, WallClock};

/// How collection works.
#[derive(Clone)]
pub struct GcOptions {
    /// Thresholds and ages.
    pub policy: GcPolicy,
    /// Rules that keep images, or make them dearer.
    pub keep: Vec<KeepRule>,
    /// The sandbox image of the settings, which is always in use; `None`: the one that `sandbox_image_lookup` returns.
    pub sandbox_image: Option<ReferenceOrId>,
    /// Returns the sandbox image of the runtime; `None`: no runtime runs pods of these images.
    pub sandbox_image_lookup: Option<SandboxImageLookup>,
    /// Where usage and pins are kept; `None`: in memory only.
    pub directory: Option<PathBuf>,
    /// True if usage is synced to the disk when it is stored. Pins always are.
    pub durable: bool,
    /// The time of day.
    pub wall_clock: WallClock,
    /// The clock by which rounds and pauses are timed.
    pub clock: Clock,
    /// Returns how long the node is up, so that ages are right when the wall clock is set; `None`: that is not known.
    pub boot_clock: Option<BootClock>,
    /// For how long an image that no container has used yet is removed after all others: it was pre-pulled. Only where there is
    /// a runtime that reports which images are in use.
    pub protect_pre_pulled: Duration,
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
    /// Object of node events.
    pub node: ObjectRef,
    /// Disk pressure.
    pub pressure: PressureOptions,
    /// How many images a node's status names (`nodeStatusMaxImages`); below zero: all.
    pub node_status_max_images: i32,
    /// The engine that stores the images; `None`: a foreign runtime stores them.
    pub engine: Option<Arc<dyn ImageEngine>>,
    /// Facts about the images of a foreign runtime, where they are known.
    pub facts: Option<Arc<dyn RuntimeImageFacts>>,
    /// Pins that a foreign runtime reports to its other clients; `None`: there is no such runtime, or it takes none.
    pub runtime_pins: Option<Arc<dyn RuntimePins>>,
    /// Counts the calls of that store as operations of the image service; `None`: they are not counted.
    pub operations: Option<Arc<Metrics>>,
    /// Returns the images that pods mount as volumes, or need though there is no container of them yet. CRI's
    /// list of containers does not include them.
    pub volumes: Option<Volumes>,
}

/// Returns the images that pods mount as volumes or need otherwise.
pub type Volumes = Arc<dyn Fn() -> Vec<ReferenceOrId> + Send + Sync>;

impl GcOptions {
    /// The kubelet's defaults; everything is kept in memory only.
    #[must_use]
    pub fn new(wall_clock: WallClock, disk: DiskProbe) -> Self {
        Self {
            policy: GcPolicy::default(),
            keep: Vec::new(),
            sandbox_image: None,
            sandbox_image_lookup: None,
            directory: None,
            durable: true,
            wall_clock,
            clock: Arc::new(Instant::now),
            boot_clock: Some(super::probe::boot_clock()),
            protect_pre_pulled: Duration::from_secs(3600),
            disk,
            settle: Duration::from_secs(1),
            records: None,
            metrics: GcMetrics::new(),
            intervals: Intervals::default(),
            node: ObjectRef::default(),
            pressure: PressureOptions::default(),
            node_status_max_images: 50,
            engine: None,
            facts: None,
            runtime_pins: None,
            operations: None,
            volumes: None,
        }
    }
}

impl GcOptions {
    /// Returns these options with the rules of others: thresholds, ages, what is kept, and what a node's status names.
    #[must_use]
    pub(super) fn with_rules(&self, of: Self) -> Self {
        let mut new = self.clone();
        (new.policy, new.keep, new.sandbox_image) = (of.policy, of.keep, of.sandbox_image);
        new.protect_pre_pulled = of.protect_pre_pulled;
        new.node_status_max_images = of.node_status_max_images;
        (new.pressure.thresholds, new.pressure.transition) = (of.pressure.thresholds, of.pressure.transition);
        new
    }
}

/// When there is disk pressure, and what is done about it.
#[derive(Clone)]
pub struct PressureOptions {
    /// From how little on (`evictionHard`).
    pub thresholds: Thresholds,
    /// How long the condition stays after its cause ended (`evictionPressureTransitionPeriod`).
    pub transition: Duration,
    /// Interval between measurements.
    pub interval: Duration,
    /// A directory on the file system of the root (`nodefs`); `None`: its signals are not measured.
    pub node_directory: Option<PathBuf>,
    /// Removes exited containers where that helps; `None`: none are removed.
    pub containers: Option<Arc<dyn ReclaimContainers>>,
    /// Evicts pods where that was not enough; `None`: none are evicted.
    pub pods: Option<Arc<dyn EvictPods>>,
}

impl Default for PressureOptions {
    fn default() -> Self {
        Self {
            thresholds: Thresholds::default(),
            transition: Duration::from_secs(300),
            interval: Duration::from_secs(10),
            node_directory: None,
            containers: None,
            pods: None,
        }
    }
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

/// Removes containers that have ended. Implemented by the collector of containers.
#[async_trait]
pub trait ReclaimContainers: Send + Sync {
    /// Removes exited containers: all of deleted pods, and of other pods those beyond the policy.
    ///
    /// # Errors
    /// A text for people, if not all could be removed.
    async fn delete_all_unused_containers(&self) -> Result<(), String>;
}
