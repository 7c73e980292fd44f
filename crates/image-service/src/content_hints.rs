//! [`ContentHints`]: hints about the content of the store, by digests that the store has no index for, and the
//! provenance of that content. A hint is never trusted: it only says where to check first. Provenance, which decides
//! who may use content of other repositories, is trusted; it errs on the side of fetching. Filled at the opening and by
//! every commit.

use base::lock::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use oci::{Digest, Document, ImageConfig};
use store::ImageRecord;

use crate::origin::{Access, Origin, Provenance};

/// The hints.
#[derive(Default)]
pub(crate) struct ContentHints(Mutex<Maps>);

#[derive(Default)]
struct Maps {
    /// Compressed blob to diff id.
    blobs: HashMap<Digest, Digest>,
    /// Manifest to image id.
    manifests: HashMap<Digest, Digest>,
    /// Origins of each image, by its id.
    provenance: HashMap<Digest, Provenance>,
    /// The images that have a layer, by its diff id.
    images_with: HashMap<Digest, BTreeSet<Digest>>,
}

impl ContentHints {
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

    /// Sets the layers that a runtime has of these blobs: diff ids by blobs. Of the others it has none.
    pub(crate) fn set_layers(&self, blobs: impl IntoIterator<Item = Digest>, found: BTreeMap<Digest, Digest>) {
        let mut maps = self.lock();
        for blob in blobs {
            maps.blobs.remove(&blob);
        }
        maps.blobs.extend(found);
    }

    /// The image id that a manifest led to.
    pub(crate) fn image_of(&self, manifest: &Digest) -> Option<Digest> {
        self.lock().manifests.get(manifest).cloned()
    }

    /// Returns true if there may be an image with this config, so that what it says of its layers need not be fetched.
    pub(crate) fn has_config(&self, id: &Digest) -> bool {
        self.lock().manifests.values().any(|known| known == id)
    }

    /// The access of a pull from `origin` to the documents of an image.
    pub(crate) fn access_to_image(&self, origin: &Origin, id: &Digest) -> Access {
        let maps = self.lock();
        maps.provenance.get(id).map_or(Access::Denied, |image| origin.access_to_any(&image.origins))
    }

    /// The access of a pull from `origin`, whose manifest names this blob for a layer with this diff id, to the layer. A blob
    /// that was never found to have this layer stands for nothing but itself.
    pub(crate) fn access_to_layer(&self, origin: &Origin, blob: &Digest, diff_id: &Digest) -> Access {
        let maps = self.lock();
        let images = || maps.images_with.get(diff_id).into_iter().flatten().filter_map(|id| maps.provenance.get(id));
        match origin.access_to_any(images().flat_map(|image| &image.origins)) {
            Access::Ask if maps.is_made_of(diff_id, blob) => Access::Ask,
            Access::Ask => Access::Denied,
            access => access,
        }
    }

    /// The access of a pull from `origin` to a kept blob.
    pub(crate) fn access_to_blob(&self, origin: &Origin, blob: &Digest) -> Access {
        let maps = self.lock();
        let images = maps.provenance.values().filter(|image| image.has_blob(blob));
        origin.access_to_any(images.flat_map(|image| &image.origins))
    }

    /// Returns true if the layer with this diff id was found to be what this blob unpacks to.
    pub(crate) fn is_made_of(&self, diff_id: &Digest, blob: &Digest) -> bool {
        self.lock().is_made_of(diff_id, blob)
    }

    fn lock(&self) -> base::lock::MutexGuard<'_, Maps> {
        self.0.lock()
    }
}

impl Maps {
    fn add(&mut self, image: &ImageRecord) {
        let Layers { blobs, diff_ids } = Layers::of(image);
        self.manifests.insert(image.manifest_digest.clone(), image.id.clone());
        self.blobs.extend(blobs);
        self.provenance.insert(image.id.clone(), Provenance::of(image));
        for diff_id in diff_ids {
            self.images_with.entry(diff_id).or_default().insert(image.id.clone());
        }
    }

    fn forget(&mut self, image: &ImageRecord) {
        let Layers { blobs, diff_ids } = Layers::of(image);
        self.manifests.remove(&image.manifest_digest);
        for (blob, _) in blobs {
            self.blobs.remove(&blob);
        }
        self.provenance.remove(&image.id);
        for diff_id in diff_ids {
            if let Some(images) = self.images_with.get_mut(&diff_id) {
                images.remove(&image.id);
                if images.is_empty() {
                    self.images_with.remove(&diff_id);
                }
            }
        }
    }

    fn is_made_of(&self, diff_id: &Digest, blob: &Digest) -> bool {
        let pair = (blob.clone(), diff_id.clone());
        blob == diff_id
            || self
                .images_with
                .get(diff_id)
                .into_iter()
                .flatten()
                .filter_map(|id| self.provenance.get(id))
                .any(|image| image.blobs.contains(&pair))
    }
}

/// The layers of an image, as its documents give them; nothing where these cannot be read.
#[derive(Default)]
struct Layers {
    /// Each blob of the manifest, with the diff id of its place.
    blobs: Vec<(Digest, Digest)>,
    diff_ids: Vec<Digest>,
}

impl Layers {
    fn of(image: &ImageRecord) -> Self {
        let Ok(config) = ImageConfig::parse(&image.config) else { return Self::default() };
        let diff_ids = config.rootfs.diff_ids;
        let blobs = match Document::parse(&image.manifest, Some(&image.manifest_media_type)) {
            Ok(Document::Manifest(manifest)) if manifest.layers.len() == diff_ids.len() => {
                manifest.layers.into_iter().map(|layer| layer.digest).zip(diff_ids.iter().cloned()).collect()
            }
            _ => Vec::new(),
        };
        Self { blobs, diff_ids }
    }
}
