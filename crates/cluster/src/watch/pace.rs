//! [`Pace`]: the waits of one follower, between failures and between watches that end at once. Waits double until something is
//! delivered. Carries the end of a streaming list that had none from the requests to the follower. Called by [`super::observe`] and by its requests.

use std::time::Duration;

use base::lock::Mutex;
use tokio::time::Instant;

use crate::retry::{Backoff, Random, jittered};

/// A watch that ends sooner, and delivers nothing, is no progress.
const SHORT: Duration = Duration::from_secs(1);

/// Waits of one follower.
pub(super) struct Pace {
    random: Random,
    /// Guards the next wait, the start of a watch that has not failed, and whether a list had no end.
    state: Mutex<State>,
}

struct State {
    backoff: Backoff,
    begun: Option<Instant>,
    /// True if a streaming list did not end in time.
    endless_list: bool,
}

impl Pace {
    pub(super) fn new(random: Random) -> Self {
        let backoff = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
        Self { random, state: Mutex::new(State { backoff, begun: None, endless_list: false }) }
    }

    /// Records that data was delivered, so that the next failure is logged and its wait is short.
    pub(super) fn progress(&self) {
        self.state.lock().backoff.reset();
    }

    /// Returns true for the first failure after progress, and how long to wait.
    pub(super) fn failed(&self) -> (bool, Duration) {
        let mut state = self.state.lock();
        state.begun = None;
        (state.backoff.is_first(), state.backoff.next(&self.random))
    }

    /// Returns how long to wait before the next watch.
    pub(super) fn before_watch(&self) -> Duration {
        let mut state = self.state.lock();
        match state.begun.take() {
            None => Duration::ZERO,
            Some(begun) if begun.elapsed() < SHORT => state.backoff.next(&self.random),
            Some(_) => {
                state.backoff.reset();
                Duration::ZERO
            }
        }
    }

    /// Records the start of a watch.
    pub(super) fn begin(&self) {
        self.state.lock().begun = Some(Instant::now());
    }

    /// Records that this side ended the watch, so that the next one need not wait.
    pub(super) fn forget_watch(&self) {
        self.state.lock().begun = None;
    }

    /// Records that a streaming list did not end in time.
    pub(super) fn list_is_endless(&self) {
        self.state.lock().endless_list = true;
    }

    /// Returns true once after a streaming list that did not end in time.
    pub(super) fn take_endless_list(&self) -> bool {
        std::mem::take(&mut self.state.lock().endless_list)
    }

    /// Returns a duration near the given one.
    pub(super) fn near(&self, duration: Duration, fraction: f64) -> Duration {
        jittered(duration, fraction, &self.random)
    }
}
