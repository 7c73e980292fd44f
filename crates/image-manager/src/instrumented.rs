//! [`Instrumented`]: an image service whose calls are counted and timed, under the kubelet's names for calls of a
//! runtime. It changes no call and no answer, and decides nothing. The binary puts it around the service that the
//! manager, or a server, is given.

use base::lock::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use cri_api::{
    FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, ProgressSink, PullEvent, PullImageRequest, Result,
};
use oci::Digest;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{Cause, Clock, Metrics, Operation};

/// An image service that is watched.
pub struct Instrumented {
    service: Arc<dyn ImageService>,
    metrics: Arc<Metrics>,
    clock: Clock,
    /// Running pulls and their bytes, where no manager counts pulls.
    pulls: Option<Arc<Mutex<RunningPulls>>>,
}

/// Pulls that run.
#[derive(Debug, Default)]
struct RunningPulls {
    pulls: usize,
    /// Received bytes of each layer. Each pull that shares a layer reports it.
    came: HashMap<Digest, u64>,
}

impl Instrumented {
    /// Counts calls of `service`.
    #[must_use]
    pub fn new(service: Arc<dyn ImageService>, metrics: Arc<Metrics>, clock: Clock) -> Self {
        Self { service, metrics, clock, pulls: None }
    }

    /// Counts pulls as well (how many run, their durations, bytes and causes of failure): for a service that is not
    /// called by the manager, which counts pulls itself.
    #[must_use]
    pub fn with_pulls(self) -> Self {
        Self { pulls: Some(Arc::default()), ..self }
    }

    async fn watched<T>(&self, operation: Operation, call: impl Future<Output = Result<T>>) -> Result<T> {
        watched(&self.metrics, &self.clock, operation, call).await
    }

    async fn watched_pull(&self, mut request: PullImageRequest, running: &Arc<Mutex<RunningPulls>>) -> Result<String> {
        let mut pull = PullGuard::begin(&self.metrics, running);
        request.progress = counting(request.progress, &self.metrics, running);
        let spec = request.image.clone();
        let begun = (self.clock)();
        let result = self.service.pull_image(request).await;
        pull.ended = true;
        match &result {
            Ok(image_ref) => {
                let took = (self.clock)() - begun;
                // An unknown size affects only the label.
                let spec = ImageSpec { image: image_ref.clone(), ..spec };
                let size = self.service.image_status(&spec, false).await.ok().and_then(|status| status.image);
                self.metrics.pull_duration(size.map(|image| image.size), took);
            }
            Err(error) => self.metrics.failed(Cause::of(error)),
        }
        result
    }
}

#[async_trait]
impl ImageService for Instrumented {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        self.watched(Operation::ListImages, self.service.list_images(filter)).await
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        self.watched(Operation::ImageStatus, self.service.image_status(image, verbose)).await
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        let span = tracing::debug_span!("PullImage", image = request.image.image);
        match &self.pulls {
            None => self.watched(Operation::PullImage, self.service.pull_image(request)).instrument(span).await,
            Some(running) => {
                self.watched(Operation::PullImage, self.watched_pull(request, running)).instrument(span).await
            }
        }
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        self.watched(Operation::RemoveImage, self.service.remove_image(image)).await
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        self.watched(Operation::ImageFsInfo, self.service.image_fs_info()).await
    }
}

/// Counts and times a call; one that is dropped before its end is one that failed.
pub(crate) async fn watched<T>(
    metrics: &Metrics,
    clock: &Clock,
    operation: Operation,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut watch = CallWatch { metrics, clock, operation, begun: clock(), ok: false };
    let result = call.await;
    watch.ok = result.is_ok();
    result
}

/// A running call, counted when this is dropped.
struct CallWatch<'a> {
    metrics: &'a Metrics,
    clock: &'a Clock,
    operation: Operation,
    begun: Instant,
    ok: bool,
}

impl Drop for CallWatch<'_> {
    fn drop(&mut self) {
        self.metrics.operation(self.operation, (self.clock)() - self.begun, self.ok);
    }
}

/// A running pull, until it is dropped. A pull that did not end by itself was given up.
struct PullGuard<'a> {
    metrics: &'a Metrics,
    running: &'a Mutex<RunningPulls>,
    ended: bool,
}

impl<'a> PullGuard<'a> {
    fn begin(metrics: &'a Metrics, running: &'a Mutex<RunningPulls>) -> Self {
        running.lock().pulls += 1;
        metrics.in_flight(1);
        Self { metrics, running, ended: false }
    }
}

impl Drop for PullGuard<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight(-1);
        if !self.ended {
            self.metrics.failed(Cause::Cancelled);
        }
        let mut running = self.running.lock();
        running.pulls -= 1;
        if running.pulls == 0 {
            running.came = HashMap::new();
        }
    }
}

/// Returns a sink that counts bytes and forwards every event to `inner`.
fn counting(inner: ProgressSink, metrics: &Arc<Metrics>, running: &Arc<Mutex<RunningPulls>>) -> ProgressSink {
    let (metrics, running) = (Arc::clone(metrics), Arc::clone(running));
    ProgressSink::new(move |event| {
        if let PullEvent::Bytes { digest, done } = &event {
            metrics.pulled_bytes(running.lock().more(digest, *done));
        }
        inner.report(event);
    })
}

impl RunningPulls {
    /// Returns how many bytes of a layer are new. If `done` is less than before, the layer is fetched again.
    fn more(&mut self, digest: &Digest, done: u64) -> u64 {
        match self.came.get_mut(digest) {
            Some(before) => {
                let more = done.checked_sub(*before).unwrap_or(done);
                *before = done;
                more
            }
            None => {
                self.came.insert(digest.clone(), done);
                done
            }
        }
    }
}

#[cfg(test)]
#[path = "instrumented_tests.rs"]
mod tests;
