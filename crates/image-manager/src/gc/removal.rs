//! The part of a round that removes: everything that a goal selects, or what is least missed until nothing is short, with
//! a measurement after each image. An image that cannot be removed is told and left out; the others go on.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use cri_api::{Image, ImageSpec};

use super::collector::{Found, ImageGcManager, State};
use super::detect::handler;
use super::disk::{DiskSpace, Shortage, human};
use super::plan::{Plan, Removal, RemovedBecause};
use super::report::{GcError, GcReport, RemovedImage};
use super::select::{Goal, select};
use super::sketch::Sketch;
use crate::EventType;

/// How many images go before the disk is measured again, where it is known what each frees.
const BATCH: usize = 64;

impl ImageGcManager {
    /// Removes everything that a goal selects. Answers what failed.
    pub(super) async fn remove_selected(
        &self,
        state: &mut State,
        found: &mut Found,
        goal: Goal,
        report: &mut GcReport,
    ) -> Vec<String> {
        let now = self.now(found);
        let sketch = Sketch::new(self, state, found, &BTreeSet::new());
        let plan = select(sketch.inventory(), &found.rules, goal, now);
        drop(sketch);
        self.count_kept(&plan);
        report.wanted_bytes = report.wanted_bytes.saturating_add(plan.frees);
        let specs: Vec<ImageSpec> = plan.remove.iter().map(|removal| spec(&found.images[removal.image])).collect();
        let mut failures = Vec::new();
        let mut gone = Vec::new();
        let results = self.images.remove(&specs).await;
        for (removal, result) in plan.remove.iter().zip(results) {
            let image = &found.images[removal.image];
            match result {
                Ok(()) => {
                    self.removed(state, image, removal, removal.frees, report);
                    gone.push(removal.image);
                }
                Err(error) => {
                    self.options.metrics.not_removed();
                    failures.push(format!("{}: {error}", image.id));
                }
            }
        }
        found.forget(&gone);
        failures
    }

