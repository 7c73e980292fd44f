//! [`ImageGcManager`]: the thin shell around [`detect`](super::detect()) and [`select`](super::select()): asks for the
//! lists, measures the file system, and remembers. What a round does is in `rounds` and `removal`. Called by its own loops,
//! by commands and by whoever runs out of space.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cri_api::{Container, Image, ImageService, RuntimeService};
use engine_api::ImageLayers;
use jiff::Timestamp;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use super::blocking::off_thread;
use super::detect::{AlwaysUsed, Detected, detect_at};
use super::disk::DiskSpace;
use super::history::{UsageHistory, protected_until};
use super::images::CollectedImages;
use super::labels::Labels;
use super::node_status::by_size;
use super::node_time::Moment;
use super::options::GcOptions;
use super::pressure::Pressure;
use super::report::{GcError, chain};
use super::room::LastRoom;
use super::rules::{Pattern, Pins};
use super::select::Rules;
use super::sketch::known;
use super::state::{Stamp, StateError, StateFiles};
use crate::events::EventRef;
use crate::make_room::Holds;
use crate::{EventRecorder, EventType};

/// Collects images.
pub struct ImageGcManager {
    pub(super) images: CollectedImages,
    runtime: Option<Arc<dyn RuntimeService>>,
    events: Arc<dyn EventRecorder>,
    pub(super) options: GcOptions,
    files: Option<StateFiles>,
    /// Held for a whole round: rounds do not overlap.
    pub(super) state: AsyncMutex<State>,
    /// Guards the last list of images, the largest first; `None`: nobody has listed them yet.
    cache: Mutex<Option<Arc<[Image]>>>,
    pub(super) nudge: Notify,
    pub(super) nudge_detect: Notify,
    pub(super) nudge_cache: Notify,
    /// Guards what is known of disk pressure, and what of that is on disk.
    pub(super) pressure: AsyncMutex<Option<(Pressure, Pressure)>>,
    /// Held while a collection for pulls runs; guards what came of the last one.
    pub(super) room: AsyncMutex<LastRoom>,
    /// How many collections for pulls have ended.
    pub(super) rooms: AtomicU64,
    /// Pulls that are under way.
    pub(super) holds: Arc<Holds>,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct State {
    loaded: bool,
    pub(super) history: UsageHistory,
    pub(super) pins: Pins,
    /// The files that this is.
    usage: Option<Stamp>,
    pinned: Option<Stamp>,
    /// Labels of images by id, where a rule asks for them. An id names its config, so they never change.
    pub(super) labels: Labels,
    /// Collections that failed in a row.
    pub(super) failures: u32,
}

/// What is on the node, as one pass found it.
pub(super) struct Found {
    pub(super) images: Vec<Image>,
    pub(super) containers: Vec<Container>,
    pub(super) detected: Detected,
    pub(super) layers: Option<ImageLayers>,
    /// By which the round selects.
    pub(super) rules: Rules,
    /// The time of the pass, to which the history was brought, and when that was by the clock that nobody sets.
    pub(super) at: (Timestamp, Instant),
}

impl ImageGcManager {
    /// A collector of the images behind `images`. Without a runtime nobody is known to use an image beside pins, rules and
    /// the service's own refusal.
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
        Self {
            images: CollectedImages::new(images, &options),
            runtime,
            events,
            options,
            files,
            state: AsyncMutex::default(),
            cache: Mutex::default(),
            nudge: Notify::new(),
            nudge_detect: Notify::new(),
            nudge_cache: Notify::new(),
            pressure: AsyncMutex::default(),
            room: AsyncMutex::default(),
            rooms: AtomicU64::new(0),
            holds,
        }
    }

    /// How it works.
    #[must_use]
    pub fn options(&self) -> &GcOptions {
        &self.options
    }

    /// Asks for a collection soon, as when a disk is full.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// Asks for a look at images and containers soon, as when some came or went.
    pub fn nudge_lists(&self) {
        self.nudge_detect.notify_one();
        self.nudge_cache.notify_one();
    }

    /// Brings the usage history up to date.
    ///
    /// # Errors
    /// The runtime's lists, or the state.
    pub async fn detect(&self) -> Result<(), GcError> {
        let mut state = self.state().await?;
        self.find(&mut state).await?;
        self.store(&mut state).await
    }

    /// Reads the list of images for [`ImageGcManager::image_list`].
    ///
    /// # Errors
    /// The image service did not answer.
    pub async fn refresh_cache(&self) -> Result<(), GcError> {
        let mut list = self.list().await?;
        list.sort_by(by_size);
        *self.cache.lock() = Some(list.into());
        Ok(())
    }

    /// The images as they were listed last, the largest first; empty before the first time.
    #[must_use]
    pub fn image_list(&self) -> Arc<[Image]> {
        self.cache.lock().clone().unwrap_or_default()
    }

