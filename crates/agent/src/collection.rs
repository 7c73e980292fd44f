//! Garbage collection: [`Collection`] is the manager with its state, its thresholds and the runtime that knows the containers.
//! Answers commands and the admin endpoint in the plain data of [`crate::api::gc`], with or without a socket between them.
//! Decides nothing about images.

mod collects;
mod logged;
mod remote;
mod served;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::engine::ImageLayers;
use cri_api::{ImageService, ImageSpec, RuntimeService};
use image_manager::gc::{
    DiskProbe, DiskSpace, EvictPods, GcError, GcMetrics, GcOptions, Goal, ImageGcManager, NodeStatus, Pattern, Pins,
    ReclaimContainers, Volumes,
};
use image_manager::{EventRecorder, ImageHold, ReclaimSpace, ReclaimedSpace};
use kuberuntime::container_gc::{ContainerGc, ContainerGcOptions, ContainerGcPolicy, PodStates};
use oci::ReferenceOrId;
use prometheus_client::registry::Registry;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::api::gc::{
    CollectPlan, CollectReport, CollectRequest, CollectedContainers, DiskChange, DiskUsage, Leftover, MissingSpace, Pin,
};
use collects::chain;
pub use collects::{CollectionError, Collects};
pub use logged::Logged;
pub use remote::RemoteCollection;
use served::Board;
pub use served::Served;

/// Interval at which the pins in the runtime are compared with those of the collection.
const PIN_IN_RUNTIME: Duration = Duration::from_secs(60);

/// Garbage collection of one image service.
pub struct Collection {
    manager: Arc<ImageGcManager>,
    metrics: Arc<GcMetrics>,
    service: Arc<dyn ImageService>,
    pins: Board,
    probe: DiskProbe,
    /// The endpoint that is collected, or empty for the embedded store: requests for another one are refused.
    images: String,
    /// Collects containers, if a runtime of this node runs any.
    containers: Option<Arc<ContainerGc>>,
    /// Reason for which the containers are unknown. Nothing is selected then, because any image could be in use.
    containers_unknown: Option<String>,
}

impl std::fmt::Debug for Collection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collection").field("images", &self.images).finish_non_exhaustive()
    }
}

/// The parts of a collection.
pub struct CollectionParts {
    /// The images.
    pub service: Arc<dyn ImageService>,
    /// Their endpoint; empty: the embedded store.
    pub endpoint: String,
    /// The runtime that knows the containers. `Ok(None)`: no runtime uses these images. `Err`: why the containers are unknown.
    pub runtime: Result<Option<Arc<dyn RuntimeService>>, String>,
    /// Receives the events.
    pub events: Arc<dyn EventRecorder>,
    /// Options of the image collection, but for the images of pods and the collection of containers.
    pub images: GcOptions,
    /// Options of the container collection, but for the states of pods.
    pub containers: ContainerGcOptions,
    /// The pods that there should be, and the images that they need, also before there is a container of them.
    pub pods: Option<KnownPods>,
}

/// The states of pods and their images.
#[derive(Clone)]
pub struct KnownPods {
    /// States of the pods.
    pub states: Arc<dyn PodStates>,
    /// The names of the images that they need.
    pub images: Volumes,
    /// Evicts a pod when the disk stays short of space after a collection; `None`: pods are not evicted.
    pub evictor: Option<Arc<dyn EvictPods>>,
}

impl Collection {
    /// Reads the state. Other processes may use it at the same time.
    pub async fn open(parts: CollectionParts) -> Result<Self, CollectionError> {
        let CollectionParts { service, endpoint, runtime, events, images: mut options, containers, pods } = parts;
        let (states, volumes) = pods.as_ref().map(|pods| (Arc::clone(&pods.states), Arc::clone(&pods.images))).unzip();
        options.pressure.pods = pods.and_then(|pods| pods.evictor);
        let (runtime, containers_unknown) = match runtime {
            Ok(runtime) => (runtime, None),
            Err(why) => (None, Some(why)),
        };
        let containers = runtime.as_ref().map(|runtime| {
            // Without a source of pods, only containers above the limits of the policy are removed.
            let pods = states.unwrap_or_else(|| Arc::clone(&containers.pods));
            let options = ContainerGcOptions { pods, ..containers };
            Arc::new(ContainerGc::new(Arc::clone(runtime), Arc::clone(&events), options))
        });
        let (metrics, probe) = (Arc::clone(&options.metrics), Arc::clone(&options.disk));
        options.volumes = volumes;
        options.pressure.containers = containers.clone().map(|containers| containers as Arc<dyn ReclaimContainers>);
        let manager = Arc::new(ImageGcManager::new(Arc::clone(&service), runtime, events, options));
        let collection = Self {
            manager,
            metrics,
            service,
            pins: Board::default(),
            probe,
            images: endpoint,
            containers,
            containers_unknown,
        };
        collection.read_pins().await?;
        Ok(collection)
    }

