//! [`Work`]: one pull, from its place in the queue to its end: turn, recheck, token, intent, attempts, record, size.

use std::sync::Arc;
use std::time::Duration;

use credentials::Candidate;
use cri_api::{BeforeVisible, ImageSpec, PodSandboxConfig, PullImageRequest};
use tracing::Instrument as _;

use super::PullerOptions;
use super::aftermath::{Aftermath, presence};
use super::attempts::{Attempts, Try};
use super::board::OnBoard;
use super::context::PullContext;
use super::monitor::ProgressMonitor;
use super::shared_pull::{Ending, RunningJob, next_recheck};
use super::turns::QueueSlot;
use super::wanted::{Mark, PullFailed};
use crate::{Attempt, Cause, Metrics, Presence, PullFailure, PullIntent};

/// A pull.
pub(super) struct Work {
    pub(super) context: Arc<PullContext>,
    pub(super) place: QueueSlot,
    /// The pull on the board, until it ends.
    pub(super) on_board: OnBoard,
    /// The name by which it was first asked for.
    pub(super) image: String,
    pub(super) spec: ImageSpec,
    pub(super) sandbox: Option<PodSandboxConfig>,
    pub(super) candidates: Arc<[Candidate]>,
    /// Presence of the image before the pull.
    pub(super) before: Presence,
    /// Kept in the job during the pull, so that it outlives an abandoned pull.
    pub(super) intent: Option<PullIntent>,
    /// True if the call of the service was cancelled; used only while there is an intent.
    pub(super) given_up: bool,
}

/// An image that was pulled, and is not recorded yet.
struct PulledImage {
    image_ref: String,
    used: Option<usize>,
    pulling: Duration,
    intent: Option<PullIntent>,
}

impl Work {
    /// Runs to the end, or until no caller is waiting.
    pub(super) async fn run(mut self, job: RunningJob) {
        let PullerOptions { linger, coalesce, .. } = self.context.options();
        let linger = if coalesce { linger } else { Duration::ZERO };
        let context = Arc::clone(&self.context);
        let pulled = tokio::select! {
            // A pulled image is recorded, even if all callers leave at the same moment.
            biased;
            pulled = self.pull(&job) => pulled,
            () = context.shutdown.cancelled() => Err(Some(Ending::ShuttingDown)),
            () = context.unless_draining(job.abandoned(|pull| pull.linger(linger))) => {
                tracing::debug!(image = self.image, "the pull is given up: no request waits for it any more");
                Err(None)
            }
        };
        match pulled {
            Ok(pulled) => {
                self.on_board.pulled(&pulled.image_ref);
                job.land(self.keep(pulled).await);
            }
            Err(ending) => {
                if let Some((cause, message)) = ending.as_ref().and_then(cause) {
                    context.metrics.failed(cause);
                    self.on_board.failed(cause, &message);
                }
                let monitor = job.shared().monitor.clone();
                match ending {
                    Some(ending) => job.land(ending),
                    None => drop(job),
                }
                self.end(&monitor).await;
            }
        }
    }

    /// Ends an abandoned or failed pull. No caller is waiting for it, and the next one gets its turn.
    async fn end(self, monitor: &ProgressMonitor) {
        let Self { context, place, on_board, spec, before, intent, given_up, .. } = self;
        drop((on_board, place));
        let Some(intent) = intent else { return };
        if context.frees_what_is_unknown() {
            Aftermath { context: &context, spec, before }.watch(intent, given_up, monitor).await;
        } else {
            intent.failed().await;
        }
    }

