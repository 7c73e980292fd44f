//! [`LayerJob`]: gets one layer: memory for it, its bytes from a source, and the files through the threads of [`crate::unpack`].
//! Nothing is visible at its end: the layer belongs to the job's waiters, and is removed when the last of them drops it. Knows no
//! image. Started by [`super::wait`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cri_api::{Error, Kind, LayerState, PullEvent, Result};
use oci::{Descriptor, Digest};
use store::UnpackedLayer;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::background::BlockingDrop;
use crate::budgets::{PullAccount, Share, SpaceReservations};
use crate::content::CommitMark;
use crate::destination::ImageWriter;
use crate::destination::image::{ChainLink, PresentLayer};
use crate::error::{self, cancelled};
use crate::in_flight::{JobContext, LayerKey, ReadyLayer, UnpackedLayerGuard};
use crate::intake::{Feed, InflateError, intake};
use crate::parts::EngineParts;
use crate::progress::Hub;
use crate::source::kept::BlobKeeper;
use crate::source::resume::{self, ResumableBlob, usable_origins};
use crate::source::{Chunks, Source, may_use};
use crate::unpack::{Outcome, Task, UnpackContext, least};

/// Progress is reported after this many bytes, or after this interval if any bytes arrived.
const PROGRESS_STEP: u64 = 256 * 1024;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// A blob of at most so many bytes is fetched before a thread is started for it.
pub(super) const SMALL: u64 = 256 * 1024;

/// A job that gets one layer.
pub(super) struct LayerJob {
    pub(super) key: LayerKey,
    pub(super) parts: Arc<EngineParts>,
    pub(super) writer: Arc<dyn ImageWriter>,
    pub(super) source: Arc<dyn Source>,
    pub(super) descriptor: Descriptor,
    /// `None` while the config is unknown.
    pub(super) planned: Option<PlannedLayer>,
    /// The pull that started the job, whose account its memory is charged to.
    pub(super) account: PullAccount,
}

/// The places of a layer by the plan of a pull.
pub(super) struct PlannedLayer {
    /// The mark of commits from before the plan.
    pub(super) commits: CommitMark,
    /// The links that the layer is for.
    pub(super) links: Vec<ChainLink>,
}

/// The state of a layer job.
enum JobState {
    /// Waits for memory.
    Waiting,
    /// Has memory, and checks whether an interrupted pull has left the whole layer.
    Recovering(Share),
    /// Opens the blob, resumed from leftovers of these origins.
    Opening(Share, BTreeSet<String>),
    /// Fetches and unpacks the blob. Repeated with the next host if the bytes are damaged.
    Unpacking(Share, Box<ResumableBlob>),
    /// The layer is unpacked and verified.
    Ready(ReadyLayer),
}

impl LayerJob {
    /// Gets the layer; `None` if another pull has committed it since this pull's plan.
    pub(super) async fn run(self, context: JobContext) -> Result<Option<ReadyLayer>> {
        let (digest, in_flight) = (&self.descriptor.digest, &self.parts.in_flight);
        let result = match in_flight.ready.find(&self.key) {
            Some(layer) => Ok(layer),
            None if self.is_committed().await => return Ok(None),
            None => {
                let span = tracing::trace_span!("layer", digest = %digest, size = self.descriptor.size);
                self.fetch(&context).instrument(span).await
            }
        };
        if let Ok(layer) = &result {
            in_flight.ready.add(self.key.clone(), layer);
            context.hub.layer(digest, LayerState::Done);
        }
        result.map(Some).map_err(|error| error.context(format_args!("layer {digest}")))
    }

    /// Returns true if the layer of every place is present, and this pull may use it. Called when the job is in the table: from
    /// then on, no other pull adds the layer. Nothing is looked up if there was no commit since the plan.
    async fn is_committed(&self) -> bool {
        let Some(PlannedLayer { commits, links }) = &self.planned else { return false };
        let Some(first) = links.first() else { return false };
        if self.parts.content.commit_mark() == *commits {
            return false;
        }
        let present = self.writer.find_present(links.clone()).await;
        // A layer that is fetched for its chain alone cannot be linked from another chain.
        let is_present = |layer: &Option<PresentLayer>| match layer {
            Some(PresentLayer::OtherChain { .. }) => self.key.only_for.is_none(),
            layer => layer.is_some(),
        };
        if !present.is_ok_and(|layers| layers.iter().all(is_present)) {
            return false;
        }
        let access = self.writer.access(self.source.origin(), &self.descriptor.digest, first).await;
        may_use(self.parts.content.sharing, self.source.as_ref(), access, &self.descriptor).await
    }