    /// Returns the endpoint of the collected images, or an empty text for the embedded store.
    pub fn images(&self) -> &str {
        &self.images
    }

    /// Returns true if a runtime lists the containers.
    pub fn knows_containers(&self) -> bool {
        self.containers.is_some()
    }

    /// Only records which images are in use, until `stop`: another process collects, and the record of uses is kept
    /// nevertheless.
    pub async fn watch(&self, stop: &CancellationToken) {
        self.manager.watch(stop).await;
    }

    /// Keeps the pins in the runtime equal to those of this collection until `stop`: for images that are pulled later, and after a label
    /// was lost.
    pub async fn keep_pins_in_runtime(&self, stop: &CancellationToken) {
        let mut turns = tokio::time::interval(PIN_IN_RUNTIME);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(turns.tick()).await.is_some() {
            self.pin_in_runtime().await;
        }
    }

    /// Has the runtime that keeps the images report the pins of this collection, so that a kubelet that asks the runtime respects them. The
    /// pins are in force in imagelet, whether that succeeds or not.
    pub async fn pin_in_runtime(&self) {
        if let Err(error) = self.manager.pin_in_runtime().await {
            tracing::warn!(error = chain(&error), "cannot compare the pins of images with those in the runtime");
        }
    }

    /// Puts everything that is counted into `registry`.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Runs the loops until `stop`.
    pub async fn run(&self, stop: &CancellationToken) {
        let containers = async {
            if let Some(containers) = &self.containers {
                containers.run(stop).await;
            }
        };
        tokio::join!(self.manager.run(stop), containers);
    }

    /// Returns an image service that other clients use, and that marks pinned images.
    pub fn served(&self, service: Arc<dyn ImageService>, collects: bool) -> Served {
        Served::new(service, Arc::clone(&self.pins), Arc::clone(&self.manager), collects)
    }

    /// Returns the node's status of its images and their disk.
    pub async fn node_status(&self) -> Result<NodeStatus, CollectionError> {
        self.manager.status().await.map_err(Into::into)
    }

    /// Returns the images, with the pinned ones marked.
    pub async fn list(&self) -> Result<Vec<cri_api::Image>, CollectionError> {
        let mut images = self.service.list_images(None).await.map_err(CollectionError::ListImages)?;
        served::mark_all(&self.pins.read(), &mut images);
        Ok(images)
    }

    /// Returns the layers of all images, or `None` if a runtime keeps them and does not list them.
    pub async fn layers(&self) -> Result<Option<ImageLayers>, CollectionError> {
        let options = self.manager.options();
        let listed = match (&options.engine, &options.facts) {
            (Some(engine), _) => engine.image_layers().await.map(Some),
            (None, Some(facts)) => facts.image_layers().await,
            (None, None) => Ok(None),
        };
        listed.map_err(CollectionError::ListLayers)
    }

    /// Returns the compressed bytes of an image's layers and config, as a pull fetches them; `None` if they are not known, as those of a
    /// runtime's images.
    pub async fn download_bytes(&self, id: &str) -> Option<u64> {
        let engine = self.manager.options().engine.clone()?;
        let documents = engine.image_documents(&ImageSpec::new(id)).await.ok()??;
        let manifest: oci::Manifest = serde_json::from_slice(&documents.manifest).ok()?;
        let parts = manifest.layers.iter().chain([&manifest.config]);
        Some(parts.map(|part| part.size).fold(0, u64::saturating_add))
    }

    /// Percent of the image file system in use at which a round starts, and at which it ends.
    pub fn thresholds(&self) -> (i32, i32) {
        let policy = self.manager.options().policy;
        (policy.high_threshold_percent, policy.low_threshold_percent)
    }

    /// Adopts the rules of other options from the next round on, which starts at once.
    pub fn adopt_rules(&self, images: GcOptions, containers: ContainerGcPolicy) {
        self.manager.adopt_rules(images);
        if let Some(collector) = &self.containers {
            collector.set_policy(containers);
        }
    }

