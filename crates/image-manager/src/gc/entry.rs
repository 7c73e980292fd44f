//! [`Entry`]: a [`UsageRecord`] as it lies in memory, in half the bytes: on a big node there are many. Knows nothing that the
//! record does not.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::history::UsageRecord;

/// A time in eight bytes: nanoseconds since the epoch, up to the year 2262; or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time(i64);

impl Time {
    /// Before every time.
    pub(super) const NEVER: Self = Self(i64::MIN);

    pub(super) fn get(self) -> Option<Timestamp> {
        let time = || Timestamp::from_nanosecond(self.0.into()).unwrap_or(Timestamp::MAX);
        (self != Self::NEVER).then(time)
    }

    fn shift(&mut self, by: SignedDuration) {
        if *self != Self::NEVER {
            *self = within(i128::from(self.0) + by.as_nanos());
        }
    }
}

fn within(nanoseconds: i128) -> Time {
    let in_range = nanoseconds.clamp((i64::MIN + 1).into(), i64::MAX.into());
    Time(i64::try_from(in_range).unwrap_or(i64::MAX))
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        within(time.as_nanosecond())
    }
}

impl From<Option<Timestamp>> for Time {
    fn from(time: Option<Timestamp>) -> Self {
        time.map_or(Self::NEVER, Self::from)
    }
}

/// See the module. The fields are those of [`UsageRecord`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "UsageRecord", into = "UsageRecord")]
pub(super) struct Entry {
    pub(super) first_detected: Time,
    pub(super) last_used: Time,
    pub(super) protected_until: Time,
    pub(super) pulled_at: i64,
    pub(super) used_by: Box<str>,
    /// The last pass that saw it.
    pub(super) pass: u32,
    /// Part of a hash of the container whose name is in [`Entry::used_by`].
    pub(super) user: u32,
}

/// Equal are those that say the same; who looked last does not matter.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        let of = |entry: &Self| (entry.first_detected, entry.last_used, entry.protected_until, entry.pulled_at);
        of(self) == of(other) && self.used_by == other.used_by
    }
}

impl Entry {
    pub(super) fn new(first_detected: Timestamp, pulled_at: i64) -> Self {
        let first_detected = first_detected.into();
        let (last_used, protected_until) = (Time::NEVER, Time::NEVER);
        Self { first_detected, last_used, protected_until, pulled_at, used_by: Box::default(), pass: 0, user: 0 }
    }

    pub(super) fn shift(&mut self, by: SignedDuration) {
        self.first_detected.shift(by);
        self.last_used.shift(by);
        self.protected_until.shift(by);
    }
}

impl From<UsageRecord> for Entry {
    fn from(record: UsageRecord) -> Self {
        let UsageRecord { first_detected, last_used, used_by, protected_until, pulled_at } = record;
        Self {
            first_detected: first_detected.into(),
            last_used: last_used.into(),
            protected_until: protected_until.into(),
            pulled_at,
            used_by,
            pass: 0,
            user: 0,
        }
    }
}

impl From<Entry> for UsageRecord {
    fn from(entry: Entry) -> Self {
        Self {
            first_detected: entry.first_detected.get().unwrap_or(Timestamp::MAX),
            last_used: entry.last_used.get(),
            used_by: entry.used_by,
            protected_until: entry.protected_until.get(),
            pulled_at: entry.pulled_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let record = UsageRecord {
            last_used: Some(at(-5)),
            used_by: "a/b/c".into(),
            protected_until: None,
            pulled_at: 7,
            ..UsageRecord::new(at(1_700_000_000))
        };
        assert_eq!(UsageRecord::from(Entry::from(record.clone())), record);
        // The far ends of time become the ends of what is kept, and stay in order.
        let far = Entry::from(UsageRecord { last_used: Some(Timestamp::MIN), ..UsageRecord::new(Timestamp::MAX) });
        assert!(Time::NEVER < far.last_used && far.last_used < far.first_detected);
        let mut moved = far.clone();
        moved.shift(SignedDuration::MAX);
        assert_eq!((moved.first_detected, moved.protected_until), (far.first_detected, Time::NEVER));
        assert!(size_of::<Entry>() <= 56);
    }
}
