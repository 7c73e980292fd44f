//! The rollout of one set, as two pure steps: [`begin`] decides whether a new rollout begins, [`advance`] computes the status from the
//! reports of the nodes. Called by the controller for each set in each pass; a status that was not written has no effect.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sha2::{Digest as _, Sha256};

use crate::api::{
    CompletedRollout, ImageSet, ImageSetSpec, ImageSetStatus, Mode, NodeCounts, OnFailure, Resolution, ResolvedImage,
    share_of,
};
use crate::conditions::{Facts, Phase, conditions};
use crate::release::{Release, RolloutNode};
use crate::summary::{NodeView, summarise};

/// Returns the hash of the fields that begin a rollout when they change. Pausing a set, for example, continues its rollout.
#[must_use]
pub fn rollout_hash(set: &ImageSetSpec) -> String {
    let images: Vec<_> = set.images.iter().map(|image| (&image.name, image.pull_policy)).collect();
    let fields = (images, &set.node_selector, &set.node_names, set.resolution, &set.rollout.restarted_at);
    // These types have no map with keys that are no text.
    let text = serde_json::to_vec(&fields).unwrap_or_default();
    hex::encode(&Sha256::digest(&text)[..8])
}

/// The status with which a pass continues.
#[derive(Clone, Debug)]
pub struct Begun {
    /// Status with the rollout that applies.
    pub status: ImageSetStatus,
    /// The set has a new rollout whose tags are not resolved yet; until they are, the one before applies.
    pub is_resolving: bool,
}

/// Begins a rollout if the set demands another one than its status has, as soon as `resolved` has the images of the new one.
#[must_use]
pub fn begin(set: &ImageSet, resolved: Option<&[ResolvedImage]>, now: Timestamp) -> Begun {
    let mut status = set.status.clone().unwrap_or_default();
    let hash = rollout_hash(&set.spec);
    if status.rollout_hash.as_ref() == Some(&hash) {
        status.observed_generation = set.metadata.generation;
        if status.rolled_back_from.is_none() {
            add_digests(&mut status.resolved, resolved.unwrap_or_default());
        }
        return Begun { status, is_resolving: false };
    }
    let Some(resolved) = resolved else { return Begun { status, is_resolving: true } };
    let status = ImageSetStatus {
        observed_generation: set.metadata.generation,
        rollout_hash: Some(hash),
        rolled_back_from: None,
        finish_time: None,
        last_complete: status.last_complete.take(),
        conditions: std::mem::take(&mut status.conditions),
        ..started(set.metadata.generation.unwrap_or_default(), resolved, now)
    };
    Begun { status, is_resolving: false }
}

/// Returns the status of a rollout in which no node has started.
fn started(generation: i64, resolved: &[ResolvedImage], now: Timestamp) -> ImageSetStatus {
    ImageSetStatus {
        rollout_generation: Some(generation),
        resolved: resolved.to_vec(),
        rollout_start_time: Some(second(now)),
        last_progress_time: Some(second(now)),
        ..ImageSetStatus::default()
    }
}

/// Adds digests of images that had none. A digest that a rollout has never changes, although the tag may move.
fn add_digests(images: &mut [ResolvedImage], resolved: &[ResolvedImage]) {
    for image in images.iter_mut().filter(|image| image.digest.is_none()) {
        if let Some(new) = resolved.iter().find(|new| new.name == image.name) {
            image.clone_from(new);
        }
    }
}

/// The facts of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The set.
    pub set: &'a ImageSet,
    /// The selected nodes with their reports of the rollout in the status.
    pub views: &'a [NodeView<'a>],
    /// The whole fleet is paused.
    pub is_paused: bool,
    /// Nodes that may start in addition to those in progress, by the limit of the whole fleet.
    pub free: usize,
    /// The current time.
    pub now: Timestamp,
}

