//! [`Puller`]: brings images, for everybody who wants them: in an order, within limits, and each of them once.
//!
//! It decides nothing about whether an image is to be pulled and tells no events: the manager does both, and calls it.
//! A pull is a job of its own. Requests for the same image with the same credentials share one; each of them may go away
//! when it likes, and the job ends when the last one has. What a job does is in [`job`], who shares one in [`key`], whose
//! turn it is in [`order`], how fast pulls may begin in [`bucket`], whether one is too slow in [`progress`], what may still
//! come of one that was given up in [`aftermath`].

mod aftermath;
mod attempts;
mod bucket;
mod hub;
mod job;
mod key;
mod options;
mod order;
mod progress;
mod table;
mod throttle;
mod time;
mod turns;
mod wanted;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cri_api::{Error, ImageService, ImageSpec, Kind};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

pub use options::PullerOptions;
pub(crate) use wanted::{Mark, PullFailed, Pulled, Recheck, Wanted};

use self::attempts::Try;
use self::hub::Hub;
use self::job::{Ending, Work};
use self::key::Key;
use self::table::{Job, Started, Table};
use self::throttle::Throttle;
use self::time::Timeline;
use self::turns::Turns;
use crate::{Attempt, Clock, Metrics, PullFailure, PullRecords};

/// Brings images.
pub(crate) struct Puller {
    shared: Arc<Shared>,
    table: Arc<Table>,
    turns: Arc<Turns>,
    /// Numbers of requests that share nothing.
    alone: AtomicU64,
}

/// What jobs need.
struct Shared {
    service: Arc<dyn ImageService>,
    records: Option<PullRecords>,
    options: PullerOptions,
    time: Timeline,
    throttle: Throttle,
    metrics: Arc<Metrics>,
    /// How many pulls brought an image.
    ended: AtomicU64,
    tracker: TaskTracker,
    shutdown: CancellationToken,
}

impl Puller {
    /// A puller of images behind `service`, which keeps records where there are any.
    pub(crate) fn new(
        service: Arc<dyn ImageService>,
        records: Option<PullRecords>,
        options: PullerOptions,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let time = Timeline::new(clock);
        let limits =
            order::Limits { total: options.limit(), per_registry: options.registry_limit(), ageing: options.ageing };
        let turns = Turns::new(limits, time.clone(), Arc::clone(&metrics));
        let throttle = Throttle::new(options.qps, options.burst, time.clone(), Arc::clone(&metrics));
        let shared = Shared {
            service,
            records,
            options,
            time,
            throttle,
            metrics,
            ended: AtomicU64::new(0),
            tracker: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        };
        Arc::new(Self { shared: Arc::new(shared), table: Arc::default(), turns, alone: AtomicU64::new(0) })
    }

    /// Changes with every pull that brings an image. Taken before the caller looks whether an image is here.
    pub(crate) fn mark(&self) -> Mark {
        self.shared.mark()
    }

    /// Brings an image, or waits for the pull that does. Dropping the future leaves the pull, which goes on as long as
    /// others want it, and a while after.
    pub(crate) async fn pull(&self, mut wanted: Wanted) -> Result<Pulled, PullFailed> {
        if self.shared.shutdown.is_cancelled() {
            return Err(PullFailed::ShuttingDown);
        }
        let alone = (!self.shared.options.coalesce).then(|| self.alone.fetch_add(1, Ordering::Relaxed));
        let key = Key::of(&wanted, alone);
        let recheck = wanted.recheck.take();
        let mut ticket = self.table.join(key, recheck, wanted.mark, || self.start(&wanted));
        if ticket.joined {
            self.shared.metrics.coalesced();
            tracing::debug!(image = wanted.image, "joins a pull of another");
            self.turns.raise(ticket.job().place, wanted.priority);
        }
        let seat = ticket.job().hub.join(wanted.progress.clone());
        let ending = ticket.answer().await;
        drop(seat);
        self.answer(&wanted, ending, ticket.joined).await
    }

    /// Ends every pull, and waits until they have ended.
    pub(crate) async fn shutdown(&self) {
        self.shared.shutdown.cancel();
        self.shared.tracker.close();
        self.shared.tracker.wait().await;
    }

    fn start(&self, wanted: &Wanted) -> Started {
        let registry = oci::Reference::parse(&wanted.spec.image).map(|name| name.domain().to_owned());
        let registry = registry.unwrap_or_else(|_| wanted.spec.image.clone());
        let place = self.turns.join(&registry, wanted.priority);
        let hub = Hub::new(self.shared.time.clone(), Arc::clone(&self.shared.metrics));
        let job = Job::new(hub, place.id());
        let span = tracing::debug_span!("image_pull", image = wanted.image, registry, priority = wanted.priority);
        let work = Work {
            shared: Arc::clone(&self.shared),
            place,
            image: wanted.image.clone(),
            spec: wanted.spec.clone(),
            sandbox: wanted.sandbox.clone(),
            candidates: Arc::clone(&wanted.candidates),
            before: wanted.before.clone(),
            intent: None,
            given_up: true,
        };
        let tracker = self.shared.tracker.clone();
        Started { job, run: Box::new(move |finish| drop(tracker.spawn(work.run(finish).instrument(span)))) }
    }

    /// What a job's end is for one who waited for it.
    async fn answer(&self, wanted: &Wanted, ending: Option<Ending>, coalesced: bool) -> Result<Pulled, PullFailed> {
        match ending {
            Some(Ending::Pulled { image_ref, used, size, pulling, recorded }) => {
                if coalesced {
                    self.record(wanted, &image_ref, used, recorded).await;
                }
                Ok(Pulled { image_ref, used, size, pulling, found: false, coalesced })
            }
            Some(Ending::Found(image_ref)) => {
                let pulling = std::time::Duration::ZERO;
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

    /// Records a pull for one who joined it, under its own name and with its own credential, unless that is what was
    /// recorded for the pull itself.
    async fn record(
        &self,
        wanted: &Wanted,
        image_ref: &str,
        used: Option<usize>,
        recorded: Option<(String, Option<credentials::Source>)>,
    ) {
        let Some(records) = &self.shared.records else { return };
        // The same index is the same credential, though perhaps of another source: the key says so.
        let candidate = used.and_then(|index| wanted.candidates.get(index));
        let source = candidate.map(|candidate| &candidate.source);
        if recorded.is_some_and(|(image, of)| image == wanted.image && of.as_ref() == source) {
            return;
        }
        if let Err(error) = records.add(&wanted.image, image_ref, candidate).await {
            tracing::error!(image = wanted.image, %error, "a pulled image could not be recorded for one who waited for it");
        }
    }
}

impl Shared {
    fn mark(&self) -> Mark {
        Mark(self.ended.load(Ordering::Acquire))
    }

    /// Whether an image that came without a record would be for every pod.
    fn frees_what_is_unknown(&self) -> bool {
        self.records.as_ref().is_some_and(PullRecords::frees_what_is_unknown)
    }

    /// A pull brought an image.
    fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// Size of a pulled image, for messages: whether it is known changes nothing.
    async fn size(&self, spec: ImageSpec) -> Option<u64> {
        let status = tokio::select! {
            status = self.service.image_status(&spec, false) => status,
            () = self.shutdown.cancelled() => return None,
        };
        match status {
            Ok(status) => status.image.map(|image| image.size),
            Err(error) => {
                tracing::debug!(image = spec.image, %error, "size of a pulled image is not known");
                None
            }
        }
    }
}

/// The causes as one who waited is told them: with the sources of its own credentials.
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
