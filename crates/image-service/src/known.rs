//! [`Known`]: hints about what the store has, by digests that the store has no index for. A hint is never believed: it
//! only says where to look first. Filled at the opening and by every commit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use oci::{Digest, Document, ImageConfig};
use store::ImageRecord;

/// The hints.
#[derive(Default)]
pub(crate) struct Known(Mutex<Maps>);

#[derive(Default)]
struct Maps {
    /// Compressed blob to diff id.
    blobs: HashMap<Digest, Digest>,
    /// Manifest to image id.
    manifests: HashMap<Digest, Digest>,
}

impl Known {
    /// Starts again from these images.
    pub(crate) fn replace(&self, images: &[ImageRecord]) {
        let mut maps = Maps::default();
        for image in images {
            maps.add(image);
        }
        *self.lock() = maps;
    }

    /// Adds an image.
    pub(crate) fn add(&self, image: &ImageRecord) {
        self.lock().add(image);
    }

    /// Forgets what a removed image alone may have had. What others have as well is looked for in vain once.
    pub(crate) fn forget(&self, image: &ImageRecord) {
        self.lock().forget(image);
    }

    /// The diff id that a blob had in an image that is or was here.
    pub(crate) fn diff_id(&self, blob: &Digest) -> Option<Digest> {
        self.lock().blobs.get(blob).cloned()
    }

    /// The image id that a manifest led to.
    pub(crate) fn image_of(&self, manifest: &Digest) -> Option<Digest> {
        self.lock().manifests.get(manifest).cloned()
    }

    /// Whether there may be an image with this config, so that what it says of its layers need not be fetched.
    pub(crate) fn has_config(&self, id: &Digest) -> bool {
        self.lock().manifests.values().any(|known| known == id)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Maps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Maps {
    fn add(&mut self, image: &ImageRecord) {
        self.manifests.insert(image.manifest_digest.clone(), image.id.clone());
        self.blobs.extend(layers_of(image));
    }

    fn forget(&mut self, image: &ImageRecord) {
        self.manifests.remove(&image.manifest_digest);
        for (blob, _) in layers_of(image) {
            self.blobs.remove(&blob);
        }
    }
}

/// Blob and diff id of every layer; nothing where the documents cannot be read.
fn layers_of(image: &ImageRecord) -> Vec<(Digest, Digest)> {
    let parsed =
        (Document::parse(&image.manifest, Some(&image.manifest_media_type)), ImageConfig::parse(&image.config));
    let (Ok(Document::Manifest(manifest)), Ok(config)) = parsed else { return Vec::new() };
    if manifest.layers.len() != config.rootfs.diff_ids.len() {
        return Vec::new();
    }
    manifest.layers.into_iter().map(|l| l.digest).zip(config.rootfs.diff_ids).collect()
}
