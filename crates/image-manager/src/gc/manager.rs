//! [`ImageGcManager`]: the image collector. It wires the parts of collection together and is all that other modules see of
//! them: [`Collector`] (rounds), [`StateStore`] (usage and pins), [`PressureMonitor`] and [`PressureRelief`] (disk
//! pressure), [`PullRoom`] (space for pulls) and [`ImageList`]. Called by its own loops, by commands and by pulls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::{Image, ImageService, RuntimeService};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::collector::{Collector, Done, all_done};
use super::context::GcContext;
use super::history::protected_until;
use super::images::CollectedImages;
use super::metrics::Trigger;
use super::node_status::ImageList;
use super::node_status::NodeStatus;
use super::options::GcOptions;
use super::outline::Outline;
use super::pressure_monitor::PressureMonitor;
use super::relief::PressureRelief;
use super::report::{GcError, GcReport, chain};
use super::room::PullRoom;
use super::rules::{Pattern, Pins};
use super::select::Goal;
use super::state_files::StateFiles;
use super::state_store::StateStore;
use super::turns::Turns;
use crate::EventRecorder;
use crate::make_room::{Hold, Holds, MakeRoom, Room};

/// Collects images.
pub struct ImageGcManager {
    context: Arc<GcContext>,
    store: Arc<StateStore>,
    collector: Arc<Collector>,
    monitor: Arc<PressureMonitor>,
    pub(super) relief: PressureRelief,
    room: PullRoom,
    list: ImageList,
    /// Images of running pulls.
    holds: Arc<Holds>,
    nudge_collect: Notify,
    nudge_list: Notify,
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
        let holds = Holds::new(Arc::clone(&options.clock));
        let images = CollectedImages::new(images, &options);
        let context = Arc::new(GcContext::new(images, runtime, events, options));
        let store = Arc::new(StateStore::new(files.clone()));
        let collector = Arc::new(Collector::new(Arc::clone(&context), Arc::clone(&store), Arc::clone(&holds)));
        let monitor = Arc::new(PressureMonitor::new(Arc::clone(&context), files));
        Self {
            relief: PressureRelief::new(Arc::clone(&context), Arc::clone(&monitor), Arc::clone(&collector)),
            room: PullRoom::new(Arc::clone(&context), Arc::clone(&collector)),
            context,
            store,
            collector,
            monitor,
            list: ImageList::default(),
            holds,
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
        self.collector.detect().await
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
        self.store.change_pins(move |pins| pins.pin(pattern)).await
    }

    /// Removes a pin. Returns true if there was one.
    ///
    /// # Errors
    /// The pattern, or the state.
    pub async fn unpin(&self, pattern: &str) -> Result<bool, GcError> {
        let pattern = Pattern::parse(pattern)?;
        self.store.change_pins(move |pins| pins.unpin(&pattern)).await
    }

    /// The pins, with the images that each one fits.
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

    /// The pins alone. Lists no images.
    ///
    /// # Errors
    /// The state.
    pub async fn pinned(&self) -> Result<Pins, GcError> {
        Ok(self.store.lock().await?.pins.clone())
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
        all_done(self.collector.full_round(Trigger::Periodic, None).await?)
    }

    /// For disk pressure: removes the least missed images until the low mark, wherever the high one is, and until the
    /// thresholds of disk pressure are met; everything that nothing needs where that does not suffice.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn delete_unused_images(&self) -> Result<GcReport, GcError> {
        all_done(self.collector.relieve().await?)
    }

    /// Removes towards a goal that a person set. [`Goal::Free`] counts the bytes that are really freed.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn collect(&self, goal: Goal) -> Result<GcReport, GcError> {
        all_done(self.collector.collect(Some(goal), None).await?)
    }

    /// As [`ImageGcManager::collect`], or with `None` a round, with `min_age` in place of the policy's minimum age. Returns
    /// the report even if a part of the round failed.
    ///
    /// # Errors
    /// [`GcError`]; nothing has been done.
    pub async fn collect_by(&self, goal: Option<Goal>, min_age: Option<Duration>) -> Result<Done, GcError> {
        self.collector.collect(goal, min_age).await
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
        self.collector.plan(goal, min_age).await
    }

    /// Measures the file systems, and frees space if a threshold of disk pressure is crossed. `Ok(None)`: there was no
    /// reason to remove images.
    ///
    /// # Errors
    /// [`GcError`]; what could be done has been done.
    pub async fn relieve(&self) -> Result<Option<GcReport>, GcError> {
        self.relief.relieve().await
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
        Ok(NodeStatus { pull_engine: self.context.images.pull_engine().await, ..status })
    }

    /// Runs the loops (detection, image list, collection, disk pressure) until `stop`. They take no input, and an error of
    /// one turn does not end them. A turn that has begun is finished.
    pub async fn run(&self, stop: &CancellationToken) {
        tokio::join!(self.detecting(stop), self.refreshing(stop), self.collecting(stop), self.relief.run(stop));
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
            self.collector.report(&result);
            if result.is_ok_and(|report| !report.removed.is_empty()) {
                self.nudge_list.notify_one();
            }
        }
    }
}

#[async_trait]
impl MakeRoom for ImageGcManager {
    async fn make_room(&self, needed: Option<u64>) -> Room {
        self.room.make_room(needed).await
    }

    fn hold(&self, image: &str) -> Option<Hold> {
        Some(self.holds.hold(image))
    }
}

#[cfg(test)]
#[path = "manager_tests.rs"]
pub(super) mod tests;
