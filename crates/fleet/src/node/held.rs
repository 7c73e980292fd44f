//! [`HeldImages`]: images that are or were on this node for sets, and what becomes of them when no set wants them any more: the
//! protection ends after a time, or the image is removed. Pure; kept on disk. Called by [`super::model`].

use std::collections::BTreeMap;

use image_manager::gc::{Pattern, Pins};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::desired::{Desired, DesiredImage, ImageKey};
use crate::api::OnDelete;

/// An image that was present for a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeldImage {
    key: ImageKey,
    /// True if this daemon pulled it: only such images are removed.
    pulled: bool,
    pinned: bool,
    on_delete: OnDelete,
    release_after: u64,
    /// Time since which no set wants it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unwanted_since: Option<Timestamp>,
}

impl HeldImage {
    /// Returns the time at which the protection ends; `None` while a set wants the image.
    fn released_at(&self) -> Option<Timestamp> {
        let seconds = i64::try_from(self.release_after).unwrap_or(i64::MAX);
        let since = self.unwanted_since?;
        Some(since.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
    }
}

/// The images that were present for sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<HeldImage>", into = "Vec<HeldImage>")]
pub(super) struct HeldImages(BTreeMap<ImageKey, HeldImage>);

impl From<Vec<HeldImage>> for HeldImages {
    fn from(images: Vec<HeldImage>) -> Self {
        Self(images.into_iter().map(|image| (image.key.clone(), image)).collect())
    }
}

impl From<HeldImages> for Vec<HeldImage> {
    fn from(images: HeldImages) -> Self {
        images.0.into_values().collect()
    }
}

impl HeldImages {
    /// Records that a wanted image is present, and whether this daemon pulled it.
    pub(super) fn note_present(&mut self, key: &ImageKey, image: &DesiredImage, pulled: bool) {
        let new = HeldImage {
            key: key.clone(),
            pulled,
            pinned: image.pin,
            on_delete: image.on_delete,
            release_after: image.release_after,
            unwanted_since: None,
        };
        self.0.entry(key.clone()).and_modify(|held| held.pulled |= pulled).or_insert(new);
    }

    /// Returns true if the image was present before.
    pub(super) fn was_present(&self, key: &ImageKey) -> bool {
        self.0.contains_key(key)
    }

    /// Follows the wishes of the sets. Returns the images that are to be removed now; images whose protection ended are dropped.
    pub(super) fn update(&mut self, desired: &Desired, now: Timestamp) -> Vec<ImageKey> {
        let mut removals = Vec::new();
        self.0.retain(|key, held| {
            if let Some(image) = desired.images.get(key) {
                held.unwanted_since = None;
                (held.pinned, held.on_delete, held.release_after) = (image.pin, image.on_delete, image.release_after);
                return true;
            }
            if held.on_delete == OnDelete::Remove {
                if held.pulled {
                    removals.push(key.clone());
                }
                return false;
            }
            held.unwanted_since.get_or_insert(now);
            held.pinned && held.released_at().is_some_and(|at| at > now)
        });
        removals
    }

    /// Returns the time of the next end of a protection.
    pub(super) fn next_release(&self) -> Option<Timestamp> {
        self.0.values().filter_map(HeldImage::released_at).min()
    }

    /// Returns the protected images that no set wants.
    fn unwanted(&self) -> impl Iterator<Item = &ImageKey> {
        self.0.values().filter(|held| held.pinned && held.unwanted_since.is_some()).map(|held| &held.key)
    }
}

/// Returns the names of the images to pin on a node, by tag and by digest: the wanted images whether they are present or not, and those
/// whose protection has not ended.
pub(super) fn pinned_names(desired: &Desired, held: &HeldImages) -> Vec<String> {
    let wanted = desired.images.iter().filter(|(_, image)| image.pin).map(|(key, _)| key);
    let names = |key: &ImageKey| [key.tag(), key.by_digest()].into_iter().flatten();
    wanted.chain(held.unwanted()).flat_map(names).collect()
}

/// Compiles the pins of these names. A name that cannot be read pins nothing.
pub(super) fn pins(names: &[String]) -> Pins {
    names.iter().filter_map(|name| Pattern::parse(name).ok()).collect()
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
