//! Joins the layer job for a blob: its own, or that of another pull that provides the same layer. A job for a blob of the same
//! repository is joined at once; for a blob of another repository, the registry is asked first.

use std::sync::Arc;

use cri_api::{Error, LayerState, ProgressSink, PullEvent};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use oci::Digest;
use tokio_util::sync::CancellationToken;

use super::assembler::Assembler;
use super::blob::LayerBlob;
use super::layer_job::{LayerJob, PlannedLayer};
use super::plan::Plan;
use crate::error;
use crate::in_flight::{LayerKey, ReadyLayer, Ticket};
use crate::origin::{Access, SharedContent};
use crate::progress::Hub;

/// The result of waiting for a layer.
pub(super) struct WaitResult {
    /// Index of the blob.
    pub(super) blob: usize,
    /// Number of the blob's attempt.
    pub(super) attempt: u32,
    /// True if this pull started the job.
    pub(super) led: bool,
    pub(super) outcome: LayerOutcome,
}

/// The outcome of waiting for a layer.
pub(super) enum LayerOutcome {
    /// The layer is unpacked.
    Unpacked(ReadyLayer),
    /// Another pull has committed the layer, so that the job had nothing to do.
    Committed,
    /// The registry does not confirm the blob of another repository, or another blob of the layer is damaged.
    Unconfirmed,
    /// The job to join has ended before it was joined.
    JobEnded,
    /// The wait was stopped; with the layer if it was complete by then.
    Stopped(Option<ReadyLayer>),
    Failed(Error),
}

/// A job to wait for, or the layer that it has unpacked.
enum JoinedLayer {
    Running(Ticket<LayerKey, Option<ReadyLayer>>),
    Ready(ReadyLayer),
}

/// A blob that waits for a job.
struct Wait {
    blob: usize,
    attempt: u32,
    digest: Digest,
    hub: Hub,
    stop: CancellationToken,
}

impl Assembler<'_> {
    /// Joins or starts the job of a blob for this attempt. Returns true if it was started.
    pub(super) fn start(
        &self,
        (n, attempt): (usize, u32),
        blob: &LayerBlob,
        plan: Option<&Plan>,
    ) -> (bool, BoxFuture<'static, WaitResult>) {
        let digest = blob.descriptor.digest.clone();
        let wait = Wait { blob: n, attempt, digest, hub: self.hub.clone(), stop: blob.stop.clone() };
        if !blob.own_only {
            if let Some((joined, _)) = self.jobs_like(&blob.key).find_map(|other| self.join(&other)) {
                return (false, wait.for_layer(joined, None));
            }
            if let Some(other) = self.jobs_like(&blob.key).find(|other| other.origin != blob.key.origin) {
                return (false, self.ask_and_wait(wait, blob, &other));
            }
        }
        let job = LayerJob {
            key: blob.key.clone(),
            parts: Arc::clone(self.parts),
            writer: Arc::clone(self.writer),
            source: Arc::clone(self.source),
            descriptor: blob.descriptor.clone(),
            planned: plan.map(|plan| PlannedLayer { commits: plan.commits, links: plan.links(&blob.places) }),
            account: self.account,
        };
        let in_flight = &self.parts.in_flight;
        let begin = || (JoinedLayer::Running(in_flight.layers.join(&blob.key, |context| job.run(context))), None);
        let (joined, other) = match self.shared_diff_id(blob) {
            None => begin(),
            Some(diff_id) => in_flight.by_diff_id.decide(diff_id, &blob.key, |other| self.join(other), begin),
        };
        let led = matches!(&joined, JoinedLayer::Running(ticket) if ticket.led);
        (led, wait.for_layer(joined, other))
    }

    /// Returns the diff ID by which another blob may provide the layer of this one. If blobs are kept, the blob itself is needed.
    pub(super) fn shared_diff_id<'b>(&self, blob: &'b LayerBlob) -> Option<&'b Digest> {
        let may_share = !blob.own_only && blob.key.only_for.is_none() && !self.parts.content.keeps_blobs;
        blob.diff_id.as_ref().filter(|_| may_share)
    }

    /// Returns the jobs in flight, and those whose layers wait for a commit, that unpack the blob of this key in the same way, and
    /// that this pull may join at once or after a request.
    pub(super) fn jobs_like(&self, key: &LayerKey) -> impl Iterator<Item = LayerKey> {
        let open = self.parts.content.sharing == SharedContent::Open;
        let wanted =
            |other: &LayerKey| other.is_like(key) && (open || key.origin.access_to(&other.origin) != Access::Denied);
        let in_flight = &self.parts.in_flight;
        in_flight.layers.keys(wanted).into_iter().chain(in_flight.ready.keys(wanted))
    }

    /// Returns true if the layer of a job may be used without a request.
    pub(super) fn may_join(&self, other: &LayerKey) -> bool {
        self.parts.content.sharing == SharedContent::Open
            || self.source.origin().access_to(&other.origin) == Access::Granted
    }

    /// Joins this job, or takes its layer, if that needs no request. Returns the digest of its blob as well.
    fn join(&self, other: &LayerKey) -> Option<(JoinedLayer, Option<Digest>)> {
        if !self.may_join(other) {
            return None;
        }
        Some((self.join_unasked(other)?, Some(other.blob.clone())))
    }

    fn join_unasked(&self, other: &LayerKey) -> Option<JoinedLayer> {
        let running = self.parts.in_flight.layers.join_running(other).map(JoinedLayer::Running);
        running.or_else(|| self.parts.in_flight.ready.find(other).map(JoinedLayer::Ready))
    }

    /// Asks the registry whether it has the blob of another repository's job, and then waits for that job.
    fn ask_and_wait(&self, wait: Wait, blob: &LayerBlob, other: &LayerKey) -> BoxFuture<'static, WaitResult> {
        // Joined now, so that the job outlives the request; its layer is used only after the confirmation.
        let Some(joined) = self.join_unasked(other) else {
            return std::future::ready(wait.result(false, LayerOutcome::JobEnded)).boxed();
        };
        let (source, descriptor) = (Arc::clone(self.source), blob.descriptor.clone());
        let ask = async move {
            let confirmed = tokio::select! {
                biased;
                confirmed = source.has(&descriptor) => confirmed,
                () = wait.stop.cancelled() => return wait.result(false, LayerOutcome::Stopped(None)),
            };
            match confirmed {
                true => wait.for_layer(joined, None).await,
                false => wait.result(false, LayerOutcome::Unconfirmed),
            }
        };
        ask.boxed()
    }
}

