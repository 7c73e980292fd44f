//! The digests of an image: those of its manifest and of the indexes that lead to it. A name with a digest is recorded only
//! with one of them, and is used only while the image's record says so. Pure. Called by commits, look-ups, the opening and
//! the check.

use std::collections::BTreeSet;

use oci::Digest;

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
pub(crate) fn digest_in(name: &str) -> Option<Digest> {
    name.split_once('@')?.1.parse().ok()
}

/// Returns the digests to remember for an image which had the record `before` and gets this verified name: all by which it
/// continues to have a name.
pub(crate) fn verified(before: Option<&ImageEntry>, name: Option<&str>) -> BTreeSet<Digest> {
    let names = before.into_iter().flat_map(|entry| entry.repo_digests.iter().filter(|name| entry.may_use(name)));
    names.map(String::as_str).chain(name).filter_map(digest_in).collect()
}
