//! Relief of disk pressure by [`ImageGcManager`], as the kubelet's eviction manager does before it would evict pods: removes exited
//! containers, then unused images, each only where that helps the file system that is short, and then asks for the eviction of a pod,
//! which [`EvictPods`](super::EvictPods) chooses.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::evict::EvictionCause;
use super::manager::ImageGcManager;
use super::pressure_monitor::MeasuredDisks;
use super::report::{GcError, GcReport, all_done, chain};
use super::turns::Turns;
use crate::EventType;

/// Pace of the loop: attempts that free nothing become rare.
#[derive(Debug, Default)]
struct Pace {
    reported: bool,
    fruitless: u32,
    not_before: Option<Instant>,
}

impl ImageGcManager {
    /// Frees space if a threshold of a measurement is crossed. `Ok(None)`: there was no reason to remove images.
    pub(super) async fn relieve_measured(&self, measured: &MeasuredDisks) -> Result<Option<GcReport>, GcError> {
        let wanted = measured.layout().reclaim(measured.crossed().map(|observation| observation.of));
        if wanted.containers
            && let Some(containers) = &self.context.options().pressure.containers
            && let Err(error) = containers.delete_all_unused_containers().await
        {
            tracing::warn!(%error, "containers that have ended could not all be removed");
        }
        if !wanted.images {
            return Ok(None);
        }
        all_done(self.pressure_round().await?).map(Some)
    }

    /// Runs the loop until `stop`.
    pub(super) async fn relieving(&self, stop: &CancellationToken) {
        let mut pace = Pace::default();
        let mut turns = Turns::new(self.context.options().pressure.interval, None, stop);
        while turns.next().await {
            if self.context.options().pressure.thresholds.is_empty() {
                continue;
            }
            if let Err(error) = self.press(&mut pace).await {
                tracing::warn!(error = chain(&error), "cannot relieve disk pressure");
            }
        }
    }

    /// Runs a turn of the loop.
    async fn press(&self, pace: &mut Pace) -> Result<(), GcError> {
        let measured = self.monitor.measure().await?;
        let Some(first) = measured.crossed().next() else {
            *pace = Pace::default();
            return Ok(());
        };
        if !std::mem::replace(&mut pace.reported, true) {
            let message = format!("Attempting to reclaim {}", first.of.resource());
            self.context.record_event(EventType::Warning, "EvictionThresholdMet", &message);
        }
        let now = (self.context.options().clock)();
        if pace.not_before.is_none_or(|at| at <= now) {
            self.reclaim(&measured, now, pace).await?;
        }
        self.evict().await
    }

    /// Frees space, and sets when that is tried next.
    async fn reclaim(&self, measured: &MeasuredDisks, now: Instant, pace: &mut Pace) -> Result<(), GcError> {
        let result = self.relieve_measured(measured).await;
        let freed = matches!(&result, Ok(Some(report)) if report.freed_bytes > 0 || !report.removed.is_empty());
        pace.fruitless = if freed { 0 } else { (pace.fruitless + 1).min(5) };
        pace.not_before = (!freed).then(|| now + self.context.options().pressure.interval * (1 << pace.fruitless));
        match result {
            // The eviction of a pod may free space that images cannot.
            Err(error @ GcError::NotEnough(_)) if self.context.options().pressure.pods.is_some() => {
                tracing::warn!(error = chain(&error), "removing images does not relieve disk pressure");
                Ok(())
            }
            result => result.map(drop),
        }
    }

    /// Asks for the end of a pod if a threshold is crossed still.
    async fn evict(&self) -> Result<(), GcError> {
        let Some(pods) = self.context.options().pressure.pods.clone() else { return Ok(()) };
        let measured = self.monitor.measure().await?;
        if let Some(observation) = measured.crossed().next()
            && !pods.evict_one(&EvictionCause::new(observation, measured.layout())).await
        {
            let resource = observation.of.resource();
            tracing::warn!(resource, "the node is short of it, and no pod can be evicted");
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "relief_tests.rs"]
mod tests;
