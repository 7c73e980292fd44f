//! [`Presence`]: which images a node has, by the names that sets use. Pure. Made of a list of the image service by [`super::daemon`].

use std::collections::BTreeMap;

use cri_api::Image;

use super::desired::ImageKey;

/// The images of a node by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Presence {
    /// `name:tag` and `name@digest` to image ID.
    names: BTreeMap<String, String>,
}

impl Presence {
    pub(super) fn of(images: &[Image]) -> Self {
        let names = images.iter().flat_map(|image| {
            let names = image.repo_tags.iter().chain(&image.repo_digests);
            names.map(|name| (name.clone(), image.id.clone()))
        });
        Self { names: names.collect() }
    }

    /// Returns the ID of the image. With `any_of_name`, an image of the same tag with another digest counts as well.
    pub(super) fn find(&self, key: &ImageKey, any_of_name: bool) -> Option<&str> {
        let by_digest = key.by_digest().and_then(|name| self.names.get(&name));
        let by_tag = || {
            let counts = any_of_name || key.digest.is_none();
            key.tag().filter(|_| counts).and_then(|name| self.names.get(&name))
        };
        by_digest.or_else(by_tag).map(String::as_str)
    }

    /// Returns true if pods find the image with this ID by the name that the set uses.
    pub(super) fn has_name(&self, key: &ImageKey, id: &str) -> bool {
        key.tag().is_none_or(|tag| self.names.get(&tag).is_some_and(|named| named == id))
    }
}

#[cfg(test)]
mod tests {
    use oci::Digest;

    use super::*;

    #[test]
    fn an_image_is_found_by_digest_or_by_tag() {
        let (old, new) = (Digest::sha256(b"old"), Digest::sha256(b"new"));
        let image = Image {
            id: "sha256:1".to_owned(),
            repo_tags: vec!["docker.io/library/busybox:1".to_owned()],
            repo_digests: vec![format!("docker.io/library/busybox@{old}")],
            ..Image::default()
        };
        let presence = Presence::of(&[image]);
        let cases = [
            ("busybox:1", None, false, true),
            ("Docker.io/library/busybox:1", None, false, true),
            ("busybox", None, false, false),
            ("busybox:1", Some(&old), false, true),
            ("busybox:2", Some(&old), false, true),
            ("busybox:1", Some(&new), false, false),
            ("busybox:1", Some(&new), true, true),
            ("other:1", Some(&old), true, false),
            ("no name", None, true, false),
        ];
        for (name, digest, any_of_name, want) in cases {
            let key = ImageKey { name: name.to_owned(), digest: digest.cloned() };
            assert_eq!(presence.find(&key, any_of_name), want.then_some("sha256:1"), "{key:?} {any_of_name}");
        }
        for (name, want) in [("busybox:1", true), ("busybox:2", false), ("docker.io/library/busybox:1", true)] {
            let key = ImageKey { name: name.to_owned(), digest: Some(old.clone()) };
            assert_eq!(presence.has_name(&key, "sha256:1"), want, "{name}");
            assert!(!presence.has_name(&key, "sha256:2"), "{name}");
        }
        let key = ImageKey { name: format!("busybox@{old}"), digest: Some(old) };
        assert!(presence.has_name(&key, "sha256:1"), "a digest is a name by itself");
    }
}
