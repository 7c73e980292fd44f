//! The digests of an image: those of its manifest and of the indexes that lead to it. A name with a digest is recorded only
//! with one of them, and is used only while the image's record says so. Pure. Called by commits, look-ups, the opening and
//! the check.

use std::collections::BTreeSet;

use oci::{Digest, Document};

use crate::error::CommitError;
use crate::images::commit::ImageCommit;
use crate::records::entries::ImageEntry;

impl ImageEntry {
    /// Returns true if the image was verified to have this digest.
    pub(crate) fn has_digest(&self, digest: &Digest) -> bool {
        self.manifest_digest == *digest
            || self.index_digest.as_ref() == Some(digest)
            || self.verified_digests.contains(digest)
    }

    /// Returns true if a recorded name may be used: one with a tag, or with a digest that the image has.
    pub(crate) fn may_use(&self, name: &str) -> bool {
        !name.contains('@') || digest_in(name).is_some_and(|digest| self.has_digest(&digest))
    }

    /// Names with a digest that the image was never verified to have. Versions before this rule recorded them.
    pub(crate) fn unverified_names(&self) -> impl Iterator<Item = &String> {
        self.tags.iter().chain(&self.repo_digests).filter(|name| !self.may_use(name))
    }
}

/// The digest in a name.
fn digest_in(name: &str) -> Option<Digest> {
    name.split_once('@')?.1.parse().ok()
}

/// The digests that are to be remembered of an image which had the record `before` and gets this name, which was verified: all
/// by which it goes on having a name.
pub(crate) fn verified(before: Option<&ImageEntry>, name: Option<&str>) -> BTreeSet<Digest> {
    let names = before.into_iter().flat_map(|entry| entry.repo_digests.iter().filter(|name| entry.may_use(name)));
    names.map(String::as_str).chain(name).filter_map(digest_in).collect()
}

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
