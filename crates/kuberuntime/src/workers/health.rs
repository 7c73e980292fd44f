//! [`Health`]: whether the runtime answers. One line is logged when it stops, and one when it is back, however many
//! pods notice. Updated by the relist, read by the node's health check and by workers.

use base::lock::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// A runtime that does not answer for so long is down, as in the kubelet; before that it may only be restarted.
const DOWN: Duration = Duration::from_secs(30);

/// Availability of the runtime.
pub(super) struct Health {
    threshold: Duration,
    /// Guards the results of the last lists.
    last: Mutex<LastAnswer>,
}

#[derive(Default)]
struct LastAnswer {
    /// Time of the last answer.
    answered: Option<Instant>,
    /// Error of the last call.
    error: Option<String>,
}

impl Health {
    pub(super) fn new(threshold: Duration) -> Self {
        Self { threshold, last: Mutex::default() }
    }

    /// Records a success. Returns true if the runtime was unreachable before.
    pub(super) fn answered(&self, now: Instant) -> bool {
        let mut last = self.last.lock();
        last.answered = Some(now);
        let back = last.error.take().is_some();
        drop(last);
        if back {
            tracing::info!("runtime answers again");
        }
        back
    }

    /// Records a failure. Returns true if the runtime was reachable before.
    pub(super) fn failed(&self, error: &cri_api::Error) -> bool {
        let text = format!("{}: {error}", error.kind());
        let mut last = self.last.lock();
        let first = last.error.is_none();
        last.error = Some(text);
        drop(last);
        if first {
            tracing::warn!(kind = %error.kind(), %error, "runtime does not answer, pods stay as they are");
        }
        first
    }

    /// Returns true if the last request failed.
    pub(super) fn is_down(&self) -> bool {
        self.last.lock().error.is_some()
    }

    /// Fails with a message about the problem of the runtime.
    pub(super) fn check(&self, now: Instant) -> Result<(), String> {
        let last = self.last.lock();
        let ago = last.answered.map(|answered| now.saturating_duration_since(answered));
        match (&last.error, ago) {
            (Some(error), ago) if ago.is_none_or(|ago| ago > DOWN) => {
                Err(format!("the runtime does not answer: {error}"))
            }
            (_, None) => Err("pleg has yet to be successful".to_owned()),
            (_, Some(ago)) if ago > self.threshold => {
                let (ago, threshold) = (ago.as_secs(), self.threshold.as_secs());
                Err(format!("pleg was last seen active {ago}s ago; threshold is {threshold}s"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use cri_api::{Error, Kind};

    use super::*;

    #[test]
    fn an_answer_is_good_for_three_minutes() {
        let (health, begin) = (Health::new(Duration::from_secs(180)), Instant::now());
        assert_eq!(health.check(begin), Err("pleg has yet to be successful".to_owned()));
        assert!(!health.answered(begin));
        assert_eq!(health.check(begin + Duration::from_secs(180)), Ok(()));
        let late = health.check(begin + Duration::from_secs(181));
        assert_eq!(late, Err("pleg was last seen active 181s ago; threshold is 180s".to_owned()));
        let error = Error::new(Kind::Unavailable, "connect: no such file");
        assert!(health.failed(&error) && !health.failed(&error));
        assert_eq!(health.check(begin + Duration::from_secs(30)), Ok(()), "it may only be restarted");
        let down = health.check(begin + Duration::from_secs(31));
        assert_eq!(down, Err("the runtime does not answer: Unavailable: connect: no such file".to_owned()));
        assert!(health.answered(begin) && !health.answered(begin));
        assert_eq!(health.check(begin), Ok(()));
    }
}
