//! Checks of the store: on request, and after an unclean stop of the content that was written last. They run on tracked blocking
//! threads. A requested check ends when its caller leaves, or at shutdown. The store finds and repairs.

use std::sync::Arc;

use cri_api::engine::{CheckReport, CheckRequest, CheckSink, LayerShape, LayerShapes, UnfinishedPulls};
use cri_api::{Error, Kind, Result};
use store::check::{CheckError, CheckOptions, Depth};
use store::{LayerFormat, Unfinished};
use tokio_util::sync::CancellationToken;

use crate::content::Content;
use crate::error;

impl Content {
    /// Checks what was written last, if the last stop was not a clean one, and makes damaged images absent. Does not wait
    /// for it.
    pub(crate) fn check_after_unclean_stop(self: &Arc<Self>) {
        if !self.store.was_unclean() {
            return;
        }
        tracing::warn!(root = %self.store.root().display(), "unclean stop: check what was written last");
        let content = Arc::clone(self);
        self.background.start(move || {
            // Callers of the same check wait for this lock.
            let mut report = content.after_unclean.blocking_lock();
            let request = CheckRequest { repair: true, deep: false, since_unclean_only: true };
            // This short check is not cancelled, not even at shutdown: otherwise programs that end quickly would postpone it
            // for ever.
            match content.check_now(&request, &CheckSink::default(), &|| false) {
                Ok(found) => {
                    let (layers, problems) = (found.layers_checked, found.problems.len());
                    tracing::info!(
                        layers,
                        problems,
                        images_absent = found.incomplete_images.len(),
                        "checked what was written last"
                    );
                    *report = Some(found);
                }
                Err(error) => tracing::error!(%error, "cannot check what was written last"),
            }
        });
    }

    pub(crate) async fn check_images(
        self: &Arc<Self>,
        request: &CheckRequest,
        progress: &CheckSink,
        token: CancellationToken,
    ) -> Result<CheckReport> {
        if request.since_unclean_only
            && let Some(report) = self.after_unclean.lock().await.clone()
        {
            return Ok(report);
        }
        // Dropping the future ends the check.
        let _guard = token.clone().drop_guard();
        let (content, request, progress) = (Arc::clone(self), *request, progress.clone());
        self.background.run(move || content.check_now(&request, &progress, &|| token.is_cancelled())).await
    }

    /// Blocks.
    fn check_now(
        &self,
        request: &CheckRequest,
        progress: &CheckSink,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<CheckReport> {
        let options = CheckOptions {
            depth: if request.deep { Depth::Files } else { Depth::Digest },
            repair: request.repair,
            recent_only: request.since_unclean_only,
            cancelled,
            progress: &|now| progress.report(now),
        };
        let mut report = self.store.check(&options).map_err(|error| match error {
            CheckError::Cancelled => Error::new(Kind::Cancelled, error.to_string()),
            CheckError::Store(error) => error::from_store(self.store.root(), &error),
        })?;
        if request.repair && !report.problems.is_empty() {
            // The repair may have removed images, whose hints must go.
            let images = self.store.images().map_err(|error| error::from_store(self.store.root(), &error))?;
            self.hints.replace(&images);
        }
        report.layer_shapes = Some(self.layer_shapes()?);
        report.unfinished_pulls = Some(self.unfinished());
        Ok(report)
    }

    /// Returns the counted leftovers of interrupted pulls, without a walk over them.
    pub(crate) fn unfinished(&self) -> UnfinishedPulls {
        let Unfinished { layers, blobs, bytes, .. } = self.store.unfinished();
        UnfinishedPulls { layers, blobs, bytes }
    }

    fn layer_shapes(&self) -> Result<LayerShapes> {
        let counts = self.store.layers_by_shape();
        let (dir, erofs) = counts.map_err(|error| error::from_store(self.store.root(), &error))?;
        let new = self.store.new_layers();
        let shape = if new.format == LayerFormat::Dir { LayerShape::Dir } else { LayerShape::Erofs };
        Ok(LayerShapes { dir, erofs, new: shape, why: new.why.to_owned() })
    }
}
