//! A layer job: memory for it, bytes from a source, through the threads of [`crate::unpack`], into a private directory.
//! Nothing is visible at its end: the layer belongs to its waiters, and is removed when the last of them drops it. It
//! knows no image. Started by [`super::assemble`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cri_api::{Kind, LayerState, PullEvent, Result};
use oci::{Algorithm, Descriptor, Digest};
use store::{Lease, UnpackedLayer};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::holding::Holding;
use super::image::PresentLayer;
use crate::background::BlockingDrop;
use crate::budgets::PullAccount;
use crate::budgets::SpaceReservations;
use crate::content::CommitMark;
use crate::error::{self, cancelled};
use crate::in_flight::JobContext;
use crate::in_flight::LayerKey;
use crate::in_flight::{ReadyLayer, UnpackedLayerGuard};
use crate::intake::{Feed, InflateError, intake};
use crate::origin::Origin;
use crate::parts::EngineParts;
use crate::progress::Hub;
use crate::source::kept::BlobKeeper;
use crate::source::resume::{self, ResumableBlob, usable_origins};
use crate::source::{Chunks, Source};
use crate::unpack::{Outcome, Task, UnpackContext, least};

/// Progress is reported after this many bytes, or after this interval if there were any.
const PROGRESS_STEP: u64 = 256 * 1024;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// A blob of at most so many bytes is fetched before a thread is started for it.
pub(super) const SMALL: u64 = 256 * 1024;

/// A job that makes a layer, before its start.
pub(crate) struct LayerJob {
    pub(crate) key: LayerKey,
    pub(crate) parts: Arc<EngineParts>,
    pub(crate) holding: Holding,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) descriptor: Descriptor,
    /// Number of commits at the plan, and diff id and chain id of every place that the layer is for; `None` while the config is
    /// not known.
    pub(crate) planned: Option<(CommitMark, Vec<(Digest, Digest)>)>,
    /// The pull that started it.
    pub(crate) pull: PullAccount,
}

impl LayerJob {
    /// `None`: another pull has committed the layer since the plan of this one.
    pub(crate) async fn run(self, context: JobContext) -> Result<Option<ReadyLayer>> {
        let (digest, key, parts) = (self.descriptor.digest.clone(), self.key.clone(), Arc::clone(&self.parts));
        let result = match parts.in_flight.ready.find(&key) {
            Some(layer) => Ok(layer),
            None if self.is_committed().await => return Ok(None),
            None => {
                let span = tracing::trace_span!("layer", digest = %digest, size = self.descriptor.size);
                self.work(&context).instrument(span).await
            }
        };
        if let Ok(layer) = &result {
            parts.in_flight.ready.add(key, layer);
            context.hub.layer(&digest, LayerState::Done);
        }
        result.map(Some).map_err(|error| error.context(format_args!("layer {digest}")))
    }

    /// Returns true if the store has the layer for every place, and this pull may use it. Called once the job is in the
    /// table: from then on, no other pull adds the layer. The store is asked only if something was committed since the
    /// plan.
    async fn is_committed(&self) -> bool {
        let Some((commits, stacked)) = &self.planned else { return false };
        let Some((diff_id, chain_id)) = stacked.first() else { return false };
        if self.parts.content.commit_mark() == *commits {
            return false;
        }
        let present = self.holding.find_present(&self.parts, stacked.clone()).await;
        // One that is fetched for its chain alone could not be had from another.
        let is_there = |layer: &Option<PresentLayer>| match layer {
            Some(PresentLayer::OtherChain { .. }) => self.key.only_for.is_none(),
            layer => layer.is_some(),
        };
        present.is_ok_and(|layers| layers.iter().all(is_there))
            && self.parts.may_use_present(self.source.as_ref(), &self.descriptor, (diff_id, chain_id)).await
    }

    async fn work(self, context: &JobContext) -> Result<ReadyLayer> {
        let Self { key: LayerKey { algorithm, .. }, parts, holding, source, descriptor, planned: _, pull } = self;
        let JobContext { token, hub } = context;
        let Descriptor { digest, size, .. } = &descriptor;
        let _share = tokio::select! {
            biased;
            () = token.cancelled() => return Err(cancelled()),
            share = parts.budgets.memory.reserve(pull, *size, least(*size)) => share,
        };
        let usable = usable_origins(&parts.content, source.as_ref(), &descriptor).await;
        if let Some((layer, diff_id)) = left_whole(&parts, &descriptor, algorithm, context, usable.clone()).await? {
            forget_part(&parts, &descriptor, usable).await;
            let made = parts.content.background.hold(UnpackedLayerGuard::new(layer));
            return Ok(ReadyLayer::new(made, descriptor.digest, diff_id));
        }
        hub.layer(digest, LayerState::Fetching);
        let mut chunks = ResumableBlob::new(
            (&parts.content, &parts.budgets.space, parts.options.resume),
            &source,
            &descriptor,
            usable,
        );
        let opened = tokio::select! {
            biased;
            () = token.cancelled() => Err(cancelled()),
            opened = chunks.open() => opened,
        };
        let made = match opened {
            Ok(()) => make(&parts, holding.lease, &descriptor, algorithm, source.origin(), context, &mut chunks).await,
            Err(error) => Err(error),
        };
        match &made {
            Ok(_) => chunks.forget().await,
            Err(error) => chunks.interrupted(error).await,
        }
        made
    }
}

