//! [`Source`]: where the bytes of an image are read from: a registry with its mirrors ([`registry`]), or an archive
//! ([`crate::transfer`]). Sources know no pull, no store and no disk; [`stored`], [`kept`] and [`resume`] put the bytes that are
//! already present in front of them. A source verifies documents and small blobs itself; layers are verified as they are
//! unpacked.

pub(crate) mod kept;
pub(crate) mod registry;
pub(crate) mod resume;
pub(crate) mod stored;

use async_trait::async_trait;
use bytes::Bytes;
use cri_api::{Error, Result, SourceBytes};
use oci::{Descriptor, Digest};

use crate::origin::{Access, Origin, SharedContent};

/// Raw bytes of an index or a manifest, with media type and digest.
#[derive(Clone, Debug)]
pub(crate) struct RawDocument {
    pub(crate) bytes: Bytes,
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
}

/// A place that an image is read from.
#[async_trait]
pub(crate) trait Source: Send + Sync + 'static {
    /// Returns the origin of everything that is fetched from this source.
    fn origin(&self) -> &Origin;

    /// Returns true if the source confirms that it has the blob.
    async fn has(&self, descriptor: &Descriptor) -> bool;

    /// Fetches an index or a manifest, with size and digest verified.
    async fn document(&self, descriptor: &Descriptor) -> Result<RawDocument>;

    /// Fetches a whole small blob, with size and digest verified.
    async fn small_blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes>;

    /// Opens a blob, whose chunks are not verified.
    async fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Chunks>>;

    /// Opens a blob at an offset up to its size.
    async fn blob_from(&self, descriptor: &Descriptor, from: u64) -> Result<Box<dyn Chunks>>;

    /// Returns the bytes that were received so far, by host; none if no other machine is involved.
    fn received(&self) -> Vec<SourceBytes> {
        Vec::new()
    }
}

/// The chunks of a blob.
#[async_trait]
pub(crate) trait Chunks: Send {
    /// Returns the next chunk; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>>;

    /// Starts over after damaged chunks: the next chunk is the first one again, from another host.
    ///
    /// # Errors
    /// There is no other host; the error includes `why`.
    fn start_over(&mut self, why: &Error) -> Result<()>;

    /// Returns true if the chunks are fetched from another machine.
    fn is_remote(&self) -> bool;
}

/// Returns true if a pull from `source` with this access may use a blob that was fetched from another repository. Asks the source
/// if the access depends on it.
pub(crate) async fn may_use(sharing: SharedContent, source: &dyn Source, access: Access, blob: &Descriptor) -> bool {
    if sharing == SharedContent::Open {
        return true;
    }
    match access {
        Access::Granted => true,
        Access::Ask => source.has(blob).await,
        Access::Denied => false,
    }
}
