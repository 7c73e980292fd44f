//! Conditions of a set, with reasons. A rollout that makes progress is never degraded for that: `Degraded` is about failures alone.
//! Pure. Called by `rollout`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{NodeCounts, ResolvedImage};

/// Phase of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Tags of a new rollout are being resolved.
    Resolving,
    /// The set selects no node.
    NoNodes,
    /// Nodes wait, or pull.
    RollingOut,
    /// The same, back to the last complete rollout.
    RollingBack,
    /// No further node starts because the set or the fleet is paused.
    Paused,
    /// No further node starts because too many failed.
    TooManyFailures,
    /// No node made progress for too long.
    DeadlineExceeded,
    /// Every node has every image.
    Complete,
    /// The same, after a rollback.
    RolledBack,
    /// A set of mode `Once` ended on every node.
    Finished,
}

impl Phase {
    /// Returns the reason in conditions and events.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Resolving => "Resolving",
            Self::NoNodes => "NoNodesSelected",
            Self::RollingOut => "RollingOut",
            Self::RollingBack => "RollingBack",
            Self::Paused => "Paused",
            Self::TooManyFailures => "TooManyFailures",
            Self::DeadlineExceeded => "ProgressDeadlineExceeded",
            Self::Complete => "Complete",
            Self::RolledBack => "RolledBack",
            Self::Finished => "Finished",
        }
    }

    /// Returns true while nodes start or pull.
    #[must_use]
    pub const fn is_progressing(self) -> bool {
        matches!(self, Self::Resolving | Self::RollingOut | Self::RollingBack)
    }

    /// Returns true if a person should look at the set.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        matches!(self, Self::TooManyFailures | Self::DeadlineExceeded | Self::RollingBack)
    }
}

/// The facts of the conditions.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Generation of the set.
    pub generation: Option<i64>,
    /// Phase of the rollout.
    pub phase: Phase,
    /// Nodes by state.
    pub nodes: NodeCounts,
    /// Largest number of nodes that may fail.
    pub max_failed: usize,
    /// Images of the rollout.
    pub resolved: &'a [ResolvedImage],
    /// Nodes resolve the tags themselves.
    pub on_node: bool,
    /// The current time.
    pub now: Timestamp,
}

/// Returns the conditions; times of those whose status is the same as in `before` stay.
#[must_use]
pub fn conditions(before: &[Condition], facts: &Facts<'_>) -> Vec<Condition> {
    let list = [
        ("Resolved", resolved(facts)),
        ("Progressing", progressing(facts)),
        ("Ready", ready(facts)),
        ("Degraded", degraded(facts)),
    ];
    list.into_iter().map(|(type_, state)| condition(before, facts, type_, state)).collect()
}

/// Status, reason and message, which is never empty: server-side apply of Kubernetes 1.20 makes null of an empty text.
type State = (&'static str, &'static str, String);

fn condition(before: &[Condition], facts: &Facts<'_>, type_: &str, (status, reason, message): State) -> Condition {
    let known = before.iter().find(|condition| condition.type_ == type_ && condition.status == status);
    // Statuses have seconds, so that what is read equals what was written.
    let now = Timestamp::from_second(facts.now.as_second()).unwrap_or(facts.now);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        observed_generation: facts.generation,
        last_transition_time: known.map_or(Time(now), |known| known.last_transition_time.clone()),
        reason: reason.to_owned(),
        message,
    }
}

fn resolved(facts: &Facts<'_>) -> State {
    if facts.phase == Phase::Resolving {
        return ("Unknown", "Resolving", "tags are being resolved".to_owned());
    }
    if facts.on_node {
        return ("True", "OnNode", "each node resolves the tags".to_owned());
    }
    let missing: Vec<&ResolvedImage> = facts.resolved.iter().filter(|image| image.digest.is_none()).collect();
    let Some(first) = missing.first() else {
        return ("True", "Resolved", "every image has a digest".to_owned());
    };
    let (count, all) = (missing.len(), facts.resolved.len());
    let error = first.message.as_deref().unwrap_or("no answer");
    ("False", "Unresolved", format!("{count} of {all} images cannot be resolved: {}: {error}", first.name))
}

fn progressing(facts: &Facts<'_>) -> State {
    let NodeCounts { desired, waiting, pulling, ready, failed, lost } = facts.nodes;
    let counts =
        format!("{ready} of {desired} nodes ready, {pulling} pulling, {waiting} waiting, {failed} failed, {lost} lost");
    let message = match facts.phase {
        Phase::Resolving => "tags are being resolved".to_owned(),
        Phase::NoNodes => "no node matches nodeSelector or nodeNames".to_owned(),
        Phase::TooManyFailures => {
            format!(
                "too many nodes failed or were lost ({}, maxFailed permits {}); no further node starts: {counts}",
                failed + lost,
                facts.max_failed
            )
        }
        Phase::DeadlineExceeded => format!("no node made progress within the deadline: {counts}"),
        _ => counts,
    };
    (if facts.phase.is_progressing() { "True" } else { "False" }, facts.phase.reason(), message)
}

