//! The removals of a [`Round`]: everything that a goal selects, or the least missed images until nothing is short, with a
//! measurement after each step. An image that cannot be removed is reported and left out; the others go on.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use cri_api::{Image, ImageSpec};
use jiff::Timestamp;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::context::GcContext;
use super::detect::handler;
use super::disk::{DiskSpace, Shortage, human};
use super::inventory::inventory;
use super::metrics::Trigger;
use super::plan::{Plan, Removal, RemovedBecause};
use super::report::{GcError, GcReport, RemovedImage};
use super::select::{Goal, select};
use super::state_store::GcState;
use super::survey::Survey;
use crate::EventType;

/// Images removed between two measurements of the disk, where layers are known.
const BATCH: usize = 64;

/// A round that runs. Its removals keep its survey, its state and its report up to date.
pub(super) struct Round<'a> {
    pub(super) context: &'a GcContext,
    pub(super) trigger: Trigger,
    pub(super) began: Timestamp,
    pub(super) clock: Instant,
    /// Locked for the whole round.
    pub(super) state: MutexGuard<'a, GcState>,
    pub(super) survey: Survey,
    pub(super) report: GcReport,
    pub(super) errors: Vec<GcError>,
}

impl Round<'_> {
    fn select(&self, goal: Goal, failed: &BTreeSet<String>) -> Plan {
        let inventory = inventory(&self.context.options().keep, &self.state, &self.survey, failed);
        let plan = select(&inventory, &self.survey.rules, goal, self.survey.now(self.context));
        self.context.options().metrics.kept(plan.kept.iter().map(|kept| kept.because.word()));
        plan
    }

    fn specs(&self, removals: &[Removal]) -> Vec<ImageSpec> {
        removals.iter().map(|removal| spec(&self.survey.images[removal.image])).collect()
    }

    /// Removes everything that a goal selects. Returns one text for each image that could not be removed.
    pub(super) async fn remove_selected(&mut self, goal: Goal) -> Vec<String> {
        let plan = self.select(goal, &BTreeSet::new());
        self.report.wanted_bytes = self.report.wanted_bytes.saturating_add(plan.frees);
        let mut failures = Vec::new();
        let mut removed = Vec::new();
        let results = self.context.remove_images(&self.specs(&plan.remove)).await;
        for (removal, result) in plan.remove.iter().zip(results) {
            match result {
                Ok(()) => {
                    self.record(removal, removal.frees);
                    removed.push(removal.image);
                }
                Err(error) => failures.push(self.failure(removal, &error)),
            }
        }
        self.survey.forget(&removed);
        failures
    }

    /// Removes images in order until nothing is short, measuring the file system at `path` in between.
    pub(super) async fn free(&mut self, path: &Path, start: DiskSpace, shortage: Shortage) -> Result<(), GcError> {
        self.report.disk = Some(start);
        if shortage.is_none() {
            return Ok(());
        }
        self.report.wanted_bytes = self.report.wanted_bytes.saturating_add(shortage.bytes);
        let mut space = start;
        let mut freed = 0_u64;
        let mut failures = Vec::new();
        let mut failed: BTreeSet<String> = BTreeSet::new();
        let missing = |space: DiskSpace| Shortage {
            bytes: (start.available + shortage.bytes).saturating_sub(space.available),
            inodes: (start.inodes_free + shortage.inodes).saturating_sub(space.inodes_free),
        };
        'short: while !missing(space).is_none() {
            let left = missing(space);
            // The number of files of an image is not known: for inodes, remove images in order and measure after each step.
            let goal = if left.inodes > 0 { Goal::AllUnused } else { Goal::Free(left.bytes) };
            let plan = self.select(goal, &failed);
            if plan.remove.is_empty() {
                break;
            }
            // Where layers are known, the plan is exact, and takes few steps.
            let exact = self.survey.layers.is_some() && left.inodes == 0;
            let mut removed = Vec::new();
            for batch in plan.remove.chunks(if exact { BATCH } else { 1 }) {
                let results = self.context.remove_images(&self.specs(batch)).await;
                let went = batch.iter().zip(&results).filter(|(_, result)| result.is_ok());
                let promised: u64 = went.clone().map(|(removal, _)| removal.frees).sum();
                let all_went = went.clone().count() == batch.len();
                let after = match went.clone().count() {
                    0 => space,
                    _ => self.settled(path, space, promised, exact).await?,
                };
                // The bytes of the plan count, unless some images stayed, which may hold layers of the removed ones.
                let mut measured = after.available.saturating_sub(space.available);
                space = after;
                for (removal, result) in batch.iter().zip(results) {
                    match result {
                        Ok(()) => {
                            let bytes = match (self.survey.layers.is_some(), all_went) {
                                (true, true) => removal.frees,
                                (true, false) => removal.frees.min(measured),
                                (false, _) => measured,
                            };
                            measured = measured.saturating_sub(bytes);
                            freed = freed.saturating_add(bytes);
                            let removal = Removal { because: RemovedBecause::Space, ..*removal };
                            self.record(&removal, bytes);
                            removed.push(removal.image);
                        }
                        Err(error) => {
                            failures.push(self.failure(removal, &error));
                            failed.insert(self.survey.images[removal.image].id.clone());
                        }
                    }
                }
                if missing(space).is_none() {
                    self.survey.forget(&removed);
                    break 'short;
                }
            }
            self.survey.forget(&removed);
        }
        self.report.disk = Some(space);
        if !failures.is_empty() {
            let failures = failures.join(", ");
            return Err(GcError::Removal { wanted: shortage.bytes, freed, failures });
        }
        if missing(space).is_none() { Ok(()) } else { Err(self.not_enough(start, freed)) }
    }

    /// Returns the space on the file system after a removal. Some runtimes delete files a little later than they report, and
    /// some file systems (xfs) free blocks in the background: a measurement that is too early leads to removing too much. So
    /// this waits until the expected space is free or, where the expected space is not known, until it grows no more.
    async fn settled(&self, path: &Path, before: DiskSpace, expected: u64, exact: bool) -> Result<DiskSpace, GcError> {
        const PAUSE: Duration = Duration::from_millis(20);
        /// Bytes that other processes may write at the same time.
        const NOISE: u64 = 1 << 20;
        let mut waited = Duration::ZERO;
        let mut last = self.context.probe(path).await?;
        let mut quiet = 0;
        loop {
            let came = last.available > before.available || last.inodes_free > before.inodes_free;
            let all_came = exact && last.available.saturating_sub(before.available).saturating_add(NOISE) >= expected;
            let enough = if exact { 10 } else { 2 };
            if expected == 0 || all_came || came && quiet >= enough || waited >= self.context.options().settle {
                return Ok(last);
            }
            tokio::time::sleep(PAUSE).await;
            waited += PAUSE;
            let space = self.context.probe(path).await?;
            quiet = if space == last { quiet + 1 } else { 0 };
            last = space;
        }
    }

    fn not_enough(&self, space: DiskSpace, freed: u64) -> GcError {
        let message = format!(
            "Insufficient free disk space on the node's image filesystem ({}% of {} used). Failed to free sufficient space \
             by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used by active images, \
             logs, volumes, or other data.",
            space.used_percent().max(space.inodes_used_percent()),
            human(space.capacity),
        );
        self.context.record_event(EventType::Warning, "FreeDiskSpaceFailed", &message);
        GcError::NotEnough(message)
    }

    /// Counts a removal that failed, and words it.
    fn failure(&self, removal: &Removal, error: &cri_api::Error) -> String {
        self.context.options().metrics.not_removed();
        format!("{}: {error}", self.survey.images[removal.image].id)
    }

    /// Records a removal that gave back so many bytes.
    fn record(&mut self, removal: &Removal, bytes: u64) {
        let image = &self.survey.images[removal.image];
        let Removal { because, protected_until, .. } = *removal;
        self.state.history.remove(&image.id, handler(image));
        self.context.options().metrics.removed(because, bytes);
        let protected = protected_until.is_some();
        tracing::info!(image = image.id, bytes, reason = because.as_str(), protected, "image removed");
        self.report.freed_bytes = self.report.freed_bytes.saturating_add(bytes);
        let names = image.repo_tags.iter().chain(&image.repo_digests).cloned().collect();
        let removed = RemovedImage { id: image.id.clone(), names, freed_bytes: bytes, because, protected_until };
        self.report.removed.push(removed);
    }
}

fn spec(image: &Image) -> ImageSpec {
    ImageSpec { runtime_handler: handler(image).to_owned(), ..ImageSpec::new(&image.id) }
}
