//! From the reports of nodes to the figures of a set: states, bytes, and failures in groups. Pure. Called by `rollout`.

use std::collections::BTreeMap;

use crate::api::{
    FailureGroup, ImagePhase, ImageReport, MAX_FAILURES, MAX_MESSAGE, NodeCounts, NodeCursor, SetPhase, SetReport,
    TransferredBytes,
};
use crate::release::{NodeState, Rank, RolloutNode};

/// Largest number of nodes that a failure group names.
const NAMED_NODES: usize = 5;
/// Reason of the failure of a node that does not report.
const NOT_REPORTING: &str = "NotReporting";

/// A selected node with its report of the set.
#[derive(Clone, Debug)]
pub struct NodeView<'a> {
    /// Name and creation.
    pub node: NodeCursor,
    /// Report of this set and rollout, if there is one.
    pub set: Option<&'a SetReport>,
    /// Reports of the set's images.
    pub images: Vec<&'a ImageReport>,
    /// The node may start or has started, and has been silent for longer than the progress deadline.
    pub is_silent: bool,
}

impl NodeView<'_> {
    /// Returns the state of the node. A node that ended is not lost, however silent it is.
    #[must_use]
    pub fn state(&self) -> NodeState {
        match self.set.map(|set| set.phase) {
            Some(SetPhase::Ready) => NodeState::Ready,
            Some(SetPhase::Failed) => NodeState::Failed,
            _ if self.is_silent => NodeState::Lost,
            Some(SetPhase::Pulling) => NodeState::Pulling,
            Some(SetPhase::Waiting) | None => NodeState::Waiting,
        }
    }

    /// Returns true if the node reported that it has every image, or failed.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state(), NodeState::Ready | NodeState::Failed)
    }

    /// Returns the node as the release sees it.
    #[must_use]
    pub fn in_rollout(&self, set_uid: &str, generation: i64) -> RolloutNode {
        let rank = Rank::of(set_uid, generation, &self.node.name);
        RolloutNode { rank, created: self.node.clone(), state: self.state() }
    }
}

/// Figures of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Nodes by state.
    pub nodes: NodeCounts,
    /// Bytes of all nodes.
    pub bytes: TransferredBytes,
    /// Failures, those of most nodes first.
    pub failures: Vec<FailureGroup>,
}

/// Summarises the reports.
#[must_use]
pub fn summarise(views: &[NodeView<'_>]) -> Summary {
    let mut summary = Summary::default();
    let mut groups: BTreeMap<(&str, &str), FailureGroup> = BTreeMap::new();
    for view in views {
        count(&mut summary.nodes, view.state());
        if let Some(set) = view.set {
            add(&mut summary.bytes, set.bytes);
        }
        if view.state() == NodeState::Lost {
            note(&mut groups, ("", NOT_REPORTING), "no report within the progress deadline", &view.node.name);
        }
        for image in view.images.iter().filter(|image| image.phase == ImagePhase::Failed) {
            let key = (image.name.as_str(), image.reason.as_deref().unwrap_or("Failed"));
            note(&mut groups, key, image.message.as_deref().unwrap_or_default(), &view.node.name);
        }
    }
    summary.failures = groups.into_values().collect();
    // The sort is stable: groups of as many nodes stay in the order of images and reasons.
    summary.failures.sort_by_key(|group| std::cmp::Reverse(group.count));
    summary.failures.truncate(MAX_FAILURES);
    summary
}

const fn count(nodes: &mut NodeCounts, state: NodeState) {
    nodes.desired += 1;
    match state {
        NodeState::Waiting => nodes.waiting += 1,
        NodeState::Pulling => nodes.pulling += 1,
        NodeState::Ready => nodes.ready += 1,
        NodeState::Failed => nodes.failed += 1,
        NodeState::Lost => nodes.lost += 1,
    }
}

const fn add(all: &mut TransferredBytes, one: TransferredBytes) {
    all.total = all.total.saturating_add(one.total);
    all.done = all.done.saturating_add(one.done);
    all.from_registry = all.from_registry.saturating_add(one.from_registry);
    all.from_mirrors = all.from_mirrors.saturating_add(one.from_mirrors);
}

fn note<'a>(
    groups: &mut BTreeMap<(&'a str, &'a str), FailureGroup>,
    (image, reason): (&'a str, &'a str),
    message: &str,
    node: &str,
) {
    let group = groups.entry((image, reason)).or_insert_with(|| FailureGroup {
        image: image.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(MAX_MESSAGE).collect(),
        ..FailureGroup::default()
    });
    group.count += 1;
    if group.nodes.len() < NAMED_NODES {
        group.nodes.push(node.to_owned());
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
