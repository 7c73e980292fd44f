//! [`UsageHistory`]: when each image was first seen, and when it was last used and by which container. Plain data that
//! outlives restarts; [`detect`](super::detect()) writes it, [`select`](super::select()) reads it. It asks no runtime and
//! no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use hashbrown::HashMap;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::node_time::{Moment, NodeTime, moved};

/// The usage of one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRecord {
    /// When the image was first seen on this node.
    pub first_detected: Timestamp,
    /// When a container last used the image; `None`: no pass has seen a use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
    /// The container of the last use, for people: `namespace/pod/container`.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub used_by: Box<str>,
    /// End of the protection of an image that was pulled ahead of its use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_until: Option<Timestamp>,
    /// Time of the pull as the service reports it, in nanoseconds since the epoch by the clock of that time; another value
    /// means another pull. 0: not reported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pulled_at: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl UsageRecord {
    /// The record of an image that was just seen for the first time.
    #[must_use]
    pub fn new(first_detected: Timestamp) -> Self {
        Self { first_detected, last_used: None, used_by: Box::default(), protected_until: None, pulled_at: 0 }
    }

    /// Start of the idle time: the last use, or the first detection. A use before the first detection (the image was removed
    /// and pulled again) does not count.
    #[must_use]
    pub fn idle_since(&self) -> Timestamp {
        self.last_used.map_or(self.first_detected, |used| used.max(self.first_detected))
    }
}

/// A record, the last pass that saw its image, and the container of the last use.
#[derive(Clone, Debug)]
pub(super) struct TrackedRecord {
    pub(super) record: UsageRecord,
    /// Number of the pass. Not stored.
    pub(super) pass: u32,
    /// Hash of the id of the container of the last use, whose name is in the record; 0: not known. Not stored.
    pub(super) container: u64,
}

/// Equal if the records are equal: the rest does not count.
impl PartialEq for TrackedRecord {
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

impl TrackedRecord {
    pub(super) fn new(record: UsageRecord) -> Box<Self> {
        Box::new(Self { record, pass: 0, container: 0 })
    }
}

/// The records of all images, by [`key`].
#[derive(Clone, Debug, Default)]
pub struct UsageHistory {
    /// Boxed, so that the free slots of the map take little.
    pub(super) records: HashMap<Box<str>, Box<TrackedRecord>>,
    /// Number of the last pass.
    pub(super) passes: u32,
    pub(super) time: Option<NodeTime>,
}

impl PartialEq for UsageHistory {
    fn eq(&self, other: &Self) -> bool {
        self.records == other.records && self.time == other.time
    }
}

impl Eq for UsageHistory {}

impl UsageHistory {
    /// The record of an image.
    #[must_use]
    pub fn get(&self, id: &str, runtime_handler: &str) -> Option<&UsageRecord> {
        self.records.get(&*key(id, runtime_handler)).map(|tracked| &tracked.record)
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns true if there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &UsageRecord)> {
        self.records.iter().map(|(key, tracked)| (&**key, &tracked.record))
    }

    /// Inserts a record as it was stored.
    pub fn insert(&mut self, key: impl Into<Box<str>>, record: UsageRecord) {
        self.records.insert(key.into(), TrackedRecord::new(record));
    }

    /// Removes the record of an image that was removed.
    pub fn remove(&mut self, id: &str, runtime_handler: &str) -> Option<UsageRecord> {
        self.records.remove(&*key(id, runtime_handler)).map(|tracked| tracked.record)
    }

    /// Protects an image until then, unless it is protected for longer. Returns true if that changes the history.
    pub fn protect(&mut self, id: &str, runtime_handler: &str, now: Timestamp, until: Timestamp) -> bool {
        let key = key(id, runtime_handler).into_owned().into_boxed_str();
        let is_new = !self.records.contains_key(&key);
        let new = || TrackedRecord::new(UsageRecord::new(now));
        let record = &mut self.records.entry(key).or_insert_with(new).record;
        let before = record.protected_until;
        record.protected_until = before.max(Some(until));
        is_new || record.protected_until != before
    }

