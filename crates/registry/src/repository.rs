//! [`Repository`]: the callers' view of a session: resolve a name, fetch manifests and small blobs whole and verified,
//! open streams of large ones.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use oci::{Descriptor, Digest, Reference, RegistryAuth};

use crate::blob::BlobStream;
use crate::client::Client;
use crate::document::{DocumentRequest, Fetched, ManifestHead, verify};
use crate::error::{Cause, ErrorKind, RegistryError};
use crate::retry::HostAttempts;
use crate::session::{PullSession, patiently};
use crate::traffic::HostBytes;

/// The session of one pull. Clones share it.
#[derive(Clone)]
pub struct Repository {
    session: Arc<PullSession>,
}

impl Client {
    /// Opens a session with the registry of `reference` for one pull. Asks the loader for the hosts, and no host yet.
    ///
    /// # Errors
    /// Of kind [`Config`](ErrorKind::Config), when the hosts are not known or cannot be used.
    pub fn repository(&self, reference: &Reference, auth: Option<RegistryAuth>) -> Result<Repository, RegistryError> {
        let path = Some(reference.path());
        Ok(Repository { session: Arc::new(PullSession::new(self.clone(), reference, auth, path)?) })
    }

    /// Opens a session with a registry for what is of no repository: `reference` may be any of its names.
    ///
    /// # Errors
    /// Those of [`Client::repository`].
    pub fn registry(&self, reference: &Reference, auth: Option<RegistryAuth>) -> Result<Repository, RegistryError> {
        Ok(Repository { session: Arc::new(PullSession::new(self.clone(), reference, auth, None)?) })
    }
}

impl Repository {
    pub(crate) fn session(&self) -> &PullSession {
        &self.session
    }

    /// The reference, with its default tag.
    #[must_use]
    pub fn reference(&self) -> &Reference {
        &self.session.reference
    }

    /// Resolves the reference: the index or manifest that its digest, or else its tag, stands for. By digest the bytes
    /// are verified; by tag they must agree with the registry's own digest.
    ///
    /// # Errors
    /// [`RegistryError`], with a part for every host that was asked.
    pub async fn resolve(&self) -> Result<Fetched, RegistryError> {
        let reference = &self.session.reference;
        let asked = format!("resolve {reference}");
        match (reference.digest(), reference.tag()) {
            (Some(digest), _) => self.session.document(&asked, &by_digest(digest, None)).await,
            (None, tag) => {
                let name = tag.unwrap_or("latest").to_owned();
                self.session.document(&asked, &by_name(MANIFESTS, name)).await
            }
        }
    }

    /// Returns the digest of the reference, at the cost of a HEAD, which registries with a limit on pulls do not
    /// count. Returns `None` after any failure: [`resolve`](Self::resolve) then returns its reason.
    pub async fn probe(&self) -> Option<Digest> {
        let reference = &self.session.reference;
        match reference.digest() {
            Some(digest) => Some(digest.clone()),
            None => self.session.probe(reference.tag()?).await,
        }
    }

    /// Asks for the manifest of the reference by HEAD, with the credential of this session, and receives no bytes of it. Registries with
    /// a limit on pulls do not count such a request.
    ///
    /// # Errors
    /// [`RegistryError`], with a part for every host that was asked.
    pub async fn head(&self) -> Result<ManifestHead, RegistryError> {
        let reference = &self.session.reference;
        let asked = format!("ask for the manifest of {reference}");
        match reference.digest() {
            Some(digest) => self.session.head(&asked, &digest.to_string(), false).await,
            None => self.session.head(&asked, reference.tag().unwrap_or("latest"), true).await,
        }
    }

