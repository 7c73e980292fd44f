//! [`save_baked`]: the state of a node whose images were pulled before it had an API server, for disks that nodes are made of. The daemon
//! that starts on such a disk keeps the pins, and finds every image present. Called by `imagelet fleet bake`.

use std::path::Path;

use image_manager::gc::Pins;
use jiff::Timestamp;

use super::desired::desired;
use super::followed::baked;
use super::held::{pinned_names, pins};
use super::state_file::{SavedState, StateFile};
use crate::api::{ImageSetSpec, ResolvedImage};

/// A set whose images were pulled.
#[derive(Clone, Debug)]
pub struct BakedSet {
    /// Name of the set.
    pub name: String,
    /// The set.
    pub spec: ImageSetSpec,
    /// Images with their digests; those that could not be pulled are left out.
    pub images: Vec<ResolvedImage>,
}

/// The state of a node cannot be written.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the state of image sets cannot be written; the log has the reason")]
pub struct BakeError;

/// Writes the state of a node that has these sets, and returns the pins that its image collection must have. Images of an earlier call that
/// no set has any more are released as on a node.
pub async fn save_baked(directory: &Path, sets: &[BakedSet], now: Timestamp) -> Result<Pins, BakeError> {
    let file = StateFile::new(directory);
    let mut state: SavedState = file.read().await;
    let sets: Vec<_> = sets.iter().map(|set| baked(&set.name, &set.spec, &set.images)).collect();
    let wanted = desired(&sets);
    for (key, image) in &wanted.images {
        state.held.note_present(key, image, true);
    }
    // Images to remove at once are ordinary ones on a disk that no node uses yet: image collection decides.
    let _ = state.held.update(&wanted, now);
    let pins = pins(&pinned_names(&wanted, &state.held));
    let state = SavedState { sets, ..SavedState::new(state.node, Vec::new(), state.held, state.nodes) };
    if file.write(&state).await { Ok(pins) } else { Err(BakeError) }
}

#[cfg(test)]
mod tests {
    use oci::Digest;

    use super::*;

    fn set(images: &[&str]) -> BakedSet {
        let digest = |name: &str| Some(Digest::sha256(name.as_bytes()).to_string());
        let image =
            |name: &&str| ResolvedImage { name: (*name).to_owned(), digest: digest(name), ..ResolvedImage::default() };
        BakedSet { name: "web".to_owned(), spec: ImageSetSpec::default(), images: images.iter().map(image).collect() }
    }

    #[tokio::test]
    async fn images_are_pinned_as_wanted_and_present() {
        let directory = tempfile::tempdir().expect("a directory");
        let now = Timestamp::UNIX_EPOCH;
        let first = save_baked(directory.path(), &[set(&["app:1", "old:1"])], now).await.expect("saved");
        let state = StateFile::new(directory.path()).read().await;
        assert_eq!((state.sets.len(), state.sets[0].released), (1, true));
        let again = save_baked(directory.path(), &[set(&["app:1", "old:1"])], now).await.expect("saved");
        assert_eq!((&first, StateFile::new(directory.path()).read().await), (&again, state));
        // An image that the set no longer has stays protected for a day.
        let other = save_baked(directory.path(), &[set(&["app:1"])], now).await.expect("saved");
        assert_eq!(other, first);
        let later = now + std::time::Duration::from_secs(2 * 24 * 3600);
        let last = save_baked(directory.path(), &[set(&["app:1"])], later).await.expect("saved");
        assert_ne!(last, first);
    }
}
