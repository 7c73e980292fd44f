//! [`Desired`]: the images that this node must have, merged over all sets that it follows. Pure. Called by [`super::model`].

use std::collections::{BTreeMap, BTreeSet};

use oci::{Digest, Reference};
use serde::{Deserialize, Serialize};

use super::followed::FollowedSet;
use crate::api::{MinFree, Mode, OnDelete, PullPolicy, ResolvedImage};

/// An image by the name that sets use, and the digest that the name stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageKey {
    pub(super) name: String,
    /// `None`: any image of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<Digest>,
}

impl ImageKey {
    /// Returns the key of an image of a set. The digest in a name precedes a resolved one.
    pub(super) fn of(image: &ResolvedImage) -> Self {
        let in_name = Reference::parse(&image.name).ok().and_then(|reference| reference.digest().cloned());
        let resolved = || image.digest.as_deref().and_then(|digest| digest.parse().ok());
        Self { name: image.name.clone(), digest: in_name.or_else(resolved) }
    }

    /// Returns the name in the form in which image services list it, without a digest: `docker.io/library/busybox:1`. `None`: the name
    /// has no tag, or it is no name.
    pub(super) fn tag(&self) -> Option<String> {
        let reference = Reference::parse(&self.name).ok()?;
        reference.digest().is_none().then(|| reference.with_default_tag().to_string())
    }

    /// Returns the repository with the digest: `docker.io/library/busybox@sha256:…`.
    pub(super) fn by_digest(&self) -> Option<String> {
        let digest = self.digest.clone()?;
        Some(Reference::parse(&self.name).ok()?.at_digest(digest).to_string())
    }
}

/// Reason why an image cannot be pulled at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) reason: String,
    pub(super) message: String,
}

/// An image that the node must have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DesiredImage {
    /// True if a set permits this node to pull the image.
    pub(super) may_start: bool,
    /// True if the image is pulled again when it disappears.
    pub(super) stays: bool,
    /// True if any image of this name is enough.
    pub(super) any_of_name: bool,
    /// True if a set protects the image from collection.
    pub(super) pin: bool,
    pub(super) obstacle: Option<Obstacle>,
    /// Names of pull secrets in the namespace of the fleet, in the order of the sets.
    pub(super) secrets: Vec<String>,
    /// Space that a pull must leave, by each set that permits it.
    pub(super) min_free: Vec<MinFree>,
    /// Namespaces whose pods may use the image without a credential.
    pub(super) namespaces: BTreeSet<String>,
    pub(super) release_after: u64,
    pub(super) on_delete: OnDelete,
}

impl DesiredImage {
    /// Returns true if a pull for the other one would fail for the same reasons, as far as the sets decide.
    pub(super) fn is_pulled_like(&self, other: &Self) -> bool {
        let of = |image: &Self| (image.secrets.clone(), image.min_free.clone(), image.obstacle.clone());
        of(self) == of(other)
    }
}

/// The images that a node must have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Desired {
    pub(super) images: BTreeMap<ImageKey, DesiredImage>,
}

/// Merges the sets. An image that one set removes and another one wants is wanted.
pub(super) fn desired<'a>(sets: impl IntoIterator<Item = &'a FollowedSet>) -> Desired {
    let mut all = Desired::default();
    for set in sets {
        for image in &set.images {
            let one = of_set(set, image);
            all.images.entry(ImageKey::of(image)).and_modify(|known| merge(known, &one)).or_insert(one);
        }
    }
    all
}

fn of_set(set: &FollowedSet, image: &ResolvedImage) -> DesiredImage {
    let options = &set.options;
    DesiredImage {
        may_start: set.released && !set.finished,
        stays: options.mode == Mode::Keep,
        any_of_name: image.pull_policy == PullPolicy::IfNotPresent,
        pin: options.pin,
        obstacle: obstacle(set, image),
        secrets: options.pull_secrets.clone(),
        min_free: MinFree::parse(&options.min_free).ok().into_iter().collect(),
        namespaces: options.namespaces.iter().cloned().collect(),
        release_after: options.release_after,
        on_delete: options.on_delete,
    }
}

fn obstacle(set: &FollowedSet, image: &ResolvedImage) -> Option<Obstacle> {
    if let Err(error) = Reference::parse(&image.name) {
        return Some(Obstacle { reason: "InvalidImageName".to_owned(), message: error.to_string() });
    }
    if ImageKey::of(image).digest.is_some() || set.options.resolves_on_node {
        return None;
    }
    let reason = image.reason.clone().unwrap_or_else(|| "Unresolved".to_owned());
    let message = image.message.clone().unwrap_or_else(|| "the tag has not been resolved to a digest".to_owned());
    Some(Obstacle { reason, message })
}

fn merge(known: &mut DesiredImage, other: &DesiredImage) {
    // Options about the pull are those of the sets that permit it.
    if other.may_start || !known.may_start {
        let secrets = other.secrets.iter().filter(|name| !known.secrets.contains(name));
        let secrets: Vec<String> = secrets.cloned().collect();
        known.secrets.extend(secrets);
        known.min_free.extend(other.min_free.iter().copied());
    }
    known.may_start |= other.may_start;
    known.stays |= other.stays;
    known.any_of_name &= other.any_of_name;
    known.pin |= other.pin;
    if other.obstacle.is_none() {
        known.obstacle = None;
    }
    known.namespaces.extend(other.namespaces.iter().cloned());
    known.release_after = known.release_after.max(other.release_after);
    if other.on_delete == OnDelete::Release {
        known.on_delete = OnDelete::Release;
    }
}

#[cfg(test)]
#[path = "desired_tests.rs"]
mod tests;
