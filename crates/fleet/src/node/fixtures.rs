//! Sets and images for the tests of this module.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use oci::Digest;

use super::desired::ImageKey;
use super::followed::{FollowedSet, SetOptions};
use crate::api::{Mode, OnDelete, ResolvedImage};

/// The digest of an image in these tests.
pub(super) fn digest(text: &str) -> Digest {
    Digest::sha256(text.as_bytes())
}

/// The key of an image whose digest is that of its name.
pub(super) fn key(name: &str) -> ImageKey {
    ImageKey { name: name.to_owned(), digest: Some(digest(name)) }
}

/// A released set with these images, each resolved to [`digest`] of its name.
pub(super) fn set(name: &str, images: &[&str]) -> FollowedSet {
    let image = |image: &&str| ResolvedImage {
        name: (*image).to_owned(),
        digest: Some(digest(image).to_string()),
        ..ResolvedImage::default()
    };
    FollowedSet {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        generation: 1,
        images: images.iter().map(image).collect(),
        released: true,
        finished: false,
        options: SetOptions {
            pin: true,
            release_after: 3600,
            on_delete: OnDelete::Release,
            mode: Mode::Keep,
            min_free: IntOrString::String("10%".to_owned()),
            pull_secrets: Vec::new(),
            namespaces: Vec::new(),
            resolves_on_node: false,
        },
    }
}
