//! [`OwnStore`]: the engine's own store as a destination. The store unpacks layers as directories or EROFS files. All layers of an
//! image become visible at its commit, in one transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use cri_api::Result;
use oci::{Digest, Reference};
use signature::Signature;
use store::{CommitError, ImageCommit, ImageRecord, Lease};

use super::image::{Assembled, ChainLink, ImageLayer, NewImage, PresentLayer};
use super::{Destination, ImageWriter, WriteError};
use crate::background::BlockingDrop;
use crate::budgets::SpaceRequirement;
use crate::content::Content;
use crate::error;
use crate::in_flight::ReadyLayer;
use crate::origin::{Access, Origin, Provenance, SharedContent};
use crate::signatures::{FinalCheck, evidence};

/// The engine's own store.
pub(crate) struct OwnStore {
    content: Arc<Content>,
}

/// Writes one image into the engine's own store.
struct OwnStoreWriter {
    content: Arc<Content>,
    image: Arc<NewImage>,
    /// Keeps the layers of the image until its commit.
    lease: Arc<BlockingDrop<Lease>>,
}

impl OwnStore {
    pub(crate) fn new(content: &Arc<Content>) -> Self {
        Self { content: Arc::clone(content) }
    }
}

#[async_trait]
impl Destination for OwnStore {
    async fn signatures(&self, _name: &Reference, id: &Digest) -> Result<Vec<Signature>> {
        let id = id.clone();
        let image = self.content.on_store(move |store| store.image(&id)).await?;
        Ok(image.map(|image| evidence::of(&image)).unwrap_or_default())
    }

    async fn find_unchanged(&self, new: &NewImage) -> Result<Option<Vec<u8>>> {
        let present = self.content.find_whole(new.id().clone().into()).await?;
        Ok(present.filter(|present| is_unchanged(present, new)).map(|present| present.config.to_vec()))
    }

    async fn begin(&self, image: Arc<NewImage>) -> Result<Arc<dyn ImageWriter>> {
        let lease = Arc::new(self.content.background.hold(self.content.store.lease()));
        Ok(Arc::new(OwnStoreWriter { content: Arc::clone(&self.content), image, lease }))
    }
}

/// Returns true if a pull of `new` would change nothing of a present image.
fn is_unchanged(present: &ImageRecord, new: &NewImage) -> bool {
    let has = |names: &BTreeSet<String>, name: &Option<Reference>| {
        name.as_ref().is_none_or(|name| names.contains(&name.to_string()))
    };
    present.manifest_digest == new.chosen.raw.digest
        && new.chosen.indexes.first().is_none_or(|index| present.index.as_deref() == Some(index))
        && has(&present.tags, &new.names.tag)
        && has(&present.repo_digests, &new.names.repo_digest)
        && evidence::has_all(present, &new.signatures)
}

#[async_trait]
impl ImageWriter for OwnStoreWriter {
    fn lease(&self) -> &Arc<BlockingDrop<Lease>> {
        &self.lease
    }

    async fn find_present(&self, links: Vec<ChainLink>) -> Result<Vec<Option<PresentLayer>>> {
        let lease = Arc::clone(&self.lease);
        let find = move |store: &store::Store| {
            let find = |ChainLink { diff_id, chain_id }: &ChainLink| {
                Ok(store.find_layer(&lease, diff_id, chain_id)?.map(PresentLayer::Own))
            };
            links.iter().map(find).collect()
        };
        self.content.on_store(find).await
    }

    async fn access(&self, origin: &Origin, blob: &Digest, link: &ChainLink) -> Access {
        if self.content.sharing == SharedContent::Open {
            return Access::Granted;
        }
        // If blobs are kept, the layer must be the one that this very blob unpacks to.
        if self.content.keeps_blobs && !self.content.hints.is_made_of(&link.diff_id, blob) {
            return Access::Denied;
        }
        self.content.hints.access_to_layer(origin, blob, &link.diff_id)
    }

    async fn commit(&self, layers: Assembled, check: FinalCheck) -> std::result::Result<(), WriteError> {
        let new_bytes = layers.layers.iter().map(ImageLayer::new_bytes).sum();
        let error = match self.commit_image(layers, check).await? {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let root = self.content.store.root();
        if let CommitError::LayerTaken { chain_id, .. } = &error {
            return Err(WriteError::LayerTaken { chain_id: chain_id.clone(), error: error::from_commit(root, &error) });
        }
        let requirement = SpaceRequirement { bytes: new_bytes, minimum: new_bytes, free: None };
        Err(self.content.with_space_requirement(error::from_commit(root, &error), requirement).await.into())
    }
}

impl OwnStoreWriter {
    /// Commits on a blocking thread. Layers that do not become part of the image are removed before it returns.
    async fn commit_image(
        &self,
        layers: Assembled,
        check: FinalCheck,
    ) -> Result<std::result::Result<ImageRecord, CommitError>> {
        let (content, new) = (Arc::clone(&self.content), Arc::clone(&self.image));
        let lease = Arc::clone(&self.lease);
        let (verified, unverified) = self.blobs_with_layers(&layers);
        let mut commit = ImageCommit {
            config: layers.config.to_vec(),
            manifest: new.chosen.raw.bytes.to_vec(),
            manifest_media_type: new.chosen.raw.media_type.clone(),
            indexes: new.chosen.indexes.iter().map(|bytes| bytes.to_vec()).collect(),
            tag: new.names.tag.clone(),
            repo_digest: new.names.repo_digest.clone(),
            unverified_blobs: unverified,
            layers: layers.layers.iter().filter_map(ImageLayer::source).collect(),
            blobs: layers.layers.iter().filter_map(ImageLayer::blob).collect(),
            created_at_unix_nanos: content.now(),
            ..ImageCommit::default()
        };
        let work = move || {
            let before = content.store.image(new.id()).ok().flatten();
            commit.annotations = evidence::merged(before.as_ref(), &new.signatures);
            let provenance = before.as_ref().map(Provenance::of).unwrap_or_default();
            provenance.and(new.origin.clone(), verified).write(&mut commit.annotations);
            // The policy of this moment decides, not the one from the start of the pull.
            let result = check.run_blocking().map(|()| content.store.commit_image(&lease, commit));
            if let Ok(Ok(image)) = &result {
                content.hints.add(image);
                // Counted before the layers leave the table of those that wait for a commit.
                content.committed();
            }
            let new_layers = layers.layers.into_iter().filter_map(|layer| match layer {
                ImageLayer::New(ready) => Some(ready),
                ImageLayer::Present(_) => None,
            });
            drop(new_layers.filter_map(ReadyLayer::into_last).collect::<Vec<_>>());
            result
        };
        self.content.background.run(work).await
    }

    /// Returns the pairs of blob and diff ID in which the layer is known to be unpacked from the blob, and the blobs of the other
    /// layers.
    fn blobs_with_layers(&self, layers: &Assembled) -> (BTreeSet<(Digest, Digest)>, BTreeSet<Digest>) {
        let (mut verified, mut unverified) = (BTreeSet::new(), BTreeSet::new());
        for (descriptor, layer) in self.image.chosen.manifest.layers.iter().zip(&layers.layers) {
            let blob = &descriptor.digest;
            let is_verified = match layer {
                ImageLayer::New(ready) => ready.blob_digest == *blob,
                ImageLayer::Present(layer) => self.content.hints.is_made_of(layer.diff_id(), blob),
            };
            if is_verified {
                verified.insert((blob.clone(), layer.diff_id().clone()));
            } else {
                unverified.insert(blob.clone());
            }
        }
        (verified, unverified)
    }
}
