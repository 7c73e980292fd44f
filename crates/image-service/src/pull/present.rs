//! Answers from the store instead of the registry: documents of images that are present, and whole images that a pull
//! would not change. Everything is checked before it is used, and used only by a pull that could have fetched it.
//! Called by the pull.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cri_api::{LayerState, Result};
use oci::{Descriptor, Digest, ImageConfig, Reference};
use signature::Signature;
use store::ImageRecord;

use super::choose::{Chosen, runs_on};
use super::key::Names;
use crate::kept::KeptBlob;
use crate::origin::{Access, Origin, SharedContent};
use crate::progress::Hub;
use crate::shared::Shared;
use crate::signatures::evidence;
use crate::source::{Chunks, RawDocument, Source};

/// A source that looks into the store before it asks another one.
pub(crate) struct Present {
    shared: Arc<Shared>,
    inner: Arc<dyn Source>,
}

impl Present {
    pub(crate) fn before(shared: &Arc<Shared>, inner: Arc<dyn Source>) -> Self {
        Self { shared: Arc::clone(shared), inner }
    }

    /// Returns true if the documents of an image may be used. Asking the registry for them costs no more than asking about them.
    fn may_use(&self, image: &Digest) -> bool {
        self.shared.options.shared_content == SharedContent::Open
            || self.shared.known.access_to_image(self.origin(), image) == Access::Granted
    }
}

impl Shared {
    /// Returns true if a pull with this access may use a blob that was fetched from another repository. Asks `source`
    /// if necessary.
    pub(crate) async fn may_use(&self, source: &dyn Source, access: Access, blob: &Descriptor) -> bool {
        if self.options.shared_content == SharedContent::Open {
            return true;
        }
        match access {
            Access::Granted => true,
            Access::Ask => source.has(blob).await,
            Access::Denied => false,
        }
    }
}

#[async_trait]
impl Source for Present {
    fn origin(&self) -> &Origin {
        self.inner.origin()
    }

    async fn has(&self, descriptor: &Descriptor) -> bool {
        self.inner.has(descriptor).await
    }

    async fn document(&self, descriptor: &Descriptor) -> Result<RawDocument> {
        if let Some(id) = self.shared.known.image_of(&descriptor.digest)
            && self.may_use(&id)
            && let Some(image) = by_id(&self.shared, &id).await?
            && matches(&image.manifest, descriptor)
        {
            let (bytes, media_type) = (image.manifest.into(), image.manifest_media_type);
            return Ok(RawDocument { bytes, media_type, digest: descriptor.digest.clone() });
        }
        self.inner.document(descriptor).await
    }

    async fn small_blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes> {
        if self.may_use(&descriptor.digest)
            && let Some(image) = by_id(&self.shared, &descriptor.digest).await?
            && matches(&image.config, descriptor)
        {
            return Ok(image.config.into());
        }
        self.inner.small_blob(descriptor, limit).await
    }

    async fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Chunks>> {
        match KeptBlob::find(&self.shared, descriptor, &self.inner).await {
            Some(kept) => Ok(Box::new(kept)),
            None => self.inner.blob(descriptor).await,
        }
    }

    async fn blob_from(&self, descriptor: &Descriptor, from: u64) -> Result<Box<dyn Chunks>> {
        self.inner.blob_from(descriptor, from).await
    }
}

fn matches(bytes: &[u8], descriptor: &Descriptor) -> bool {
    bytes.len() as u64 == descriptor.size && descriptor.digest.algorithm().digest(bytes) == descriptor.digest
}

/// The image with this id.
async fn by_id(shared: &Arc<Shared>, id: &Digest) -> Result<Option<ImageRecord>> {
    let (store, id) = (shared.store.clone(), id.clone());
    shared.background.run(move || store.image(&id).map_err(|e| crate::error::from_store(store.root(), &e))).await
}

/// The image that a digest reference names, if it is here and whole, may be used, and runs on the platform that is asked for.
pub(crate) async fn by_digest(shared: &Arc<Shared>, reference: &Reference) -> Result<Option<Digest>> {
    if reference.digest().is_none() {
        return Ok(None);
    }
    let runs = |image: &ImageRecord| {
        ImageConfig::parse(&image.config).is_ok_and(|config| runs_on(&config, &shared.options.platform))
    };
    Ok(shared.find_usable(reference.to_string()).await?.filter(runs).map(|image| image.id))
}

/// The image as it is, if a pull of it would change nothing at all.
pub(crate) async fn unchanged(
    shared: &Arc<Shared>,
    chosen: &Chosen,
    names: &Names,
    signatures: &[Signature],
) -> Result<Option<ImageRecord>> {
    let image = shared.find_whole(chosen.manifest.config.digest.to_string()).await?;
    let named = |set: &std::collections::BTreeSet<String>, name: &Option<String>| {
        name.as_ref().is_none_or(|name| set.contains(name))
    };
    Ok(image.filter(|image| {
        image.manifest_digest == chosen.raw.digest
            && chosen.indexes.first().is_none_or(|index| image.index.as_deref() == Some(index))
            && named(&image.tags, &names.tag)
            && named(&image.repo_digests, &names.repo_digest)
            && evidence::has_all(image, signatures)
    }))
}

/// Reports that every layer is present.
pub(crate) fn tell_all(chosen: &Chosen, hub: &Hub) {
    for layer in &chosen.manifest.layers {
        hub.layer(&layer.digest, LayerState::Present);
    }
}
