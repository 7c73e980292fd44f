//! [`Instrumented`]: an image service whose calls are counted and timed, under the kubelet's names for calls of a
//! runtime. It changes no call and no answer, and decides nothing. The binary puts it around the service that the
//! manager, or a server, is given.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use cri_api::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, FsInfo, Image, ImageFilter, ImageLayers,
    ImageService, ImageSpec, ImageStatus, ImageUsage, MountRequest, MountedImage, ProgressSink, PullEvent,
    PullImageRequest, Result, UnfinishedPulls,
};
use oci::Digest;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{Cause, Clock, Metrics, Operation};

/// An image service that is watched. What CRI does not have (usage, mounts) passes uncounted, as the kubelet has no
/// name for it.
pub struct Instrumented {
    service: Arc<dyn ImageService>,
    metrics: Arc<Metrics>,
    clock: Clock,
    /// Where no manager counts pulls: what runs, and what came.
    pulls: Option<Arc<Mutex<Running>>>,
}

/// Pulls that run.
#[derive(Debug, Default)]
struct Running {
    pulls: usize,
    /// Bytes that came of each layer. Pulls that share one tell of it each.
    came: HashMap<Digest, u64>,
}

impl Instrumented {
    /// Counts calls of `service`.
    #[must_use]
    pub fn new(service: Arc<dyn ImageService>, metrics: Arc<Metrics>, clock: Clock) -> Self {
        Self { service, metrics, clock, pulls: None }
    }

    /// Counts pulls as well (how many run, how long they take, their bytes, what they fail of): for a service that
    /// is called by others than the manager, who counts these himself.
    #[must_use]
    pub fn with_pulls(self) -> Self {
        Self { pulls: Some(Arc::default()), ..self }
    }

    async fn watched<T>(&self, operation: Operation, call: impl Future<Output = Result<T>>) -> Result<T> {
        let mut watch = Watch { of: self, operation, begun: (self.clock)(), ok: false };
        let result = call.await;
        watch.ok = result.is_ok();
        result
    }

    async fn watched_pull(&self, mut request: PullImageRequest, running: &Arc<Mutex<Running>>) -> Result<String> {
        let mut pull = PullGuard::begin(&self.metrics, running);
        request.progress = counting(request.progress, &self.metrics, running);
        let spec = request.image.clone();
        let begun = (self.clock)();
        let result = self.service.pull_image(request).await;
        pull.ended = true;
        match &result {
            Ok(image_ref) => {
                let took = (self.clock)() - begun;
                // Whether the size is known changes nothing but the label.
                let spec = ImageSpec { image: image_ref.clone(), ..spec };
                let size = self.service.image_status(&spec, false).await.ok().and_then(|status| status.image);
                self.metrics.pull_duration(size.map(|image| image.size), took);
            }
            Err(error) => self.metrics.failed(Cause::of(error)),
        }
        result
    }
}

impl std::fmt::Debug for Instrumented {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instrumented").field("metrics", &self.metrics).finish_non_exhaustive()
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

    async fn inspect_image(&self, image: &ImageSpec) -> Result<ImageStatus> {
        self.watched(Operation::ImageStatus, self.service.inspect_image(image)).await
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

    async fn image_usage(&self, image: &ImageSpec) -> Result<Option<ImageUsage>> {
        self.service.image_usage(image).await
    }

    async fn image_layers(&self) -> Result<Option<ImageLayers>> {
        self.service.image_layers().await
    }

    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        // One call of the service, but one operation for each image, as if they went one by one.
        let begun = (self.clock)();
        let results = self.service.remove_images(images).await;
        let each = ((self.clock)() - begun) / u32::try_from(images.len().max(1)).unwrap_or(u32::MAX);
        for result in &results {
            self.metrics.operation(Operation::RemoveImage, each, result.is_ok());
        }
        results
    }

    async fn pin_image(&self, image: &ImageSpec, pinned: bool) -> Result<Option<()>> {
        self.service.pin_image(image, pinned).await
    }

    async fn check_images(&self, request: &CheckRequest, progress: &CheckSink) -> Result<Option<CheckReport>> {
        self.service.check_images(request, progress).await
    }

    async fn convert_images(&self, request: &ConvertRequest) -> Result<Option<ConvertReport>> {
        self.service.convert_images(request).await
    }

    async fn unfinished_pulls(&self) -> Result<Option<UnfinishedPulls>> {
        self.service.unfinished_pulls().await
    }

    async fn drop_unfinished_pulls(&self, all: bool) -> Result<Option<u64>> {
        self.service.drop_unfinished_pulls(all).await
    }

    async fn mount_image(&self, request: &MountRequest) -> Result<Option<MountedImage>> {
        self.service.mount_image(request).await
    }
}

/// Counts a call when it ends; one that is dropped before is one that failed.
struct Watch<'a> {
    of: &'a Instrumented,
    operation: Operation,
    begun: Instant,
    ok: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.of.metrics.operation(self.operation, (self.of.clock)() - self.begun, self.ok);
    }
}

/// One of the pulls that run, until it is dropped. One that did not end by itself was given up.
struct PullGuard<'a> {
    metrics: &'a Metrics,
    running: &'a Mutex<Running>,
    ended: bool,
}

impl<'a> PullGuard<'a> {
    fn begin(metrics: &'a Metrics, running: &'a Mutex<Running>) -> Self {
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

/// A sink that counts bytes and tells `inner` everything.
fn counting(inner: ProgressSink, metrics: &Arc<Metrics>, running: &Arc<Mutex<Running>>) -> ProgressSink {
    let (metrics, running) = (Arc::clone(metrics), Arc::clone(running));
    ProgressSink::new(move |event| {
        if let PullEvent::Bytes { digest, done } = &event {
            metrics.pulled_bytes(running.lock().more(digest, *done));
        }
        inner.tell(event);
    })
}

impl Running {
    /// How many bytes of a layer are new. Less than before is a layer that is fetched anew.
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