    /// The manifest or index that a descriptor stands for, verified.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn manifest(&self, descriptor: &Descriptor) -> Result<Fetched, RegistryError> {
        let digest = &descriptor.digest;
        let asked = format!("fetch manifest {digest} of {}", self.session.reference.repository());
        let limit = self.session.client.options().limits.manifest;
        if descriptor.size > limit {
            return Err(too_large(asked, descriptor.size, limit));
        }
        self.session.document(&asked, &by_digest(digest, Some(descriptor.size))).await
    }

    /// Resolves another tag of the same repository as [`resolve`](Self::resolve) does; `None` where the repository has
    /// no such tag.
    ///
    /// # Errors
    /// [`RegistryError`], when it is not known whether there is one.
    pub async fn tagged(&self, tag: &str) -> Result<Option<Fetched>, RegistryError> {
        let asked = format!("resolve {}:{tag}", self.session.reference.repository());
        absent(self.session.document(&asked, &by_name(MANIFESTS, tag.to_owned())).await)
    }

    /// The index of the manifests that refer to this one (distribution specification 1.1, "Listing Referrers"), its first
    /// page; `None` where the registry does not know of such lists, or of that manifest.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn referrers(&self, digest: &Digest) -> Result<Option<Fetched>, RegistryError> {
        let asked = format!("list referrers of {digest} in {}", self.session.reference.repository());
        let listed = self.session.document(&asked, &by_name("referrers", digest.to_string())).await;
        match listed {
            // Some registries that do not implement the call answer like this.
            Err(error) if matches!(error.status(), Some(405 | 501)) => Ok(None),
            listed => absent(listed),
        }
    }

    /// A small blob, whole and verified. Where a host's bytes are wrong the next one is asked.
    ///
    /// # Errors
    /// [`RegistryError`]; of kind `InvalidContent` when the descriptor gives more than `limit` bytes.
    pub async fn blob_bytes(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes, RegistryError> {
        if descriptor.size > limit {
            return Err(too_large(self.session.blob_request_name(descriptor), descriptor.size, limit));
        }
        let mut stream = self.blob(descriptor).await?;
        loop {
            let mut out = BytesMut::new();
            while let Some(chunk) = stream.next().await? {
                out.extend_from_slice(&chunk);
            }
            let bytes = out.freeze();
            match verify(&descriptor.digest, Some(descriptor.size), bytes.clone()).await {
                Ok(()) => return Ok(bytes),
                Err(why) => stream.start_over(&why)?,
            }
        }
    }

    /// Returns the bytes of manifests and blobs that this session received so far, by host: those of the registry and of its mirrors.
    #[must_use]
    pub fn received(&self) -> Vec<HostBytes> {
        self.session.received()
    }

    /// Returns true if the registry confirms, for this session's credential, that the repository has this blob: usually one HEAD.
    /// Returns false after any failure; a fetch of the blob then returns its reason.
    pub async fn has_blob(&self, descriptor: &Descriptor) -> bool {
        let order = self.session.order(false);
        for (n, host) in order.iter().enumerate() {
            let attempts = HostAttempts::new(order[n..].to_vec());
            let asked = async { Ok(self.session.has_blob_at(*host, descriptor).await) };
            match patiently(self.session.patience(&attempts), asked).await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(cause) => self.session.note_silence(*host, &cause),
            }
        }
        false
    }

    /// Opens a blob. The head of the response has arrived when this returns; [`BlobStream::next`] returns the rest.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn blob(&self, descriptor: &Descriptor) -> Result<BlobStream, RegistryError> {
        self.blob_from(descriptor, 0).await
    }

    /// Opens a blob at a byte, for callers that have the bytes before. A host without support for ranges is asked for the whole
    /// blob.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn blob_from(&self, descriptor: &Descriptor, from: u64) -> Result<BlobStream, RegistryError> {
        let asked = self.session.blob_request_name(descriptor);
        BlobStream::open(Arc::clone(&self.session), descriptor, asked, from).await
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository").field("reference", &self.session.reference.to_string()).finish_non_exhaustive()
    }
}

/// The path component of manifests.
const MANIFESTS: &str = "manifests";

/// A request for a document that is known by its name alone.
fn by_name(what: &'static str, name: String) -> DocumentRequest<'static> {
    DocumentRequest { what, name, digest: None, size: None, by_tag: true }
}

/// A request for the manifest of a digest, and of a size where that is known.
fn by_digest(digest: &Digest, size: Option<u64>) -> DocumentRequest<'_> {
    DocumentRequest { what: MANIFESTS, name: digest.to_string(), digest: Some(digest), size, by_tag: false }
}

/// Returns `None` if the registry reports that the object is absent.
fn absent(result: Result<Fetched, RegistryError>) -> Result<Option<Fetched>, RegistryError> {
    match result {
        Ok(fetched) => Ok(Some(fetched)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn too_large(asked: String, size: u64, limit: u64) -> RegistryError {
    let cause = Cause::Content(format!("its descriptor has {size} bytes, the limit is {limit}"));
    RegistryError::without_host(asked, cause)
}
