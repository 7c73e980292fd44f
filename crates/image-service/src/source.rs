//! [`Source`]: where the bytes of an image come from, a registry or a file. The pull pipeline knows nothing else about
//! it. A source verifies documents and small blobs itself; layers are verified by the pipeline as they are unpacked.

use std::collections::HashSet;

use async_trait::async_trait;
use base::lock::Mutex;
use bytes::Bytes;
use cri_api::{Error, Result};
use oci::{Descriptor, Digest};
use registry::{BlobStream, Repository};

use crate::error;
use crate::origin::Origin;

/// Raw bytes of an index or a manifest, with what they were served as.
#[derive(Clone, Debug)]
pub(crate) struct RawDocument {
    pub(crate) bytes: Bytes,
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
}

/// A place to read an image from.
#[async_trait]
pub(crate) trait Source: Send + Sync + 'static {
    /// The origin of everything that is fetched from this source.
    fn origin(&self) -> &Origin;

    /// Returns true if the source says that it can provide the blob.
    async fn has(&self, descriptor: &Descriptor) -> bool;

    /// An index or a manifest by digest; size and digest are verified.
    async fn document(&self, descriptor: &Descriptor) -> Result<RawDocument>;

    /// A small blob, whole; size and digest are verified.
    async fn small_blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes>;

    /// A blob in chunks, unverified.
    async fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Chunks>>;

    /// The same from some byte on, which is not behind its end.
    async fn blob_from(&self, descriptor: &Descriptor, from: u64) -> Result<Box<dyn Chunks>>;
}

/// The chunks of a blob.
#[async_trait]
pub(crate) trait Chunks: Send {
    /// The next chunk; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>>;

    /// Starts over after damaged chunks: the next chunk is the first one again, from another place.
    ///
    /// # Errors
    /// There is no other place; the error includes `why`.
    fn start_over(&mut self, why: &Error) -> Result<()>;

    /// Returns true if the chunks come from another machine.
    fn is_remote(&self) -> bool;
}

/// A repository, and the identity that its requests use, for one pull.
pub(crate) struct Remote {
    repository: Repository,
    origin: Origin,
    /// Blobs that it said it has: one answer is enough for a pull.
    had: Mutex<HashSet<Digest>>,
}

impl Remote {
    pub(crate) fn new(repository: Repository, origin: Origin) -> Self {
        Self { repository, origin, had: Mutex::default() }
    }
}

#[async_trait]
impl Source for Remote {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    async fn has(&self, descriptor: &Descriptor) -> bool {
        if self.had.lock().contains(&descriptor.digest) {
            return true;
        }
        let has = self.repository.has_blob(descriptor).await;
        if has {
            self.had.lock().insert(descriptor.digest.clone());
        }
        has
    }

    async fn document(&self, descriptor: &Descriptor) -> Result<RawDocument> {
        let fetched = self.repository.manifest(descriptor).await.map_err(|e| error::from_registry(&e))?;
        Ok(RawDocument { bytes: fetched.bytes, media_type: fetched.media_type, digest: fetched.digest })
    }

    async fn small_blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes> {
        self.repository.blob_bytes(descriptor, limit).await.map_err(|e| error::from_registry(&e))
    }

    async fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Chunks>> {
        self.blob_from(descriptor, 0).await
    }

    async fn blob_from(&self, descriptor: &Descriptor, from: u64) -> Result<Box<dyn Chunks>> {
        let stream = self.repository.blob_from(descriptor, from).await.map_err(|e| error::from_registry(&e))?;
        Ok(Box::new(stream))
    }
}

#[async_trait]
impl Chunks for BlobStream {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        BlobStream::next(self).await.map_err(|e| error::from_registry(&e))
    }

    fn start_over(&mut self, why: &Error) -> Result<()> {
        BlobStream::start_over(self, why.message()).map_err(|e| error::from_registry(&e))
    }

    fn is_remote(&self) -> bool {
        true
    }
}
