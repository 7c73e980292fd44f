//! [`Progress`]: the state of a pull, from the progress events of its service, and whether the pull stalls. Pure:
//! the caller passes the time. The [`ProgressMonitor`](super::monitor::ProgressMonitor) keeps one for each pull.
//!
//! The limit does not apply to a service that reports no progress, nor while a pull neither resolves its name nor fetches a
//! layer, because it commits, unpacks, or waits for a layer of another pull.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::Duration;

use cri_api::{LayerState, PullEvent};
use oci::Digest;

use base::GoDuration;

use super::in_flight::{LayerInFlight, PullStep};

/// Period over which the rate is measured.
const WINDOW: Duration = Duration::from_secs(3);
/// Interval between the measurements.
const STEP: Duration = Duration::from_secs(1);
/// Less time than this says nothing of a rate.
const SHORTEST_WINDOW: Duration = Duration::from_millis(200);

/// A pull without progress for longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stalled {
    limit: Duration,
    idle: Duration,
    seen: Seen,
}

/// Progress of a pull.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// True if the reference was not resolved yet.
    resolving: bool,
    /// True if the service reported any progress.
    reported: bool,
    /// Bytes of layers that were fetched.
    done: u64,
    /// Bytes of layers in total.
    of: u64,
}

/// The state of a pull as people see it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) step: PullStep,
    /// Compressed bytes to fetch, once that is known.
    pub(super) total: Option<u64>,
    /// The ones of these that were fetched.
    pub(super) done: u64,
    pub(super) unpacked: u64,
    /// Bytes per second, while layers are fetched.
    pub(super) rate: Option<u64>,
    /// The layers, lowest first, once they are known.
    pub(super) layers: Option<Vec<LayerInFlight>>,
}

/// State of a pull.
#[derive(Debug, Default)]
pub(super) struct Progress {
    resolving: bool,
    resolved: Option<PullEvent>,
    layers: HashMap<Digest, Layer>,
    sources: Option<PullEvent>,
    committing: bool,
    /// How many layers are being fetched.
    fetching: usize,
    /// When something changed last.
    changed: Duration,
    /// Bytes that were fetched.
    received: u64,
    /// Samples of these bytes with their times, oldest first. Cleared when fetching starts again.
    measured: VecDeque<(Duration, u64)>,
}

#[derive(Debug, Default)]
struct Layer {
    state: Option<LayerState>,
    done: u64,
    unpacked: u64,
}

impl Progress {
    /// Records an event. Returns how many bytes it adds.
    pub(super) fn see(&mut self, event: &PullEvent, now: Duration) -> u64 {
        let (was_fetching, mut received) = (self.fetching(), 0);
        match event {
            PullEvent::Resolving if self.resolving => return 0,
            PullEvent::Resolving => self.resolving = true,
            PullEvent::Resolved { .. } => self.resolved = Some(event.clone()),
            PullEvent::Layer { digest, state } => {
                let layer = self.layers.entry(digest.clone()).or_default();
                let before = layer.state.replace(*state);
                if before == Some(*state) {
                    return 0;
                }
                self.fetching -= usize::from(before == Some(LayerState::Fetching));
                self.fetching += usize::from(*state == LayerState::Fetching);
            }
            PullEvent::Bytes { digest, done } => {
                let layer = self.layers.entry(digest.clone()).or_default();
                if layer.done == *done {
                    return 0;
                }
                received = more(&mut layer.done, *done);
                self.received += received;
            }
            PullEvent::Unpacked { digest, done } => {
                let layer = self.layers.entry(digest.clone()).or_default();
                if layer.unpacked == *done {
                    return 0;
                }
                layer.unpacked = *done;
            }
            PullEvent::Sources { .. } => self.sources = Some(event.clone()),
            PullEvent::Committing => self.committing = true,
        }
        self.changed = now;
        if self.fetching() && !was_fetching {
            self.measured.clear();
        }
        if self.fetching() {
            self.measure(now);
        }
        received
    }

    /// Returns the events that give a late subscriber the present state.
    pub(super) fn replay(&self) -> impl Iterator<Item = PullEvent> {
        let layers = self.layers.iter().flat_map(|(digest, layer)| {
            let state = layer.state.map(|state| PullEvent::Layer { digest: digest.clone(), state });
            let bytes = (layer.done > 0).then(|| PullEvent::Bytes { digest: digest.clone(), done: layer.done });
            let unpacked = PullEvent::Unpacked { digest: digest.clone(), done: layer.unpacked };
            state.into_iter().chain(bytes).chain((layer.unpacked > 0).then_some(unpacked))
        });
        let resolving = self.is_resolving().then_some(PullEvent::Resolving);
        resolving
            .into_iter()
            .chain(self.resolved.clone())
            .chain(layers)
            .chain(self.sources.clone())
            .chain(self.committing.then_some(PullEvent::Committing))
    }