    /// Returns an error if it is not known which images are in use.
    pub fn sees(&self) -> Result<(), CollectionError> {
        match &self.containers_unknown {
            None => Ok(()),
            Some(why) => Err(CollectionError::ContainersUnknown(why.clone())),
        }
    }

    /// Replaces the pins of the cluster's image sets. Pins of the administrator stay. The runtime is not asked:
    /// [`Collection::pin_in_runtime`].
    pub async fn pin_for_image_sets(&self, pins: Pins) -> Result<(), CollectionError> {
        if self.manager.pin_for_image_sets(pins).await? {
            self.read_pins().await?;
        }
        Ok(())
    }

    async fn read_pins(&self) -> Result<(), CollectionError> {
        let pins = Arc::new(self.manager.pinned().await?);
        *self.pins.write() = pins;
        Ok(())
    }

    /// Returns the image file system, if it can be measured.
    pub async fn disk(&self) -> Option<DiskUsage> {
        let info = self.service.image_fs_info().await.ok()?;
        let path = info.image_filesystems.into_iter().next()?.mountpoint;
        let (probe, at) = (Arc::clone(&self.probe), PathBuf::from(&path));
        let space = tokio::task::spawn_blocking(move || probe(&at)).await.ok()?.ok()?.clamped();
        Some(DiskUsage {
            path,
            capacity_bytes: space.capacity,
            available_bytes: space.available,
            used_percent: space.used_percent(),
            inodes: space.inodes,
            inodes_free: space.inodes_free,
            inodes_used_percent: space.inodes_used_percent(),
        })
    }
}

#[async_trait]
impl Collects for Collection {
    async fn plan(&self, request: &CollectRequest) -> Result<CollectPlan, CollectionError> {
        self.sees()?;
        let before = self.disk().await;
        if request.until_free.is_some() && before.is_none() {
            return Err(CollectionError::NotMeasured);
        }
        let goal = goal(request, before.as_ref());
        let outline = self.manager.plan_by(goal, request.min_age()).await?;
        let after = before.clone().map(|mut disk| {
            disk.available_bytes = disk.available_bytes.saturating_add(outline.frees_bytes).min(disk.capacity_bytes);
            disk.used_percent = used_percent(&disk);
            disk
        });
        let mut plan = CollectPlan {
            wanted_bytes: outline.wanted_bytes,
            frees_bytes: outline.frees_bytes,
            exact: outline.exact,
            disk: before.zip(after).map(|(before, after)| DiskChange { before, after }),
            images: outline.images,
            missing: None,
            high_threshold_percent: self.manager.options().policy.high_threshold_percent,
        };
        let after = plan.disk.as_ref().map(|span| span.after.available_bytes);
        let short = match (request.until_free, after) {
            (Some(wanted), Some(available)) => wanted.saturating_sub(available),
            _ => plan.wanted_bytes.saturating_sub(plan.frees_bytes),
        };
        plan.missing = MissingSpace::of(short, &plan.images);
        Ok(plan)
    }

    async fn collect(&self, request: &CollectRequest) -> Result<CollectReport, CollectionError> {
        self.sees()?;
        let before = self.disk().await;
        let exact = self.layers().await.is_ok_and(|layers| layers.is_some());
        let goal = goal(request, before.as_ref());
        let (report, error) = self.manager.collect_by(goal, request.min_age()).await?;
        let after = self.disk().await;
        let not_enough = matches!(error, Some(GcError::NotEnough(_)));
        let short = match (request.until_free, &after) {
            (Some(wanted), Some(disk)) => wanted.saturating_sub(disk.available_bytes),
            _ if not_enough => report.wanted_bytes.saturating_sub(report.freed_bytes),
            _ => 0,
        };
        let mut done = CollectReport {
            removed: report.removed,
            wanted_bytes: report.wanted_bytes,
            freed_bytes: report.freed_bytes,
            exact,
            pruned_records: report.pruned_records,
            disk: before.zip(after).map(|(before, after)| DiskChange { before, after }),
            // Missing bytes are reported as `missing` below; missing inodes are not.
            problem: error.filter(|_| !(not_enough && short > 0)).map(|error| chain(&error)),
            missing: None,
            high_threshold_percent: self.manager.options().policy.high_threshold_percent,
        };
        if short > 0 {
            // Plan again for the missing bytes: the plan gives the reason why each image stays.
            let left = self.manager.plan_by(Some(Goal::Free(short)), request.min_age()).await?;
            done.missing = MissingSpace::of(short, &left.images);
        }
        Ok(done)
    }

