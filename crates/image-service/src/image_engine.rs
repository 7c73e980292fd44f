//! The calls of [`ImageEngine`] on the engine. Each reads the store or calls the module that does the work.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use cri_api::engine::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, ExportOptions, ImageDocuments, ImageEngine,
    ImageLayers, ImageMount, ImageUsage, ImportOptions, ImportReport, LayerLease, LayersOf, MountRequest, MountedImage,
    PodmanStoreReport, PodmanStoreRequest, UnfinishedPulls,
};
use cri_api::{Error, ImageSpec, ImageStatus, Kind, Result};
use oci::{Digest, ReferenceOrId};
use store::{ResolveError, Store};

use crate::content::Content;
use crate::engine::Engine;
use crate::error;
use crate::names;
use crate::service::{to_image, verbose_info};
use crate::source::resume;

#[async_trait]
impl ImageEngine for Engine {
    async fn inspect_image(&self, image: &ImageSpec) -> Result<ImageStatus> {
        self.0.check_handler(image)?;
        let Some(record) = self.0.content.find_whole(image.reference_or_id()).await? else {
            return Ok(ImageStatus::default());
        };
        Ok(ImageStatus { image: Some(to_image(&record)), info: verbose_info(&record)? })
    }

    async fn image_usage(&self, image: &ImageSpec) -> Result<Option<ImageUsage>> {
        let (store, named) = (self.0.content.store.clone(), image.reference_or_id());
        let usage = move || {
            let failed = |e| error::from_store(store.root(), &e);
            let Some(record) = store.resolve(&named).map_err(|e| error::from_resolve(store.root(), &e))? else {
                return Ok(None);
            };
            let usage = store.usage(&record.id).map_err(failed)?;
            Ok(usage.map(|(unique_bytes, shared_bytes)| ImageUsage { unique_bytes, shared_bytes }))
        };
        self.0.content.background.run(usage).await
    }

