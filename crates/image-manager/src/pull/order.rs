//! [`Line`]: who is next. Pure: time is handed in, nothing waits here.
//!
//! First whoever has waited longer than the ageing time, by age alone; then by priority; then by age. Where a registry
//! has as many pulls as it may have, those that wait for it are passed over, and hold up nobody else. Nothing starves:
//! an aged entry is overtaken by older ones only, and the place that its registry needs comes free together with the
//! place that it needs in all.
//!
//! Entries lie in one lane per registry, ordered both ways, so that finding the next one costs a look at the heads of
//! the lanes. [`Turns`](super::turns::Turns) waits.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// An entry's number; lower ones came earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(u64);

/// How many may run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In all; `None`: no limit.
    pub(super) total: Option<usize>,
    /// Of one registry; `None`: no limit.
    pub(super) per_registry: Option<usize>,
    /// Who waited longer goes by age alone.
    pub(super) ageing: Duration,
}

/// Those that wait, and how many run.
#[derive(Debug)]
pub(super) struct Line {
    limits: Limits,
    next: u64,
    running: usize,
    entries: HashMap<Id, Entry>,
    lanes: HashMap<Arc<str>, Lane>,
}

#[derive(Debug)]
struct Entry {
    registry: Arc<str>,
    /// When it came, by the clock of the line's owner.
    since: Duration,
    priority: i32,
    running: bool,
}

/// What waits for one registry.
#[derive(Debug, Default)]
struct Lane {
    running: usize,
    by_age: BTreeSet<(Duration, Id)>,
    by_rank: BTreeSet<(Reverse<i32>, Duration, Id)>,
}

impl Line {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, next: 0, running: 0, entries: HashMap::new(), lanes: HashMap::new() }
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.entries.len() - self.running
    }

    /// Joins the line.
    pub(super) fn join(&mut self, registry: &str, priority: i32, now: Duration) -> Id {
        let id = Id(self.next);
        self.next += 1;
        // Without a limit per registry one lane does for all.
        let registry = if self.limits.per_registry.is_some() { registry } else { "" };
        let registry = self.lanes.get_key_value(registry).map_or_else(|| Arc::from(registry), |(k, _)| Arc::clone(k));
        let lane = self.lanes.entry(Arc::clone(&registry)).or_default();
        lane.by_age.insert((now, id));
        lane.by_rank.insert((Reverse(priority), now, id));
        self.entries.insert(id, Entry { registry, since: now, priority, running: false });
        id
    }

    /// Gives an entry that waits at least this priority. Its age stays.
    pub(super) fn raise(&mut self, id: Id, priority: i32) {
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
    pub(super) fn leave(&mut self, id: Id) {
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

    /// Who may run now; it counts as running from here on. Asked again until it answers `None`.
    pub(super) fn admit(&mut self, now: Duration) -> Option<Id> {
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
    fn take(&mut self, id: Id, entry: &Entry) {
        self.by_age.remove(&(entry.since, id));
        self.by_rank.remove(&(Reverse(entry.priority), entry.since, id));
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