impl Wait {
    fn result(&self, led: bool, outcome: LayerOutcome) -> WaitResult {
        WaitResult { blob: self.blob, attempt: self.attempt, led, outcome }
    }

    /// Waits for a job, and reports its progress from this call on. `other` is the job's blob, if it is not this pull's own.
    fn for_layer(self, joined: JoinedLayer, other: Option<Digest>) -> BoxFuture<'static, WaitResult> {
        let mut ticket = match joined {
            JoinedLayer::Running(ticket) => ticket,
            JoinedLayer::Ready(layer) => {
                self.hub.layer(&self.digest, LayerState::Done);
                return std::future::ready(self.result(false, LayerOutcome::Unpacked(layer))).boxed();
            }
        };
        let led = ticket.led;
        if !led {
            self.hub.layer(&self.digest, LayerState::WaitingForOther);
        }
        let as_own = other.filter(|other| *other != self.digest).map(|other| (other, self.digest.clone()));
        let is_own_blob = as_own.is_none();
        let subscription = ticket.hub().join(forward(self.hub.clone(), led, as_own));
        let wait = async move {
            let answer = tokio::select! {
                biased;
                result = ticket.wait() => Some(result),
                () = self.stop.cancelled() => None,
            };
            drop(subscription);
            let outcome = match answer {
                Some(Ok(Some(layer))) => LayerOutcome::Unpacked(layer),
                Some(Ok(None)) => LayerOutcome::Committed,
                // The own blob may be good.
                Some(Err(error)) if !is_own_blob && error::is_damaged_image(&error) => LayerOutcome::Unconfirmed,
                Some(Err(error)) => LayerOutcome::Failed(error),
                None => LayerOutcome::Stopped(ticket.leave().await.flatten()),
            };
            self.result(led, outcome)
        };
        wait.boxed()
    }
}

/// Forwards the progress of a layer job to a pull. A pull that joined it gets the bytes and the end of the layer. A layer from
/// another blob (`as_own`: from its digest to the own one) has the size of that blob, so its bytes are not forwarded.
fn forward(hub: Hub, led: bool, as_own: Option<(Digest, Digest)>) -> ProgressSink {
    ProgressSink::new(move |event| {
        let own = |digest: Digest| match &as_own {
            Some((other, own)) if digest == *other => own.clone(),
            _ => digest,
        };
        match event {
            PullEvent::Bytes { .. } if as_own.is_some() => {}
            PullEvent::Layer { digest, state: LayerState::Done } => hub.layer(&own(digest), LayerState::Done),
            PullEvent::Unpacked { digest, done } => hub.report(PullEvent::Unpacked { digest: own(digest), done }),
            event @ PullEvent::Bytes { .. } => hub.report(event),
            event if led => hub.report(event),
            _ => {}
        }
    })
}
