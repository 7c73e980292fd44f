//! [`ImageStates`]: the state of every wanted image on this node, from one event to the next: presence, a pull that starts, progresses
//! and ends, the wait after a failure. Pure; times and randomness are arguments. Called by [`super::model`].

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::retry::{Backoff, Random};
use jiff::Timestamp;
use tokio::time::Instant;

use super::desired::{Desired, DesiredImage, ImageKey};
use super::held::HeldImages;
use super::presence::Presence;
use crate::api::{ImagePhase, TransferredBytes};

/// First wait after a failure.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// Longest wait after failures.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The current time by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) clock: Instant,
    pub(super) wall: Timestamp,
}

/// Failure of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PullProblem {
    /// Reason in one word.
    pub(super) reason: String,
    pub(super) message: String,
    /// Wait that the registry asked for.
    pub(super) retry_after: Option<Duration>,
}

/// State of an image.
#[derive(Clone, Debug)]
pub(super) struct ImageState {
    pub(super) phase: ImagePhase,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    /// Attempts since the image was last present.
    pub(super) attempts: u32,
    /// Earliest time of the next attempt.
    pub(super) retry: Option<Now>,
    /// The same as far as the registry demands it.
    demanded: Option<Now>,
    pub(super) bytes: TransferredBytes,
    /// ID of the present image.
    pub(super) id: Option<String>,
    backoff: Backoff,
}

impl ImageState {
    fn new() -> Self {
        Self {
            phase: ImagePhase::Waiting,
            reason: None,
            message: None,
            attempts: 0,
            retry: None,
            demanded: None,
            bytes: TransferredBytes::default(),
            id: None,
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
        }
    }

    fn present(&mut self, id: &str) {
        let bytes = TransferredBytes { done: self.bytes.total, ..self.bytes };
        *self = Self { phase: ImagePhase::Ready, bytes, id: Some(id.to_owned()), ..Self::new() };
    }

    fn absent(&mut self, was_present: bool) {
        self.id = None;
        match self.phase {
            ImagePhase::Ready => self.disappeared(),
            ImagePhase::Waiting if was_present => self.disappeared(),
            ImagePhase::Waiting | ImagePhase::Pulling | ImagePhase::Failed | ImagePhase::Gone => {}
        }
    }

    fn disappeared(&mut self) {
        *self = Self { phase: ImagePhase::Gone, reason: Some("ImageRemoved".to_owned()), ..Self::new() };
    }

    /// Returns true if a pull may start now, as far as this state is concerned.
    fn is_due(&self, now: Instant) -> bool {
        match self.phase {
            ImagePhase::Waiting | ImagePhase::Gone | ImagePhase::Failed => {
                self.retry.is_none_or(|retry| retry.clock <= now)
            }
            ImagePhase::Pulling | ImagePhase::Ready => false,
        }
    }
}

/// The states of all wanted images.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageStates(BTreeMap<ImageKey, ImageState>);

impl ImageStates {
    /// Drops the states of images that are no longer wanted, and adds those of new ones.
    pub(super) fn follow(&mut self, desired: &Desired) {
        self.0.retain(|key, _| desired.images.contains_key(key));
        for key in desired.images.keys() {
            self.0.entry(key.clone()).or_insert_with(ImageState::new);
        }
    }

    /// Compares the states with the images that are present. Returns the images that disappeared.
    pub(super) fn observe(&mut self, desired: &Desired, held: &HeldImages, presence: &Presence) -> Vec<ImageKey> {
        let mut disappeared = Vec::new();
        for (key, state) in &mut self.0 {
            let Some(image) = desired.images.get(key) else { continue };
            // The end of a pull says whether the image is present.
            if state.phase == ImagePhase::Pulling {
                continue;
            }
            let before = state.phase;
            // An image that this daemon has never seen here must have the name of the set: pods look for that name. Later the digest is
            // enough, because a tag that has moved is pulled by digest.
            let is_known = state.phase == ImagePhase::Ready || held.was_present(key);
            let found = presence.find(key, image.any_of_name).filter(|id| is_known || presence.has_name(key, id));
            match found {
                Some(id) if state.phase == ImagePhase::Ready => state.id = Some(id.to_owned()),
                Some(id) => state.present(id),
                None => state.absent(held.was_present(key)),
            }
            if state.phase == ImagePhase::Gone && before != ImagePhase::Gone {
                disappeared.push(key.clone());
            }
        }
        disappeared
    }

    /// Returns the images whose pull may start now. Images that disappeared are first, because pods may depend on them.
    pub(super) fn due(&self, desired: &Desired, held: &HeldImages, now: Instant) -> Vec<ImageKey> {
        let may_start = |key: &ImageKey, image: &DesiredImage| {
            let returns = image.stays && held.was_present(key);
            image.obstacle.is_none() && (returns || image.may_start && (image.stays || !held.was_present(key)))
        };
        let due = self.0.iter().filter(|(key, state)| {
            state.is_due(now) && desired.images.get(key).is_some_and(|image| may_start(key, image))
        });
        let mut due: Vec<_> = due.map(|(key, state)| (state.phase != ImagePhase::Gone, key)).collect();
        due.sort();
        due.into_iter().map(|(_, key)| key.clone()).collect()
    }

    /// Returns the time of the next attempt after a failure.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.0.values().filter_map(|state| state.retry).map(|retry| retry.clock).min()
    }

    /// Ends the wait after a failure, because the sets permit another kind of pull than before. A wait that the registry demands stays.
    pub(super) fn retry_now(&mut self, key: &ImageKey) {
        if let Some(state) = self.0.get_mut(key) {
            state.retry = state.demanded;
        }
    }

    /// Records the start of a pull.
    pub(super) fn started(&mut self, key: &ImageKey) {
        if let Some(state) = self.0.get_mut(key) {
            state.phase = ImagePhase::Pulling;
            state.attempts = state.attempts.saturating_add(1);
            state.retry = None;
            state.bytes = TransferredBytes::default();
        }
    }

    /// Records the bytes of a running pull.
    pub(super) fn progressed(&mut self, key: &ImageKey, bytes: TransferredBytes) {
        if let Some(state) = self.0.get_mut(key).filter(|state| state.phase == ImagePhase::Pulling) {
            state.bytes = bytes;
        }
    }

    /// Records the end of a pull.
    pub(super) fn ended(&mut self, key: &ImageKey, result: Result<String, PullProblem>, now: Now, random: &Random) {
        let Some(state) = self.0.get_mut(key) else { return };
        match result {
            Ok(id) => state.present(&id),
            Err(problem) => {
                let after = |wait: Duration| Now {
                    clock: now.clock + wait,
                    wall: now.wall.checked_add(wait).unwrap_or(Timestamp::MAX),
                };
                let wait = state.backoff.next(random).max(problem.retry_after.unwrap_or_default());
                state.phase = ImagePhase::Failed;
                (state.reason, state.message) = (Some(problem.reason), Some(problem.message));
                state.retry = Some(after(wait));
                state.demanded = problem.retry_after.map(after);
            }
        }
    }

    pub(super) fn get(&self, key: &ImageKey) -> Option<&ImageState> {
        self.0.get(key)
    }

    /// Returns the images that are present.
    pub(super) fn present(&self) -> impl Iterator<Item = &ImageKey> {
        self.0.iter().filter(|(_, state)| state.phase == ImagePhase::Ready).map(|(key, _)| key)
    }
}

#[cfg(test)]
#[path = "states_tests.rs"]
mod tests;
