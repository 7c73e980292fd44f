//! [`RolloutPicture`]: everything that one view of a rollout shows, from a set, the fleet, and the reports of nodes if the user may read
//! them. Pure. The binary renders it.

use jiff::Timestamp;
use serde::Serialize;

use crate::api::{
    FailureGroup, Fleet, ImagePhase, ImageReport, ImageSet, NodeCounts, NodeImages, SetPhase, SetReport,
    TransferredBytes,
};
use crate::conditions::Phase;

/// Largest number of slow nodes in a picture.
const SLOW_NODES: usize = 5;

/// A view of the rollout of one set.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPicture {
    /// Name of the set.
    pub name: String,
    /// Generation of the set.
    pub generation: i64,
    /// False while the controller has not handled this generation: everything below is that of an earlier one.
    pub is_current: bool,
    /// State of the rollout: the reason of the condition `Progressing`; `Unknown` without one.
    pub state: String,
    /// The set, or the whole fleet, starts no further nodes.
    pub is_paused: bool,
    /// Generation to which the set returned after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back_to: Option<i64>,
    /// Start of the rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// Nodes by state.
    pub nodes: NodeCounts,
    /// Bytes of all nodes.
    pub bytes: TransferredBytes,
    /// Conditions.
    pub conditions: Vec<ConditionState>,
    /// Images with their digests.
    pub images: Vec<ImageState>,
    /// Failures by cause, those of most nodes first.
    pub failures: Vec<FailureGroup>,
    /// Nodes that have been in progress for the longest time; `None` if their reports cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest: Option<Vec<SlowNode>>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionState {
    /// Name: `Ready`.
    #[serde(rename = "type")]
    pub name: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason in one word.
    pub reason: String,
    /// Message for people.
    pub message: String,
}

/// An image of the rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageState {
    /// Name as in the set.
    pub name: String,
    /// Digest that all nodes get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Reason why there is no digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A node that fetches images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlowNode {
    /// Name of the node.
    pub node: String,
    /// Time since which the node has not had everything that its sets want.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Image that is being fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Bytes of the set on this node.
    pub done: u64,
    /// Bytes to fetch, as far as they are known.
    pub total: u64,
}

impl RolloutPicture {
    /// Creates the picture of a set.
    #[must_use]
    pub fn of(set: &ImageSet, fleet: Option<&Fleet>, reports: Option<&[NodeImages]>) -> Self {
        let status = set.status.clone().unwrap_or_default();
        let generation = set.metadata.generation.unwrap_or_default();
        let state = progressing(set).map_or_else(|| "Unknown".to_owned(), |(_, reason)| reason.to_owned());
        let conditions = status.conditions.iter().map(|condition| ConditionState {
            name: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        });
        Self {
            name: set.metadata.name.clone().unwrap_or_default(),
            generation,
            is_current: status.observed_generation == Some(generation),
            state,
            is_paused: set.spec.rollout.paused || fleet.is_some_and(|fleet| fleet.spec.paused),
            rolled_back_to: status.rolled_back_from.and(status.rollout_generation),
            started: status.rollout_start_time.as_ref().map(|time| time.0),
            nodes: status.nodes.unwrap_or_default(),
            bytes: status.bytes.unwrap_or_default(),
            conditions: conditions.collect(),
            images: images(set),
            failures: status.failures,
            slowest: reports.map(|reports| slowest(set, reports)),
        }
    }
}

fn images(set: &ImageSet) -> Vec<ImageState> {
    let resolved = set.status.iter().flat_map(|status| &status.resolved);
    let with = resolved.map(|image| ImageState {
        name: image.name.clone(),
        digest: image.digest.clone(),
        problem: image.digest.is_none().then(|| {
            let parts = [image.reason.as_deref(), image.message.as_deref()];
            parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
        }),
    });
    let with: Vec<ImageState> = with.collect();
    if !with.is_empty() {
        return with;
    }
    let without = set.spec.images.iter();
    without.map(|image| ImageState { name: image.name.clone(), digest: None, problem: None }).collect()
}

/// Returns the nodes that have been in progress for the longest time.
fn slowest(set: &ImageSet, reports: &[NodeImages]) -> Vec<SlowNode> {
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let mut nodes: Vec<SlowNode> = reports.iter().filter_map(|report| slow_node(uid, report)).collect();
    // Nodes without a time are last; of nodes of the same second, the one with the most missing bytes is first.
    nodes.sort_by_key(|node| {
        let missing = node.total.saturating_sub(node.done);
        (node.since.is_none(), node.since, std::cmp::Reverse(missing), node.node.clone())
    });
    nodes.truncate(SLOW_NODES);
    nodes
}

fn slow_node(uid: &str, report: &NodeImages) -> Option<SlowNode> {
    let status = report.status.as_ref()?;
    let is_slow = |set: &&SetReport| set.uid == uid && set.phase == SetPhase::Pulling;
    let set = status.sets.iter().find(is_slow)?;
    let missing = |image: &&ImageReport| image.bytes.total.saturating_sub(image.bytes.done);
    let pulling = status.images.iter().filter(|image| image.set == set.name && image.phase == ImagePhase::Pulling);
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status != "True");
    Some(SlowNode {
        node: report.metadata.name.clone().unwrap_or_default(),
        since: ready.map(|ready| ready.last_transition_time.0),
        image: pulling.max_by_key(missing).map(|image| image.name.clone()),
        done: set.bytes.done,
        total: set.bytes.total,
    })
}

/// How far a rollout is, for a command that waits for its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every node has every image.
    Ready,
    /// The rollout failed, for this reason.
    Failed(String),
    /// Not at its end yet.
    Open,
}

/// Returns how far the rollout of a set is. A status of an earlier generation is never an end.
#[must_use]
pub fn verdict(set: &ImageSet) -> Verdict {
    let is_current = set.status.as_ref().and_then(|status| status.observed_generation) == set.metadata.generation;
    let conditions = set.status.iter().flat_map(|status| &status.conditions);
    let is_ready = conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    match progressing(set) {
        Some(_) if !is_current => Verdict::Open,
        Some(_) if is_ready => Verdict::Ready,
        Some((_, reason)) => {
            let failed = [Phase::TooManyFailures, Phase::DeadlineExceeded, Phase::RolledBack, Phase::Finished];
            let has_failed = failed.iter().any(|phase| phase.reason() == reason);
            if has_failed { Verdict::Failed(reason.to_owned()) } else { Verdict::Open }
        }
        None => Verdict::Open,
    }
}

/// Returns status and reason of the condition `Progressing`.
fn progressing(set: &ImageSet) -> Option<(&str, &str)> {
    let conditions = &set.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == "Progressing")?;
    Some((&condition.status, &condition.reason))
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
