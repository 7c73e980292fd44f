//! [`CollectedImages`]: the images that are collected, and the one place where it matters whether a store of ours keeps them.
//! Where a foreign runtime does, CRI's answer is given, or none. Called by the parts of the collector.

use std::sync::Arc;

use cri_api::engine::runtime_store::RuntimeImageFacts;
use cri_api::engine::{ImageEngine, ImageLayers, UnfinishedPulls};
use cri_api::{ImageService, ImageSpec, Result};
use tokio::time::Instant;

use super::options::GcOptions;
use crate::{Clock, Metrics, Operation};

/// An image service, and what a store of ours behind it can do beyond CRI.
pub(super) struct CollectedImages {
    pub(super) service: Arc<dyn ImageService>,
    engine: Option<Arc<dyn ImageEngine>>,
    facts: Option<Arc<dyn RuntimeImageFacts>>,
    operations: Option<Arc<Metrics>>,
    clock: Clock,
}

impl CollectedImages {
    pub(super) fn new(service: Arc<dyn ImageService>, options: &GcOptions) -> Self {
        let (engine, operations) = (options.engine.clone(), options.operations.clone());
        let facts = options.facts.clone();
        Self { service, engine, facts, operations, clock: Arc::clone(&options.clock) }
    }

    /// Returns the layers of all images; `None` where the runtime does not report them.
    pub(super) async fn layers(&self) -> Result<Option<ImageLayers>> {
        match &self.engine {
            Some(engine) => engine.image_layers().await.map(Some),
            None => match &self.facts {
                Some(facts) => facts.image_layers().await,
                None => Ok(None),
            },
        }
    }

    /// Returns the engine that pulls images for a foreign runtime, and the reason; `None` where there is none or it is not known.
    pub(super) async fn pull_engine(&self) -> Option<String> {
        Some(self.facts.as_ref()?.pull_engine().await)
    }

    /// Removes images in as few steps as possible, each with its own result.
    pub(super) async fn remove(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        let Some(engine) = &self.engine else {
            let mut results = Vec::with_capacity(images.len());
            for image in images {
                results.push(self.service.remove_image(image).await);
            }
            return results;
        };
        let begun = (self.clock)();
        let results = engine.remove_images(images).await;
        self.count(Operation::RemoveImage, begun, &results);
        results
    }

    /// Data that interrupted pulls left; `None` if a runtime does not report it.
    pub(super) async fn unfinished(&self) -> Option<UnfinishedPulls> {
        self.engine.as_ref()?.unfinished_pulls().await.ok()
    }

    /// Deletes what interrupted pulls left: that which has been kept long enough, or all. Returns the bytes freed. In a runtime's
    /// store, those are records that it does not show; what they keep is the runtime's to free.
    pub(super) async fn drop_unfinished(&self, all: bool) -> Result<u64> {
        match (&self.engine, &self.facts) {
            (Some(engine), _) => engine.drop_unfinished_pulls(all).await,
            (None, Some(facts)) => facts.hidden_records(true).await.map(|_| 0),
            (None, None) => Ok(0),
        }
    }

    /// Counts one call of the store as an operation for each image, as if they had been removed one by one.
    fn count<T>(&self, operation: Operation, begun: Instant, results: &[Result<T>]) {
        let Some(metrics) = &self.operations else { return };
        let each = ((self.clock)() - begun) / u32::try_from(results.len().max(1)).unwrap_or(u32::MAX);
        for result in results {
            metrics.operation(operation, each, result.is_ok());
        }
    }
}
