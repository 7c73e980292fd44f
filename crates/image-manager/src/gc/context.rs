//! [`GcContext`]: the node as collection sees it: the images and the runtime, the event recorder and the options. The one place where it
//! matters whether a store of ours has the images; where a foreign runtime has them, CRI's answer is given, or none. It remembers nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::blocking;
use base::lock::RwLock;
use cri_api::engine::runtime_store::RuntimeImageFacts;
use cri_api::engine::{ImageEngine, ImageLayers, RuntimePins, UnfinishedPulls};
use cri_api::{Container, FsInfo, Image, ImageService, ImageSpec, RuntimeService};
use oci::ReferenceOrId;

use super::disk::DiskSpace;
use super::node_time::Moment;
use super::options::GcOptions;
use super::report::GcError;
use super::select::Rules;
use crate::events::EventRef;
use crate::{EventRecorder, EventType, Operation};

/// The node as collection sees it.
pub(super) struct GcContext {
    service: Arc<dyn ImageService>,
    /// The engine that stores the images; `None`: a foreign runtime stores them.
    engine: Option<Arc<dyn ImageEngine>>,
    /// Facts about the images of a foreign runtime, where they are known.
    facts: Option<Arc<dyn RuntimeImageFacts>>,
    /// Pins in a foreign runtime, where it takes any.
    pub(super) runtime_pins: Option<Arc<dyn RuntimePins>>,
    pub(super) runtime: Option<Arc<dyn RuntimeService>>,
    pub(super) events: Arc<dyn EventRecorder>,
    /// Guards the options, of which the rules may change.
    options: RwLock<Arc<GcOptions>>,
}

fn runtime_error(what: &'static str) -> impl FnOnce(cri_api::Error) -> GcError {
    move |source| GcError::Runtime { what, source }
}

impl GcContext {
    pub(super) fn new(
        service: Arc<dyn ImageService>,
        runtime: Option<Arc<dyn RuntimeService>>,
        events: Arc<dyn EventRecorder>,
        options: GcOptions,
    ) -> Self {
        let (engine, facts) = (options.engine.clone(), options.facts.clone());
        let runtime_pins = options.runtime_pins.clone();
        Self { service, engine, facts, runtime_pins, runtime, events, options: RwLock::new(Arc::new(options)) }
    }

    /// The options as they are now.
    pub(super) fn options(&self) -> Arc<GcOptions> {
        Arc::clone(&self.options.read())
    }

    /// Takes the rules of other options.
    pub(super) fn adopt_rules(&self, of: GcOptions) {
        let mut options = self.options.write();
        *options = Arc::new(options.with_rules(of));
    }

    pub(super) async fn list_images(&self) -> Result<Vec<Image>, GcError> {
        self.service.list_images(None).await.map_err(runtime_error("list images"))
    }

    /// All images with the times of their pulls, as far as they are recorded. CRI does not report the times.
    pub(super) async fn list_images_with_times(&self) -> Result<Vec<Image>, GcError> {
        let mut images = self.list_images().await?;
        if let Some(facts) = self.facts.as_ref().filter(|_| images.iter().any(|image| image.pulled_at.is_none())) {
            let times = facts.pull_times().await.map_err(runtime_error("list the times of pulls"))?;
            for image in &mut images {
                image.pulled_at = image.pulled_at.or_else(|| times.get(&image.id).copied());
            }
        }
        Ok(images)
    }

