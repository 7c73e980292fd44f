//! Names of images that are present: added, removed and listed by a user and not by a pull. A name does not decide who
//! may use an image: provenance and pull records stay as they are, and the signature policy is asked as at an import.
//! Called by [`crate::image_engine`].

use std::sync::Arc;

use cri_api::engine::ImageDocuments;
use cri_api::{Error, Kind, Result};
use oci::Reference;
use store::ImageRecord;

use crate::error;
use crate::origin::Provenance;
use crate::shared::Shared;
use crate::signatures::evidence;

impl Shared {
    /// Gives the image that `text` means one more name.
    pub(crate) async fn tag(self: &Arc<Self>, text: &str, name: &str) -> Result<String> {
        self.check_running()?;
        let reference = Reference::parse(name).map_err(|error| Error::from_source(Kind::InvalidArgument, &error))?;
        if reference.digest().is_some() {
            let message = format!("{name:?} has a digest, and a digest cannot be chosen: name a tag");
            return Err(error::invalid(message));
        }
        let reference = reference.with_default_tag().canonical();
        let record = self.find_whole(text.to_owned()).await?.ok_or_else(|| absent(text))?;
        if let Some(guard) = self.guard(Some(&reference)).await? {
            let digests = record.index_digest.iter().chain([&record.manifest_digest]).cloned().collect();
            guard.check_offline(self, digests, evidence::of(&record), "with the image").await?;
        }
        let (store, name) = (self.store.clone(), reference.to_string());
        let tag = move || {
            let failed = |e| error::from_store(store.root(), &e);
            // Images of early versions came from the repositories that they are named after. A new name is none of these.
            let mut annotations = record.annotations.clone();
            Provenance::of(&record).write(&mut annotations);
            if annotations != record.annotations {
                store.annotate(&record.id, &annotations).map_err(failed)?;
            }
            store.tag(&record.id, &name).map_err(failed)?;
            Ok(name)
        };
        self.background.run(tag).await
    }

    /// Takes names from the image that `text` means; all tags, if none are given.
    pub(crate) async fn untag(&self, text: &str, names: &[String]) -> Result<Vec<String>> {
        let (store, text, names) = (self.store.clone(), text.to_owned(), names.to_vec());
        let untag = move || {
            let record = store.resolve(&text).map_err(|e| error::from_resolve(store.root(), &e))?;
            let record = record.ok_or_else(|| absent(&text))?;
            let names = if names.is_empty() { record.tags.iter().cloned().collect() } else { names };
            if let Some(foreign) = names.iter().find(|name| !has(&record, name)) {
                return Err(Error::new(Kind::NotFound, format!("image {text:?} does not have the name {foreign:?}")));
            }
            store.untag(&record.id, &names).map_err(|e| error::from_store(store.root(), &e))
        };
        self.background.run(untag).await
    }

    /// The documents of the image that `text` means.
    pub(crate) async fn documents(&self, text: &str) -> Result<Option<ImageDocuments>> {
        let (store, text) = (self.store.clone(), text.to_owned());
        let read = move || {
            let record = store.resolve(&text).map_err(|e| error::from_resolve(store.root(), &e))?;
            let Some(record) = record else { return Ok(None) };
            let layers = store.image_layers(&record).map_err(|e| error::from_store(store.root(), &e))?;
            Ok(Some(ImageDocuments {
                id: record.id.to_string(),
                config: record.config.to_vec(),
                manifest: record.manifest.to_vec(),
                manifest_media_type: record.manifest_media_type,
                tags: record.tags.into_iter().collect(),
                repo_digests: record.repo_digests.into_iter().collect(),
                layer_bytes: layers.iter().map(|layer| layer.stats.content_bytes).collect(),
            }))
        };
        self.background.run(read).await
    }
}

fn absent(text: &str) -> Error {
    Error::new(Kind::NotFound, format!("image {text:?} is not present"))
}

fn has(record: &ImageRecord, name: &str) -> bool {
    Reference::parse(name).is_ok_and(|name| record.tags.contains(&name.with_default_tag().canonical().to_string()))
}
