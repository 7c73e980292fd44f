//! Times of a status: whole seconds, as Kubernetes has them.

use jiff::Timestamp;

/// A time of CRI; 0 is none.
pub(super) fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds <= 0 {
        return None;
    }
    Timestamp::from_second(nanoseconds / 1_000_000_000).ok()
}

pub(super) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