/// The layer that an earlier pull left whole, if it is what it was. Where blobs are kept, it is the blob that is wanted, which
/// comes back as what was left of it; but for one that is the layer's stream itself.
async fn left_whole(
    parts: &Arc<EngineParts>,
    descriptor: &Descriptor,
    algorithm: Algorithm,
    context: &JobContext,
    usable: BTreeSet<String>,
) -> Result<Option<(UnpackedLayer, Digest)>> {
    if usable.is_empty() {
        return Ok(None);
    }
    let (store, blob, token) = (parts.content.store.clone(), descriptor.clone(), context.token.clone());
    let keep_blobs = parts.content.keeps_blobs;
    let take = move || {
        let left = store.take_left_layer(&blob.digest, blob.size, algorithm, &|origin| usable.contains(origin));
        Ok(left.filter(|left| !keep_blobs || *left.diff_id() == blob.digest))
    };
    let Some(left) = parts.content.background.run(take).await? else { return Ok(None) };
    context.hub.layer(&descriptor.digest, LayerState::Unpacking);
    let store = parts.content.store.clone();
    // It ends soon after it is cancelled, and is left again then.
    let verify = move || left.verify(&|| token.is_cancelled()).map_err(|error| error::from_store(store.root(), &error));
    let found = match parts.content.background.run(verify).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, layer = %descriptor.digest, "cannot use the layer of an interrupted pull");
            None
        }
    };
    if context.token.is_cancelled() {
        if let Some((layer, _)) = found {
            let _ = parts.content.background.start(move || layer.leave()).await;
        }
        return Err(cancelled());
    }
    if found.is_some() {
        tracing::info!(layer = %descriptor.digest, "use the layer of an interrupted pull");
        parts.budgets.space.set_fetched(&descriptor.digest, descriptor.size);
    }
    Ok(found)
}

/// Removes the saved part of a blob. A kill between the end of a layer and this removal leaves both, and no pull would
/// resume the part.
async fn forget_part(parts: &Arc<EngineParts>, descriptor: &Descriptor, usable: BTreeSet<String>) {
    if parts.content.store.unfinished().blobs == 0 {
        return;
    }
    let (store, blob) = (parts.content.store.clone(), descriptor.clone());
    // It is deleted when it is dropped; one that cannot be opened is gone, too.
    let take = move || drop(store.take_spool(&blob.digest, blob.size, &|origin| usable.contains(origin)));
    let _ = parts.content.background.start(take).await;
}

/// Makes the layer of the fetched chunks.
async fn make(
    parts: &Arc<EngineParts>,
    lease: Arc<BlockingDrop<Lease>>,
    descriptor: &Descriptor,
    algorithm: Algorithm,
    origin: &Origin,
    context: &JobContext,
    chunks: &mut ResumableBlob,
) -> Result<ReadyLayer> {
    let JobContext { token, hub } = context;
    let Descriptor { digest, size, .. } = descriptor;
    let unpack = UnpackContext {
        background: parts.content.background.clone(),
        budget: parts.budgets.memory.clone(),
        store: parts.content.store.clone(),
        lease,
        limits: parts.budgets.limits.clone(),
        token: token.clone(),
    };
    loop {
        let keep = BlobKeeper::start(&parts.content, descriptor, origin).await?;
        let tee = keep.as_ref().map(BlobKeeper::tee);
        let (feed, intake) = intake(digest.clone(), *size, tee);
        let task = Task {
            context: unpack.clone(),
            blob: digest.clone(),
            size: *size,
            algorithm,
            progress: progress(parts, hub, digest),
        };
        let work = move || task.run(intake);
        let pouring = pour(chunks, feed, digest, hub, &parts.budgets.space);
        let pouring = async {
            tokio::select! {
                biased;
                () = token.cancelled() => Err(cancelled()),
                fed = pouring => fed,
            }
        };
        // A blob that fits into the window is there before a thread is: so that no thread of the runtime waits for the network,
        // which may need one.
        let (fed, outcome) = if *size <= SMALL {
            pouring.await?;
            (Ok(()), parts.content.background.start(work).await.ok())
        } else {
            let first =
                parts.content.background.beside("layer", work).map_err(|e| error::no_thread("reads a layer", &e))?;
            (pouring.await, first.await.ok())
        };
        // The feed is gone, so both sides come to an end; the directory of a layer that failed is gone with them.
        let Outcome { inflated, untarred } = outcome.ok_or_else(error::thread_lost)?;
        let untarred = untarred.join().await;
        let untarred =
            untarred.map(|(layer, diff_id)| (parts.content.background.hold(UnpackedLayerGuard::new(layer)), diff_id));
        match verdict(fed, inflated, untarred) {
            Ok((mut made, diff_id)) => {
                if let Some(keep) = keep {
                    made.set_blob(keep.finish(&diff_id).await?);
                }
                if !made.has_blob() && *size >= resume::LEAST {
                    note_whole(parts, &made, descriptor, &diff_id, origin).await;
                }
                return Ok(ReadyLayer::new(made, digest.clone(), diff_id));
            }
            // A mirror may have it wrong where the registry has it right.
            Err(error)
                if error.kind() == Kind::DataLoss && !error::is_damaged_image(&error) && !token.is_cancelled() =>
            {
                chunks.start_over(&error)?;
                tracing::warn!(layer = %digest, %error, "blob is damaged: try another host");
                parts.budgets.space.set_fetched(digest, 0);
                hub.layer(digest, LayerState::Fetching);
            }
            Err(error) => return Err(error),
        }
    }
}