    pub(super) fn is_cached(&self) -> bool {
        self.cache.lock().is_some()
    }

    /// Pins by pattern: what fits is not collected, on whatever service. Says whether it was not pinned before.
    ///
    /// # Errors
    /// The pattern, or the state.
    pub async fn pin(&self, pattern: &str) -> Result<bool, GcError> {
        let pattern = Pattern::parse(pattern)?;
        self.change_pins(move |pins| pins.pin(pattern)).await
    }

    /// Takes a pin away. Says whether there was one.
    ///
    /// # Errors
    /// The pattern, or the state.
    pub async fn unpin(&self, pattern: &str) -> Result<bool, GcError> {
        let pattern = Pattern::parse(pattern)?;
        self.change_pins(move |pins| pins.unpin(&pattern)).await
    }

    /// The pins, with the images that each holds.
    ///
    /// # Errors
    /// The list of images, or the state.
    pub async fn pins(&self) -> Result<Vec<(Pattern, Vec<Image>)>, GcError> {
        let mut state = self.state().await?;
        let images = self.list().await?;
        self.look_at_labels(&mut state, &images).await;
        let held = |pattern: &Pattern| {
            let fits = |image: &&Image| pattern.fits(image, known(&state, image));
            images.iter().filter(fits).cloned().collect()
        };
        Ok(state.pins.iter().map(|pattern| (pattern.clone(), held(pattern))).collect())
    }

    /// The pins alone; asks nobody for images.
    ///
    /// # Errors
    /// The state.
    pub async fn pinned(&self) -> Result<Pins, GcError> {
        Ok(self.state().await?.pins.clone())
    }

    /// Has an image go after all others for a while, because it was brought ahead of its use. The first container that uses
    /// it ends that.
    ///
    /// # Errors
    /// The state.
    pub async fn protect(&self, id: &str, runtime_handler: &str, lasts: Duration) -> Result<(), GcError> {
        let mut state = self.state().await?;
        let moment = self.moment();
        let now = moment.wall;
        state.history.follow_clock(moment);
        if !state.history.protect(id, runtime_handler, now, protected_until(now, lasts)) {
            return Ok(());
        }
        self.store(&mut state).await
    }