    /// Removes what is least missed until nothing is short, measuring as it goes.
    pub(super) async fn free(
        &self,
        state: &mut State,
        found: &mut Found,
        path: &Path,
        start: DiskSpace,
        shortage: Shortage,
        report: &mut GcReport,
    ) -> Result<(), GcError> {
        report.disk = Some(start);
        if shortage.is_none() {
            return Ok(());
        }
        report.wanted_bytes = report.wanted_bytes.saturating_add(shortage.bytes);
        let mut space = start;
        let mut freed = 0_u64;
        let mut failures = Vec::new();
        let mut failed: BTreeSet<String> = BTreeSet::new();
        let missing = |space: DiskSpace| Shortage {
            bytes: (start.available + shortage.bytes).saturating_sub(space.available),
            inodes: (start.inodes_free + shortage.inodes).saturating_sub(space.inodes_free),
        };
        'short: while !missing(space).is_none() {
            let now = self.now(found);
            let left = missing(space);
            // Which image has how many files nobody tells: for inodes the order counts, and the measure.
            let goal = if left.inodes > 0 { Goal::AllUnused } else { Goal::Free(left.bytes) };
            let sketch = Sketch::new(self, state, found, &failed);
            let plan = select(sketch.inventory(), &found.rules, goal, now);
            drop(sketch);
            self.count_kept(&plan);
            if plan.remove.is_empty() {
                break;
            }
            // Where it is known what each frees, the plan is what is needed, and goes in few steps.
            let exact = found.layers.is_some() && left.inodes == 0;
            let mut gone = Vec::new();
            for batch in plan.remove.chunks(if exact { BATCH } else { 1 }) {
                let specs: Vec<ImageSpec> = batch.iter().map(|removal| spec(&found.images[removal.image])).collect();
                let results = self.images.remove(&specs).await;
                let went = batch.iter().zip(&results).filter(|(_, result)| result.is_ok());
                let promised: u64 = went.clone().map(|(removal, _)| removal.frees).sum();
                let all_went = went.clone().count() == batch.len();
                let after = match went.clone().count() {
                    0 => space,
                    _ => self.settled(path, space, promised, exact).await?,
                };
                // What is known counts, unless some of it stayed and may hold layers of the others.
                let mut measured = after.available.saturating_sub(space.available);
                space = after;
                for (removal, result) in batch.iter().zip(results) {
                    let image = &found.images[removal.image];
                    match result {
                        Ok(()) => {
                            let bytes = match (found.layers.is_some(), all_went) {
                                (true, true) => removal.frees,
                                (true, false) => removal.frees.min(measured),
                                (false, _) => measured,
                            };
                            measured = measured.saturating_sub(bytes);
                            freed = freed.saturating_add(bytes);
                            let removal = Removal { because: RemovedBecause::Space, ..*removal };
                            self.removed(state, image, &removal, bytes, report);
                            gone.push(removal.image);
                        }
                        Err(error) => {
                            self.options.metrics.not_removed();
                            failures.push(format!("{}: {error}", image.id));
                            failed.insert(image.id.clone());
                        }
                    }
                }
                if missing(space).is_none() {
                    found.forget(&gone);
                    break 'short;
                }
            }
            found.forget(&gone);
        }
        report.disk = Some(space);
        if !failures.is_empty() {
            let failures = failures.join(", ");
            return Err(GcError::Removal { wanted: shortage.bytes, freed, failures });
        }
        if missing(space).is_none() { Ok(()) } else { Err(self.not_enough(start, freed)) }
    }

    /// The file system after a removal. Some runtimes delete files a little later than they say, and some file systems (xfs)
    /// give blocks back in the background: what is measured too early is made up for by removing too much. So it waits until
    /// what is expected came, or where nobody knows what to expect, until no more comes.
    async fn settled(&self, path: &Path, before: DiskSpace, expected: u64, exact: bool) -> Result<DiskSpace, GcError> {
        const PAUSE: Duration = Duration::from_millis(20);
        /// What others may write at the same time.
        const NOISE: u64 = 1 << 20;
        let mut waited = Duration::ZERO;
        let mut last = self.probe(path).await?;
        let mut quiet = 0;
        loop {
            let came = last.available > before.available || last.inodes_free > before.inodes_free;
            let all_came = exact && last.available.saturating_sub(before.available).saturating_add(NOISE) >= expected;
            let enough = if exact { 10 } else { 2 };
            if expected == 0 || all_came || came && quiet >= enough || waited >= self.options.settle {
                return Ok(last);
            }
            tokio::time::sleep(PAUSE).await;
            waited += PAUSE;
            let space = self.probe(path).await?;
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
        self.tell(EventType::Warning, "FreeDiskSpaceFailed", &message);
        GcError::NotEnough(message)
    }

    fn count_kept(&self, plan: &Plan) {
        self.options.metrics.kept(plan.kept.iter().map(|kept| kept.because.word()));
    }

    /// An image went, which gave back so many bytes.
    fn removed(&self, state: &mut State, image: &Image, removal: &Removal, bytes: u64, report: &mut GcReport) {
        let Removal { because, protected_until, .. } = *removal;
        state.history.remove(&image.id, handler(image));
        self.options.metrics.removed(because, bytes);
        let protected = protected_until.is_some();
        tracing::info!(image = image.id, bytes, because = because.as_str(), protected, "image removed");
        report.freed_bytes = report.freed_bytes.saturating_add(bytes);
        let names = image.repo_tags.iter().chain(&image.repo_digests).cloned().collect();
        report.removed.push(RemovedImage { id: image.id.clone(), names, freed_bytes: bytes, because, protected_until });
    }
}

fn spec(image: &Image) -> ImageSpec {
    ImageSpec { runtime_handler: handler(image).to_owned(), ..ImageSpec::new(&image.id) }
}
