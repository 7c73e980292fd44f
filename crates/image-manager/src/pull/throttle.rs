//! [`Throttle`]: waits for a token of the [`Bucket`]. Every attempt to pull takes one, as in the kubelet.

use base::lock::Mutex;
use std::sync::Arc;
use std::time::Duration;

use super::bucket::{Bucket, Token};
use super::time::Timeline;
use crate::Metrics;

/// Limits how many pulls begin per second.
pub(super) struct Throttle {
    /// Guards the bucket. `None`: nothing is limited.
    bucket: Mutex<Option<Bucket>>,
    time: Timeline,
    metrics: Arc<Metrics>,
}

/// Error: there will be no token in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// A token that is not ready yet. Dropping it gives it back.
struct Reservation<'a> {
    throttle: &'a Throttle,
    token: Token,
}

impl Throttle {
    pub(super) fn new(qps: f64, burst: u32, time: Timeline, metrics: Arc<Metrics>) -> Self {
        Self { bucket: Mutex::new(Bucket::new(qps, burst)), time, metrics }
    }

    /// Changes the rate. Used tokens stay used, and waiting pulls keep their times.
    pub(super) fn set_rate(&self, qps: f64, burst: u32) {
        let mut bucket = self.bucket.lock();
        let new = Bucket::new(qps, burst);
        *bucket = match bucket.take() {
            Some(old) => new.map(|new| old.with_rate_of(new, self.time.now())),
            None => new,
        };
    }

    /// Waits for a token, when it is there after `patience` at the latest; otherwise refuses at once.
    pub(super) async fn pass(&self, patience: Duration) -> Result<(), Refused> {
        let now = self.time.now();
        let taken = match &mut *self.bucket.lock() {
            Some(bucket) => bucket.take(now, patience),
            None => return Ok(()),
        };
        let Some(token) = taken else {
            self.metrics.throttled();
            return Err(Refused);
        };
        if token.ready > now {
            self.metrics.throttled();
            tracing::debug!(duration = ?(token.ready - now), "waits for its turn by the rate of pulls");
            let reservation = Reservation { throttle: self, token };
            self.time.until(token.ready).await;
            drop(reservation);
        }
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        // A token that is ready counts as used: the bucket ignores it.
        if let Some(bucket) = &mut *self.throttle.bucket.lock() {
            bucket.give_back(self.token, self.throttle.time.now());
        }
    }
}