    /// Checks that the pull does not stall. Returns the time of the next check.
    ///
    /// # Errors
    /// No byte and no other change for as long as the limit.
    pub(super) fn judge(&self, limit: Duration, now: Duration) -> Result<Duration, Stalled> {
        let asks = self.fetching() || self.is_resolving();
        let since = if asks { self.changed } else { now };
        let idle = now.saturating_sub(since);
        if idle >= limit && asks {
            return Err(Stalled { limit, idle, seen: self.seen() });
        }
        // A very short limit must not make the loop that checks it spin.
        Ok((since + limit).max(now + Duration::from_millis(10)))
    }

    /// Returns the progress, for messages.
    pub(super) fn seen(&self) -> Seen {
        let here = |digest: &Digest| {
            let state = self.layers.get(digest).and_then(|layer| layer.state);
            matches!(state, Some(LayerState::Present | LayerState::WaitingForOther))
        };
        let of = match &self.resolved {
            Some(PullEvent::Resolved { layers, .. }) => {
                layers.iter().filter(|(digest, _)| !here(digest)).map(|(_, size)| size).sum()
            }
            _ => 0,
        };
        let done = self.layers.values().map(|layer| layer.done).sum();
        let reported = self.resolved.is_some() || !self.layers.is_empty();
        Seen { resolving: self.is_resolving(), reported, done, of }
    }

    /// Returns the total of received compressed bytes.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// The state for people.
    pub(super) fn picture(&self, now: Duration) -> Picture {
        let step = match () {
            () if self.committing => PullStep::Committing,
            () if self.resolved.is_some() || !self.layers.is_empty() => PullStep::Fetching,
            () if self.resolving => PullStep::Resolving,
            () => PullStep::Pulling,
        };
        let layers = match &self.resolved {
            Some(PullEvent::Resolved { layers, .. }) => Some(self.layers_of(layers)),
            _ => None,
        };
        let comes = |layer: &&LayerInFlight| !matches!(layer.state, LayerState::Present | LayerState::WaitingForOther);
        let total = layers.as_ref().map(|layers| layers.iter().filter(comes).map(|layer| layer.size_bytes).sum());
        let (done, unpacked) = self.layers.values().fold((0, 0), |(d, u), layer| (d + layer.done, u + layer.unpacked));
        Picture { step, total, done, unpacked, rate: self.rate(now), layers }
    }

    /// Each layer once: an image may have the same one several times.
    fn layers_of(&self, resolved: &[(Digest, u64)]) -> Vec<LayerInFlight> {
        let mut shown = HashSet::new();
        let once = resolved.iter().filter(|(digest, _)| shown.insert(digest));
        let shown = once.map(|(digest, size)| {
            let layer = self.layers.get(digest);
            LayerInFlight {
                digest: digest.to_string(),
                size_bytes: *size,
                received_bytes: layer.map_or(0, |layer| layer.done),
                unpacked_bytes: layer.map_or(0, |layer| layer.unpacked),
                state: layer.and_then(|layer| layer.state).unwrap_or(LayerState::Waiting),
            }
        });
        shown.collect()
    }

    /// Bytes per second since the youngest measurement that is old enough.
    fn rate(&self, now: Duration) -> Option<u64> {
        if !self.fetching() {
            return None;
        }
        let is_old = |(at, _): &&(Duration, u64)| now.saturating_sub(*at) >= WINDOW;
        let (at, then) = self.measured.iter().rev().find(is_old).or_else(|| self.measured.front())?;
        let passed = now.saturating_sub(*at);
        let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        let bytes = self.received.saturating_sub(*then);
        (passed >= SHORTEST_WINDOW).then(|| bytes.saturating_mul(1000) / millis)
    }

    /// Returns true if the service reports progress and has not begun to commit.
    pub(super) fn is_before_commit(&self) -> bool {
        (self.resolving || self.seen().reported) && !self.committing
    }

    fn is_resolving(&self) -> bool {
        self.resolving && self.resolved.is_none() && self.layers.is_empty()
    }

    fn fetching(&self) -> bool {
        self.fetching > 0 && !self.committing
    }

    /// Adds a sample, and removes those that are older than a window, except for the youngest of them.
    fn measure(&mut self, now: Duration) {
        if self.measured.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= STEP) {
            self.measured.push_back((now, self.received));
        }
        while self.measured.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW) {
            self.measured.pop_front();
        }
    }
}

/// Goes on to `now`, and answers how much that is. What begins again starts at a lower number: all of it is new.
fn more(before: &mut u64, now: u64) -> u64 {
    let before = std::mem::replace(before, now);
    now.checked_sub(before).unwrap_or(now)
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, idle, seen } = self;
        let (limit, idle) = (GoDuration::from_millis_of(*limit), GoDuration::from_millis_of(*idle));
        write!(f, "the pull made no progress for {idle} (imagePullProgressDeadline: {limit}){seen}")
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { resolving: true, .. } => f.write_str("; the registry had not said what the name stands for"),
            Self { reported: false, .. } => Ok(()),
            Self { done, of, .. } => write!(f, "; {done} of {of} bytes had come"),
        }
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
