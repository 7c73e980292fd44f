//! [`Puller`]: orders, limits and records the pulls of all requests. The work itself is shared in the image service.
//!
//! It decides nothing about whether an image is to be pulled and records no events: the manager does both, and calls it.
//! A pull is a task of its own. Requests for the same image with the same credentials take one turn together
//! ([`shared_pull`], [`request_key`]); each may be cancelled at any time, and the pull ends when the last one is. The steps of a
//! pull are in [`job`], limits and order in [`order`], the rate of starts in [`bucket`], the speed limits in
//! [`progress`], and the end of an abandoned pull in [`aftermath`]. The [`board`] shows pulls to users.

mod aftermath;
mod attempts;
mod board;
mod bucket;
mod context;
mod in_flight;
mod job;
mod monitor;
mod options;
mod order;
mod progress;
mod request_key;
mod shared_pull;
mod throttle;
mod time;
mod turns;
mod wanted;
mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cri_api::{Error, ImageService, Kind};
use tracing::Instrument as _;

pub use board::{ENDED_PULLS, PullBoard};
pub use in_flight::{EndedPull, LayerInFlight, PullInFlight, PullOutcome, PullStep, WantedBy};
pub use options::PullerOptions;
pub(crate) use wanted::{Mark, PullFailed, Pulled, Recheck, Wanted};
pub use watched::WatchedPulls;

use self::attempts::Try;
use self::board::OnBoard;
use self::context::PullContext;
use self::job::Work;
use self::monitor::ProgressMonitor;
use self::order::PullLimits;
use self::request_key::RequestKey;
use self::shared_pull::{Ending, RunningJob, SharedPull, SharedPulls, Waiting};
use self::time::Timeline;
use self::turns::{QueueSlot, Turns};
use crate::{Attempt, Clock, Metrics, PullFailure, PullRecords};

/// Pulls images.
pub(crate) struct Puller {
    context: Arc<PullContext>,
    pulls: SharedPulls,
    turns: Arc<Turns>,
    board: PullBoard,
    /// Number of the next request that shares nothing.
    alone: AtomicU64,
}

impl Puller {
    /// A puller of images behind `service`, which keeps records where there are any.
    pub(crate) fn new(
        service: Arc<dyn ImageService>,
        records: Option<PullRecords>,
        options: PullerOptions,
        clock: Clock,
        metrics: Arc<Metrics>,
        board: PullBoard,
    ) -> Arc<Self> {
        let time = Timeline::new(clock);
        let turns = Turns::new(PullLimits::of(&options), time.clone(), Arc::clone(&metrics));
        board.set_turns(Arc::clone(&turns));
        let context = Arc::new(PullContext::new(service, records, options, time, metrics));
        Arc::new(Self { context, pulls: SharedPulls::default(), turns, board, alone: AtomicU64::new(0) })
    }

    /// Returns a mark that changes with every successful pull. Taken before the caller inspects the image.
    pub(crate) fn mark(&self) -> Mark {
        self.context.mark()
    }

    /// Pulls an image, or joins the pull of another request. Dropping the future leaves the pull, which continues while other
    /// callers wait for it, and for a while after that.
    pub(crate) async fn pull(&self, mut wanted: Wanted) -> Result<Pulled, PullFailed> {
        if self.context.draining.is_cancelled() {
            return Err(PullFailed::ShuttingDown);
        }
        let alone = (!self.context.options().coalesce).then(|| self.alone.fetch_add(1, Ordering::Relaxed));
        let key = RequestKey::of(&wanted, alone);
        let waiting = Waiting { recheck: wanted.recheck.take(), mark: wanted.mark };
        let mut places = None;
        let (mut ticket, flight) = self.pulls.join(&key, waiting, || {
            let place = self.turns.join(wanted.registry(), wanted.priority);
            let monitor = ProgressMonitor::new(self.context.time.clone(), Arc::clone(&self.context.metrics));
            let on_board = self.board.enter(&wanted.image, monitor.state(), Some(place.id()));
            let shared = SharedPull::new(monitor, place.id(), Arc::clone(on_board.pull()));
            places = Some((place, on_board));
            shared
        });
        let waiter = ticket.shared().running.join(std::mem::replace(&mut wanted.by, WantedBy::Command));
        let joined = match flight.zip(places) {
            Some((flight, (place, on_board))) => {
                self.start(&wanted, flight, place, on_board);
                false
            }
            None => {
                self.context.metrics.coalesced();
                tracing::debug!(image = wanted.image, "joins the pull of another request");
                self.turns.raise(ticket.shared().place, wanted.priority);
                true
            }
        };
        let subscription = ticket.shared().monitor.subscribe(wanted.progress.clone());
        let ending = ticket.wait().await;
        drop((subscription, waiter));
        self.answer(&wanted, ending, joined).await
    }

