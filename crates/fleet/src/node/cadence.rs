//! [`Cadence`]: when a report is written: at once when a set reached its end on this node, in a rollout at an interval that grows with
//! the cluster, otherwise rarely. Pure. Called by [`super::writer`].

use std::time::Duration;

use cluster::retry::{Random, jittered};
use tokio::time::Instant;

use crate::api::{NodeImagesStatus, SetPhase, SetReport};

/// Shortest interval between two reports.
const SHORTEST: Duration = Duration::from_secs(1);
/// Interval of reports about progress in a small cluster.
const PROGRESS: Duration = Duration::from_secs(20);
/// In a large cluster, all nodes together write so many reports about progress per second.
const WRITES_PER_SECOND: u32 = 50;
/// Interval of reports without news.
const QUIET: Duration = Duration::from_secs(1800);

/// How a report differs from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Only its time, or the space of the disk.
    None,
    /// States of images, or bytes.
    Progress,
    /// A set was added or removed, became ready or failed.
    Settled,
}

/// Returns how a report differs from the last one that was written.
pub(super) fn change(before: &NodeImagesStatus, now: &NodeImagesStatus) -> Change {
    let settled = |set: &SetReport| {
        let phase = Some(set.phase).filter(|phase| matches!(phase, SetPhase::Ready | SetPhase::Failed));
        (set.uid.clone(), set.generation, phase)
    };
    let ends = |status: &NodeImagesStatus| status.sets.iter().map(settled).collect::<Vec<_>>();
    let uids = |status: &NodeImagesStatus| status.sets.iter().map(|set| set.uid.clone()).collect::<Vec<_>>();
    let (known, current) = (ends(before), ends(now));
    let has_new_end = current.iter().any(|end| end.2.is_some() && !known.contains(end));
    if uids(before) != uids(now) || has_new_end {
        return Change::Settled;
    }
    let same = before.sets == now.sets && before.images == now.images && before.agent_version == now.agent_version;
    if same { Change::None } else { Change::Progress }
}

/// The times of reports.
#[derive(Clone, Debug)]
pub(super) struct Cadence {
    /// Number of nodes, as far as it is known.
    pub(super) nodes: u32,
    /// Time of the last report.
    last: Option<Instant>,
    quiet: Duration,
}

impl Cadence {
    pub(super) fn new() -> Self {
        Self { nodes: 0, last: None, quiet: QUIET }
    }

    /// Records that a report was written.
    pub(super) fn written(&mut self, now: Instant, random: &Random) {
        (self.last, self.quiet) = (Some(now), jittered(QUIET, 0.1, random));
    }

    /// Returns the earliest time of the next report. The first one is due at once.
    pub(super) fn due(&self, change: Change, now: Instant) -> Instant {
        let Some(last) = self.last else { return now };
        let progress = Duration::from_secs(u64::from(self.nodes / WRITES_PER_SECOND)).max(PROGRESS);
        last + match change {
            Change::Settled => SHORTEST,
            Change::Progress => progress,
            Change::None => self.quiet,
        }
    }
}

#[cfg(test)]
#[path = "cadence_tests.rs"]
mod tests;
