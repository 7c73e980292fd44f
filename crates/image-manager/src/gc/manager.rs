//! [`ImageGcManager`]: the image collector, and all that other modules see of it. More methods are in [`rounds`](super::rounds),
//! [`relief`](super::relief) and [`reclaim_for_pull`](super::reclaim_for_pull). Called by its own loops, by commands and by pulls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use async_trait::async_trait;
use cri_api::{Image, ImageService, RuntimeService};
use oci::ReferenceOrId;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::context::GcContext;
use super::history::protected_until;
use super::keep_rules::{Pattern, PinOwner, Pins};
use super::metrics::Trigger;
use super::node_status::ImageList;
use super::node_status::NodeStatus;
use super::options::GcOptions;
use super::outline::Outline;
use super::pressure_monitor::PressureMonitor;
use super::report::{Done, GcError, GcReport, all_done, chain};
use super::select::Goal;
use super::state_files::StateFiles;
use super::state_store::StateStore;
use super::turns::Turns;
use crate::EventRecorder;
use crate::reclaim_space::{ImageHold, ImageHolds, ReclaimSpace, ReclaimedSpace};

/// Collects images.
pub struct ImageGcManager {
    pub(super) context: Arc<GcContext>,
    pub(super) store: StateStore,
    pub(super) monitor: PressureMonitor,
    /// Images of running pulls.
    pub(super) holds: Arc<ImageHolds>,
    /// Periodic rounds that failed in a row.
    pub(super) failures: AtomicU32,
    /// Held while a collection for a pull runs; guards the result of the last one.
    pub(super) last_pull_collection: Mutex<LastPullCollection>,
    /// Number of collections for pulls that have ended.
    pub(super) pull_collections: AtomicU64,
    list: ImageList,
    nudge_collect: Notify,
    nudge_list: Notify,
}

/// Result of the last collection for a pull.
#[derive(Clone, Debug, Default)]
pub(super) struct LastPullCollection {
    /// Number of the collection, counted from 1.
    pub(super) number: u64,
    pub(super) reclaimed: ReclaimedSpace,
}

impl ImageGcManager {
    /// A collector of the images behind `images`. Without a runtime, only pins, rules and the service's own refusal keep an
    /// image.
    #[must_use]
    pub fn new(
        images: Arc<dyn ImageService>,
        runtime: Option<Arc<dyn RuntimeService>>,
        events: Arc<dyn EventRecorder>,
        options: GcOptions,
    ) -> Self {
        let files = options.directory.as_ref().map(StateFiles::new);
        let files = if options.durable { files } else { files.map(StateFiles::unsynced) };
        let holds = ImageHolds::new(Arc::clone(&options.clock));
        let context = Arc::new(GcContext::new(images, runtime, events, options));
        Self {
            store: StateStore::new(files.clone()),
            monitor: PressureMonitor::new(Arc::clone(&context), files),
            context,
            holds,
            failures: AtomicU32::new(0),
            last_pull_collection: Mutex::default(),
            pull_collections: AtomicU64::new(0),
            list: ImageList::default(),
            nudge_collect: Notify::new(),
            nudge_list: Notify::new(),
        }
    }

    /// The options of the collector.
    #[must_use]
    pub fn options(&self) -> Arc<GcOptions> {
        self.context.options()
    }

    /// Adopts the rules of other options: thresholds, ages, keep rules, and limits of the node's status. They apply from
    /// the next round on, which starts at once.
    pub fn adopt_rules(&self, of: GcOptions) {
        self.context.adopt_rules(of);
        self.nudge();
    }

    /// Asks for a collection soon, as when a disk is full.
    pub fn nudge(&self) {
        self.nudge_collect.notify_one();
    }

    /// Brings the usage history up to date.
    ///
    /// # Errors
    /// The runtime's lists, or the state.
    pub async fn detect(&self) -> Result<(), GcError> {
        self.survey().await
    }

    /// Reads the list of images for [`ImageGcManager::image_list`].
    ///
    /// # Errors
    /// The image service did not answer.
    pub async fn refresh_cache(&self) -> Result<(), GcError> {
        self.list.replace(self.context.list_images().await?);
        Ok(())
    }

    /// The last list of images, the largest first; empty before the first refresh.
    #[must_use]
    pub fn image_list(&self) -> Arc<[Image]> {
        self.list.get().unwrap_or_default()
    }