    /// Changes the options: limits apply to pulls that are waiting, the rest to pulls that start from now on.
    pub(crate) fn set_options(&self, options: PullerOptions) {
        self.context.set_options(options);
        self.turns.set_limits(PullLimits::of(&options));
    }

    /// Starts no more pulls, and waits for `grace` at most until those under way have ended. Cancels the rest.
    pub(crate) async fn drain(&self, grace: Duration) {
        self.context.draining.cancel();
        self.context.tracker.close();
        if tokio::time::timeout(grace, self.context.tracker.wait()).await.is_err() {
            tracing::info!("pulls are cut off: their time is over");
        }
        self.shutdown().await;
    }

    /// Cancels every pull, and waits until they have ended.
    pub(crate) async fn shutdown(&self) {
        self.context.draining.cancel();
        self.context.shutdown.cancel();
        self.context.tracker.close();
        self.context.tracker.wait().await;
    }

    /// Runs a pull as a task.
    fn start(&self, wanted: &Wanted, flight: RunningJob, place: QueueSlot, on_board: OnBoard) {
        let registry = wanted.registry();
        let span = tracing::debug_span!("image_pull", image = wanted.image, registry, priority = wanted.priority);
        let work = Work {
            context: Arc::clone(&self.context),
            place,
            on_board,
            image: wanted.image.clone(),
            spec: wanted.spec.clone(),
            sandbox: wanted.sandbox.clone(),
            candidates: Arc::clone(&wanted.candidates),
            before: wanted.before.clone(),
            intent: None,
            given_up: true,
        };
        self.context.tracker.spawn(work.run(flight).instrument(span));
    }

    /// The end of a pull as the result of one waiter.
    async fn answer(&self, wanted: &Wanted, ending: Option<Ending>, coalesced: bool) -> Result<Pulled, PullFailed> {
        match ending {
            Some(Ending::Pulled { image_ref, used, size, pulling, recorded }) => {
                if coalesced {
                    self.record(wanted, &image_ref, used, recorded).await;
                }
                Ok(Pulled { image_ref, used, size, pulling, found: false, coalesced })
            }
            Some(Ending::Found(image_ref)) => {
                let pulling = Duration::ZERO;
                Ok(Pulled { image_ref, used: None, size: None, pulling, found: true, coalesced })
            }
            Some(Ending::Failed(tries)) => Err(failure(wanted, &tries).into()),
            Some(Ending::Throttled) => Err(PullFailed::Throttled),
            Some(Ending::Unrecorded(error)) => Err(PullFailed::Record(error)),
            Some(Ending::ShuttingDown) => Err(PullFailed::ShuttingDown),
            None => {
                let error = Error::new(Kind::Internal, "the pull panicked: this is a fault of the program");
                Err(failure(wanted, &[Try { candidate: None, error }]).into())
            }
        }
    }

    /// Records a pull for a request that joined it, under its own name and with its own credential, unless the record of
    /// the pull itself has them.
    async fn record(
        &self,
        wanted: &Wanted,
        image_ref: &str,
        used: Option<usize>,
        recorded: Option<(String, Option<credentials::Source>)>,
    ) {
        let Some(records) = &self.context.records else { return };
        // The same index is the same credential, though perhaps of another source: the key says so.
        let candidate = used.and_then(|index| wanted.candidates.get(index));
        let source = candidate.map(|candidate| &candidate.source);
        if recorded.is_some_and(|(image, of)| image == wanted.image && of.as_ref() == source) {
            return;
        }
        if let Err(error) = records.add(&wanted.image, image_ref, candidate).await {
            tracing::error!(image = wanted.image, %error, "a pulled image could not be recorded for a request that waited for it");
        }
    }
}

/// The causes of a failure for one waiter: with the sources of its own credentials.
fn failure(wanted: &Wanted, tries: &[Try]) -> PullFailure {
    let attempt = |Try { candidate, error }: &Try| {
        let source = candidate.and_then(|index| wanted.candidates.get(index)).map(|candidate| candidate.source.clone());
        Attempt { source, error: error.clone() }
    };
    PullFailure::new(tries.iter().map(attempt).collect())
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