    async fn image_layers(&self) -> Result<ImageLayers> {
        let read = |store: &Store| Ok((store.layers_of_images()?, store.podman_users()?));
        let (found, users) = self.0.content.on_store(read).await?;
        let user = |id: &Digest| users.get(id).map(|place| format!("podman ({})", place.display()));
        // The documents are in the database, whose file keeps its size: a removal frees the bytes of layers only.
        let of = |(id, _, layers): (Digest, u64, Vec<u32>)| {
            let used_by = user(&id);
            (id.to_string(), LayersOf { own_bytes: 0, layers, used_by })
        };
        Ok(ImageLayers { layers: found.layers, images: found.images.into_iter().map(of).collect() })
    }

    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        let content = Arc::clone(&self.0.content);
        let images: Vec<ReferenceOrId> = images.iter().map(ImageSpec::reference_or_id).collect();
        let count = images.len();
        let remove = move || Ok(remove_all(&content, &images));
        // Only a task that was ended by a shutdown has no result: nothing more was removed then.
        self.0.content.background.run(remove).await.unwrap_or_else(|error| vec![Err(error); count])
    }

    async fn pin_image(&self, image: &ImageSpec, pinned: bool) -> Result<()> {
        let (store, named) = (self.0.content.store.clone(), image.reference_or_id());
        let pin = move || {
            let Some(record) = store.resolve(&named).map_err(|e| error::from_resolve(store.root(), &e))? else {
                return Err(error::absent(&named));
            };
            store.set_pinned(&record.id, pinned).map_err(|e| error::from_store(store.root(), &e))
        };
        self.0.content.background.run(pin).await
    }

    async fn tag_image(&self, image: &ImageSpec, name: &str) -> Result<String> {
        self.0.in_flight.check_running()?;
        names::tag(&self.0.content, &self.0.policy, &image.reference_or_id(), name).await
    }

    async fn untag_image(&self, image: &ImageSpec, names: &[String]) -> Result<Vec<String>> {
        names::untag(&self.0.content, image.reference_or_id(), names).await
    }

    async fn image_documents(&self, image: &ImageSpec) -> Result<Option<ImageDocuments>> {
        names::documents(&self.0.content, image.reference_or_id()).await
    }

    async fn check_images(&self, request: &CheckRequest, progress: &CheckSink) -> Result<CheckReport> {
        self.0.in_flight.check_running()?;
        self.0.content.check_images(request, progress, self.0.in_flight.child_token()).await
    }

    async fn convert_images(&self, request: &ConvertRequest) -> Result<ConvertReport> {
        self.0.in_flight.check_running()?;
        self.0.content.convert_images(request, self.0.in_flight.child_token()).await
    }

    async fn podman_store(&self, request: &PodmanStoreRequest) -> Result<PodmanStoreReport> {
        let (store, request) = (self.0.content.store.clone(), request.clone());
        self.0.content.background.run(move || crate::podman::podman_store(&store, &request)).await
    }

    async fn unfinished_pulls(&self) -> Result<UnfinishedPulls> {
        Ok(self.0.content.unfinished())
    }

    async fn drop_unfinished_pulls(&self, all: bool) -> Result<u64> {
        let now = self.0.content.now();
        let remove = move |store: &Store| {
            store.note_clock(now);
            Ok(store.drop_unfinished((!all).then_some(resume::kept_since(now))).freed_bytes)
        };
        self.0.content.on_store(remove).await
    }

    async fn mount_image(&self, request: &MountRequest) -> Result<MountedImage> {
        self.0.check_handler(&request.image)?;
        let (parts, request) = (Arc::clone(&self.0), request.clone());
        let mount = move || {
            let (store, named) = (&parts.content.store, request.image.reference_or_id());
            let record = store
                .resolve(&named)
                .map_err(|e| error::from_resolve(store.root(), &e))?
                .filter(|record| store.image_is_whole(record))
                .ok_or_else(|| error::absent(&named))?;
            if let Some(why) = parts.policy.objection_to_use(&record, &named)? {
                return Err(why.context(format_args!("mount {named}")));
            }
            store
                .mount_image(&record, &request.target, request.writable.as_deref())
                .map_err(|error| error::from_mount(store.root(), &error))?;
            Ok(MountedImage { id: record.id.to_string(), layers: record.layers.len() })
        };
        self.0.content.background.run(mount).await
    }

    async fn mounts(&self) -> Result<Vec<ImageMount>> {
        self.0.content.on_store(Store::mounts).await
    }

    async fn lease_layers(&self, text: &str) -> Result<LayerLease> {
        self.0.in_flight.check_running()?;
        let (store, named) = (self.0.content.store.clone(), ReferenceOrId::from(text));
        let lease = move || {
            let lease = store.lease();
            let stack = match store.stack(&lease, &named) {
                Ok(stack) => stack,
                // The text is neither a name nor a layer.
                Err(ResolveError::Store(error)) => return Err(error::from_store(store.root(), &error)),
                Err(error) => return Err(error::from_resolve(store.root(), &error)),
            };
            let stack = stack.ok_or_else(|| Error::new(Kind::NotFound, format!("no such image or layer: {named}")))?;
            let stack = serde_json::to_value(stack)
                .map_err(|error| Error::new(Kind::Internal, format!("describe the layers of {named}: {error}")))?;
            Ok((stack, lease))
        };
        let (stack, lease) = self.0.content.background.run(lease).await?;
        Ok(LayerLease::new(self.0.content.store.root().to_owned(), stack, self.0.content.background.hold(lease)))
    }

    async fn import_images(&self, path: &Path, options: ImportOptions) -> Result<ImportReport> {
        self.import(path, options).await
    }

    async fn export_images(&self, images: &[String], path: &Path, options: ExportOptions) -> Result<()> {
        self.export(images, path, options).await
    }
}

/// Removes images, each with its own result.
fn remove_all(content: &Content, images: &[ReferenceOrId]) -> Vec<Result<()>> {
    let store = &content.store;
    let mut results: Vec<Result<()>> = Vec::with_capacity(images.len());
    let (mut records, mut places) = (Vec::new(), Vec::new());
    for image in images {
        match store.resolve(image) {
            Ok(Some(record)) => {
                places.push(results.len());
                records.push(record);
                results.push(Ok(()));
            }
            Ok(None) => results.push(Ok(())),
            Err(error) => results.push(Err(error::from_resolve(store.root(), &error))),
        }
    }
    let ids: Vec<Digest> = records.iter().map(|record| record.id.clone()).collect();
    for ((place, record), removed) in places.into_iter().zip(&records).zip(store.remove_images(&ids)) {
        match removed {
            Ok(removed) => {
                tracing::debug!(image = %record.id, bytes = removed.freed_bytes, "removed image");
                content.hints.forget(record);
            }
            Err(error) => results[place] = Err(error::from_store(store.root(), &error)),
        }
    }
    results
}