    async fn fetch(&self, context: &JobContext) -> Result<ReadyLayer> {
        let mut state = JobState::Waiting;
        loop {
            state = match state {
                JobState::Waiting => JobState::Recovering(self.wait_for_memory(context).await?),
                JobState::Recovering(share) => self.recover(share, context).await?,
                JobState::Opening(share, usable) => {
                    let mut chunks = self.resumable(usable);
                    match until_cancelled(context, chunks.open()).await {
                        Ok(()) => JobState::Unpacking(share, chunks),
                        Err(error) => return Err(interrupted(&mut chunks, error).await),
                    }
                }
                JobState::Unpacking(share, mut chunks) => match self.unpack(context, &mut chunks).await {
                    Ok(Some(layer)) => {
                        chunks.forget().await;
                        JobState::Ready(layer)
                    }
                    Ok(None) => JobState::Unpacking(share, chunks),
                    Err(error) => return Err(interrupted(&mut chunks, error).await),
                },
                JobState::Ready(layer) => return Ok(layer),
            }
        }
    }

    async fn wait_for_memory(&self, context: &JobContext) -> Result<Share> {
        let size = self.descriptor.size;
        let reserved = self.parts.budgets.memory.reserve(self.account, size, least(size));
        until_cancelled(context, async { Ok(reserved.await) }).await
    }

    /// Uses the complete layer that an interrupted pull left; otherwise opens the blob.
    async fn recover(&self, share: Share, context: &JobContext) -> Result<JobState> {
        let content = &self.parts.content;
        let usable = usable_origins(content, self.source.as_ref(), &self.descriptor).await;
        match self.leftover_layer(context, usable.clone()).await? {
            Some((layer, diff_id)) => {
                self.forget_part(usable).await;
                let guard = content.background.hold(UnpackedLayerGuard::new(layer));
                Ok(JobState::Ready(ReadyLayer::new(guard, self.descriptor.digest.clone(), diff_id)))
            }
            None => {
                context.hub.layer(&self.descriptor.digest, LayerState::Fetching);
                Ok(JobState::Opening(share, usable))
            }
        }
    }

    fn resumable(&self, usable: BTreeSet<String>) -> Box<ResumableBlob> {
        let parts = &self.parts;
        let engine = (&parts.content, &parts.budgets.space, parts.options.resume);
        Box::new(ResumableBlob::new(engine, &self.source, &self.descriptor, usable))
    }