    /// Pins images by pattern: images that fit are not collected, on whatever service. Returns true if the pin is new.
    ///
    /// # Errors
    /// The pattern, or the state.
    pub async fn pin(&self, pattern: &str) -> Result<bool, GcError> {
        let pattern = Pattern::parse(pattern)?;
        self.store.change_pins(PinOwner::Administrator, move |pins| pins.pin(pattern)).await
    }

    /// Removes a pin. Returns true if there was one.
    ///
    /// # Errors
    /// The pattern, or the state.
    pub async fn unpin(&self, pattern: &str) -> Result<bool, GcError> {
        let pattern = Pattern::parse(pattern)?;
        self.store.change_pins(PinOwner::Administrator, move |pins| pins.unpin(&pattern)).await
    }

    /// The pins of the administrator, with the images that each one fits.
    ///
    /// # Errors
    /// The list of images, or the state.
    pub async fn pins(&self) -> Result<Vec<(Pattern, Vec<Image>)>, GcError> {
        let state = self.store.lock().await?;
        let images = self.context.list_images().await?;
        let pinned = |pattern: &Pattern| {
            let fits = |image: &&Image| pattern.fits(image, state.last_user(image));
            images.iter().filter(fits).cloned().collect()
        };
        Ok(state.pins.iter().map(|pattern| (pattern.clone(), pinned(pattern))).collect())
    }

    /// The pins of all owners. Lists no images.
    ///
    /// # Errors
    /// The state.
    pub async fn pinned(&self) -> Result<Pins, GcError> {
        let state = self.store.lock().await?;
        Ok(state.pins.with(&state.set_pins))
    }

    /// Has the runtime that keeps the images report the pinned ones as such to its other clients, such as a kubelet. A runtime that takes no
    /// pins is left alone.
    ///
    /// # Errors
    /// The list of images, the runtime, or the state.
    pub async fn pin_in_runtime(&self) -> Result<(), GcError> {
        let Some(runtime) = &self.context.runtime_pins else { return Ok(()) };
        let state = self.store.lock().await?;
        let pins = state.pins.with(&state.set_pins);
        let mut ids = BTreeSet::new();
        if pins.iter().next().is_some() {
            let images = self.context.list_images().await?;
            let pinned = images.into_iter().filter(|image| pins.hold(image, state.last_user(image)).is_some());
            ids.extend(pinned.map(|image| image.id));
        }
        let replaced = runtime.replace(&ids).await;
        let changed = replaced.map_err(|source| GcError::Runtime { what: "pin images in the runtime", source })?;
        if changed > 0 {
            tracing::info!(pinned = ids.len(), changed, "pins of images changed in the runtime");
        }
        Ok(())
    }

    /// Replaces the pins of the cluster's image sets. Those of the administrator stay. Returns true if that changed anything.
    ///
    /// # Errors
    /// The state.
    pub async fn pin_for_image_sets(&self, wanted: Pins) -> Result<bool, GcError> {
        if self.store.lock().await?.set_pins == wanted {
            return Ok(false);
        }
        let replace = move |pins: &mut Pins| {
            let changed = *pins != wanted;
            *pins = wanted;
            changed
        };
        self.store.change_pins(PinOwner::ImageSets, replace).await
    }

    /// Has collection take an image after all others for a while, because it was pulled ahead of its use. The first
    /// container that uses the image ends that.
    ///
    /// # Errors
    /// The state.
    pub async fn protect(&self, id: &str, runtime_handler: &str, lasts: Duration) -> Result<(), GcError> {
        let mut state = self.store.lock().await?;
        let moment = self.context.moment();
        let now = moment.wall;
        state.history.follow_clock(moment);
        if !state.history.protect(id, runtime_handler, now, protected_until(now, lasts)) {
            return Ok(());
        }
        self.store.save(&mut state).await
    }

    /// Runs a round: removes images that are too old, and above the high mark the least missed ones, until the low mark.
    ///
    /// # Errors
    /// [`GcError`]; what could be done has been done.
    pub async fn garbage_collect(&self) -> Result<GcReport, GcError> {
        all_done(self.full_round(Trigger::Periodic, None).await?)
    }

