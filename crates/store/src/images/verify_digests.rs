//! The digests of a commit's documents: each document refers to the next one, and the digest of a name is that of one of them.
//! Pure.

use oci::{Digest, Document};

use crate::error::CommitError;
use crate::images::image_commit::ImageCommit;
use crate::records::digests::digest_in;

/// Bytes whose digests are computed when they are asked for, once for each algorithm.
struct Hashed<'a> {
    bytes: &'a [u8],
    digests: Vec<Digest>,
}

impl<'a> Hashed<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, digests: vec![Digest::sha256(bytes)] }
    }

    fn sha256(&self) -> &Digest {
        &self.digests[0]
    }

    fn has(&mut self, digest: &Digest) -> bool {
        let algorithm = digest.algorithm();
        if !self.digests.iter().any(|known| known.algorithm() == algorithm) {
            self.digests.push(algorithm.digest(self.bytes));
        }
        self.digests.contains(digest)
    }
}

/// Verifies what a commit says of digests: each index lists the next document, the last one the manifest; and the digest of
/// a name is that of one of these, whose manifest names the config.
///
/// # Errors
/// [`CommitError::Unrelated`], [`CommitError::ForeignDigest`].
pub(crate) fn verify(commit: &ImageCommit, name: Option<&str>) -> Result<(), CommitError> {
    let mut documents: Vec<Hashed<'_>> =
        commit.indexes.iter().chain([&commit.manifest]).map(|bytes| Hashed::new(bytes)).collect();
    for at in 1..documents.len() {
        let Ok(Document::Index(index)) = Document::parse(documents[at - 1].bytes, None) else {
            return Err(unrelated(&documents[at - 1], &documents[at]));
        };
        if !index.manifests.iter().any(|descriptor| documents[at].has(&descriptor.digest)) {
            return Err(unrelated(&documents[at - 1], &documents[at]));
        }
    }
    let Some(name) = name else { return Ok(()) };
    if !digest_in(name).is_some_and(|digest| documents.iter_mut().any(|document| document.has(&digest))) {
        let digests = documents.into_iter().rev().map(|document| document.sha256().clone()).collect();
        return Err(CommitError::ForeignDigest { name: name.to_owned(), digests });
    }
    let (manifest, mut config) = (Hashed::new(&commit.manifest), Hashed::new(&commit.config));
    match Document::parse(manifest.bytes, Some(&commit.manifest_media_type)) {
        Ok(Document::Manifest(parsed)) if config.has(&parsed.config.digest) => Ok(()),
        _ => Err(unrelated(&manifest, &config)),
    }
}

fn unrelated(document: &Hashed<'_>, to: &Hashed<'_>) -> CommitError {
    CommitError::Unrelated { document: document.sha256().clone(), to: to.sha256().clone() }
}