/// The result of a pass.
#[derive(Clone, Debug)]
pub struct Advanced {
    /// Status to write.
    pub status: ImageSetStatus,
    /// Phase of the rollout.
    pub phase: Phase,
    /// Nodes in progress under this status.
    pub in_progress: usize,
    /// The set finished so long ago that it is to be deleted.
    pub is_expired: bool,
}

/// Computes the status: figures, release, progress, rollback and conditions.
#[must_use]
pub fn advance(begun: Begun, observed: &Observed<'_>) -> Advanced {
    let Begun { mut status, is_resolving } = begun;
    let (spec, now) = (&observed.set.spec, observed.now);
    let summary = summarise(observed.views);
    let desired = observed.views.len();
    let max_failed = share_of(&spec.rollout.max_failed, desired).unwrap_or(0);
    let pass = Pass { observed, nodes: summary.nodes, max_failed, is_resolving };

    let has_moved =
        has_progress(&status, summary.nodes, summary.bytes.done) || !was_in_progress(&status) || pass.is_held();
    (status.nodes, status.bytes, status.failures) = (Some(summary.nodes), Some(summary.bytes), summary.failures);
    if has_moved || status.last_progress_time.is_none() {
        status.last_progress_time = Some(second(now));
    }
    if spec.mode == Mode::Once && desired > 0 && pass.has_ended() && !is_resolving {
        status.finish_time.get_or_insert_with(|| second(now));
    }
    let mut phase = pass.phase(&status);
    let rolls_back = pass.rolls_back(&status, phase);
    if rolls_back {
        roll_back(&mut status, now);
        phase = Phase::RollingBack;
    } else if phase == Phase::Complete && status.resolved.iter().all(|image| pass.on_node() || image.digest.is_some()) {
        let generation = status.rollout_generation.unwrap_or_default();
        status.last_complete = Some(CompletedRollout { generation, images: status.resolved.clone() });
    }
    // The reports are those of the failed rollout; the next pass has the right ones.
    let in_progress = if rolls_back { 0 } else { pass.release(&mut status, phase) };
    let facts = Facts {
        generation: observed.set.metadata.generation,
        phase,
        nodes: summary.nodes,
        max_failed,
        resolved: &status.resolved,
        on_node: pass.on_node(),
        now,
    };
    status.conditions = conditions(&status.conditions, &facts);
    let is_expired = pass.is_expired(&status);
    Advanced { status, phase, in_progress, is_expired }
}

/// Returns true if a node has made progress since the last status.
fn has_progress(before: &ImageSetStatus, nodes: NodeCounts, done: u64) -> bool {
    let known = before.nodes.unwrap_or_default();
    let bytes = before.bytes.unwrap_or_default().done;
    nodes.ready > known.ready || nodes.pulling > known.pulling || done > bytes
}

/// Returns true if the last status was that of a rollout whose nodes could make progress.
fn was_in_progress(status: &ImageSetStatus) -> bool {
    let going = [Phase::RollingOut, Phase::RollingBack, Phase::TooManyFailures, Phase::DeadlineExceeded];
    let condition = status.conditions.iter().find(|condition| condition.type_ == "Progressing");
    condition.is_some_and(|condition| going.iter().any(|phase| phase.reason() == condition.reason))
}

/// Returns to the images of the last complete rollout. Its generation ranks the nodes again.
fn roll_back(status: &mut ImageSetStatus, now: Timestamp) {
    let Some(complete) = status.last_complete.clone() else { return };
    *status = ImageSetStatus {
        observed_generation: status.observed_generation,
        rolled_back_from: status.rollout_generation,
        rollout_hash: status.rollout_hash.take(),
        conditions: std::mem::take(&mut status.conditions),
        failures: std::mem::take(&mut status.failures),
        nodes: status.nodes,
        ..started(complete.generation, &complete.images, now)
    };
    status.last_complete = Some(complete);
}

/// The facts that the decisions of one pass share.
struct Pass<'a> {
    observed: &'a Observed<'a>,
    nodes: NodeCounts,
    max_failed: usize,
    is_resolving: bool,
}

