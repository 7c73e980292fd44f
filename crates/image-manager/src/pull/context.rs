//! [`PullContext`]: the service, the records, the options and the limits that every pull works with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::lock::RwLock;
use cri_api::{ImageService, ImageSpec};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::throttle::Throttle;
use super::time::Timeline;
use super::{Mark, PullerOptions};
use crate::{Metrics, PullRecords};

/// Shared by all pulls.
pub(super) struct PullContext {
    pub(super) service: Arc<dyn ImageService>,
    pub(super) records: Option<PullRecords>,
    /// Guards the options, which may change while pulls go on.
    options: RwLock<PullerOptions>,
    pub(super) time: Timeline,
    pub(super) throttle: Throttle,
    pub(super) metrics: Arc<Metrics>,
    /// Number of pulls that succeeded.
    ended: AtomicU64,
    pub(super) tracker: TaskTracker,
    /// No pull starts any more; pulls under way may end.
    pub(super) draining: CancellationToken,
    pub(super) shutdown: CancellationToken,
}

impl PullContext {
    pub(super) fn new(
        service: Arc<dyn ImageService>,
        records: Option<PullRecords>,
        options: PullerOptions,
        time: Timeline,
        metrics: Arc<Metrics>,
    ) -> Self {
        let throttle = Throttle::new(options.qps, options.burst, time.clone(), Arc::clone(&metrics));
        let tracker = TaskTracker::new();
        let (draining, shutdown) = (CancellationToken::new(), CancellationToken::new());
        let options = RwLock::new(options);
        Self {
            service,
            records,
            options,
            time,
            throttle,
            metrics,
            ended: AtomicU64::new(0),
            tracker,
            draining,
            shutdown,
        }
    }

    /// The options as they are now.
    pub(super) fn options(&self) -> PullerOptions {
        *self.options.read()
    }

    /// Changes the options for what begins from now on.
    pub(super) fn set_options(&self, options: PullerOptions) {
        *self.options.write() = options;
        self.throttle.set_rate(options.qps, options.burst);
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.ended.load(Ordering::Acquire))
    }

    /// Returns true if every pod could use a pulled image without a record.
    pub(super) fn frees_what_is_unknown(&self) -> bool {
        self.records.as_ref().is_some_and(PullRecords::frees_what_is_unknown)
    }

    /// Waits for `abandoned`, but never returns while draining, so that a pull under way may end.
    pub(super) async fn unless_draining(&self, abandoned: impl Future<Output = ()>) {
        abandoned.await;
        if self.draining.is_cancelled() {
            std::future::pending().await
        }
    }

    /// Records that a pull succeeded.
    pub(super) fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// Size of a pulled image in bytes, for messages; `None` if it is not known.
    pub(super) async fn size(&self, spec: ImageSpec) -> Option<u64> {
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
