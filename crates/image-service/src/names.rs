//! Names of present images that a user adds, removes and lists. A name gives no access to an image: provenance and pull records
//! stay unchanged, and the signature policy applies as for an import. Called by [`crate::image_engine`].

use cri_api::engine::ImageDocuments;
use cri_api::{Error, Kind, Result};
use oci::{Reference, ReferenceOrId};
use store::{ImageRecord, Store};

use crate::content::Content;
use crate::error::{self, absent};
use crate::origin::Provenance;
use crate::signatures::{ImagePolicy, evidence};

/// Adds a name to the image with this name or ID.
pub(crate) async fn tag(content: &Content, policy: &ImagePolicy, image: &ReferenceOrId, name: &str) -> Result<String> {
    let reference = Reference::parse(name).map_err(|error| Error::from_source(Kind::InvalidArgument, &error))?;
    if reference.digest().is_some() {
        let message = format!("{name:?} has a digest, and a digest cannot be chosen: name a tag");
        return Err(error::invalid(message));
    }
    let reference = reference.with_default_tag().canonical();
    let record = content.find_whole(image.clone()).await?.ok_or_else(|| absent(image))?;
    if let Some(guard) = policy.guard(Some(&reference)).await? {
        let digests = record.index_digest.iter().chain([&record.manifest_digest]).cloned().collect();
        guard.check_offline(&content.background, digests, evidence::of(&record), "with the image").await?;
    }
    let tag = move |store: &Store| {
        // Images of early versions have no provenance but their names. The new name must not become one of their origins.
        let mut annotations = record.annotations.clone();
        Provenance::of(&record).write(&mut annotations);
        if annotations != record.annotations {
            store.annotate(&record.id, &annotations)?;
        }
        store.tag(&record.id, &reference)?;
        Ok(reference.to_string())
    };
    content.on_store(tag).await
}

/// Removes names from the image with this name or ID; all tags, if none are given.
pub(crate) async fn untag(content: &Content, image: ReferenceOrId, names: &[String]) -> Result<Vec<String>> {
    let (store, names) = (content.store.clone(), names.to_vec());
    let untag = move || {
        let record = store.resolve(&image).map_err(|e| error::from_resolve(store.root(), &e))?;
        let record = record.ok_or_else(|| absent(&image))?;
        let names = if names.is_empty() { record.tags.iter().cloned().collect() } else { names };
        let tag = |name: &String| {
            tag_of(&record, name).ok_or_else(|| {
                let text = image.as_str();
                Error::new(Kind::NotFound, format!("image {text:?} does not have the name {name:?}"))
            })
        };
        let tags = names.iter().map(tag).collect::<Result<Vec<_>>>()?;
        store.untag(&record.id, &tags).map_err(|e| error::from_store(store.root(), &e))
    };
    content.background.run(untag).await
}

/// Returns the documents of the image with this name or ID.
pub(crate) async fn documents(content: &Content, image: ReferenceOrId) -> Result<Option<ImageDocuments>> {
    let store = content.store.clone();
    let read = move || {
        let record = store.resolve(&image).map_err(|e| error::from_resolve(store.root(), &e))?;
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
    content.background.run(read).await
}

/// Returns the tag that a name stands for; `None` if the image does not have it.
fn tag_of(record: &ImageRecord, name: &str) -> Option<Reference> {
    let tag = Reference::parse(name).ok()?.canonical();
    record.tags.contains(&tag.to_string()).then_some(tag)
}