    /// Returns the verified layer that an interrupted pull has left. If blobs are kept, the blob itself is needed, which is left as
    /// a part, unless it is the tar stream itself.
    async fn leftover_layer(
        &self,
        context: &JobContext,
        usable: BTreeSet<String>,
    ) -> Result<Option<(UnpackedLayer, Digest)>> {
        if usable.is_empty() {
            return Ok(None);
        }
        let content = &self.parts.content;
        let (store, blob, algorithm) = (content.store.clone(), self.descriptor.clone(), self.key.algorithm);
        let (keeps_blobs, token) = (content.keeps_blobs, context.token.clone());
        let take = move || {
            let left = store.take_left_layer(&blob.digest, blob.size, algorithm, &|origin| usable.contains(origin));
            Ok(left.filter(|left| !keeps_blobs || *left.diff_id() == blob.digest))
        };
        let Some(left) = content.background.run(take).await? else { return Ok(None) };
        context.hub.layer(&self.descriptor.digest, LayerState::Unpacking);
        // After a cancellation it ends soon, and the layer is left again.
        let found = match content.on_store(move |_| left.verify(&|| token.is_cancelled())).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, layer = %self.descriptor.digest, "cannot use the layer of an interrupted pull");
                None
            }
        };
        if context.token.is_cancelled() {
            if let Some((layer, _)) = found {
                let _ = content.background.start(move || layer.leave()).await;
            }
            return Err(cancelled());
        }
        if found.is_some() {
            tracing::info!(layer = %self.descriptor.digest, "use the layer of an interrupted pull");
            self.parts.budgets.space.set_fetched(&self.descriptor.digest, self.descriptor.size);
        }
        Ok(found)
    }

    /// Removes the saved part of the blob. A kill between the end of a layer and this removal leaves both, and no pull would
    /// resume the part.
    async fn forget_part(&self, usable: BTreeSet<String>) {
        let content = &self.parts.content;
        if content.store.unfinished().blobs == 0 {
            return;
        }
        let (store, blob) = (content.store.clone(), self.descriptor.clone());
        // Deleted when it is dropped; a part that cannot be opened is deleted as well.
        let take = move || drop(store.take_spool(&blob.digest, blob.size, &|origin| usable.contains(origin)));
        let _ = content.background.start(take).await;
    }

    /// Unpacks the fetched chunks. Returns `None` if the bytes are damaged and the chunks start over with another host.
    async fn unpack(&self, context: &JobContext, chunks: &mut ResumableBlob) -> Result<Option<ReadyLayer>> {
        let (digest, content) = (&self.descriptor.digest, &self.parts.content);
        let keeper = BlobKeeper::start(content, &self.descriptor, self.source.origin()).await?;
        match self.run_threads(context, chunks, keeper.as_ref()).await {
            Ok((mut guard, diff_id)) => {
                if let Some(keeper) = keeper {
                    guard.set_blob(keeper.finish(&diff_id).await?);
                }
                if !guard.has_blob() && self.descriptor.size >= resume::LEAST {
                    self.persist(&guard, &diff_id).await;
                }
                Ok(Some(ReadyLayer::new(guard, digest.clone(), diff_id)))
            }
            // Another host may have the right bytes.
            Err(error)
                if error.kind() == Kind::DataLoss
                    && !error::is_damaged_image(&error)
                    && !context.token.is_cancelled() =>
            {
                chunks.start_over(&error)?;
                tracing::warn!(layer = %digest, %error, "blob is damaged: try another host");
                self.parts.budgets.space.set_fetched(digest, 0);
                context.hub.layer(digest, LayerState::Fetching);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Feeds the chunks to the threads that inflate and write the layer, and waits for both.
    async fn run_threads(
        &self,
        context: &JobContext,
        chunks: &mut ResumableBlob,
        keeper: Option<&BlobKeeper>,
    ) -> Result<(BlockingDrop<UnpackedLayerGuard>, Digest)> {
        let JobContext { token, hub } = context;
        let Descriptor { digest, size, .. } = &self.descriptor;
        let EngineParts { content, budgets, .. } = &*self.parts;
        let (feed, intake) = intake(digest.clone(), *size, keeper.map(BlobKeeper::tee));
        let task = Task {
            context: UnpackContext {
                background: content.background.clone(),
                budget: budgets.memory.clone(),
                store: content.store.clone(),
                lease: Arc::clone(self.writer.lease()),
                limits: budgets.limits.clone(),
                token: token.clone(),
            },
            blob: digest.clone(),
            size: *size,
            algorithm: self.key.algorithm,
            progress: progress(&budgets.space, hub, digest),
        };
        let work = move || task.run(intake);
        let pouring = until_cancelled(context, pour(chunks, feed, digest, hub, &budgets.space));
        // A small blob is fetched before its thread starts, so that no thread of the runtime waits for the network.
        let (fed, outcome) = if *size <= SMALL {
            pouring.await?;
            (Ok(()), content.background.start(work).await.ok())
        } else {
            let first = content.background.on_own_thread("layer", work);
            let first = first.map_err(|e| error::no_thread("reads a layer", &e))?;
            (pouring.await, first.await.ok())
        };
        // Without the feed both sides end, and a layer that failed removes its directory.
        let Outcome { inflated, untarred } = outcome.ok_or_else(error::thread_lost)?;
        let untarred = untarred.join().await;
        // Guarded first: this thread must not delete the layer if the verdict is an error.
        let guarded = untarred.map(|(layer, id)| (content.background.hold(UnpackedLayerGuard::new(layer)), id));
        verdict(fed, inflated, guarded)
    }

    /// Records the layer so that it outlives the process.
    async fn persist(&self, guard: &UnpackedLayerGuard, diff_id: &Digest) {
        let (layer, blob, diff_id) = (Arc::clone(guard.layer()), self.descriptor.clone(), diff_id.clone());
        let origin = self.source.origin().to_string();
        let note = move || layer.note_whole(&blob.digest, blob.size, &diff_id, &origin);
        if let Ok(Err(error)) = self.parts.content.background.start(note).await {
            tracing::debug!(%error, layer = %self.descriptor.digest, "cannot keep the layer for a later pull");
        }
    }
}

/// Runs a future until it ends or the job is cancelled.
async fn until_cancelled<T>(context: &JobContext, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        () = context.token.cancelled() => Err(cancelled()),
        result = work => result,
    }
}

/// Ends the chunks of a failed job, and returns its error.
async fn interrupted(chunks: &mut ResumableBlob, error: Error) -> Error {
    chunks.interrupted(&error).await;
    error
}

/// Returns the function that reports the unpacked bytes of a layer.
fn progress(space: &SpaceReservations, hub: &Hub, digest: &Digest) -> Box<dyn Fn(u64) + Send> {
    let (space, hub, digest) = (space.clone(), hub.clone(), digest.clone());
    Box::new(move |done| {
        space.set_unpacked(&digest, done);
        hub.report(PullEvent::Unpacked { digest: digest.clone(), done });
    })
}

/// Returns the error of the part of a job that failed first in the stream. The first thread has verified the blob if it ends well,
/// fails to inflate it, or stops at a malformed stream: then the image itself is damaged.
fn verdict<T>(fed: Result<()>, inflated: std::result::Result<(), InflateError>, untarred: Result<T>) -> Result<T> {
    fed?;
    match (inflated, untarred) {
        (Ok(()), Ok(layer)) => Ok(layer),
        (Ok(()) | Err(InflateError::UnpackStopped), Err(error)) if error.kind() == Kind::DataLoss => {
            Err(error::damaged_image(&error))
        }
        (Ok(()) | Err(InflateError::UnpackStopped), Err(error)) => Err(error),
        (Err(error @ InflateError::Stream(crate::inflate::Error::Corrupt(..))), _) => {
            Err(error::damaged_image(&error::from_inflate(&error)))
        }
        (Err(error), _) => Err(error::from_inflate(&error)),
    }
}

/// Moves chunks into the feed. A reader that has stopped reports its own error.
async fn pour(
    chunks: &mut dyn Chunks,
    feed: Feed,
    digest: &Digest,
    hub: &Hub,
    space: &SpaceReservations,
) -> Result<()> {
    let (mut done, mut reported, mut last) = (0_u64, 0_u64, Instant::now());
    let report = |done| {
        space.set_fetched(digest, done);
        hub.report(PullEvent::Bytes { digest: digest.clone(), done });
    };
    while let Some(chunk) = chunks.next().await? {
        done += chunk.len() as u64;
        if feed.send(chunk).await.is_err() {
            return Ok(());
        }
        // The interval shows that a slow connection is alive.
        if done - reported >= PROGRESS_STEP || last.elapsed() >= PROGRESS_INTERVAL {
            report(done);
            (reported, last) = (done, Instant::now());
        }
    }
    if done != reported {
        report(done);
    }
    hub.layer(digest, LayerState::Unpacking);
    feed.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inflate::detect;
    use crate::intake::IntakeError;

    #[test]
    fn first_failure_in_the_stream_is_reported() {
        let kind =
            |fed: Result<()>, inflated, untarred: Result<()>| verdict(fed, inflated, untarred).map_err(|e| e.kind());
        let unsupported = || InflateError::from(crate::inflate::Error::from(detect(b"BZh91AY").expect_err("refused")));
        let given_up = || InflateError::Intake(IntakeError::GivenUp);
        let down = || Err(Error::new(Kind::Unavailable, "net"));
        let wrong = || Err(Error::new(Kind::InvalidArgument, "unpack"));
        assert_eq!(kind(Ok(()), Ok(()), Ok(())), Ok(()));
        assert_eq!(kind(down(), Err(given_up()), wrong()), Err(Kind::Unavailable));
        assert_eq!(kind(Ok(()), Err(unsupported()), Err(cancelled())), Err(Kind::InvalidArgument));
        assert_eq!(kind(Ok(()), Err(InflateError::UnpackStopped), wrong()), Err(Kind::InvalidArgument));
        assert_eq!(kind(Ok(()), Ok(()), wrong()), Err(Kind::InvalidArgument));
        assert_eq!(kind(Ok(()), Err(given_up()), wrong()), Err(Kind::Cancelled));
    }
}
