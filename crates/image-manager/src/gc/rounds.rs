//! The rounds of [`ImageGcManager`], which remove images that are too old, then the least missed ones until nothing is short; and
//! their plan, which removes nothing. One round at a time; an error in one part of a round does not end the others. A [`Round`] is
//! the work in progress; [`removal`](super::removal) has its removals.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::disk::{DiskSpace, Shortage};
use super::inventory::inventory;
use super::manager::ImageGcManager;
use super::metrics::Trigger;
use super::outline::{self, Outline};
use super::plan::Plan;
use super::pressure::{Disks, observe};
use super::removal::Round;
use super::report::{Done, GcError, GcReport, chain};
use super::select::{Goal, select};
use super::survey::Survey;
use crate::EventType;

/// The span of a round, with the kubelet's name.
fn round_span() -> Span {
    tracing::trace_span!("Images/GarbageCollect")
}

impl ImageGcManager {
    /// Surveys the node, and stores the history.
    pub(super) async fn survey(&self) -> Result<(), GcError> {
        let mut state = self.store.lock().await?;
        Survey::take(&self.context, &self.holds, &mut state, None).await?;
        self.store.save(&mut state).await
    }

    /// A round that frees the shortage of disk pressure.
    pub(super) async fn pressure_round(&self) -> Result<Done, GcError> {
        self.round(Trigger::Pressure, None, |space| self.pressing_shortage(space)).await
    }

    /// The shortage under disk pressure: up to the low mark, and up to every threshold that removing images can meet.
    fn pressing_shortage(&self, space: DiskSpace) -> Shortage {
        let options = self.context.options();
        let mut shortage = Shortage::to_low_mark(space, &options.policy);
        let disks = Disks { images: Some(space), ..Disks::default() };
        for observation in observe(&options.pressure.thresholds, disks) {
            let missing = if observation.of.is_inodes() { &mut shortage.inodes } else { &mut shortage.bytes };
            *missing = (*missing).max(observation.missing());
        }
        shortage
    }

    /// Removes towards a goal, or with `None` as a periodic round does. `min_age` replaces the minimum age of the policy.
    pub(super) async fn goal_round(&self, goal: Option<Goal>, min_age: Option<Duration>) -> Result<Done, GcError> {
        let goal = match goal {
            None => return self.full_round(Trigger::Command, min_age).await,
            Some(Goal::Free(bytes)) => {
                return self.round(Trigger::Command, min_age, |_| Shortage { bytes, inodes: 0 }).await;
            }
            Some(goal @ (Goal::AllUnused | Goal::OlderThan(_))) => goal,
        };
        let mut round = self.begin(Trigger::Command, min_age).await?;
        let failures = self.remove_all(&mut round, goal).instrument(round_span()).await;
        if !failures.is_empty() {
            let (wanted, freed) = (round.report.wanted_bytes, round.report.freed_bytes);
            round.errors.push(GcError::Removal { wanted, freed, failures: failures.join(", ") });
        }
        Ok(self.finish(round).await)
    }

    /// The outline of what [`ImageGcManager::goal_round`] would do. Removes nothing; stores the history.
    pub(super) async fn outline(&self, goal: Option<Goal>, min_age: Option<Duration>) -> Result<Outline, GcError> {
        let mut state = self.store.lock().await?;
        let survey = Survey::take(&self.context, &self.holds, &mut state, min_age).await?;
        self.store.save(&mut state).await?;
        let measured = self.context.measure_image_fs().await;
        let now = survey.now(&self.context);
        let options = self.context.options();
        let goals = match (goal, &measured) {
            (Some(goal), _) => vec![goal],
            (None, Ok((_, space))) => {
                let age = options.policy.max_age;
                let by_age = (!age.is_zero()).then_some(Goal::OlderThan(age));
                let bytes = Shortage::at(*space, &options.policy).bytes;
                by_age.into_iter().chain([Goal::Free(bytes)]).collect()
            }
            (None, Err(_)) => Vec::new(),
        };
        if goals.is_empty() {
            measured?;
            return Ok(Outline::default());
        }
        let inventory = inventory(&options.keep, &state, &survey, &BTreeSet::new());
        let plans: Vec<Plan> = goals.iter().map(|goal| select(&inventory, &survey.rules, *goal, now)).collect();
        let disk = measured.ok().map(|(_, space)| space);
        Ok(outline::outline(&survey.images, &state.history, &plans, survey.layers.is_some(), disk))
    }

    /// A round that removes by age, then by space.
    pub(super) async fn full_round(&self, trigger: Trigger, min_age: Option<Duration>) -> Result<Done, GcError> {
        self.run_full_round(trigger, min_age).instrument(round_span()).await
    }

