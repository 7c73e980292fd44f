//! [`StoredFirst`]: a source that reads documents and kept blobs from the store before it asks another source. Stored content is
//! verified before it is used, and used only by a pull that may fetch it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cri_api::{Result, SourceBytes};
use oci::{Descriptor, Digest};
use store::ImageRecord;

use super::kept::KeptBlob;
use super::{Chunks, RawDocument, Source};
use crate::content::Content;
use crate::origin::{Access, Origin, SharedContent};

/// A source that reads from the store before it asks another source.
pub(crate) struct StoredFirst {
    content: Arc<Content>,
    inner: Arc<dyn Source>,
}

impl StoredFirst {
    pub(crate) fn new(content: &Arc<Content>, inner: Arc<dyn Source>) -> Self {
        Self { content: Arc::clone(content), inner }
    }

    /// Returns true if the documents of an image may be used without a request. A request about them would cost as much as one for
    /// them.
    fn may_use(&self, image: &Digest) -> bool {
        self.content.sharing == SharedContent::Open
            || self.content.hints.access_to_image(self.origin(), image) == Access::Granted
    }
}

#[async_trait]
impl Source for StoredFirst {
    fn origin(&self) -> &Origin {
        self.inner.origin()
    }

    fn received(&self) -> Vec<SourceBytes> {
        self.inner.received()
    }

    async fn has(&self, descriptor: &Descriptor) -> bool {
        self.inner.has(descriptor).await
    }

    async fn document(&self, descriptor: &Descriptor) -> Result<RawDocument> {
        if let Some(id) = self.content.hints.image_of(&descriptor.digest)
            && self.may_use(&id)
            && let Some(image) = by_id(&self.content, &id).await?
            && matches(&image.manifest, descriptor)
        {
            let (bytes, media_type) = (image.manifest.into(), image.manifest_media_type);
            return Ok(RawDocument { bytes, media_type, digest: descriptor.digest.clone() });
        }
        self.inner.document(descriptor).await
    }

    async fn small_blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes> {
        if self.may_use(&descriptor.digest)
            && let Some(image) = by_id(&self.content, &descriptor.digest).await?
            && matches(&image.config, descriptor)
        {
            return Ok(image.config.into());
        }
        self.inner.small_blob(descriptor, limit).await
    }

    async fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Chunks>> {
        match KeptBlob::find(&self.content, descriptor, &self.inner).await {
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

async fn by_id(content: &Content, id: &Digest) -> Result<Option<ImageRecord>> {
    let id = id.clone();
    content.on_store(move |store| store.image(&id)).await
}
