//! Selects the layers of other pulls that a pull uses: those that are present, and those that are in flight or wait for
//! a commit. Layers of the same repository are used at once; for those of another one, the registry is asked. Called by
//! [`super::assemble`], which fetches the rest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cri_api::engine::runtime_store::StackedLayer;
use cri_api::{LayerState, ProgressSink, PullEvent};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use oci::{Descriptor, Digest};

use super::assembly::{Assembly, LayerOutcome, Plan, Waited};
use super::image::PresentLayer;
use super::layer::LayerJob;
use super::wanted::Blob;
use crate::error;
use crate::in_flight::LayerKey;
use crate::in_flight::ReadyLayer;
use crate::in_flight::Ticket;
use crate::options::RuntimeTarget;
use crate::origin::{Access, SharedContent};
use crate::parts::EngineParts;
use crate::progress::Hub;
use crate::source::{Source, may_use};

/// So many blobs of an image are asked about at the same time.
const QUESTIONS: usize = 8;

/// A job to wait for, or what it has made already.
enum JoinedLayer {
    Running(Ticket<LayerKey, Option<ReadyLayer>>),
    Ready(ReadyLayer),
}

impl Assembly<'_> {
    /// Removes from `present` the layers that this pull may not use: those of other repositories, unless its own
    /// registry may vouch for them and confirms that it has the blob that the manifest names.
    pub(super) async fn leave_what_is_not_ours(
        &self,
        diff_ids: &[Digest],
        chain_ids: &[Digest],
        present: &mut [Option<PresentLayer>],
    ) {
        if self.parts.content.sharing == SharedContent::Open {
            return;
        }
        let source = self.source.as_ref();
        let layers = || self.chosen.manifest.layers.iter().zip(diff_ids);
        let access: Vec<Access> = match &self.parts.options.runtime {
            Some(target) => {
                let asked = layers().zip(chain_ids).zip(&*present).map(|(((blob, diff_id), chain_id), layer)| {
                    // Where its labels are: the layer on this chain, or the one to link.
                    let chain_id = match layer {
                        Some(PresentLayer::OtherChain { chain_id, .. }) => chain_id,
                        _ => chain_id,
                    };
                    let layer = layer.is_some().then_some((diff_id, chain_id));
                    self.parts.access_in_runtime(target, source, &blob.digest, layer)
                });
                let asked: Vec<_> = asked.collect();
                stream::iter(asked).buffered(QUESTIONS).collect().await
            }
            None => {
                let access =
                    |(blob, diff_id): (&Descriptor, &Digest)| self.parts.access_to_present(source, blob, diff_id);
                layers().map(access).collect()
            }
        };
        let unsure: HashMap<&Digest, &Descriptor> = layers()
            .zip(&access)
            .zip(present.iter())
            .filter(|((_, access), layer)| **access == Access::Ask && layer.is_some())
            .map(|(((blob, _), _), _)| (&blob.digest, blob))
            .collect();
        let ask = |blob: &Descriptor| {
            let (source, blob) = (Arc::clone(self.source), blob.clone());
            async move { source.has(&blob).await.then_some(blob.digest) }
        };
        let questions: Vec<_> = unsure.into_values().map(ask).collect();
        let answers = stream::iter(questions).buffer_unordered(QUESTIONS);
        let had: HashSet<Digest> = answers.filter_map(std::future::ready).collect().await;
        for (((blob, _), access), layer) in layers().zip(access).zip(present) {
            if access == Access::Denied || (access == Access::Ask && !had.contains(&blob.digest)) {
                *layer = None;
            }
        }
    }

    /// Joins or starts the job of a blob. Says whether it was started.
    pub(super) fn start(&self, n: usize, blob: &Blob, plan: Option<&Plan>) -> (bool, BoxFuture<'static, Waited>) {
        let job = LayerJob {
            key: blob.key.clone(),
            parts: Arc::clone(self.parts),
            holding: self.holding.clone(),
            source: Arc::clone(self.source),
            descriptor: blob.descriptor.clone(),
            planned: plan.map(|plan| (plan.commits, plan.ids_of(&blob.places))),
            pull: self.pull,
        };
        if !blob.own_only
            && let Some((joined, _)) = self.jobs_like(&blob.key).find_map(|other| self.joined(&other))
        {
            return (false, self.wait(n, blob, joined, None));
        }
        if !blob.own_only
            && let Some(other) = self.jobs_like(&blob.key).find(|other| other.origin != blob.key.origin)
        {
            return (false, self.ask_and_wait(n, blob, &other));
        }
        let begin =
            || (JoinedLayer::Running(self.parts.in_flight.layers.join(&blob.key, |context| job.run(context))), None);
        let (joined, other) = match self.shared_diff_id(blob) {
            None => begin(),
            Some(diff_id) => {
                self.parts.in_flight.by_diff_id.decide(diff_id, &blob.key, |other| self.joined(other), begin)
            }
        };
        let led = matches!(&joined, JoinedLayer::Running(ticket) if ticket.led);
        (led, self.wait(n, blob, joined, other))
    }

    /// The jobs in flight, and those whose layers wait for their commits, that make of this blob what a job with this key
    /// would, and that this pull may join: at once, or after a question.
    pub(super) fn jobs_like(&self, key: &LayerKey) -> impl Iterator<Item = LayerKey> {
        let open = self.parts.content.sharing == SharedContent::Open;
        let wanted =
            |other: &LayerKey| other.is_like(key) && (open || key.origin.access_to(&other.origin) != Access::Denied);
        self.parts.in_flight.layers.keys(wanted).into_iter().chain(self.parts.in_flight.ready.keys(wanted))
    }

    /// Returns true if a job's layer may be used without a question.
    pub(super) fn may_join(&self, other: &LayerKey) -> bool {
        self.parts.content.sharing == SharedContent::Open
            || self.source.origin().access_to(&other.origin) == Access::Granted
    }

    /// That job or its layer, where it may be used without a question and is still there; and its blob.
    fn joined(&self, other: &LayerKey) -> Option<(JoinedLayer, Option<Digest>)> {
        if !self.may_join(other) {
            return None;
        }
        let running = self.parts.in_flight.layers.join_running(other).map(JoinedLayer::Running);
        let joined = running.or_else(|| self.parts.in_flight.ready.find(other).map(JoinedLayer::Ready))?;
        Some((joined, Some(other.blob.clone())))
    }

    /// Waits for a job, or takes what it made. `other` is its blob, where that is not the own one.
    fn wait(&self, n: usize, blob: &Blob, joined: JoinedLayer, other: Option<Digest>) -> BoxFuture<'static, Waited> {
        let wait = Wait { n, hub: self.hub.clone(), blob: blob.descriptor.digest.clone(), stop: blob.stop.clone() };
        wait.for_layer(joined, other)
    }

    /// Asks the registry whether it has the blob that is coming for another repository, and then waits for that.
    fn ask_and_wait(&self, n: usize, blob: &Blob, other: &LayerKey) -> BoxFuture<'static, Waited> {
        let wait = Wait { n, hub: self.hub.clone(), blob: blob.descriptor.digest.clone(), stop: blob.stop.clone() };
        // Held from here on, so that it is still there when the registry has answered; used only then.
        let running = self.parts.in_flight.layers.join_running(other).map(JoinedLayer::Running);
        let Some(joined) = running.or_else(|| self.parts.in_flight.ready.find(other).map(JoinedLayer::Ready)) else {
            return std::future::ready((n, false, LayerOutcome::Gone)).boxed();
        };
        let (source, descriptor) = (Arc::clone(self.source), blob.descriptor.clone());
        let ask = async move {
            let has = tokio::select! {
                biased;
                has = source.has(&descriptor) => has,
                () = wait.stop.cancelled() => return (n, false, LayerOutcome::Stopped(None)),
            };
            if has { wait.for_layer(joined, None).await } else { (n, false, LayerOutcome::Refused) }
        };
        ask.boxed()
    }
}