fn ready(facts: &Facts<'_>) -> State {
    let NodeCounts { desired, ready, .. } = facts.nodes;
    let unresolved = facts.resolved.iter().any(|image| image.digest.is_none()) && !facts.on_node;
    let message = format!("{ready} of {desired} nodes have every image");
    match facts.phase {
        Phase::Resolving => ("False", "Resolving", "tags are being resolved".to_owned()),
        Phase::NoNodes => ("True", "NoNodesSelected", "no node matches nodeSelector or nodeNames".to_owned()),
        Phase::RolledBack => {
            ("False", "RolledBack", "the nodes have the images of the last complete rollout".to_owned())
        }
        _ if unresolved => ("False", "Unresolved", "an image has no digest".to_owned()),
        _ if ready == desired => ("True", "AllNodesReady", message),
        phase => ("False", phase.reason(), message),
    }
}

fn degraded(facts: &Facts<'_>) -> State {
    let NodeCounts { failed, lost, .. } = facts.nodes;
    let unresolved = facts.resolved.iter().any(|image| image.digest.is_none()) && !facts.on_node;
    match facts.phase {
        Phase::RollingBack | Phase::RolledBack => {
            ("True", "RolledBack", "the rollout failed and returned to the last complete one".to_owned())
        }
        Phase::TooManyFailures | Phase::DeadlineExceeded => ("True", facts.phase.reason(), progressing(facts).2),
        _ if failed > 0 => {
            ("True", "NodesFailed", format!("the last attempt failed on {failed} nodes; they try again"))
        }
        _ if lost > 0 => ("True", "NodesLost", format!("{lost} nodes do not report")),
        _ if unresolved && facts.phase != Phase::Resolving => ("True", "Unresolved", resolved(facts).2),
        _ => ("False", "AsExpected", "no node failed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(phase: Phase, nodes: NodeCounts, resolved: &[ResolvedImage]) -> Vec<String> {
        let facts = Facts {
            generation: Some(1),
            phase,
            nodes,
            max_failed: 1,
            resolved,
            on_node: false,
            now: Timestamp::UNIX_EPOCH,
        };
        let list = conditions(&[], &facts);
        list.iter().map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason)).collect()
    }

    #[test]
    fn conditions_have_the_reason_of_the_phase() {
        let good = [ResolvedImage { name: "a:1".into(), digest: Some("sha256:1".into()), ..ResolvedImage::default() }];
        let bad =
            [ResolvedImage { name: "a:1".into(), message: Some("no such tag".into()), ..ResolvedImage::default() }];
        let nodes = |waiting, pulling, ready, failed, lost| NodeCounts {
            desired: waiting + pulling + ready + failed + lost,
            waiting,
            pulling,
            ready,
            failed,
            lost,
        };
        let cases: [(Phase, NodeCounts, &[ResolvedImage], [&str; 4]); 9] = [
            (
                Phase::Resolving,
                nodes(3, 0, 0, 0, 0),
                &bad,
                ["Unknown Resolving", "True Resolving", "False Resolving", "False AsExpected"],
            ),
            (
                Phase::RollingOut,
                nodes(1, 1, 1, 0, 0),
                &good,
                ["True Resolved", "True RollingOut", "False RollingOut", "False AsExpected"],
            ),
            (
                Phase::RollingOut,
                nodes(1, 0, 0, 1, 0),
                &good,
                ["True Resolved", "True RollingOut", "False RollingOut", "True NodesFailed"],
            ),
            (
                Phase::RollingOut,
                nodes(1, 0, 0, 0, 1),
                &bad,
                ["False Unresolved", "True RollingOut", "False Unresolved", "True NodesLost"],
            ),
            (
                Phase::Complete,
                nodes(0, 0, 3, 0, 0),
                &good,
                ["True Resolved", "False Complete", "True AllNodesReady", "False AsExpected"],
            ),
            (
                Phase::Complete,
                nodes(0, 0, 3, 0, 0),
                &bad,
                ["False Unresolved", "False Complete", "False Unresolved", "True Unresolved"],
            ),
            (
                Phase::Paused,
                nodes(2, 0, 1, 0, 0),
                &good,
                ["True Resolved", "False Paused", "False Paused", "False AsExpected"],
            ),
            (
                Phase::TooManyFailures,
                nodes(2, 0, 1, 2, 0),
                &good,
                ["True Resolved", "False TooManyFailures", "False TooManyFailures", "True TooManyFailures"],
            ),
            (
                Phase::RolledBack,
                nodes(0, 0, 3, 0, 0),
                &good,
                ["True Resolved", "False RolledBack", "False RolledBack", "True RolledBack"],
            ),
        ];
        for (phase, nodes, resolved, want) in cases {
            let names = ["Resolved", "Progressing", "Ready", "Degraded"];
            let want: Vec<String> = names.iter().zip(want).map(|(name, state)| format!("{name}={state}")).collect();
            assert_eq!(states(phase, nodes, resolved), want, "{phase:?} {nodes:?}");
        }
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let facts = |phase, ready, now| Facts {
            generation: Some(1),
            phase,
            nodes: NodeCounts { desired: 2, ready, waiting: 2 - ready, ..NodeCounts::default() },
            max_failed: 0,
            resolved: &[],
            on_node: false,
            now: at(now),
        };
        let first = conditions(&[], &facts(Phase::RollingOut, 0, 1));
        let second = conditions(&first, &facts(Phase::RollingOut, 1, 2));
        assert!(second.iter().all(|condition| condition.last_transition_time == Time(at(1))));
        let third = conditions(&second, &facts(Phase::Complete, 2, 3));
        let times: Vec<i64> = third.iter().map(|condition| condition.last_transition_time.0.as_second()).collect();
        assert_eq!(times, [1, 3, 3, 1], "Progressing and Ready changed");
    }
}