    /// Begins a pass. If the clock was set since the last pass, all times are moved with it. Returns the time of the last
    /// pass; `None` for the first one.
    pub(super) fn begin_pass(&mut self, moment: Moment) -> Option<Timestamp> {
        let Some(time) = &mut self.time else {
            self.time = Some(NodeTime::new(moment));
            return None;
        };
        let before = time.seen();
        let step = time.advance(moment);
        if !step.is_zero() {
            tracing::info!(duration = ?step, "the clock was set; what is known of images is moved with it");
            self.shift(step);
        }
        Some(moved(before, step))
    }

    /// Called before a change between two passes: if the clock was set since the last pass, all times are moved with it, so
    /// that the next pass does not move the change.
    pub(super) fn follow_clock(&mut self, moment: Moment) {
        let Some(time) = &mut self.time else { return };
        let step = time.follow(moment);
        if !step.is_zero() {
            tracing::info!(duration = ?step, "the clock was set; what is known of images is moved with it");
            self.shift(step);
        }
    }

    fn shift(&mut self, by: SignedDuration) {
        for TrackedRecord { record, .. } in self.records.values_mut().map(|tracked| &mut **tracked) {
            record.first_detected = moved(record.first_detected, by);
            record.last_used = record.last_used.map(|time| moved(time, by));
            record.protected_until = record.protected_until.map(|time| moved(time, by));
        }
    }

    /// A record's time as it counts for ages: time during which the node was off makes no image older.
    pub(super) fn effective(&self, then: Timestamp) -> Timestamp {
        self.time.as_ref().map_or(then, |time| time.effective(then))
    }

    /// Merges the history that another process has written meanwhile.
    pub(super) fn merge(&mut self, mut other: Self) {
        if let (Some(ours), Some(theirs)) = (&self.time, &other.time) {
            let apart = ours.apart(theirs);
            if !apart.is_zero() {
                other.shift(apart);
            }
        }
        self.time = self.time.take().or(other.time);
        for (key, theirs) in other.records {
            let Some(ours) = self.records.get_mut(&key) else {
                self.records.insert(key, theirs);
                continue;
            };
            ours.container = 0;
            let (ours, theirs) = (&mut ours.record, theirs.record);
            if theirs.pulled_at == ours.pulled_at {
                ours.first_detected = ours.first_detected.min(theirs.first_detected);
            }
            if theirs.last_used > ours.last_used {
                (ours.last_used, ours.used_by) = (theirs.last_used, theirs.used_by);
            }
            ours.protected_until = ours.protected_until.max(theirs.protected_until);
        }
    }
}

/// End of a protection that begins now: longer than it `lasts` by a sixtieth at most, so that protecting an image again and
/// again changes the history once in that time.
pub(super) fn protected_until(now: Timestamp, lasts: Duration) -> Timestamp {
    let step = i64::try_from(lasts.as_secs() / 60).unwrap_or(i64::MAX);
    let until = now.checked_add(lasts).unwrap_or(Timestamp::MAX);
    if step == 0 {
        return until;
    }
    let over = until.as_second().rem_euclid(step);
    let up = SignedDuration::from_secs(step - over) - SignedDuration::from_nanos(until.subsec_nanosecond().into());
    until.checked_add(up).unwrap_or(until)
}

/// The history as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Stored<Images> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<NodeTime>,
    images: Images,
}

impl<'a> Stored<BTreeMap<&'a str, &'a UsageRecord>> {
    pub(super) fn of(history: &'a UsageHistory) -> Self {
        Self { time: history.time.clone(), images: history.iter().collect() }
    }
}

impl Stored<BTreeMap<Box<str>, UsageRecord>> {
    pub(super) fn into_history(self) -> UsageHistory {
        let records = self.images.into_iter().map(|(key, record)| (key, TrackedRecord::new(record))).collect();
        UsageHistory { records, passes: 0, time: self.time }
    }
}

/// The key of an image: its id, and the runtime handler if it has one of its own, as `id,handler`.
#[must_use]
pub fn key<'a>(id: &'a str, runtime_handler: &str) -> std::borrow::Cow<'a, str> {
    if runtime_handler.is_empty() { id.into() } else { format!("{id},{runtime_handler}").into() }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