impl Pass<'_> {
    fn spec(&self) -> &ImageSetSpec {
        &self.observed.set.spec
    }

    fn on_node(&self) -> bool {
        self.spec().resolution == Resolution::OnNode
    }

    fn is_paused(&self) -> bool {
        self.spec().rollout.paused || self.observed.is_paused
    }

    /// Returns true if the set makes no progress for a reason outside of its nodes.
    fn is_held(&self) -> bool {
        self.is_paused() || self.observed.free == 0
    }

    /// Returns true if no node waits or pulls.
    const fn has_ended(&self) -> bool {
        self.nodes.waiting == 0 && self.nodes.pulling == 0
    }

    fn has_too_many_failures(&self) -> bool {
        usize::try_from(self.nodes.failed.saturating_add(self.nodes.lost)).unwrap_or(usize::MAX) > self.max_failed
    }

    fn is_stalled(&self, status: &ImageSetStatus) -> bool {
        let deadline = std::time::Duration::from(self.spec().rollout.progress_deadline);
        let last = status.last_progress_time.as_ref().map_or(self.observed.now, |time| time.0);
        std::time::Duration::try_from(self.observed.now.duration_since(last)).is_ok_and(|silent| silent >= deadline)
    }

    fn phase(&self, status: &ImageSetStatus) -> Phase {
        if self.is_resolving {
            return Phase::Resolving;
        }
        if status.finish_time.is_some() {
            return Phase::Finished;
        }
        if self.nodes.desired == 0 {
            return Phase::NoNodes;
        }
        let is_rollback = status.rolled_back_from.is_some();
        if self.nodes.ready == self.nodes.desired {
            return if is_rollback { Phase::RolledBack } else { Phase::Complete };
        }
        if self.has_too_many_failures() {
            return Phase::TooManyFailures;
        }
        if self.is_paused() {
            return Phase::Paused;
        }
        if self.is_stalled(status) {
            return Phase::DeadlineExceeded;
        }
        if is_rollback { Phase::RollingBack } else { Phase::RollingOut }
    }

    fn rolls_back(&self, status: &ImageSetStatus, phase: Phase) -> bool {
        let has_failed = matches!(phase, Phase::TooManyFailures | Phase::DeadlineExceeded);
        let differs = status.last_complete.as_ref().is_some_and(|complete| complete.images != status.resolved);
        let wants = self.spec().rollout.on_failure == OnFailure::Rollback;
        wants && has_failed && differs && status.rolled_back_from.is_none()
    }

    /// Moves the release as far as the limits allow, and returns the number of nodes in progress.
    fn release(&self, status: &mut ImageSetStatus, phase: Phase) -> usize {
        let generation = status.rollout_generation.unwrap_or_default();
        let uid = self.observed.set.metadata.uid.as_deref().unwrap_or_default();
        let nodes: Vec<RolloutNode> = self.observed.views.iter().map(|view| view.in_rollout(uid, generation)).collect();
        let release = Release::of(status);
        let held = nodes.iter().filter(|node| node.holds_a_place(&release)).count();
        let stops = [Phase::Resolving, Phase::Finished, Phase::NoNodes, Phase::TooManyFailures, Phase::Paused];
        if stops.contains(&phase) {
            return held;
        }
        let own = share_of(&self.spec().rollout.max_concurrent, nodes.len()).unwrap_or(1).max(1);
        let limit = own.min(held.saturating_add(self.observed.free));
        let next = release.advance(&nodes, limit);
        status.released = next.threshold.map(|threshold| threshold.to_string());
        status.newest_node.clone_from(&next.newest);
        nodes.iter().filter(|node| node.holds_a_place(&next)).count()
    }

    fn is_expired(&self, status: &ImageSetStatus) -> bool {
        let (Some(finished), Some(seconds)) = (&status.finish_time, self.spec().ttl_seconds_after_finished) else {
            return false;
        };
        self.observed.now.as_second().saturating_sub(finished.0.as_second()) >= seconds
    }
}

/// Returns a time as statuses have it, in whole seconds.
fn second(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
