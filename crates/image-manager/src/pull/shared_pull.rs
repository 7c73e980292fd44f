//! The requests that take one turn together: their shared state, the data of each, and the ending of their pull. Plain data over
//! [`base::single_flight`]; the work of the pull is shared in the image service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::single_flight::{Flight, Group, Shared, WaiterId};
use credentials::Source;

use super::attempts::Try;
use super::board::RunningPull;
use super::monitor::ProgressMonitor;
use super::order::SlotId;
use super::request_key::RequestKey;
use super::{Mark, Recheck};
use crate::RecordsError;

/// The pulls that wait for their turn or run, by the key of their requests.
pub(super) type SharedPulls = Group<RequestKey, SharedPull, Ending, Waiting>;
/// The job of a pull.
pub(super) type RunningJob = Flight<RequestKey, SharedPull, Ending, Waiting>;

/// The part of a pull that its requests share. A pull without requests may linger, so that it ends by itself.
pub(super) struct SharedPull {
    pub(super) monitor: ProgressMonitor,
    /// Slot in the queue.
    pub(super) place: SlotId,
    /// The pull as the board shows it.
    pub(super) running: Arc<RunningPull>,
    /// Set when the pull gets its turn.
    begun: AtomicBool,
}

impl Shared for SharedPull {}

impl SharedPull {
    pub(super) fn new(monitor: ProgressMonitor, place: SlotId, running: Arc<RunningPull>) -> Self {
        Self { monitor, place, running, begun: AtomicBool::new(false) }
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

/// The data of one waiting request.
pub(super) struct Waiting {
    pub(super) recheck: Option<Recheck>,
    pub(super) mark: Mark,
}

/// Returns the recheck of the next waiter whose inspection of the image is outdated. Each is returned once.
pub(super) fn next_recheck(flight: &RunningJob, outdated: impl Fn(Mark) -> bool) -> Option<(WaiterId, Recheck)> {
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
