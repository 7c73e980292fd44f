//! [`RegistrySource`]: an image in a repository of a registry, fetched from its mirrors or itself with one credential.

use std::collections::HashSet;

use async_trait::async_trait;
use base::lock::Mutex;
use bytes::Bytes;
use cri_api::{Error, Result, SourceBytes};
use oci::{Descriptor, Digest, Reference, RegistryAuth};
use registry::{BlobStream, Client, HostBytes, Repository};

use super::{Chunks, RawDocument, Source};
use crate::background::Background;
use crate::error;
use crate::origin::Origin;

/// Opens a session with the registry of an image. The hosts' configuration is read on a blocking thread.
pub(crate) async fn open_repository(
    background: &Background,
    client: &Client,
    reference: &Reference,
    auth: Option<RegistryAuth>,
) -> Result<Repository> {
    let (client, reference) = (client.clone(), reference.clone());
    background.run(move || client.repository(&reference, auth).map_err(|e| error::from_registry(&e))).await
}

/// A repository and the credential of its requests, for one pull.
pub(crate) struct RegistrySource {
    repository: Repository,
    origin: Origin,
    /// Blobs that the repository has confirmed: one request per blob is enough for a pull.
    confirmed: Mutex<HashSet<Digest>>,
}

impl RegistrySource {
    pub(crate) fn new(repository: Repository, origin: Origin) -> Self {
        Self { repository, origin, confirmed: Mutex::default() }
    }
}

#[async_trait]
impl Source for RegistrySource {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    async fn has(&self, descriptor: &Descriptor) -> bool {
        if self.confirmed.lock().contains(&descriptor.digest) {
            return true;
        }
        let has = self.repository.has_blob(descriptor).await;
        if has {
            self.confirmed.lock().insert(descriptor.digest.clone());
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

    fn received(&self) -> Vec<SourceBytes> {
        let received = self.repository.received().into_iter();
        received.map(|HostBytes { host, mirror, bytes }| SourceBytes { host, mirror, bytes }).collect()
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
