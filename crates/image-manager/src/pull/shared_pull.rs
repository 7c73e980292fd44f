//! The flights of pulls: the shared state of their waiters, the data of each waiter, and the endings of a flight. Plain data
//! over [`base::single_flight`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::single_flight::{Flight, Group, Shared, WaiterId};
use credentials::Source;

use super::attempts::Try;
use super::board::RunningPull;
use super::hub::Hub;
use super::key::PullKey;
use super::order::SlotId;
use super::{Mark, Recheck};
use crate::RecordsError;

/// The pulls under way.
pub(super) type Flights = Group<PullKey, SharedPull, Ending, Waiting>;
/// A pull that runs.
pub(super) type PullFlight = Flight<PullKey, SharedPull, Ending, Waiting>;

/// The part of a pull that its waiters share. A pull that is left may linger, so that it ends by itself.
pub(super) struct SharedPull {
    pub(super) hub: Hub,
    /// Slot in the queue.
    pub(super) place: SlotId,
    /// The pull as the board shows it.
    pub(super) running: Arc<RunningPull>,
    /// Set when the pull gets its turn.
    begun: AtomicBool,
}

impl Shared for SharedPull {}

impl SharedPull {
    pub(super) fn new(hub: Hub, place: SlotId, running: Arc<RunningPull>) -> Self {
        Self { hub, place, running, begun: AtomicBool::new(false) }
    }

    /// Records that the pull has its turn: from now on it lingers after its last waiter has left.
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Returns how long the pull continues after its last waiter has left.
    pub(super) fn linger(&self, linger: Duration) -> Duration {
        if self.begun.load(Ordering::Relaxed) { linger } else { Duration::ZERO }
    }
}

/// The data of one waiter of a flight.
pub(super) struct Waiting {
    pub(super) recheck: Option<Recheck>,
    pub(super) mark: Mark,
}

/// Returns the recheck of the next waiter whose inspection of the image is outdated. Each is returned once.
pub(super) fn next_recheck(flight: &PullFlight, outdated: impl Fn(Mark) -> bool) -> Option<(WaiterId, Recheck)> {
    flight.find_waiter(|waiting| if outdated(waiting.mark) { waiting.recheck.take() } else { None })
}

/// How a pull ended; every waiter gets the same.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    /// The image was pulled.
    Pulled {
        image_ref: String,
        used: Option<usize>,
        size: Option<u64>,
        pulling: Duration,
        /// The record of a pull: under which name, and with which credential's source.
        recorded: Option<(String, Option<Source>)>,
    },
    /// The image was found present.
    Found(String),
    /// Every attempt failed.
    Failed(Arc<[Try]>),
    /// There was no token.
    Throttled,
    /// The intent could not be recorded.
    Unrecorded(Arc<RecordsError>),
    /// The puller ends.
    ShuttingDown,
}
