//! [`ImageGcManager`]: the thin shell around [`detect`](super::detect()) and [`select`](super::select()): asks for the
//! lists, has removed what was selected, measures what that freed, and remembers. One round at a time; an error in one
//! part of a round does not end the others. Called by its own loops, by commands and by whoever runs out of space.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cri_api::{Container, Image, ImageLayers, ImageService, RuntimeService};
use jiff::Timestamp;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::detect::{AlwaysUsed, Detected, detect};
use super::disk::{DiskSpace, Shortage};
use super::history::UsageHistory;
use super::options::GcOptions;
use super::outline::{self, Outline};
use super::plan::Plan;
use super::report::{GcError, GcReport, chain};
use super::rules::{Pattern, Pins};
use super::select::{Goal, Rules, select};
use super::sketch::Sketch;
use super::state::{StateError, StateFiles};
use crate::events::EventRef;
use crate::{EventRecorder, EventType};

/// Collects images.
pub struct ImageGcManager {
    pub(super) images: Arc<dyn ImageService>,
    runtime: Option<Arc<dyn RuntimeService>>,
    events: Arc<dyn EventRecorder>,
    pub(super) options: GcOptions,
    files: Option<StateFiles>,
    /// Held for a whole round: rounds do not overlap.
    state: AsyncMutex<State>,
    /// Guards the last list of images, the largest first.
    cache: Mutex<Arc<[Image]>>,
    pub(super) nudge: Notify,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) loaded: bool,
    pub(super) history: UsageHistory,
    pub(super) pins: Pins,
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
        Self {
            images,
            runtime,
            events,
            options,
            files,
            state: AsyncMutex::default(),
            cache: Mutex::new(Arc::default()),
            nudge: Notify::new(),
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

    /// Brings the usage history up to date.
    ///
    /// # Errors
    /// The runtime's lists, or the state.
    pub async fn detect(&self) -> Result<(), GcError> {
        let mut state = self.state().await?;
        self.find(&mut state).await?;
        self.store(&state).await
    }

    /// Reads the list of images for [`ImageGcManager::image_list`].
    ///
    /// # Errors
    /// The image service did not answer.
    pub async fn refresh_cache(&self) -> Result<(), GcError> {
        let list = self.images.list_images(None).await;
        let mut list = list.map_err(|source| GcError::Runtime { what: "list images", source })?;
        list.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| b.id.cmp(&a.id)));
        *self.cache.lock().unwrap_or_else(PoisonError::into_inner) = list.into();
        Ok(())
    }

    /// The images as they were listed last, the largest first; empty before the first time.
    #[must_use]
    pub fn image_list(&self) -> Arc<[Image]> {
        Arc::clone(&self.cache.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One round: what is too old goes, and above the high mark what is least missed, until the low mark.
    ///
    /// # Errors
    /// [`GcError`]; what could be done has been done.
    pub async fn garbage_collect(&self) -> Result<GcReport, GcError> {
        done(self.collect_by(None, None).await?)
    }

    /// For disk pressure: removes what is least missed until the low mark, wherever the high one is; everything that
    /// nothing needs where that does not suffice.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn delete_unused_images(&self) -> Result<GcReport, GcError> {
        let began = (self.options.wall_clock)();
        let mut state = self.state().await?;
        let mut found = self.find(&mut state).await?;
        let mut report = GcReport::default();
        let mut errors = Vec::new();
        match self.measure().await {
            Ok((path, space)) => {
                let shortage = Shortage::to_low_mark(space, &self.options.policy);
                if let Err(error) = self.free(&mut state, &mut found, &path, space, shortage, &mut report).await {
                    errors.push(error);
                }
            }
            Err(error) => errors.push(error),
        }
        done(self.finish(state, &found, began, report, errors).await)
    }

    /// Removes towards a goal that a person set. [`Goal::Free`] counts what is really freed.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn collect(&self, goal: Goal) -> Result<GcReport, GcError> {
        done(self.collect_by(Some(goal), None).await?)
    }

    /// The same, or with `None` a round, for images that are here for `min_age` at least, where that is given. What was done
    /// comes back whether all of it could be done or not.
    ///
    /// # Errors
    /// [`GcError`]; nothing has been done.
    pub async fn collect_by(
        &self,
        goal: Option<Goal>,
        min_age: Option<Duration>,
    ) -> Result<(GcReport, Option<GcError>), GcError> {
        let began = (self.options.wall_clock)();
        let mut state = self.state().await?;
        let mut found = self.find(&mut state).await?;
        found.rules.min_age = min_age.unwrap_or(found.rules.min_age);
        let mut report = GcReport::default();
        let mut errors = Vec::new();
        let by_age = goal.is_none().then_some(self.options.policy.max_age).filter(|age| !age.is_zero());
        if let Some(limit) = by_age {
            let failures = self.remove_all(&mut state, &mut found, Goal::OlderThan(limit), &mut report).await;
            if !failures.is_empty() {
                let failures = failures.join(", ");
                errors.push(GcError::AgeRemoval { limit, failures });
            }
        }
        match goal {
            None | Some(Goal::Free(_)) => match self.measure().await {
                Ok((path, space)) => {
                    let shortage = match goal {
                        Some(Goal::Free(bytes)) => Shortage { bytes, inodes: 0 },
                        _ => Shortage::at(space, &self.options.policy),
                    };
                    if let Err(error) = self.free(&mut state, &mut found, &path, space, shortage, &mut report).await {
                        errors.push(error);
                    }
                }
                Err(error) => errors.push(error),
            },
            Some(goal @ (Goal::AllUnused | Goal::OlderThan(_))) => {
                let failures = self.remove_all(&mut state, &mut found, goal, &mut report).await;
                if !failures.is_empty() {
                    let failures = failures.join(", ");
                    let (wanted, freed) = (report.wanted_bytes, report.freed_bytes);
                    errors.push(GcError::Removal { wanted, freed, failures });
                }
            }
        }
        Ok(self.finish(state, &found, began, report, errors).await)
    }

    /// What [`ImageGcManager::collect`] would do, or with `None` what a round would, and for every image why. Removes
    /// nothing; what it learns of usage is remembered.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn plan(&self, goal: Option<Goal>) -> Result<Outline, GcError> {
        self.plan_by(goal, None).await
    }

    /// The same for images that are here for `min_age` at least, where that is given.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn plan_by(&self, goal: Option<Goal>, min_age: Option<Duration>) -> Result<Outline, GcError> {
        let mut state = self.state().await?;
        let mut found = self.find(&mut state).await?;
        found.rules.min_age = min_age.unwrap_or(found.rules.min_age);
        if let Err(error) = self.store(&state).await {
            // With the disk full there is still a plan to make.
            tracing::warn!("what was seen of usage is not written down: {}", chain(&error));
        }
        let measured = self.measure().await;
        let now = (self.options.wall_clock)();
        let goals = match (goal, &measured) {
            (Some(goal), _) => vec![goal],
            (None, Ok((_, space))) => {
                let age = self.options.policy.max_age;
                let by_age = (!age.is_zero()).then_some(Goal::OlderThan(age));
                let bytes = Shortage::at(*space, &self.options.policy).bytes;
                by_age.into_iter().chain([Goal::Free(bytes)]).collect()
            }
            (None, Err(_)) => Vec::new(),
        };
        if goals.is_empty() {
            measured?;
            return Ok(Outline::default());
        }
        let sketch = Sketch::new(self, &state, &found, &BTreeSet::new());
        let plans: Vec<Plan> = goals.iter().map(|goal| select(&sketch.inventory(), &found.rules, *goal, now)).collect();
        Ok(outline::outline(
            &found.images,
            &state.history,
            &plans,
            found.layers.is_some(),
            measured.ok().map(|(_, space)| space),
        ))
    }

    /// Pins by pattern: what fits is not collected, on whatever service. Says whether it was not pinned before.
    ///
    /// # Errors
    /// The pattern, or the state.
    pub async fn pin(&self, pattern: &str) -> Result<bool, GcError> {
        let pattern = Pattern::parse(pattern)?;
        let mut state = self.state().await?;
        let new = state.pins.pin(pattern);
        self.store_pins(&state).await?;
        Ok(new)
    }

    /// Takes a pin away. Says whether there was one.
    ///
    /// # Errors
    /// The pattern, or the state.
    pub async fn unpin(&self, pattern: &str) -> Result<bool, GcError> {
        let pattern = Pattern::parse(pattern)?;
        let mut state = self.state().await?;
        let there = state.pins.unpin(&pattern);
        self.store_pins(&state).await?;
        Ok(there)
    }

    /// The pins, with the images that each holds.
    ///
    /// # Errors
    /// The list of images, or the state.
    pub async fn pins(&self) -> Result<Vec<(Pattern, Vec<Image>)>, GcError> {
        let state = self.state().await?;
        let images = self.images.list_images(None).await;
        let images = images.map_err(|source| GcError::Runtime { what: "list images", source })?;
        let held = |pattern: &Pattern| images.iter().filter(|image| pattern.matches(image)).cloned().collect();
        Ok(state.pins.iter().map(|pattern| (pattern.clone(), held(pattern))).collect())
    }

    /// Leaves an image alone for a while, because it was brought ahead of its use.
    ///
    /// # Errors
    /// The state.
    pub async fn protect(&self, id: &str, runtime_handler: &str, lasts: Duration) -> Result<(), GcError> {
        let mut state = self.state().await?;
        let now = (self.options.wall_clock)();
        let until = now.checked_add(lasts).unwrap_or(Timestamp::MAX);
        state.history.protect(id, runtime_handler, now, until);
        self.store(&state).await
    }

    /// The state, read from its files the first time.
    async fn state(&self) -> Result<tokio::sync::MutexGuard<'_, State>, GcError> {
        let mut state = self.state.lock().await;
        if !state.loaded {
            if let Some(files) = self.files.clone() {
                let read = tokio::task::spawn_blocking(move || Ok::<_, StateError>((files.history()?, files.pins()?)));
                let ((history, old_history), (pins, old_pins)) = joined(read.await)?;
                for aside in old_history.into_iter().chain(old_pins) {
                    tracing::warn!("a file of the garbage collection could not be read and is now {}", aside.display());
                }
                state.history = history;
                state.pins = pins;
            }
            state.loaded = true;
        }
        Ok(state)
    }

    async fn store(&self, state: &State) -> Result<(), GcError> {
        let Some(files) = self.files.clone() else { return Ok(()) };
        let history = state.history.clone();
        Ok(joined(tokio::task::spawn_blocking(move || files.store_history(&history)).await)?)
    }

    async fn store_pins(&self, state: &State) -> Result<(), GcError> {
        let Some(files) = self.files.clone() else { return Ok(()) };
        let pins = state.pins.clone();
        Ok(joined(tokio::task::spawn_blocking(move || files.store_pins(&pins)).await)?)
    }

    /// Asks for the lists, and brings the history up to date.
    async fn find(&self, state: &mut State) -> Result<Found, GcError> {
        let ask = |what, source| GcError::Runtime { what, source };
        // Images first: what a container begins to use in between is then seen as used.
        let images = self.images.list_images(None).await.map_err(|e| ask("list images", e))?;
        let containers = match &self.runtime {
            Some(runtime) => runtime.list_containers(None).await.map_err(|e| ask("list containers", e))?,
            None => Vec::new(),
        };
        let layers = self.images.image_layers().await.map_err(|e| ask("list the layers of images", e))?;
        let now = (self.options.wall_clock)();
        let always = AlwaysUsed { sandbox_image: &self.options.sandbox_image, volumes: &[] };
        let detected = detect(&mut state.history, &images, &containers, always, now);
        Ok(Found { images, containers, detected, layers, rules: self.rules() })
    }

    /// The image file system, and how full it is.
    async fn measure(&self) -> Result<(PathBuf, DiskSpace), GcError> {
        let info = self.images.image_fs_info().await;
        let info = info.map_err(|source| GcError::Runtime { what: "ask for the image file system", source })?;
        let path = info.image_filesystems.first().map(|fs| PathBuf::from(&fs.mountpoint)).ok_or(GcError::NoImageFs)?;
        let space = self.probe(&path).await?;
        if space.capacity == 0 {
            self.tell(EventType::Warning, "InvalidDiskCapacity", &GcError::InvalidCapacity.to_string());
            return Err(GcError::InvalidCapacity);
        }
        Ok((path, space))
    }

    pub(super) async fn probe(&self, path: &Path) -> Result<DiskSpace, GcError> {
        let (disk, at) = (Arc::clone(&self.options.disk), path.to_owned());
        let space = joined(tokio::task::spawn_blocking(move || disk(&at)).await);
        let space = space.map(DiskSpace::clamped).map_err(|source| GcError::Disk { path: path.to_owned(), source })?;
        self.options.metrics.used_percent(space.used_percent());
        Ok(space)
    }

    fn rules(&self) -> Rules {
        Rules {
            min_age: self.options.policy.min_age,
            minimum_copies: self.options.minimum_copies,
            order: self.options.order,
        }
    }

    /// What every round ends with: records of what went go, the history is stored, failures are counted.
    async fn finish(
        &self,
        state: tokio::sync::MutexGuard<'_, State>,
        found: &Found,
        began: Timestamp,
        mut report: GcReport,
        mut errors: Vec<GcError>,
    ) -> (GcReport, Option<GcError>) {
        if let Some(records) = &self.options.records {
            // Everything that is still here, in use and pinned included: a record must outlive any image that it is about.
            let present: BTreeSet<String> = found.images.iter().map(|image| image.id.clone()).collect();
            match records.prune(&present, began).await {
                Ok(pruned) => report.pruned_records = pruned,
                Err(error) => tracing::warn!(%error, "records of removed images stay for now"),
            }
        }
        if let Err(error) = self.store(&state).await {
            errors.push(error);
        }
        drop(state);
        let took = Duration::try_from((self.options.wall_clock)().duration_since(began)).unwrap_or_default();
        self.options.metrics.round(took, report.wanted_bytes, errors.is_empty());
        let error = match errors.len() {
            0 => None,
            1 => Some(errors.swap_remove(0)),
            _ => Some(GcError::Several(errors)),
        };
        (report, error)
    }

    /// The kubelet tells of failed collections from the second one in a row: at the start there may be no statistics yet.
    pub(super) async fn tell_of(&self, result: &Result<GcReport, GcError>) {
        let mut state = self.state.lock().await;
        match result {
            Ok(report) => {
                state.failures = 0;
                if !report.removed.is_empty() {
                    let (images, bytes) = (report.removed.len(), report.freed_bytes);
                    tracing::info!(images, bytes, "garbage collection removed images");
                }
            }
            Err(error) => {
                state.failures += 1;
                let text = chain(error);
                if state.failures > 1 {
                    self.tell(EventType::Warning, "ImageGCFailed", &text);
                } else {
                    tracing::warn!("image garbage collection failed once: {text}");
                }
            }
        }
    }

    pub(super) fn tell(&self, kind: EventType, reason: &'static str, message: &str) {
        self.events.record(EventRef { object: &self.options.node, kind, reason, message });
    }
}

impl Found {
    /// Forgets images that went, so that the next plan is about what is left.
    pub(super) fn forget(&mut self, gone: &[usize]) {
        if gone.is_empty() {
            return;
        }
        let mut number = 0;
        let mut users = Vec::with_capacity(self.images.len() - gone.len());
        let gone: BTreeSet<usize> = gone.iter().copied().collect();
        self.images.retain(|_| {
            let stays = !gone.contains(&number);
            if stays {
                users.push(self.detected.user(number));
            }
            number += 1;
            stays
        });
        self.detected = Detected::new(users);
    }
}

/// A round that did all that it should, or why not.
fn done((report, error): (GcReport, Option<GcError>)) -> Result<GcReport, GcError> {
    error.map_or(Ok(report), Err)
}

/// The result of a blocking task. Such a task does not panic; should it, that is the caller's panic.
fn joined<T>(result: Result<T, tokio::task::JoinError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