/// From now on, the layer outlives the process.
async fn note_whole(
    parts: &Arc<EngineParts>,
    made: &BlockingDrop<UnpackedLayerGuard>,
    descriptor: &Descriptor,
    diff_id: &Digest,
    origin: &Origin,
) {
    let (layer, blob, diff_id) = (Arc::clone(made.layer()), descriptor.clone(), diff_id.clone());
    let origin = origin.to_string();
    let noted =
        parts.content.background.start(move || layer.note_whole(&blob.digest, blob.size, &diff_id, &origin)).await;
    if let Ok(Err(error)) = noted {
        tracing::debug!(%error, layer = %descriptor.digest, "cannot keep it for a later pull");
    }
}

/// Reports the progress of a layer's second side.
fn progress(parts: &Arc<EngineParts>, hub: &Hub, digest: &Digest) -> Box<dyn Fn(u64) + Send> {
    let (space, hub, digest) = (parts.budgets.space.clone(), hub.clone(), digest.clone());
    Box::new(move |done| {
        space.set_unpacked(&digest, done);
        hub.report(PullEvent::Unpacked { digest: digest.clone(), done });
    })
}

/// The reason to report when several parts of a job failed: what failed first in the stream, not what followed from it. The first
/// side has verified the blob when it ends well, fails to inflate it, or stops at a malformed stream: then the image is at fault.
fn verdict<T>(fed: Result<()>, inflated: std::result::Result<(), InflateError>, untarred: Result<T>) -> Result<T> {
    fed?;
    match (inflated, untarred) {
        (Ok(()), Ok(layer)) => Ok(layer),
        (Ok(()) | Err(InflateError::UnpackStopped), Err(error)) if error.kind() == Kind::DataLoss => {
            Err(error::damaged_image(&error))
        }
        (Ok(()) | Err(InflateError::UnpackStopped), Err(error)) => Err(error),
        (Err(error @ InflateError::Stream(inflate::Error::Corrupt(..))), _) => {
            Err(error::damaged_image(&error::from_inflate(&error)))
        }
        (Err(error), _) => Err(error::from_inflate(&error)),
    }
}

/// Moves chunks into the feed. A reader that has stopped is not an error of this function: the reader's own result
/// reports it.
async fn pour(
    chunks: &mut dyn Chunks,
    feed: Feed,
    digest: &Digest,
    hub: &Hub,
    space: &SpaceReservations,
) -> Result<()> {
    let (mut done, mut told, mut last) = (0_u64, 0_u64, Instant::now());
    let tell = |done| {
        space.set_fetched(digest, done);
        hub.report(PullEvent::Bytes { digest: digest.clone(), done });
    };
    while let Some(chunk) = chunks.next().await? {
        done += chunk.len() as u64;
        if feed.send(chunk).await.is_err() {
            return Ok(());
        }
        // The interval shows that a slow connection is not a dead one.
        if done - told >= PROGRESS_STEP || last.elapsed() >= PROGRESS_INTERVAL {
            tell(done);
            (told, last) = (done, Instant::now());
        }
    }
    if done != told {
        tell(done);
    }
    hub.layer(digest, LayerState::Unpacking);
    feed.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::IntakeError;
    use cri_api::Error;
    use inflate::detect;

    #[test]
    fn the_first_cause_is_told() {
        let told =
            |fed: Result<()>, inflated, untarred: Result<()>| verdict(fed, inflated, untarred).map_err(|e| e.kind());
        let unsupported = || InflateError::from(inflate::Error::from(detect(b"BZh91AY").expect_err("refused")));
        let gone = || InflateError::Intake(IntakeError::GivenUp);
        let down = || Err(Error::new(Kind::Unavailable, "net"));
        let wrong = || Err(Error::new(Kind::InvalidArgument, "unpack"));
        assert_eq!(told(Ok(()), Ok(()), Ok(())), Ok(()));
        assert_eq!(told(down(), Err(gone()), wrong()), Err(Kind::Unavailable));
        assert_eq!(told(Ok(()), Err(unsupported()), Err(cancelled())), Err(Kind::InvalidArgument));
        assert_eq!(told(Ok(()), Err(InflateError::UnpackStopped), wrong()), Err(Kind::InvalidArgument));
        assert_eq!(told(Ok(()), Ok(()), wrong()), Err(Kind::InvalidArgument));
        assert_eq!(told(Ok(()), Err(gone()), wrong()), Err(Kind::Cancelled));
    }
}
