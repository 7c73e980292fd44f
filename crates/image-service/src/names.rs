//! Names of present images that a user adds, removes and lists. A name gives no access to an image: provenance and pull records
//! stay unchanged, and the signature policy applies as for an import. Called by [`crate::image_engine`].

use cri_api::engine::ImageDocuments;
use cri_api::{Error, Kind, Result};
use oci::Reference;
use store::{ImageRecord, Store};

use crate::content::Content;
use crate::error;
use crate::origin::Provenance;
use crate::signatures::{ImagePolicy, evidence};

/// Adds a name to the image with this name or ID.
pub(crate) async fn tag(content: &Content, policy: &ImagePolicy, text: &str, name: &str) -> Result<String> {
    let reference = Reference::parse(name).map_err(|error| Error::from_source(Kind::InvalidArgument, &error))?;
    if reference.digest().is_some() {
        let message = format!("{name:?} has a digest, and a digest cannot be chosen: name a tag");
        return Err(error::invalid(message));
    }
    let reference = reference.with_default_tag().canonical();
    let record = content.find_whole(text.to_owned()).await?.ok_or_else(|| absent(text))?;
    if let Some(guard) = policy.guard(Some(&reference)).await? {
        let digests = record.index_digest.iter().chain([&record.manifest_digest]).cloned().collect();
        guard.check_offline(&content.background, digests, evidence::of(&record), "with the image").await?;
    }
    let name = reference.to_string();
    let tag = move |store: &Store| {
        // Images of early versions have no provenance but their names. The new name must not become one of their origins.
        let mut annotations = record.annotations.clone();
        Provenance::of(&record).write(&mut annotations);
        if annotations != record.annotations {
            store.annotate(&record.id, &annotations)?;
        }
        store.tag(&record.id, &name)?;
        Ok(name)
    };
    content.on_store(tag).await
}

/// Removes names from the image with this name or ID; all tags, if none are given.
pub(crate) async fn untag(content: &Content, text: &str, names: &[String]) -> Result<Vec<String>> {
    let (store, text, names) = (content.store.clone(), text.to_owned(), names.to_vec());
    let untag = move || {
        let record = store.resolve(&text).map_err(|e| error::from_resolve(store.root(), &e))?;
        let record = record.ok_or_else(|| absent(&text))?;
        let names = if names.is_empty() { record.tags.iter().cloned().collect() } else { names };
        if let Some(foreign) = names.iter().find(|name| !has(&record, name)) {
            return Err(Error::new(Kind::NotFound, format!("image {text:?} does not have the name {foreign:?}")));
        }
        store.untag(&record.id, &names).map_err(|e| error::from_store(store.root(), &e))
    };
    content.background.run(untag).await
}

/// Returns the documents of the image with this name or ID.
pub(crate) async fn documents(content: &Content, text: &str) -> Result<Option<ImageDocuments>> {
    let (store, text) = (content.store.clone(), text.to_owned());
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
    content.background.run(read).await
}

fn absent(text: &str) -> Error {
    Error::new(Kind::NotFound, format!("image {text:?} is not present"))
}

fn has(record: &ImageRecord, name: &str) -> bool {
    Reference::parse(name).is_ok_and(|name| record.tags.contains(&name.with_default_tag().canonical().to_string()))
}
