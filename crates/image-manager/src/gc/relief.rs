//! What is done about disk pressure, as the kubelet's eviction manager does it before it would evict pods: containers that
//! have ended go, then images that nothing needs, each only where that helps the file system that is short. Called by the
//! loop of [`ImageGcManager::run`]; pods are not evicted here.

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::collector::ImageGcManager;
use super::disk::Shortage;
use super::node_status::Measured;
use super::report::{GcError, GcReport, chain};
use crate::EventType;

/// Removes what containers leave behind. Whoever collects containers implements it.
#[async_trait]
pub trait ReclaimContainers: Send + Sync {
    /// Removes the containers that have ended: of pods that are gone all, of others what the policy has too much of.
    ///
    /// # Errors
    /// A text for people, when not all could be removed.
    async fn delete_all_unused_containers(&self) -> Result<(), String>;
}

/// How the loop paces itself: attempts that free nothing become rare.
#[derive(Debug, Default)]
pub(super) struct Pace {
    told: bool,
    fruitless: u32,
    not_before: Option<Instant>,
}

impl ImageGcManager {
    /// Looks whether there is disk pressure, and frees what can be freed if a threshold is crossed. `Ok(None)`: there was
    /// no reason to remove images.
    ///
    /// # Errors
    /// [`GcError`]; what could be done has been done.
    pub async fn relieve(&self) -> Result<Option<GcReport>, GcError> {
        let measured = self.look_at_disks().await?;
        self.relieve_of(&measured).await
    }

    async fn relieve_of(&self, measured: &Measured) -> Result<Option<GcReport>, GcError> {
        let wanted = measured.layout().reclaim(measured.crossed().map(|observation| observation.of));
        if wanted.containers
            && let Some(containers) = &self.options.pressure.containers
            && let Err(error) = containers.delete_all_unused_containers().await
        {
            tracing::warn!("containers that have ended could not all be removed: {error}");
        }
        if !wanted.images {
            return Ok(None);
        }
        // The loop has told of it; here each crossed threshold of a file system with images on it counts.
        self.delete_unused_images().await.map(Some)
    }

    /// What has to be freed of the image file system under pressure: until the low mark, and until every threshold that
    /// images can help is met.
    pub(super) fn pressing_shortage(&self, space: super::disk::DiskSpace) -> Shortage {
        let mut shortage = Shortage::to_low_mark(space, &self.options.policy);
        let disks = super::pressure::Disks { images: Some(space), ..Default::default() };
        for observation in super::pressure::observe(&self.options.pressure.thresholds, disks) {
            let place = if observation.of.is_inodes() { &mut shortage.inodes } else { &mut shortage.bytes };
            *place = (*place).max(observation.missing());
        }
        shortage
    }

    pub(super) async fn pressing(&self, stop: &CancellationToken) {
        if self.options.pressure.thresholds.is_empty() {
            return;
        }
        let mut pace = Pace::default();
        let mut turns = super::loops::turns(self.options.pressure.interval);
        while super::loops::turn(&mut turns, None, stop).await {
            if let Err(error) = self.press(&mut pace).await {
                tracing::warn!("disk pressure: {}", chain(&error));
            }
        }
    }

    /// One turn of the loop.
    async fn press(&self, pace: &mut Pace) -> Result<(), GcError> {
        let measured = self.look_at_disks().await?;
        let Some(first) = measured.crossed().next() else {
            *pace = Pace::default();
            return Ok(());
        };
        if !std::mem::replace(&mut pace.told, true) {
            let message = format!("Attempting to reclaim {}", first.of.resource());
            self.tell(EventType::Warning, "EvictionThresholdMet", &message);
        }
        let now = (self.options.clock)();
        if pace.not_before.is_some_and(|at| now < at) {
            return Ok(());
        }
        let result = self.relieve_of(&measured).await;
        let freed = matches!(&result, Ok(Some(report)) if report.freed_bytes > 0 || !report.removed.is_empty());
        pace.fruitless = if freed { 0 } else { (pace.fruitless + 1).min(5) };
        pace.not_before = (!freed).then(|| now + self.options.pressure.interval * (1 << pace.fruitless));
        result.map(drop)
    }
}

#[cfg(test)]
#[path = "relief_tests.rs"]
mod tests;