impl EngineParts {
    /// The access of a pull from `source`, whose manifest names this blob for a layer with this diff id, to the layer of the store.
    fn access_to_present(&self, source: &dyn Source, blob: &Descriptor, diff_id: &Digest) -> Access {
        if self.content.sharing == SharedContent::Open {
            return Access::Granted;
        }
        // Where blobs are kept, it is the blob itself that is wanted.
        if self.content.keeps_blobs && !self.content.hints.is_made_of(diff_id, &blob.digest) {
            return Access::Denied;
        }
        self.content.hints.access_to_layer(source.origin(), &blob.digest, diff_id)
    }

    /// The access of a pull from `source`, whose manifest names this blob, to a layer of the runtime's store.
    async fn access_in_runtime(
        &self,
        target: &RuntimeTarget,
        source: &dyn Source,
        blob: &Digest,
        layer: Option<(&Digest, &Digest)>,
    ) -> Access {
        let Some((diff_id, chain_id)) = layer else { return Access::Denied };
        if self.content.keeps_blobs && !target.store.has_blob(blob).await.unwrap_or(false) {
            return Access::Denied;
        }
        let layer = StackedLayer { diff_id, chain_id, parent: None };
        match target.store.origin(layer, blob).await {
            Ok(recorded) => source.origin().access_to_recorded(recorded.as_deref()),
            Err(error) => {
                tracing::debug!(%error, layer = %diff_id, "origin of the layer is unknown: fetch it");
                Access::Denied
            }
        }
    }