    /// The state, read from its files the first time, and when another process has written them since.
    pub(super) async fn state(&self) -> Result<tokio::sync::MutexGuard<'_, State>, GcError> {
        let mut state = self.state.lock().await;
        let Some(files) = self.files.clone() else { return Ok(state) };
        let (known, known_pins) = (state.usage, state.pinned);
        let read = off_thread(move || Ok::<_, StateError>((files.history(known)?, files.pins(known_pins)?))).await;
        let (history, pins) = read.ok_or(GcError::ShuttingDown)??;
        let told = |aside: Option<PathBuf>| {
            if let Some(aside) = aside {
                tracing::warn!("a file of the garbage collection could not be read and is now {}", aside.display());
            }
        };
        if let Some(read) = history {
            told(read.aside);
            match read.state {
                Some(theirs) if state.loaded => state.history.merge(theirs),
                Some(theirs) => state.history = theirs,
                None => {}
            }
            (state.usage, state.loaded) = (read.stamp, true);
        }
        if let Some(read) = pins {
            told(read.aside);
            if let Some(pins) = read.state {
                state.pins = pins;
            }
            state.pinned = read.stamp;
        }
        Ok(state)
    }

    /// Stores the history. On a disk without a free byte that waits: it is known here, what is on the disk is whole, and
    /// the next round tries again.
    pub(super) async fn store(&self, state: &mut State) -> Result<(), GcError> {
        let Some(files) = self.files.clone() else { return Ok(()) };
        // Should nobody wait for the end of this, the history is read again.
        let known = state.usage.take();
        state.loaded = false;
        let mut history = std::mem::take(&mut state.history);
        let stored = off_thread(move || {
            let result = files.store_history(&mut history, known);
            (history, result)
        });
        let (history, result) = stored.await.ok_or(GcError::ShuttingDown)?;
        (state.history, state.loaded) = (history, true);
        match result {
            Ok(stamp) => state.usage = stamp,
            Err(error) => {
                state.usage = known;
                if !error.is_disk_full() {
                    return Err(error.into());
                }
                tracing::warn!("what was seen of usage is not written down for now: {}", chain(&error.into()));
            }
        }
        Ok(())
    }

    /// Changes the pins, here and on the disk.
    async fn change_pins(&self, change: impl FnOnce(&mut Pins) -> bool + Send + 'static) -> Result<bool, GcError> {
        let mut state = self.state().await?;
        let Some(files) = self.files.clone() else { return Ok(change(&mut state.pins)) };
        let (changed, pins, stamp) =
            off_thread(move || files.change_pins(change)).await.ok_or(GcError::ShuttingDown)??;
        (state.pins, state.pinned) = (pins, stamp);
        Ok(changed)
    }

    pub(super) async fn read_pressure(&self) -> Result<Pressure, GcError> {
        let Some(files) = self.files.clone() else { return Ok(Pressure::default()) };
        let read = off_thread(move || files.pressure()).await;
        let (pressure, aside) = read.ok_or(GcError::ShuttingDown)??;
        if let Some(aside) = aside {
            tracing::warn!("what was known of disk pressure could not be read and is now {}", aside.display());
        }
        Ok(pressure)
    }

    /// Stores what is known of disk pressure. Under it the disk may have no room for that, which changes nothing now.
    pub(super) async fn store_pressure(&self, pressure: Pressure) {
        let Some(files) = self.files.clone() else { return };
        match off_thread(move || files.store_pressure(pressure)).await {
            None | Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(%error, "a restart would not know of the disk pressure"),
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<Image>, GcError> {
        let list = self.images.service.list_images(None).await;
        list.map_err(|source| GcError::Runtime { what: "list images", source })
    }

    /// Now, by both clocks.
    fn moment(&self) -> Moment {
        let boot = self.options.boot_clock.as_ref().and_then(|clock| clock());
        Moment { wall: (self.options.wall_clock)(), boot }
    }

    /// The time by which the ages of what was found count. It is that of the pass, and what has passed since: a clock that is set
    /// in the middle of a round, as that of a node is which has just heard what time it is, makes nothing old enough to go.
    pub(super) fn now(&self, found: &Found) -> Timestamp {
        let (wall, clock) = found.at;
        let passed = (self.options.clock)().saturating_duration_since(clock);
        wall.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// Asks for the lists, and brings the history up to date.
    pub(super) async fn find(&self, state: &mut State) -> Result<Found, GcError> {
        let ask = |what, source| GcError::Runtime { what, source };
        // Images first: what a container begins to use in between is then seen as used.
        let images = self.list().await?;
        if images.iter().any(|image| image.id.is_empty()) {
            self.tell(EventType::Warning, "InvalidImageID", "ImageID is not valid, skipping, ImageID: ");
        }
        let containers = match &self.runtime {
            Some(runtime) => runtime.list_containers(None).await.map_err(|e| ask("list containers", e))?,
            None => Vec::new(),
        };
        let layers = self.images.layers().await.map_err(|e| ask("list the layers of images", e))?;
        let (moment, clock) = (self.moment(), (self.options.clock)());
        let at = (moment.wall, clock);
        let volumes = self.options.volumes.as_ref().map(|volumes| volumes()).unwrap_or_default();
        // A pull that ended a moment ago is that of a container which is about to begin.
        let pulls = self.holds.names(self.options.policy.min_age);
        let always = AlwaysUsed { sandbox_image: &self.options.sandbox_image, volumes: &volumes, pulls: &pulls };
        self.look_at_labels(state, &images).await;
        let detected = detect_at(&mut state.history, &images, &containers, always, moment);
        Ok(Found { images, containers, detected, layers, rules: self.rules(), at })
    }

    /// The image file system, and how full it is.
    pub(super) async fn measure(&self) -> Result<(PathBuf, DiskSpace), GcError> {
        let info = self.images.service.image_fs_info().await;
        let info = info.map_err(|source| GcError::Runtime { what: "ask for the image file system", source })?;
        let path = info.image_filesystems.first().map(|fs| PathBuf::from(&fs.mountpoint)).ok_or(GcError::NoImageFs)?;
        let space = self.probe(&path).await?;
        if space.capacity == 0 {
            self.tell(EventType::Warning, "InvalidDiskCapacity", &GcError::InvalidCapacity.to_string());
            return Err(GcError::InvalidCapacity);
        }
        self.options.metrics.measured(space);
        Ok((path, space))
    }

    pub(super) async fn probe(&self, path: &Path) -> Result<DiskSpace, GcError> {
        let (disk, at) = (Arc::clone(&self.options.disk), path.to_owned());
        let space = off_thread(move || disk(&at)).await.ok_or(GcError::ShuttingDown)?;
        space.map(DiskSpace::clamped).map_err(|source| GcError::Disk { path: path.to_owned(), source })
    }

    pub(super) fn rules(&self) -> Rules {
        // Where nobody tells what is used, nothing can be said to be unused so far.
        let protect_unused = self.runtime.as_ref().map_or(Duration::ZERO, |_| self.options.protect_pre_pulled);
        Rules {
            min_age: self.options.policy.min_age,
            protect_unused,
            minimum_copies: self.options.minimum_copies,
            order: self.options.order,
        }
    }

    pub(super) fn tell(&self, kind: EventType, reason: &'static str, message: &str) {
        self.events.record(EventRef { object: &self.options.node, kind, reason, message });
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
pub(super) mod tests;
