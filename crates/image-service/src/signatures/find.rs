//! [`Search`]: the signatures that a registry has of a digest, as cosign stores them: under the tag `sha256-<hex>.sig` of the
//! same repository, or else among the manifests that refer to it. What comes is hostile until a key has verified it: counts
//! and sizes are bounded, and what cannot be read is named and does not count. Called by the guard.
//!
//! A registry that says that there is nothing has answered; one that cannot be asked is an error, so that a failure is never
//! taken for an image without signatures, nor the other way round.

use std::collections::HashMap;

use bytes::Bytes;
use cri_api::Result;
use oci::{Descriptor, Digest, Document, Manifest};
use registry::{ErrorKind, Fetched, RegistryError, Repository};
use signature::{MAX_PAYLOAD, Signature};

use crate::error;

/// Media type of a layer that is a payload.
const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation of such a layer with the signature.
const ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// Type of a manifest with signatures among those that refer to an image.
const ARTIFACT_TYPE: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";
/// Types of what else may hold signatures, in a form that names no repository, begin so.
const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle";
/// At most this many manifests that refer to an image are inspected, the last ones.
const MAX_REFERRERS: usize = 16;
/// At most this many problems with unreadable signatures are reported.
const MAX_NOTES: usize = 3;

/// A signature whose payload has not been fetched.
pub(crate) struct Candidate {
    pub(crate) payload: Descriptor,
    pub(crate) signature: String,
}

/// Result of a search for signatures.
#[derive(Default)]
pub(crate) struct Search {
    /// The newest last.
    pub(crate) candidates: Vec<Candidate>,
    /// Faults of signatures that cannot be used, for the message.
    pub(crate) notes: Vec<String>,
}

impl Search {
    /// Looks for the signatures of `digest`.
    pub(crate) async fn start(repository: &Repository, digest: &Digest) -> Result<Self> {
        let mut search = Self::default();
        let failed = |error: &RegistryError| error::from_registry(error).context("look for signatures");
        let name = format!("{}-{}", digest.algorithm().as_str(), digest.hex());
        let tag = format!("{name}.sig");
        if let Some(found) = repository.tagged(&tag).await.map_err(|e| failed(&e))? {
            search.take(&found, &format!("the tag {tag}"));
            return Ok(search);
        }
        let index = match repository.referrers(digest).await.map_err(|e| failed(&e))? {
            Some(index) => Some(index),
            // If a registry does not list referrers, the clients that push them keep the list under this tag.
            None => repository.tagged(&name).await.map_err(|e| failed(&e))?,
        };
        let Some(index) = index else { return Ok(search) };
        let index = match Document::parse(&index.bytes, Some(&index.media_type)) {
            Ok(Document::Index(index)) => index,
            Ok(Document::Manifest(_)) => {
                search.note("the list of what refers to it is a manifest and not an index");
                return Ok(search);
            }
            Err(error) => {
                search.note(format!("the list of what refers to it cannot be read: {error}"));
                return Ok(search);
            }
        };
        let kind = |descriptor: &Descriptor| {
            descriptor.other.get("artifactType").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned()
        };
        if index.manifests.iter().any(|descriptor| kind(descriptor).starts_with(BUNDLE_TYPE)) {
            search.note(
                "it has a sigstore bundle, which names no repository and is not supported: sign with cosign sign \
                 --new-bundle-format=false",
            );
        }
        let signatures = index.manifests.iter().filter(|descriptor| kind(descriptor) == ARTIFACT_TYPE);
        let signatures: Vec<&Descriptor> = signatures.rev().take(MAX_REFERRERS).collect();
        for descriptor in signatures.into_iter().rev() {
            match repository.manifest(descriptor).await {
                Ok(found) => search.take(&found, &format!("the manifest {}", descriptor.digest)),
                Err(error) if is_useless(&error) => search.note(error.to_string()),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(search)
    }

    fn take(&mut self, found: &Fetched, what: &str) {
        match Document::parse(&found.bytes, Some(&found.media_type)) {
            Ok(Document::Manifest(manifest)) => {
                self.candidates.extend(candidates(manifest));
                if self.candidates.is_empty() {
                    self.note(format!("{what} has no signature of cosign's in it"));
                }
            }
            Ok(Document::Index(_)) => self.note(format!("{what} is an index and not a manifest")),
            Err(error) => self.note(format!("{what} cannot be read: {error}")),
        }
    }

    fn note(&mut self, text: impl Into<String>) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(text.into());
        }
    }
}

/// The signatures of a manifest.
pub(crate) fn candidates(manifest: Manifest) -> impl Iterator<Item = Candidate> {
    manifest.layers.into_iter().filter_map(|mut layer| {
        let signature = layer.annotations.remove(ANNOTATION)?;
        (layer.media_type == PAYLOAD_TYPE).then_some(Candidate { payload: layer, signature })
    })
}

/// The payloads of candidates. Signatures of different keys are often over the same bytes, which come once.
pub(crate) struct Payloads<'a> {
    repository: &'a Repository,
    fetched: HashMap<Digest, Bytes>,
}

impl<'a> Payloads<'a> {
    pub(crate) fn new(repository: &'a Repository) -> Self {
        Self { repository, fetched: HashMap::new() }
    }

    /// The payload of a candidate, or why it has none.
    pub(crate) async fn of(&mut self, candidate: &Candidate) -> Result<std::result::Result<Vec<u8>, &'static str>> {
        let descriptor = &candidate.payload;
        if descriptor.size > MAX_PAYLOAD {
            return Ok(Err("its payload is larger than is looked at"));
        }
        if candidate.signature.len() > signature::MAX_SIGNATURE_TEXT {
            return Ok(Err("it is longer than any signature"));
        }
        if let Some(bytes) = self.fetched.get(&descriptor.digest) {
            return Ok(Ok(bytes.to_vec()));
        }
        match self.repository.blob_bytes(descriptor, MAX_PAYLOAD).await {
            Ok(bytes) => {
                self.fetched.insert(descriptor.digest.clone(), bytes.clone());
                Ok(Ok(bytes.to_vec()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Err("its payload is not in the registry")),
            Err(error) if is_useless(&error) => Ok(Err("its payload is damaged")),
            Err(error) => Err(error::from_registry(&error).context("look for signatures")),
        }
    }
}

/// Returns true if the registry is well and does not have what was asked for.
fn is_useless(error: &RegistryError) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidContent)
}

/// The signatures of a manifest whose payloads are at hand, for archives.
pub(crate) fn with_payloads(
    manifest: Manifest,
    mut payload: impl FnMut(&Descriptor) -> Result<Vec<u8>>,
) -> Result<Vec<Signature>> {
    let mut signatures = Vec::new();
    for candidate in candidates(manifest) {
        if candidate.payload.size <= MAX_PAYLOAD {
            let payload = payload(&candidate.payload)?;
            signatures.push(Signature { payload, signature: candidate.signature });
        }
    }
    Ok(signatures)
}
