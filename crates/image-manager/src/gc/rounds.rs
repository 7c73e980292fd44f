//! The rounds of [`ImageGcManager`]: what is too old goes, then what is least missed until nothing is short; and the plan of
//! it, which removes nothing. One round at a time; an error in one part of a round does not end the others.

use std::collections::BTreeSet;
use std::time::Duration;

use cri_api::Image;
use engine_api::UnfinishedPulls;
use jiff::Timestamp;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::collector::{Found, ImageGcManager, State};
use super::disk::{DiskSpace, Shortage};
use super::outline::{self, Outline};
use super::plan::Plan;
use super::report::{GcError, GcReport, chain};
use super::select::{Goal, Rules, select};
use super::sketch::Sketch;
use super::trigger::Trigger;
use crate::EventType;

/// A round that runs.
struct Round<'a> {
    trigger: Trigger,
    began: Timestamp,
    clock: Instant,
    state: MutexGuard<'a, State>,
    found: Found,
    report: GcReport,
    errors: Vec<GcError>,
}

/// What came of a round: what was done, and why that is not everything.
pub(super) type Done = (GcReport, Option<GcError>);

/// A round that did all that it should, or why not.
fn all_done((report, error): Done) -> Result<GcReport, GcError> {
    error.map_or(Ok(report), Err)
}

impl ImageGcManager {
    /// One round: what is too old goes, and above the high mark what is least missed, until the low mark.
    ///
    /// # Errors
    /// [`GcError`]; what could be done has been done.
    pub async fn garbage_collect(&self) -> Result<GcReport, GcError> {
        all_done(self.full_round(Trigger::Periodic, None).await?)
    }