    /// Pulls the image when it gets its turn. `Err` is the ending of the pull, `None` if no caller is waiting.
    async fn pull(&mut self, job: &RunningJob) -> Result<PulledImage, Option<Ending>> {
        let span = tracing::debug_span!("wait_for_turn", image = self.image);
        let waited = self.place.turn().instrument(span).await;
        if self.context.draining.is_cancelled() {
            // It got its turn because the pulls before it ended.
            return Err(Some(Ending::ShuttingDown));
        }
        if job.retire() {
            return Err(None);
        }
        job.shared().begin();
        self.on_board.begin();
        self.recheck_waiters(job, waited).await?;

        let context = &*self.context;
        let options = context.options();
        context.throttle.pass(options.pull_wait).await.map_err(|_| Some(Ending::Throttled))?;
        let mut before_visible = BeforeVisible::default();
        if let Some(records) = &context.records {
            if self.before == Presence::NotChecked && records.frees_what_is_unknown() {
                self.before = presence(&*context.service, &self.spec).await;
            }
            let intent = records.intend(&self.image).await;
            let mut intent = intent.map_err(|error| Some(Ending::Unrecorded(Arc::new(error))))?;
            intent.begin();
            before_visible = intent.before_visible();
            self.intent = Some(intent);
        }

        let _in_flight = InFlightGauge::new(&context.metrics);
        let begun = context.time.now();
        let request = PullImageRequest {
            image: self.spec.clone(),
            auth: None,
            sandbox: self.sandbox.clone(),
            progress: job.shared().monitor.sink(),
            before_visible,
        };
        let attempts = Attempts {
            service: &*context.service,
            throttle: &context.throttle,
            monitor: &job.shared().monitor,
            stall_limit: options.stall_limit(),
        };
        let span = tracing::debug_span!("pull_image", image = self.spec.image);
        let result = attempts.make(&request, &self.candidates).instrument(span).await;
        let pulling = context.time.now().saturating_sub(begun);
        match result {
            Ok((image_ref, used)) => {
                context.ended();
                Ok(PulledImage { image_ref, used, pulling, intent: self.intent.take() })
            }
            Err(failed) => {
                self.given_up = failed.given_up;
                let is_uncertain = failed.may_have_pulled() && context.frees_what_is_unknown();
                if !is_uncertain && let Some(intent) = self.intent.take() {
                    intent.failed().await;
                }
                Err(Some(Ending::Failed(failed.tries)))
            }
        }
    }

    /// Checks again for the waiters whose inspection of the image may be out of date whether they need the pull at all. `Err`: no
    /// waiter is left.
    async fn recheck_waiters(&self, job: &RunningJob, waited: bool) -> Result<(), Option<Ending>> {
        let now = self.context.mark();
        let outdated = |mark: Mark| waited || mark != now;
        while let Some((waiter, recheck)) = next_recheck(job, outdated) {
            // If one waiter needs the pull, the image is pulled for all of them.
            let Some(image_ref) = recheck().await else { return Ok(()) };
            job.shared().running.set_present();
            job.answer_one(waiter, Ending::Found(image_ref));
            if job.retire() {
                return Err(None);
            }
        }
        Ok(())
    }

    /// Records the pulled image, and gives the next pull its turn.
    async fn keep(self, pulled: PulledImage) -> Ending {
        let PulledImage { image_ref, used, pulling, intent } = pulled;
        let candidate = used.and_then(|index| self.candidates.get(index));
        let recorded = match intent {
            None => None,
            Some(intent) => match intent.pulled(&image_ref, candidate).await {
                Ok(()) => Some((self.image.clone(), candidate.map(|candidate| candidate.source.clone()))),
                Err(error) => {
                    // The intent stays on disk: until the next start nothing proves which pods may use the image.
                    tracing::error!(image = self.image, %error, "a pulled image could not be recorded");
                    None
                }
            },
        };
        let Self { context, place, on_board, spec, .. } = self;
        drop((on_board, place));
        let size = context.size(ImageSpec { image: image_ref.clone(), ..spec }).await;
        Ending::Pulled { image_ref, used, size, pulling, recorded }
    }
}

/// Cause of a failed pull, and a line about it.
fn cause(ending: &Ending) -> Option<(Cause, String)> {
    match ending {
        Ending::Pulled { .. } | Ending::Found(_) | Ending::ShuttingDown => None,
        Ending::Failed(tries) => {
            let attempt = |of: &Try| Attempt { source: None, error: of.error.clone() };
            let message = tries.last().map(|last| last.error.message().to_owned()).unwrap_or_default();
            Some((PullFailure::new(tries.iter().map(attempt).collect()).cause(), message))
        }
        Ending::Throttled => Some((Cause::Throttled, PullFailed::Throttled.to_string())),
        Ending::Unrecorded(error) => Some((Cause::Other, error.to_string())),
    }
}

/// Counts a pull while it runs.
struct InFlightGauge<'a>(&'a Metrics);

impl<'a> InFlightGauge<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.in_flight(1);
        Self(metrics)
    }
}

impl Drop for InFlightGauge<'_> {
    fn drop(&mut self) {
        self.0.in_flight(-1);
    }
}