    async fn containers(&self, dry_run: bool) -> Result<CollectedContainers, CollectionError> {
        self.sees()?;
        let containers = self.containers.as_ref().ok_or(CollectionError::NoRuntime)?;
        if dry_run {
            let plan = containers.plan().await?;
            let items = plan.rows().map(|(kind, row)| Leftover::new(kind, row)).collect();
            return Ok(CollectedContainers { items, problems: Vec::new() });
        }
        let report = containers.collect().await;
        let parts = [
            ("container", &report.containers),
            ("sandbox", &report.sandboxes),
            ("logs", &report.log_directories),
            ("link", &report.log_links),
        ];
        let items = parts.into_iter().flat_map(|(kind, rows)| rows.iter().map(move |row| Leftover::new(kind, row)));
        Ok(CollectedContainers { items: items.collect(), problems: report.errors.iter().map(|e| chain(e)).collect() })
    }

    async fn names(&self) -> Result<BTreeMap<String, Vec<String>>, CollectionError> {
        let images = self.service.list_images(None).await.map_err(CollectionError::ListImages)?;
        let names = |image: cri_api::Image| image.repo_tags.into_iter().chain(image.repo_digests).collect();
        Ok(images.into_iter().map(|image| (image.id.clone(), names(image))).collect())
    }

    async fn pins(&self) -> Result<Vec<Pin>, CollectionError> {
        let pins = self.manager.pins().await?;
        Ok(pins.into_iter().map(|(pattern, images)| Pin::new(&pattern, &images)).collect())
    }

    async fn pin(&self, patterns: &[Pattern]) -> Result<Vec<Pin>, CollectionError> {
        let mut changed = Vec::new();
        for pattern in patterns {
            if self.manager.pin(pattern.as_str()).await? {
                changed.push(pattern.clone());
            }
        }
        self.read_pins().await?;
        self.pin_in_runtime().await;
        let pins = self.pins().await?.into_iter();
        let asked = pins.filter(|pin| patterns.iter().any(|pattern| pattern.as_str() == pin.pattern));
        Ok(asked.map(|pin| Pin { changed: changed.iter().any(|new| new.as_str() == pin.pattern), ..pin }).collect())
    }

    async fn unpin(&self, patterns: &[Pattern]) -> Result<Vec<Pin>, CollectionError> {
        let pins = self.pins().await?;
        let mut answers = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let changed = self.manager.unpin(pattern.as_str()).await?;
            let known = pins.iter().find(|pin| pin.pattern == pattern.as_str());
            let pin = known.cloned().unwrap_or_else(|| Pin::new(pattern, &[]));
            answers.push(Pin { changed, ..pin });
        }
        self.read_pins().await?;
        self.pin_in_runtime().await;
        Ok(answers)
    }

    async fn protect(&self, id: &str) -> Result<(), CollectionError> {
        let protects = self.manager.options().protect_pre_pulled;
        if protects.is_zero() {
            return Ok(());
        }
        self.manager.protect(id, "", protects).await.map_err(Into::into)
    }

    async fn status(&self) -> Result<serde_json::Value, CollectionError> {
        serde_json::to_value(self.node_status().await?).map_err(CollectionError::Status)
    }
}

#[async_trait]
impl ReclaimSpace for Collection {
    async fn reclaim_space(&self, needed: Option<u64>) -> ReclaimedSpace {
        match self.sees() {
            Ok(()) => self.manager.reclaim_space(needed).await,
            Err(error) => ReclaimedSpace { problem: Some(error.to_string()), ..ReclaimedSpace::default() },
        }
    }

    fn hold(&self, image: &ReferenceOrId) -> Option<ImageHold> {
        self.manager.hold(image)
    }
}

fn used_percent(disk: &DiskUsage) -> u64 {
    let space = DiskSpace { capacity: disk.capacity_bytes, available: disk.available_bytes, ..DiskSpace::default() };
    space.used_percent()
}

/// Returns the library's goal, or `None` for a round by the thresholds.
fn goal(request: &CollectRequest, disk: Option<&DiskUsage>) -> Option<Goal> {
    if let Some(wanted) = request.until_free {
        return Some(Goal::Free(wanted.saturating_sub(disk.map_or(0, |disk| disk.available_bytes))));
    }
    if let Some(seconds) = request.older_than_seconds {
        return Some(Goal::OlderThan(Duration::from_secs(seconds)));
    }
    request.all_unused.then_some(Goal::AllUnused)
}

#[cfg(test)]
mod runtime_pins_tests;
#[cfg(test)]
mod tests;
