//! The records of the database and their bytes (one version byte, then JSON), and the public
//! values made of them. No I/O. Used by every module of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use oci::{Digest, Reference};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::disk::layer::{LayerId, Shape};
use crate::error::StoreError;

/// The format of the records, their first byte.
const FORMAT: u8 = 1;

/// Counts of a layer's content, taken while it was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerStats {
    /// Entries of the tar stream.
    pub entries: u64,
    /// Regular files among them.
    pub files: u64,
    /// Bytes of their content.
    pub content_bytes: u64,
    /// Bytes on disk, the layer's own bookkeeping included.
    pub disk_bytes: u64,
    /// Inodes on disk, the layer's own bookkeeping included.
    pub inodes: u64,
    /// Entries whose owner, mode, device or attribute an ordinary user could not set.
    pub deferred: u64,
    /// True if the tar stream can be built again, bit for bit.
    pub exact: bool,
    /// True if it hides everything below it.
    #[serde(default)]
    pub root_opaque: bool,
}

/// A committed layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Number of the layer in this store.
    pub id: LayerId,
    /// Digest of its tar stream.
    pub diff_id: Digest,
    /// The stack for which it was made, where its directories depend on the layers below.
    pub chain_id: Option<Digest>,
    /// Counts of its content.
    pub stats: LayerStats,
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerEntry {
    pub(crate) diff_id: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chain_id: Option<Digest>,
    pub(crate) stats: LayerStats,
    #[serde(default, skip_serializing_if = "Shape::is_dir")]
    pub(crate) shape: Shape,
    /// The root has no entry. Without a chain id it fits only where the root below is a plain one.
    #[serde(default)]
    pub(crate) implicit_root: bool,
    /// How many images have it.
    pub(crate) references: u64,
    /// Set by relaxed durability: the boot during which it was written without a sync. After another boot it is not
    /// trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unsynced_boot: Option<String>,
    /// Found damaged, and its directory deleted: the images that have it are absent until a pull fetches it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) damaged: bool,
}

impl LayerEntry {
    pub(crate) fn layer(&self, id: LayerId) -> Layer {
        Layer {
            id,
            diff_id: self.diff_id.clone(),
            chain_id: self.chain_id.clone(),
            stats: self.stats,
            shape: self.shape,
        }
    }
}

/// The record of a blob that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlobEntry {
    /// The file under `blobs/`. Never used twice.
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) disk_bytes: u64,
    /// How many images have it.
    pub(crate) references: u64,
    /// As for a layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unsynced_boot: Option<String>,
}

/// The record of an image, without its documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageEntry {
    pub(crate) manifest_digest: Digest,
    pub(crate) manifest_media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) index_digest: Option<Digest>,
    /// Further digests that it was verified to have: those of earlier manifests and indexes, and of other algorithms. Records
    /// of earlier versions have none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) verified_digests: BTreeSet<Digest>,
    pub(crate) tags: BTreeSet<String>,
    pub(crate) repo_digests: BTreeSet<String>,
    pub(crate) layers: Vec<LayerId>,
    /// The blobs of its layers that are kept.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) blobs: BTreeSet<Digest>,
    /// Bytes of config, manifest and index.
    pub(crate) document_bytes: u64,
    /// Documents, layers and kept blobs.
    pub(crate) size: u64,
    pub(crate) created_at_unix_nanos: i64,
    #[serde(default)]
    pub(crate) pinned: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl ImageEntry {
    /// The layers, each once.
    pub(crate) fn distinct_layers(&self) -> BTreeSet<LayerId> {
        self.layers.iter().copied().collect()
    }
}

/// A committed image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// Digest of the config.
    pub id: Digest,
    /// The config's bytes.
    pub config: Vec<u8>,
    /// The manifest's bytes; of the latest pull where several manifests have this config.
    pub manifest: Vec<u8>,
    /// Digest of the manifest's bytes.
    pub manifest_digest: Digest,
    /// Media type under which the manifest was fetched.
    pub manifest_media_type: String,
    /// The outermost index by which the manifest was found, if one.
    pub index: Option<Vec<u8>>,
    /// Digest of that index.
    pub index_digest: Option<Digest>,
    /// Names with a tag, in normal form.
    pub tags: BTreeSet<String>,
    /// Names with a digest that the image was verified to have, in normal form.
    pub repo_digests: BTreeSet<String>,
    /// The layers, lowest first. A layer can be there more than once.
    pub layers: Vec<LayerId>,
    /// The blobs of its layers that are kept.
    pub blobs: BTreeSet<Digest>,
    /// Bytes on disk: documents, unpacked layers and kept blobs, shared ones included.
    pub size: u64,
    /// When it was first committed.
    pub created_at_unix_nanos: i64,
    /// True if it must be kept.
    pub pinned: bool,
    /// Texts that the caller of the commit has stored with it, by name.
    pub annotations: BTreeMap<String, String>,
}

impl ImageRecord {
    /// Parses the names with a tag, then those with a digest. Names whose host has no normal form, which earlier versions recorded,
    /// are left out.
    pub fn references(&self) -> impl Iterator<Item = Reference> {
        self.tags.iter().chain(&self.repo_digests).filter_map(|name| Reference::parse(name).ok())
    }
}

/// Sums over all content of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes on disk of all layers, kept blobs and documents.
    pub bytes: u64,
    /// Inodes of all layers and kept blobs.
    pub inodes: u64,
    /// Number of images.
    pub images: u64,
    /// Number of layers, shared ones once.
    pub layers: u64,
    /// Number of kept blobs.
    #[serde(default)]
    pub blobs: u64,
}

impl Totals {
    pub(crate) fn add_layer(&mut self, stats: &LayerStats) {
        self.bytes += stats.disk_bytes;
        self.inodes += stats.inodes;
        self.layers += 1;
    }

    pub(crate) fn drop_layer(&mut self, stats: &LayerStats) {
        self.bytes = self.bytes.saturating_sub(stats.disk_bytes);
        self.inodes = self.inodes.saturating_sub(stats.inodes);
        self.layers = self.layers.saturating_sub(1);
    }

    pub(crate) fn add_blob(&mut self, entry: &BlobEntry) {
        self.bytes += entry.disk_bytes;
        self.inodes += 1;
        self.blobs += 1;
    }

    pub(crate) fn drop_blob(&mut self, entry: &BlobEntry) {
        self.bytes = self.bytes.saturating_sub(entry.disk_bytes);
        self.inodes = self.inodes.saturating_sub(1);
        self.blobs = self.blobs.saturating_sub(1);
    }
}

/// Space that a removal gave back to the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Bytes on disk. The image's documents are not among them: the database's file keeps its size.
    pub freed_bytes: u64,
    /// Files and directories on the disk.
    pub freed_inodes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountEntry {
    pub(crate) image: Digest,
    pub(crate) layers: Vec<LayerId>,
    pub(crate) writable: bool,
}

pub(crate) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    serde_json::to_writer(&mut bytes, record).expect("records are plain data with text keys");
    bytes
}

pub(crate) fn decode<T: DeserializeOwned>(what: impl fmt::Display, bytes: &[u8]) -> Result<T, StoreError> {
    match bytes.split_first() {
        Some((&FORMAT, json)) => {
            serde_json::from_slice(json).map_err(|error| StoreError::Corrupt(format!("record of {what}: {error}")))
        }
        Some((format, _)) => Err(StoreError::Corrupt(format!("record of {what} has the unknown format {format}"))),
        None => Err(StoreError::Corrupt(format!("record of {what} is empty"))),
    }
}
