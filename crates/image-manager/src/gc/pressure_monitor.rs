//! [`PressureMonitor`]: measures the file systems, compares them with the thresholds of disk pressure, and keeps the
//! condition `DiskPressure` across restarts. It frees nothing.

use std::sync::Arc;

use base::blocking;
use cri_api::FsInfo;
use cri_api::engine::UnfinishedPulls;
use jiff::Timestamp;
use tokio::sync::Mutex;

use super::context::GcContext;
use super::pressure::{Disks, Layout, Observation, Pressure, observe};
use super::report::GcError;
use super::state_files::StateFiles;
use crate::EventType;

/// A measurement of the file systems, and the disk pressure that it shows.
pub(super) struct MeasuredDisks {
    pub(super) info: FsInfo,
    pub(super) disks: Disks,
    pub(super) observations: Vec<Observation>,
    pub(super) pressure: Pressure,
    pub(super) unfinished: Option<UnfinishedPulls>,
}

impl MeasuredDisks {
    /// How images, containers and the root share file systems.
    pub(super) fn layout(&self) -> Layout {
        let Disks { images, containers, node } = self.disks;
        let (Some(images), node) = (images, node) else { return Layout::Shared };
        if containers.is_some() {
            return Layout::Split;
        }
        let apart = node.is_some_and(|node| node.device != images.device && node.device != 0 && images.device != 0);
        if apart { Layout::DedicatedImages } else { Layout::Shared }
    }

    /// The thresholds that are crossed.
    pub(super) fn crossed(&self) -> impl Iterator<Item = &Observation> {
        self.observations.iter().filter(|observation| observation.crossed)
    }
}

/// The condition `DiskPressure` of the node.
pub(super) struct PressureMonitor {
    context: Arc<GcContext>,
    files: Option<StateFiles>,
    /// Guards the condition, and the condition as it is stored; `None` before the first measurement.
    condition: Mutex<Option<(Pressure, Pressure)>>,
}

impl PressureMonitor {
    pub(super) fn new(context: Arc<GcContext>, files: Option<StateFiles>) -> Self {
        Self { context, files, condition: Mutex::default() }
    }

    /// Measures the file systems, and updates the condition.
    pub(super) async fn measure(&self) -> Result<MeasuredDisks, GcError> {
        let options = self.context.options();
        let info = self.context.image_fs_info().await?;
        let image_path = info.image_filesystems.first().map(|fs| fs.mountpoint.clone()).ok_or(GcError::NoImageFs)?;
        let images = self.context.probe(image_path.as_ref()).await?;
        let container_path = info.container_filesystems.first().map(|fs| fs.mountpoint.clone());
        let mut containers = None;
        if let Some(path) = container_path.filter(|path| *path != image_path) {
            // Two directories of one file system are no split.
            let space = self.context.probe(path.as_ref()).await?;
            containers = Some(space).filter(|space| space.device == 0 || space.device != images.device);
        }
        let node = match &options.pressure.node_directory {
            Some(path) => Some(self.context.probe(path).await?),
            None => None,
        };
        let disks = Disks { images: Some(images), containers, node };
        let observations = observe(&options.pressure.thresholds, disks);
        let crossed = observations.iter().any(|observation| observation.crossed);
        let pressure = self.update(crossed).await?;
        let unfinished = self.context.unfinished_pulls().await;
        Ok(MeasuredDisks { info, disks, observations, pressure, unfinished })
    }

    /// Takes in an observation, and records an event if the condition changed.
    async fn update(&self, crossed: bool) -> Result<Pressure, GcError> {
        let options = self.context.options();
        let now = (options.wall_clock)();
        let mut condition = self.condition.lock().await;
        let (mut pressure, stored) = match *condition {
            Some(condition) => condition,
            None => {
                let stored = self.load().await?;
                (stored, stored)
            }
        };
        let changed = pressure.observe(crossed, now, options.pressure.transition);
        let under = pressure.under == Some(true);
        options.metrics.disk_pressure(under);
        if changed && (under || stored.under.is_some()) {
            let what = if under { "NodeHasDiskPressure" } else { "NodeHasNoDiskPressure" };
            let message = format!("Node {} status is now: {what}", options.node.name);
            self.context.record_event(EventType::Normal, what, &message);
        }
        // When it was last seen matters to a restart in the middle of it; not to the second.
        let older = |then: Timestamp| pressure.crossed.is_some_and(|at| at.duration_since(then).as_secs().abs() >= 60);
        let stale = changed || stored.crossed.map_or(pressure.crossed.is_some(), older);
        if stale {
            self.save(pressure).await;
        }
        *condition = Some((pressure, if stale { pressure } else { stored }));
        Ok(pressure)
    }

    async fn load(&self) -> Result<Pressure, GcError> {
        let Some(files) = self.files.clone() else { return Ok(Pressure::default()) };
        let read = blocking(move || files.pressure()).await;
        let (pressure, aside) = read.ok_or(GcError::ShuttingDown)??;
        if let Some(aside) = aside {
            tracing::warn!(path = %aside.display(), "the file of disk pressure cannot be read, and was renamed");
        }
        Ok(pressure)
    }

    /// Stores the condition. Under pressure the disk may have no room for that, which changes nothing now.
    async fn save(&self, pressure: Pressure) {
        let Some(files) = self.files.clone() else { return };
        match blocking(move || files.store_pressure(pressure)).await {
            None | Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(%error, "a restart would not know of the disk pressure"),
        }
    }
}