    /// For disk pressure: removes what is least missed until the low mark, wherever the high one is, and until the thresholds
    /// of disk pressure are met; everything that nothing needs where that does not suffice.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn delete_unused_images(&self) -> Result<GcReport, GcError> {
        all_done(self.round(Trigger::Pressure, None, |space| self.pressing_shortage(space)).await?)
    }

    /// Removes towards a goal that a person set. [`Goal::Free`] counts what is really freed.
    ///
    /// # Errors
    /// [`GcError`].
    pub async fn collect(&self, goal: Goal) -> Result<GcReport, GcError> {
        all_done(self.collect_by(Some(goal), None).await?)
    }

    /// The same, or with `None` a round, for images that are here for `min_age` at least, where that is given. What was done
    /// comes back whether all of it could be done or not.
    ///
    /// # Errors
    /// [`GcError`]; nothing has been done.
    pub async fn collect_by(&self, goal: Option<Goal>, min_age: Option<Duration>) -> Result<Done, GcError> {
        let goal = match goal {
            None => return self.full_round(Trigger::Command, min_age).await,
            Some(Goal::Free(bytes)) => {
                return self.round(Trigger::Command, min_age, |_| Shortage { bytes, inodes: 0 }).await;
            }
            Some(goal @ (Goal::AllUnused | Goal::OlderThan(_))) => goal,
        };
        let mut round = self.begin(Trigger::Command, min_age).await?;
        let failures = self.remove_all(&mut round, goal).await;
        if !failures.is_empty() {
            let (wanted, freed) = (round.report.wanted_bytes, round.report.freed_bytes);
            round.errors.push(GcError::Removal { wanted, freed, failures: failures.join(", ") });
        }
        Ok(self.finish(round).await)
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
        self.store(&mut state).await?;
        let measured = self.measure().await;
        let now = self.now(&found);
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
        let plans: Vec<Plan> = goals.iter().map(|goal| select(sketch.inventory(), &found.rules, *goal, now)).collect();
        let disk = measured.ok().map(|(_, space)| space);
        Ok(outline::outline(&found.images, &state.history, &plans, found.layers.is_some(), disk))
    }

    /// By age, then by space.
    async fn full_round(&self, trigger: Trigger, min_age: Option<Duration>) -> Result<Done, GcError> {
        let mut round = self.begin(trigger, min_age).await?;
        let limit = self.options.policy.max_age;
        if !limit.is_zero() {
            let failures = self.remove_all(&mut round, Goal::OlderThan(limit)).await;
            if !failures.is_empty() {
                round.errors.push(GcError::AgeRemoval { limit, failures: failures.join(", ") });
            }
        }
        self.free_shortage(&mut round, |space| Shortage::at(space, &self.options.policy)).await;
        Ok(self.finish(round).await)
    }

    /// A round that frees what is short by then.
    pub(super) async fn round(
        &self,
        trigger: Trigger,
        min_age: Option<Duration>,
        shortage: impl Fn(DiskSpace) -> Shortage + Send,
    ) -> Result<Done, GcError> {
        let mut round = self.begin(trigger, min_age).await?;
        self.free_shortage(&mut round, shortage).await;
        Ok(self.finish(round).await)
    }

    async fn begin(&self, trigger: Trigger, min_age: Option<Duration>) -> Result<Round<'_>, GcError> {
        let (began, clock) = ((self.options.wall_clock)(), (self.options.clock)());
        self.drop_unfinished(false).await;
        let mut state = self.state().await?;
        let found = match self.find(&mut state).await {
            Ok(found) => {
                let min_age = min_age.unwrap_or(found.rules.min_age);
                Found { rules: Rules { min_age, ..found.rules }, ..found }
            }
            Err(error) => {
                self.options.metrics.round(trigger, self.since(clock), 0, false);
                return Err(error);
            }
        };
        Ok(Round { trigger, began, clock, state, found, report: GcReport::default(), errors: Vec::new() })
    }

    async fn remove_all(&self, round: &mut Round<'_>, goal: Goal) -> Vec<String> {
        if goal == Goal::AllUnused {
            let left = self.drop_unfinished(true).await;
            round.report.freed_bytes = round.report.freed_bytes.saturating_add(left);
        }
        self.remove_selected(&mut round.state, &mut round.found, goal, &mut round.report).await
    }

    /// Measures, and frees what is short.
    async fn free_shortage(&self, round: &mut Round<'_>, shortage: impl Fn(DiskSpace) -> Shortage + Send) {
        let freed = match self.measure().await {
            Ok((path, space)) => {
                let missing = shortage(space);
                let left = if missing.is_none() { 0 } else { self.drop_unfinished(true).await };
                let Round { state, found, report, .. } = round;
                report.freed_bytes = report.freed_bytes.saturating_add(left);
                let after = if left > 0 { self.probe(&path).await } else { Ok(space) };
                match after {
                    Ok(after) => self.free(state, found, &path, after, missing.after(space, after), report).await,
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        round.errors.extend(freed.err());
    }

    /// What interrupted pulls left is fetched again where it is missed: it goes before any image. Answers the bytes.
    async fn drop_unfinished(&self, all: bool) -> u64 {
        let dropped = match self.images.drop_unfinished(all).await {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%error, "what interrupted pulls left stays for now");
                0
            }
        };
        self.look_at_unfinished().await;
        dropped
    }

    /// What there is of it now, and counts it.
    pub(super) async fn look_at_unfinished(&self) -> Option<UnfinishedPulls> {
        let left = self.images.unfinished().await;
        self.options.metrics.unfinished(left.unwrap_or_default());
        left
    }

    fn since(&self, began: Instant) -> Duration {
        (self.options.clock)().duration_since(began)
    }

    /// What every round ends with: records of what went go, the history is stored, it is counted.
    async fn finish(&self, round: Round<'_>) -> Done {
        let Round { trigger, began, clock, mut state, found, mut report, mut errors } = round;
        if let Some(records) = &self.options.records {
            // Everything that is still here, in use and pinned included: a record must outlive any image that it is about.
            let present: BTreeSet<String> = found.images.iter().map(|image| image.id.clone()).collect();
            // Should the clock have been set back meanwhile, what was written since then is of this time.
            let set_back = (self.options.wall_clock)().checked_sub(self.since(clock)).unwrap_or(began);
            match records.prune(&present, began.min(set_back)).await {
                Ok(pruned) => report.pruned_records = pruned,
                Err(error) => tracing::warn!(%error, "records of removed images stay for now"),
            }
        }
        if let Err(error) = self.store(&mut state).await {
            errors.push(error);
        }
        drop(state);
        self.options.metrics.round(trigger, self.since(clock), report.wanted_bytes, errors.is_empty());
        let error = match errors.len() {
            0 | 1 => errors.pop(),
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
}

impl Found {
    /// Forgets images that went, so that the next plan is about what is left.
    pub(super) fn forget(&mut self, gone: &[usize]) {
        if gone.is_empty() {
            return;
        }
        let mut stays = vec![true; self.images.len()];
        for &number in gone {
            stays[number] = false;
        }
        self.detected.retain(&stays);
        let mut number = 0;
        self.images.retain(|_: &Image| {
            number += 1;
            stays[number - 1]
        });
    }
}

#[cfg(test)]
#[path = "defects_tests.rs"]
mod tests;
