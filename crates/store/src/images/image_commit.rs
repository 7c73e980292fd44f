//! An image that is to become visible, and where its layers come from. Plain values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oci::{Digest, Reference};

use crate::content::blobs::NewBlob;
use crate::ingest::layer::UnpackedLayer;
use crate::records::entries::Layer;

/// The source of a layer of a new image.
#[derive(Clone, Debug)]
pub enum LayerSource {
    /// Found in the store, through the lease of the commit.
    Present(Layer),
    /// Unpacked for this image, or for another pull at the same time. Its diff id has been verified.
    New {
        /// Files of the layer, which are not visible yet.
        layer: Arc<UnpackedLayer>,
        /// Digest of its tar stream.
        diff_id: Digest,
    },
}

impl LayerSource {
    pub(crate) fn diff_id(&self) -> &Digest {
        match self {
            Self::Present(layer) => &layer.diff_id,
            Self::New { diff_id, .. } => diff_id,
        }
    }
}

/// An image that is to become visible.
#[derive(Clone, Debug, Default)]
pub struct ImageCommit {
    /// The config's bytes. Their digest is the image id.
    pub config: Vec<u8>,
    /// The manifest's bytes, unchanged.
    pub manifest: Vec<u8>,
    /// Media type under which the manifest was fetched.
    pub manifest_media_type: String,
    /// The indexes by which the manifest was found, the outermost first; that one is kept. Without any, the one by which the
    /// same manifest was found earlier stays.
    pub indexes: Vec<Vec<u8>>,
    /// The tag that it gets: `name:tag`.
    pub tag: Option<Reference>,
    /// The digest by which it was found: `name@digest`, which must be that of the manifest or of one of the indexes.
    pub repo_digest: Option<Reference>,
    /// The layers, lowest first.
    pub layers: Vec<LayerSource>,
    /// Blobs of its layers to keep, in addition to those that the store has. A blob that the manifest does not name is not kept.
    pub blobs: Vec<Arc<NewBlob>>,
    /// Blobs that the manifest names, but of which it is unknown whether they contain its layers: they are not kept with it.
    pub unverified_blobs: BTreeSet<Digest>,
    /// Now, in nanoseconds since 1970. Kept only when the image is new.
    pub created_at_unix_nanos: i64,
    /// True if it must be kept. A pin that the image has stays.
    pub pinned: bool,
    /// Anything that the caller wants to find again. Replaces what was there.
    pub annotations: BTreeMap<String, String>,
}