    /// For disk pressure: removes the least missed images until the low mark, wherever the high one is, and until the
    /// thresholds of disk pressure are met; everything that nothing needs where that does not suffice.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn delete_unused_images(&self) -> Result<GcReport, GcError> {
        all_done(self.pressure_round().await?)
    }

    /// Removes towards a goal that a person set. [`Goal::Free`] counts the bytes that are really freed.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn collect(&self, goal: Goal) -> Result<GcReport, GcError> {
        all_done(self.goal_round(Some(goal), None).await?)
    }

    /// As [`ImageGcManager::collect`], or with `None` a round, with `min_age` in place of the policy's minimum age. Returns
    /// the report even if a part of the round failed.
    ///
    /// # Errors
    /// [`GcError`]; nothing has been done.
    pub async fn collect_by(&self, goal: Option<Goal>, min_age: Option<Duration>) -> Result<Done, GcError> {
        self.goal_round(goal, min_age).await
    }

    /// The outline of what [`ImageGcManager::collect`], or with `None` a round, would do, with a reason for every image.
    /// Removes nothing; the usage that it sees is recorded.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn plan(&self, goal: Option<Goal>) -> Result<Outline, GcError> {
        self.plan_by(goal, None).await
    }

    /// As [`ImageGcManager::plan`], with `min_age` in place of the policy's minimum age.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn plan_by(&self, goal: Option<Goal>, min_age: Option<Duration>) -> Result<Outline, GcError> {
        self.outline(goal, min_age).await
    }

    /// Measures the file systems, and frees space if a threshold of disk pressure is crossed. `Ok(None)`: there was no
    /// reason to remove images.
    ///
    /// # Errors
    /// [`GcError`]; what could be done has been done.
    pub async fn relieve(&self) -> Result<Option<GcReport>, GcError> {
        self.relieve_measured(&self.monitor.measure().await?).await
    }

    /// Images, file systems and conditions as they are now. Measures the disk; the list of images is the cached one where a
    /// loop refreshes it.
    ///
    /// # Errors
    /// The service, the file system, or the state.
    pub async fn status(&self) -> Result<NodeStatus, GcError> {
        let measured = self.monitor.measure().await?;
        if self.list.get().is_none() {
            self.refresh_cache().await?;
        }
        let status = NodeStatus::new(measured, &self.image_list(), &self.options());
        Ok(NodeStatus { pull_engine: self.context.pull_engine().await, ..status })
    }

    /// Runs the loops (detection, image list, collection, disk pressure) until `stop`. They take no input, and an error of
    /// one turn does not end them. A turn that has begun is finished.
    pub async fn run(&self, stop: &CancellationToken) {
        tokio::join!(self.detecting(stop), self.refreshing(stop), self.collecting(stop), self.relieving(stop));
    }

    /// Only keeps the usage history up to date until `stop`, where another process collects.
    pub async fn watch(&self, stop: &CancellationToken) {
        self.detecting(stop).await;
    }

    async fn detecting(&self, stop: &CancellationToken) {
        let mut turns = Turns::new(self.options().intervals.detect, None, stop);
        while turns.next().await {
            if let Err(error) = self.detect().await {
                tracing::warn!(error = chain(&error), "failed to monitor images");
            }
        }
    }

    async fn refreshing(&self, stop: &CancellationToken) {
        let mut turns = Turns::new(self.options().intervals.cache, Some(&self.nudge_list), stop);
        while turns.next().await {
            if let Err(error) = self.refresh_cache().await {
                tracing::warn!(error = chain(&error), "failed to update image list");
            }
        }
    }

    async fn collecting(&self, stop: &CancellationToken) {
        let mut turns = Turns::new(self.options().intervals.collect, Some(&self.nudge_collect), stop);
        let mut was_off = false;
        while turns.next().await {
            // The next reload of the configuration may switch it on.
            let is_off = self.options().policy.is_off();
            if is_off && !std::mem::replace(&mut was_off, is_off) {
                tracing::info!(
                    "image garbage collection is off: the high threshold is 100, and there is no maximum age"
                );
            }
            if is_off {
                continue;
            }
            was_off = false;
            let result = self.garbage_collect().await;
            self.report_round(&result);
            if result.is_ok_and(|report| !report.removed.is_empty()) {
                self.nudge_list.notify_one();
            }
        }
    }
}

#[async_trait]
impl ReclaimSpace for ImageGcManager {
    async fn reclaim_space(&self, needed: Option<u64>) -> ReclaimedSpace {
        self.reclaim_for_pull(needed).await
    }

    fn hold(&self, image: &ReferenceOrId) -> Option<ImageHold> {
        Some(self.holds.hold(image))
    }
}

#[cfg(test)]
#[path = "manager_tests.rs"]
pub(super) mod tests;
