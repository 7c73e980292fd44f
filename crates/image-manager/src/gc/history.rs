//! [`UsageHistory`]: since when each image is here, and when it was last used and by whom. Plain data that outlives
//! restarts; [`detect`](super::detect) writes it, [`select`](super::select) reads it. It asks no runtime and no clock.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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
    /// The last pass that saw it.
    #[serde(skip)]
    pub(crate) pass: u64,
}

impl UsageRecord {
    /// A record of an image that was just seen for the first time.
    #[must_use]
    pub fn new(first_detected: Timestamp) -> Self {
        Self { first_detected, last_used: None, used_by: Box::default(), protected_until: None, pass: 0 }
    }

    /// Since when nobody used it: since its last use, or since it is here. A use from before it was here (it went and came
    /// again) does not count.
    #[must_use]
    pub fn idle_since(&self) -> Timestamp {
        self.last_used.map_or(self.first_detected, |used| used.max(self.first_detected))
    }
}

/// The records of all images, by [`key`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageHistory {
    pub(crate) records: HashMap<Box<str>, UsageRecord>,
    pub(crate) passes: u64,
}

impl UsageHistory {
    /// The record of an image.
    #[must_use]
    pub fn get(&self, id: &str, runtime_handler: &str) -> Option<&UsageRecord> {
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
    pub fn iter(&self) -> impl Iterator<Item = (&str, &UsageRecord)> {
        self.records.iter().map(|(key, record)| (&**key, record))
    }

    /// Puts a record back, as it was stored.
    pub fn insert(&mut self, key: impl Into<Box<str>>, record: UsageRecord) {
        self.records.insert(key.into(), record);
    }

    /// Forgets an image that was removed.
    pub fn remove(&mut self, id: &str, runtime_handler: &str) -> Option<UsageRecord> {
        self.records.remove(&*key(id, runtime_handler))
    }

    /// Leaves an image alone until then; earlier protection that lasts longer stays.
    pub fn protect(&mut self, id: &str, runtime_handler: &str, now: Timestamp, until: Timestamp) {
        let key = key(id, runtime_handler).into_owned().into_boxed_str();
        let record = self.records.entry(key).or_insert_with(|| UsageRecord::new(now));
        record.protected_until = Some(record.protected_until.map_or(until, |earlier| earlier.max(until)));
    }
}

/// By what an image is known: its id, and the runtime handler where it has one of its own, as `id,handler`.
#[must_use]
pub fn key<'a>(id: &'a str, runtime_handler: &str) -> std::borrow::Cow<'a, str> {
    if runtime_handler.is_empty() { id.into() } else { format!("{id},{runtime_handler}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn keys_are_those_of_the_kubelet() {
        assert_eq!(key("sha256:1", ""), "sha256:1");
        assert_eq!(key("sha256:1", "kata"), "sha256:1,kata");
    }

    #[test]
    fn protection_is_only_prolonged() {
        let mut history = UsageHistory::default();
        history.protect("a", "", at(5), at(100));
        history.protect("a", "", at(6), at(50));
        let record = history.get("a", "").expect("made");
        assert_eq!((record.first_detected, record.protected_until), (at(5), Some(at(100))));
        assert_eq!(history.remove("a", "").map(|r| r.first_detected), Some(at(5)));
        assert!(history.is_empty());
    }

    #[test]
    fn idle_time_begins_with_the_last_use_or_with_the_image() {
        let record = |used: Option<i64>| UsageRecord { last_used: used.map(at), ..UsageRecord::new(at(10)) };
        assert_eq!(record(None).idle_since(), at(10));
        assert_eq!(record(Some(20)).idle_since(), at(20));
        assert_eq!(record(Some(5)).idle_since(), at(10));
    }
}