    /// Returns true if a pull from `source` may use the layer of the store; the registry is asked where that decides.
    pub(super) async fn may_use_present(
        &self,
        source: &dyn Source,
        blob: &Descriptor,
        (diff_id, chain_id): (&Digest, &Digest),
    ) -> bool {
        let access = match &self.options.runtime {
            _ if self.content.sharing == SharedContent::Open => Access::Granted,
            Some(target) => self.access_in_runtime(target, source, &blob.digest, Some((diff_id, chain_id))).await,
            None => self.access_to_present(source, blob, diff_id),
        };
        may_use(self.content.sharing, source, access, blob).await
    }
}

/// A blob of a pull that waits for a job.
struct Wait {
    n: usize,
    hub: Hub,
    blob: Digest,
    stop: tokio_util::sync::CancellationToken,
}

impl Wait {
    /// `other` is the job's blob, if that is not this pull's own one. Progress is reported from this call on.
    fn for_layer(self, joined: JoinedLayer, other: Option<Digest>) -> BoxFuture<'static, Waited> {
        let Self { n, hub, blob, stop } = self;
        let mut ticket = match joined {
            JoinedLayer::Running(ticket) => ticket,
            JoinedLayer::Ready(ready) => {
                hub.layer(&blob, LayerState::Done);
                return std::future::ready((n, false, LayerOutcome::Answer(Ok(ready)))).boxed();
            }
        };
        let led = ticket.led;
        if !led {
            hub.layer(&blob, LayerState::WaitingForOther);
        }
        let as_own = other.filter(|other| *other != blob).map(|other| (other, blob));
        let is_own_blob = as_own.is_none();
        let seat = ticket.hub().join(forward(hub, led, as_own));
        let wait = async move {
            let answer = tokio::select! {
                biased;
                result = ticket.wait() => Some(result),
                () = stop.cancelled() => None,
            };
            drop(seat);
            let came = match answer {
                Some(Ok(None)) => LayerOutcome::Committed,
                Some(Ok(Some(layer))) => LayerOutcome::Answer(Ok(layer)),
                // The own blob may be good.
                Some(Err(error)) if !is_own_blob && error::is_damaged_image(&error) => LayerOutcome::Refused,
                Some(Err(error)) => LayerOutcome::Answer(Err(error)),
                None => LayerOutcome::Stopped(ticket.leave().await.flatten()),
            };
            (n, led, came)
        };
        wait.boxed()
    }
}

/// Returns true if the layer is another one than the config says, and was unpacked from another blob.
pub(super) fn is_another(blob: &Blob, ready: &ReadyLayer) -> bool {
    blob.diff_id.as_ref().is_some_and(|expected| ready.diff_id != *expected)
        && ready.blob_digest != blob.descriptor.digest
}

/// Forwards a layer job's progress to a pull's hub. A pull that only waits receives the progress and the end of the
/// layer. A layer that arrives through another blob (`as_own`: from its digest to the own one) has that blob's size, so
/// its bytes are not reported.
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
