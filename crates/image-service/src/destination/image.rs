//! A new image as plain values: its chosen manifest, the names that it is recorded under, the chain of its layers, and its layers,
//! present or new. Destinations and pulls share these types.

use std::sync::Arc;

use bytes::Bytes;
use oci::{Digest, Manifest, Reference};
use signature::Signature;
use store::{Layer, LayerSource, NewBlob};

use crate::in_flight::ReadyLayer;
use crate::origin::Origin;
use crate::source::RawDocument;

/// The manifest that was chosen for a platform.
#[derive(Clone, Debug)]
pub(crate) struct ChosenManifest {
    pub(crate) manifest: Manifest,
    pub(crate) raw: RawDocument,
    /// The indexes that lead to the manifest, the outermost first.
    pub(crate) indexes: Vec<Bytes>,
    /// The config, if it had to be fetched to choose.
    pub(crate) config: Option<Bytes>,
    /// True if an index or the config states a platform that matches.
    pub(crate) platform_known: bool,
}

impl ChosenManifest {
    /// Returns the image ID.
    pub(crate) fn id(&self) -> &Digest {
        &self.manifest.config.digest
    }

    /// Returns the digests by which the image may have been signed: the one that its name `resolved` to, and its manifest's.
    pub(crate) fn signed_digests(&self, resolved: &Digest) -> Vec<Digest> {
        let mut digests = vec![resolved.clone()];
        if self.raw.digest != *resolved {
            digests.push(self.raw.digest.clone());
        }
        digests
    }
}

/// An image to put into a destination.
pub(crate) struct NewImage {
    pub(crate) chosen: Arc<ChosenManifest>,
    /// Name for messages.
    pub(crate) name: String,
    pub(crate) names: Names,
    /// The name by which the signature policy decides; `None` if the image has none.
    pub(crate) reference: Option<Reference>,
    /// The digest that the name resolved to.
    pub(crate) resolved: Digest,
    /// The signatures that met the demands of the policy.
    pub(crate) signatures: Vec<Signature>,
    /// Where the image is fetched from.
    pub(crate) origin: Origin,
}

impl NewImage {
    /// Returns the image ID.
    pub(crate) fn id(&self) -> &Digest {
        self.chosen.id()
    }

    /// Returns the digests by which the image may have been signed.
    pub(crate) fn signed_digests(&self) -> Vec<Digest> {
        self.chosen.signed_digests(&self.resolved)
    }
}

/// A layer and its place in a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainLink {
    /// Digest of the tar stream.
    pub(crate) diff_id: Digest,
    /// Digest of the stack up to this layer.
    pub(crate) chain_id: Digest,
}

/// Returns the stack of these layers, lowest first.
pub(crate) fn chain(diff_ids: &[Digest]) -> Vec<ChainLink> {
    let mut chain: Vec<ChainLink> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        let chain_id = oci::chain_id(chain.last().map(|below| &below.chain_id), diff_id);
        chain.push(ChainLink { diff_id: diff_id.clone(), chain_id });
    }
    chain
}

/// Names to record for an image, in normal form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) tag: Option<Reference>,
    pub(crate) repo_digest: Option<Reference>,
}

impl Names {
    /// Returns the names of an image that was pulled by `reference`, which the registry resolved to this digest.
    pub(crate) fn of_pull(reference: &Reference, resolved: &Digest) -> Self {
        match reference.digest() {
            Some(_) => Self { tag: None, repo_digest: Some(reference.clone()) },
            None => Self { tag: Some(reference.clone()), repo_digest: Some(reference.at_digest(resolved.clone())) },
        }
    }

    /// Returns the names as a runtime records them.
    pub(crate) fn texts(&self) -> Vec<String> {
        [&self.tag, &self.repo_digest].into_iter().flatten().map(ToString::to_string).collect()
    }
}

/// A complete image that is not yet visible.
pub(crate) struct Assembled {
    pub(crate) config: Bytes,
    /// Lowest first.
    pub(crate) layers: Vec<ImageLayer>,
}

/// A layer of an image.
#[derive(Clone)]
pub(crate) enum ImageLayer {
    /// The layer was present before the pull.
    Present(PresentLayer),
    /// The layer was unpacked for this pull or for one that it joined.
    New(ReadyLayer),
}

/// A layer that is present.
#[derive(Clone)]
pub(crate) enum PresentLayer {
    /// In the engine's own store.
    Own(Layer),
    /// In the runtime's store, on the chain of the image.
    Runtime { diff_id: Digest },
    /// In the runtime's store on another chain, with this chain ID: only a link to its files is needed.
    OtherChain { diff_id: Digest, chain_id: Digest },
}

impl PresentLayer {
    pub(crate) fn diff_id(&self) -> &Digest {
        match self {
            Self::Own(layer) => &layer.diff_id,
            Self::Runtime { diff_id } | Self::OtherChain { diff_id, .. } => diff_id,
        }
    }

    /// Returns the bytes of the layer's files; zero if only the runtime knows them.
    pub(crate) fn content_bytes(&self) -> u64 {
        match self {
            Self::Own(layer) => layer.stats.content_bytes,
            Self::Runtime { .. } | Self::OtherChain { .. } => 0,
        }
    }
}

impl ImageLayer {
    /// Returns the bytes on disk that the pull added for the layer.
    pub(crate) fn new_bytes(&self) -> u64 {
        match self {
            Self::Present(_) => 0,
            Self::New(ready) => ready.layer().stats().disk_bytes + ready.blob().map_or(0, |blob| blob.disk_bytes()),
        }
    }

    pub(crate) fn diff_id(&self) -> &Digest {
        match self {
            Self::Present(layer) => layer.diff_id(),
            Self::New(ready) => &ready.diff_id,
        }
    }

    /// Returns the new blob that is kept with the layer.
    pub(crate) fn blob(&self) -> Option<Arc<NewBlob>> {
        match self {
            Self::Present(_) => None,
            Self::New(ready) => ready.blob(),
        }
    }

    /// Returns the layer as the engine's own store commits it; `None` if the layer is in a runtime's store.
    pub(crate) fn source(&self) -> Option<LayerSource> {
        match self {
            Self::Present(PresentLayer::Own(layer)) => Some(LayerSource::Present(layer.clone())),
            Self::Present(_) => None,
            Self::New(ready) => Some(LayerSource::New { layer: ready.layer(), diff_id: ready.diff_id.clone() }),
        }
    }
}