    /// Clears the mark of images that the runtime reports as pinned only because imagelet pinned them: the pin itself decides. The runtime
    /// updates its list some time after a pin ended. Without an answer, all marks stay.
    pub(super) async fn clear_own_pins(&self, images: &mut [Image]) {
        let Some(pins) = self.runtime_pins.as_ref().filter(|_| images.iter().any(|image| image.pinned)) else { return };
        let others = match pins.pinned_by_others().await {
            Ok(Some(others)) => others,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot find out who pinned images in the runtime: all of them stay");
                return;
            }
        };
        for image in images.iter_mut().filter(|image| image.pinned) {
            let mut names = [&image.id].into_iter().chain(&image.repo_tags).chain(&image.repo_digests);
            image.pinned = names.any(|name| others.contains(name));
        }
    }

    /// All containers; none without a runtime.
    pub(super) async fn list_containers(&self) -> Result<Vec<Container>, GcError> {
        match &self.runtime {
            Some(runtime) => runtime.list_containers(None).await.map_err(runtime_error("list containers")),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the sandbox image: that of the settings, or the runtime's.
    pub(super) async fn sandbox_image(&self) -> Option<ReferenceOrId> {
        let options = self.options();
        match (&options.sandbox_image, &options.sandbox_image_lookup) {
            (Some(image), _) => Some(image.clone()),
            (None, Some(lookup)) => lookup().await.map(|image| image.as_str().into()),
            (None, None) => None,
        }
    }

    /// The layers of all images; `None` if the service does not report them.
    pub(super) async fn image_layers(&self) -> Result<Option<ImageLayers>, GcError> {
        let layers = match (&self.engine, &self.facts) {
            (Some(engine), _) => engine.image_layers().await.map(Some),
            (None, Some(facts)) => facts.image_layers().await,
            (None, None) => Ok(None),
        };
        layers.map_err(runtime_error("list the layers of images"))
    }

    pub(super) async fn image_fs_info(&self) -> Result<FsInfo, GcError> {
        self.service.image_fs_info().await.map_err(runtime_error("ask for the image file system"))
    }

    /// Measures the image file system. Returns its mount point and its space.
    pub(super) async fn measure_image_fs(&self) -> Result<(PathBuf, DiskSpace), GcError> {
        let info = self.image_fs_info().await?;
        let path = info.image_filesystems.first().map(|fs| PathBuf::from(&fs.mountpoint)).ok_or(GcError::NoImageFs)?;
        let space = self.probe(&path).await?;
        if space.capacity == 0 {
            self.record_event(EventType::Warning, "InvalidDiskCapacity", &GcError::InvalidCapacity.to_string());
            return Err(GcError::InvalidCapacity);
        }
        self.options().metrics.measured(space);
        Ok((path, space))
    }

    /// Measures the file system of `path`.
    pub(super) async fn probe(&self, path: &Path) -> Result<DiskSpace, GcError> {
        let (disk, at) = (Arc::clone(&self.options().disk), path.to_owned());
        let space = blocking(move || disk(&at)).await.ok_or(GcError::ShuttingDown)?;
        space.map(DiskSpace::clamped).map_err(|source| GcError::Disk { path: path.to_owned(), source })
    }

    /// Inspects the blobs that interrupted pulls left, and sets their metric.
    pub(super) async fn unfinished_pulls(&self) -> Option<UnfinishedPulls> {
        let left = match &self.engine {
            Some(engine) => engine.unfinished_pulls().await.ok(),
            None => None,
        };
        self.options().metrics.unfinished(left.unwrap_or_default());
        left
    }

    /// Returns the engine that pulls images for a foreign runtime, and the reason; `None` where there is none or it is not known.
    pub(super) async fn pull_engine(&self) -> Option<String> {
        Some(self.facts.as_ref()?.pull_engine().await)
    }

    /// Removes images in as few steps as possible, each with its own result.
    pub(super) async fn remove_images(&self, images: &[ImageSpec]) -> Vec<cri_api::Result<()>> {
        let Some(engine) = &self.engine else {
            let mut results = Vec::with_capacity(images.len());
            for image in images {
                results.push(self.service.remove_image(image).await);
            }
            return results;
        };
        let options = self.options();
        let begun = (options.clock)();
        let results = engine.remove_images(images).await;
        // One call counts as an operation for each image, as if they had been removed one by one.
        if let Some(metrics) = &options.operations {
            let each = ((options.clock)() - begun) / u32::try_from(results.len().max(1)).unwrap_or(u32::MAX);
            results.iter().for_each(|result| metrics.operation(Operation::RemoveImage, each, result.is_ok()));
        }
        results
    }

    /// Deletes what interrupted pulls left: that which has been kept long enough, or all. Returns the bytes freed. In a runtime's
    /// store, those are records that it does not show; what they keep is the runtime's to free.
    pub(super) async fn drop_unfinished(&self, all: bool) -> cri_api::Result<u64> {
        match (&self.engine, &self.facts) {
            (Some(engine), _) => engine.drop_unfinished_pulls(all).await,
            (None, Some(facts)) => facts.hidden_records(true).await.map(|_| 0),
            (None, None) => Ok(0),
        }
    }

    /// The selection rules of the options.
    pub(super) fn rules(&self) -> Rules {
        // Without a runtime no use is ever seen, so that "never used" says nothing about an image.
        let options = self.options();
        let protect_unused = self.runtime.as_ref().map_or(Duration::ZERO, |_| options.protect_pre_pulled);
        Rules { min_age: options.policy.min_age, protect_unused }
    }

    /// Now, by both clocks.
    pub(super) fn moment(&self) -> Moment {
        let boot = self.options().boot_clock.as_ref().and_then(|clock| clock());
        Moment { wall: (self.options().wall_clock)(), boot }
    }

    /// Records an event about the node.
    pub(super) fn record_event(&self, kind: EventType, reason: &'static str, message: &str) {
        self.events.record(EventRef { object: &self.options().node, kind, reason, message });
    }
}
