//! The parallel pull limit and the order of pulls: [`PullLimits`] has the number of pulls that may run
//! (`serializeImagePulls`, `maxParallelImagePulls`), [`Line::admit`] enforces it and chooses the next one. Pure: the caller
//! passes the time, and [`Turns`](super::turns::Turns) waits.
//!
//! Pulls that have waited longer than the ageing time are first, by age alone; the others are ordered by priority, then by
//! age. Pulls of a registry that is at its limit are skipped, and delay no others. No pull starves: an aged pull is
//! overtaken by older ones only, and a slot of its registry becomes free together with a slot of the total.
//!
//! Entries are in one lane per registry, ordered both ways, so that finding the next one inspects the heads of the lanes.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::PullerOptions;

/// An entry's number; lower ones are older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SlotId(u64);

/// How many pulls may run at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct PullLimits {
    /// In all; `None`: no limit.
    pub(super) total: Option<usize>,
    /// Limit for one registry; `None`: no limit.
    pub(super) per_registry: Option<usize>,
    /// A pull that waited longer is ordered by age alone.
    pub(super) ageing: Duration,
}

impl PullLimits {
    /// The limits by the kubelet's settings: with `serializeImagePulls` one pull at a time, otherwise as many as
    /// `maxParallelImagePulls`; no number or 0 is no limit. The same for `maxParallelImagePullsPerRegistry`.
    pub(super) fn of(options: &PullerOptions) -> Self {
        let positive = |limit: Option<usize>| limit.filter(|&limit| limit > 0);
        Self {
            total: if options.serialize { Some(1) } else { positive(options.max_parallel) },
            per_registry: positive(options.per_registry),
            ageing: options.ageing,
        }
    }
}

/// Those that wait, and how many run.
#[derive(Debug)]
pub(super) struct Line {
    limits: PullLimits,
    next: u64,
    running: usize,
    entries: HashMap<SlotId, SlotState>,
    lanes: HashMap<Arc<str>, Lane>,
}

#[derive(Debug)]
struct SlotState {
    registry: Arc<str>,
    /// When it joined, by the clock of the line's owner.
    since: Duration,
    priority: i32,
    running: bool,
}

/// The pulls that wait for one registry.
#[derive(Debug, Default)]
struct Lane {
    running: usize,
    by_age: BTreeSet<(Duration, SlotId)>,
    by_rank: BTreeSet<(Reverse<i32>, Duration, SlotId)>,
}

impl Line {
    pub(super) fn new(limits: PullLimits) -> Self {
        Self { limits, next: 0, running: 0, entries: HashMap::new(), lanes: HashMap::new() }
    }

    /// Changes the limits, for waiting pulls and later ones.
    pub(super) fn set_limits(&mut self, limits: PullLimits) {
        self.limits = limits;
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.entries.len() - self.running
    }

    /// Joins the line.
    pub(super) fn join(&mut self, registry: &str, priority: i32, now: Duration) -> SlotId {
        let id = SlotId(self.next);
        self.next += 1;
        let registry = self.lanes.get_key_value(registry).map_or_else(|| Arc::from(registry), |(k, _)| Arc::clone(k));
        let lane = self.lanes.entry(Arc::clone(&registry)).or_default();
        lane.by_age.insert((now, id));
        lane.by_rank.insert((Reverse(priority), now, id));
        self.entries.insert(id, SlotState { registry, since: now, priority, running: false });
        id
    }

    /// Gives an entry that waits at least this priority. Its age stays.
    pub(super) fn raise(&mut self, id: SlotId, priority: i32) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.running || entry.priority >= priority {
            return;
        }
        if let Some(lane) = self.lanes.get_mut(&entry.registry) {
            lane.by_rank.remove(&(Reverse(entry.priority), entry.since, id));
            lane.by_rank.insert((Reverse(priority), entry.since, id));
        }
        entry.priority = priority;
    }

    /// Takes an entry out, whether it waits or runs.
    pub(super) fn leave(&mut self, id: SlotId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        let Some(lane) = self.lanes.get_mut(&entry.registry) else { return };
        if entry.running {
            lane.running -= 1;
            self.running -= 1;
        } else {
            lane.take(id, &entry);
        }
        if lane.running == 0 && lane.by_age.is_empty() {
            self.lanes.remove(&entry.registry);
        }
    }

    /// The places of those that wait, in the order in which they would be admitted if no registry had a limit: 1 is the next.
    pub(super) fn positions(&self, now: Duration) -> HashMap<SlotId, usize> {
        let rank = |entry: &SlotState| {
            let aged = now.saturating_sub(entry.since) > self.limits.ageing;
            (!aged, Reverse(if aged { i32::MAX } else { entry.priority }), entry.since)
        };
        let waiting = self.entries.iter().filter(|(_, entry)| !entry.running);
        let mut waiting: Vec<_> = waiting.map(|(id, entry)| (rank(entry), *id)).collect();
        waiting.sort_unstable();
        waiting.into_iter().enumerate().map(|(index, (_, id))| (id, index + 1)).collect()
    }

    /// The pull that may run now, which counts as running from here on. Asked again until it answers `None`.
    pub(super) fn admit(&mut self, now: Duration) -> Option<SlotId> {
        if self.limits.total.is_some_and(|limit| self.running >= limit) {
            return None;
        }
        let free = |lane: &&Lane| self.limits.per_registry.is_none_or(|limit| lane.running < limit);
        let heads = || self.lanes.values().filter(free);
        let oldest = heads().filter_map(|lane| lane.by_age.first()).min();
        let aged = oldest.filter(|(since, _)| now.saturating_sub(*since) > self.limits.ageing);
        let id = match aged {
            Some((_, id)) => *id,
            None => heads().filter_map(|lane| lane.by_rank.first()).min()?.2,
        };
        let entry = self.entries.get_mut(&id)?;
        entry.running = true;
        self.running += 1;
        if let Some(lane) = self.lanes.get_mut(&entry.registry) {
            lane.running += 1;
            lane.take(id, entry);
        }
        Some(id)
    }
}

impl Lane {
    fn take(&mut self, id: SlotId, entry: &SlotState) {
        self.by_age.remove(&(entry.since, id));
        self.by_rank.remove(&(Reverse(entry.priority), entry.since, id));
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