    async fn run_full_round(&self, trigger: Trigger, min_age: Option<Duration>) -> Result<Done, GcError> {
        let mut round = self.begin(trigger, min_age).await?;
        let limit = self.context.options().policy.max_age;
        if !limit.is_zero() {
            let failures = self.remove_all(&mut round, Goal::OlderThan(limit)).await;
            if !failures.is_empty() {
                round.errors.push(GcError::AgeRemoval { limit, failures: failures.join(", ") });
            }
        }
        self.free_shortage(&mut round, |space| Shortage::at(space, &self.context.options().policy)).await;
        Ok(self.finish(round).await)
    }

    /// A round that frees the shortage of the image file system.
    pub(super) async fn round(
        &self,
        trigger: Trigger,
        min_age: Option<Duration>,
        shortage: impl Fn(DiskSpace) -> Shortage + Send,
    ) -> Result<Done, GcError> {
        let free = async {
            let mut round = self.begin(trigger, min_age).await?;
            self.free_shortage(&mut round, shortage).await;
            Ok(self.finish(round).await)
        };
        free.instrument(round_span()).await
    }

    async fn begin(&self, trigger: Trigger, min_age: Option<Duration>) -> Result<Round<'_>, GcError> {
        let options = self.context.options();
        let (began, clock) = ((options.wall_clock)(), (options.clock)());
        self.drop_unfinished(false).await;
        let mut state = self.store.lock().await?;
        let survey = match Survey::take(&self.context, &self.holds, &mut state, min_age).await {
            Ok(survey) => survey,
            Err(error) => {
                options.metrics.round(trigger, self.since(clock), 0, false);
                return Err(error);
            }
        };
        let context = &*self.context;
        Ok(Round { context, trigger, began, clock, state, survey, report: GcReport::default(), errors: Vec::new() })
    }

    async fn remove_all(&self, round: &mut Round<'_>, goal: Goal) -> Vec<String> {
        if goal == Goal::AllUnused {
            let left = self.drop_unfinished(true).await;
            round.report.freed_bytes = round.report.freed_bytes.saturating_add(left);
        }
        round.remove_selected(goal).await
    }

    /// Measures the image file system, and frees its shortage.
    async fn free_shortage(&self, round: &mut Round<'_>, shortage: impl Fn(DiskSpace) -> Shortage + Send) {
        let freed = match self.context.measure_image_fs().await {
            Ok((path, space)) => {
                let missing = shortage(space);
                let left = if missing.is_none() { 0 } else { self.drop_unfinished(true).await };
                round.report.freed_bytes = round.report.freed_bytes.saturating_add(left);
                let after = if left > 0 { self.context.probe(&path).await } else { Ok(space) };
                match after {
                    Ok(after) => round.free(&path, after, missing.after(space, after)).await,
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        round.errors.extend(freed.err());
    }

    /// Removes blobs that interrupted pulls left, before any image: a pull that misses them fetches them again. Returns the
    /// bytes freed.
    async fn drop_unfinished(&self, all: bool) -> u64 {
        let dropped = match self.context.drop_unfinished(all).await {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%error, "what interrupted pulls left stays for now");
                0
            }
        };
        self.context.unfinished_pulls().await;
        dropped
    }

    fn since(&self, began: Instant) -> Duration {
        (self.context.options().clock)().duration_since(began)
    }

    /// Ends a round: prunes the records of removed images, stores the history and counts the round.
    async fn finish(&self, round: Round<'_>) -> Done {
        let Round { trigger, began, clock, mut state, survey, mut report, mut errors, .. } = round;
        let options = self.context.options();
        if let Some(records) = &options.records {
            // Every remaining image, in use and pinned included: a record must outlive the image that it is about.
            let present: BTreeSet<String> = survey.images.iter().map(|image| image.id.clone()).collect();
            // Should the clock have been set back meanwhile, what was written since then is of this time.
            let set_back = (options.wall_clock)().checked_sub(self.since(clock)).unwrap_or(began);
            match records.prune(&present, began.min(set_back)).await {
                Ok(pruned) => report.pruned_records = pruned,
                Err(error) => tracing::warn!(%error, "records of removed images stay for now"),
            }
        }
        if let Err(error) = self.store.save(&mut state).await {
            errors.push(error);
        }
        drop(state);
        options.metrics.round(trigger, self.since(clock), report.wanted_bytes, errors.is_empty());
        let error = match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(GcError::Several(errors)),
        };
        (report, error)
    }

    /// Logs the result of a periodic round. As the kubelet, it records an event from the second failure in a row on: at the
    /// start there may be no statistics yet.
    pub(super) fn report_round(&self, result: &Result<GcReport, GcError>) {
        match result {
            Ok(report) => {
                self.failures.store(0, Ordering::Relaxed);
                if !report.removed.is_empty() {
                    let (images, bytes) = (report.removed.len(), report.freed_bytes);
                    tracing::info!(images, bytes, "garbage collection removed images");
                }
            }
            Err(error) => {
                let text = chain(error);
                if self.failures.fetch_add(1, Ordering::Relaxed) > 0 {
                    self.context.record_event(EventType::Warning, "ImageGCFailed", &text);
                } else {
                    tracing::warn!(error = %text, "image garbage collection failed once");
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "rounds_tests.rs"]
mod tests;
