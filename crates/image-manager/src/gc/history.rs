//! [`UsageHistory`]: since when each image is here, and when it was last used and by whom. Plain data that outlives restarts;
//! [`detect`](super::detect()) writes it, [`select`](super::select()) reads it. It asks no runtime and no clock.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::entry::Entry;
use super::fast_hash::FastHash;
use super::node_time::{Moment, NodeTime, moved};

/// What is known of one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRecord {
    /// When it was first seen here.
    pub first_detected: Timestamp,
    /// When a container last used it; `None`: none ever did while somebody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
    /// Who that was, for people: `namespace/pod/container`.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub used_by: Box<str>,
    /// Until when it is left alone because somebody brought it ahead of its use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_until: Option<Timestamp>,
    /// When it came, as the service says it, in nanoseconds since the epoch by the clock of that time: another one is another
    /// coming. 0: the service does not say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pulled_at: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl UsageRecord {
    /// A record of an image that was just seen for the first time.
    #[must_use]
    pub fn new(first_detected: Timestamp) -> Self {
        Self { first_detected, last_used: None, used_by: Box::default(), protected_until: None, pulled_at: 0 }
    }

    /// Since when nobody used it: since its last use, or since it is here. A use from before it was here (it went and came
    /// again) does not count.
    #[must_use]
    pub fn idle_since(&self) -> Timestamp {
        self.last_used.map_or(self.first_detected, |used| used.max(self.first_detected))
    }
}

/// The records of all images, by [`key`].
#[derive(Clone, Debug, Default)]
pub struct UsageHistory {
    pub(super) records: HashMap<Box<str>, Entry, FastHash>,
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
    pub fn get(&self, id: &str, runtime_handler: &str) -> Option<UsageRecord> {
        self.entry(id, runtime_handler).cloned().map(UsageRecord::from)
    }

    pub(super) fn entry(&self, id: &str, runtime_handler: &str) -> Option<&Entry> {
        self.records.get(&*key(id, runtime_handler))
    }

    /// How many images there are records of.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, UsageRecord)> {
        self.records.iter().map(|(key, entry)| (&**key, entry.clone().into()))
    }

    /// Puts a record back, as it was stored.
    pub fn insert(&mut self, key: impl Into<Box<str>>, record: UsageRecord) {
        self.records.insert(key.into(), record.into());
    }

    /// Forgets an image that was removed.
    pub fn remove(&mut self, id: &str, runtime_handler: &str) -> Option<UsageRecord> {
        self.records.remove(&*key(id, runtime_handler)).map(UsageRecord::from)
    }

    /// Leaves an image alone until then; earlier protection that lasts longer stays. Says whether anything is new.
    pub fn protect(&mut self, id: &str, runtime_handler: &str, now: Timestamp, until: Timestamp) -> bool {
        let key = key(id, runtime_handler).into_owned().into_boxed_str();
        let known = self.records.contains_key(&key);
        let entry = self.records.entry(key).or_insert_with(|| Entry::new(now, 0));
        let before = entry.protected_until;
        entry.protected_until = before.max(until.into());
        !known || entry.protected_until != before
    }

    /// Takes in the time of a pass. Where the clock was set since the last one, everything is moved with it. Answers when the
    /// last pass was; `None`: this is the first one.
    pub(super) fn begin_pass(&mut self, moment: Moment) -> Option<Timestamp> {
        let Some(time) = &mut self.time else {
            self.time = Some(NodeTime::new(moment));
            return None;
        };
        let before = time.seen();
        let step = time.advance(moment);
        if !step.is_zero() {
            tracing::info!(seconds = step.as_secs(), "the clock was set; what is known of images is moved with it");
            self.shift(step);
        }
        Some(moved(before, step))
    }

    /// Before anything is written down between two passes: where the clock was set since the last one, everything is moved with it,
    /// so that what is written now is not moved by the next pass.
    pub(super) fn follow_clock(&mut self, moment: Moment) {
        let Some(time) = &mut self.time else { return };
        let step = time.follow(moment);
        if !step.is_zero() {
            tracing::info!(seconds = step.as_secs(), "the clock was set; what is known of images is moved with it");
            self.shift(step);
        }
    }

    fn shift(&mut self, by: SignedDuration) {
        for record in self.records.values_mut() {
            record.shift(by);
        }
    }

    /// A record's time as it counts for ages: time during which the node was off makes nothing older.
    pub(super) fn effective(&self, then: Timestamp) -> Timestamp {
        self.time.as_ref().map_or(then, |time| time.effective(then))
    }

    /// Joins what another process has written down meanwhile.
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
            if theirs.pulled_at == ours.pulled_at {
                ours.first_detected = ours.first_detected.min(theirs.first_detected);
            }
            if theirs.last_used > ours.last_used {
                (ours.last_used, ours.used_by, ours.user) = (theirs.last_used, theirs.used_by, 0);
            }
            ours.protected_until = ours.protected_until.max(theirs.protected_until);
        }
    }
}

/// Until when a protection goes that begins now: a sixtieth longer than it `lasts` at most, so that protecting an image
/// again and again is something new once in that time.
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

impl<'a> Stored<BTreeMap<&'a str, &'a Entry>> {
    pub(super) fn of(history: &'a UsageHistory) -> Self {
        Self {
            time: history.time.clone(),
            images: history.records.iter().map(|(key, entry)| (&**key, entry)).collect(),
        }
    }
}

impl Stored<HashMap<Box<str>, Entry, FastHash>> {
    pub(super) fn into_history(self) -> UsageHistory {
        UsageHistory { records: self.images, passes: 0, time: self.time }
    }
}

/// By what an image is known: its id, and the runtime handler where it has one of its own, as `id,handler`.
#[must_use]
pub fn key<'a>(id: &'a str, runtime_handler: &str) -> std::borrow::Cow<'a, str> {
    if runtime_handler.is_empty() { id.into() } else { format!("{id},{runtime_handler}").into() }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
