//! [`RuntimeStore`]: the store of a container runtime, as far as an engine puts images into it that it pulled itself. Plain types
//! and traits; the one implementation speaks to containerd.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{FsInfo, Result};
use async_trait::async_trait;
use oci::{Digest, Reference};

use crate::engine::{ImageLayers, LayerShape};

/// Answer of a runtime about its store. A call that failed is an error of the detection and never one of these.
#[derive(Clone, Debug)]
pub enum StoreDetection {
    /// An engine can put images into this store.
    Fillable(Arc<dyn RuntimeStore>),
    /// Only the runtime can pull into its store, with the reason for people.
    Unsuited(String),
}

/// Finds the store of a runtime, as the runtime is configured now.
#[async_trait]
pub trait FindRuntimeStore: Send + Sync {
    /// Detects the store in which the runtime searches for images, whose file system CRI describes as `images`.
    ///
    /// # Errors
    /// The runtime gave no answer that can be relied on: the caller must ask again and must not guess.
    async fn find(&self, images: &FsInfo) -> Result<StoreDetection>;
}

/// Store in which the runtime keeps images for a runtime handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerStore {
    /// The store of all other images.
    Default,
    /// Another one, with its name for people.
    Other(String),
}

/// Record of an image by one of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedImage {
    /// Digest of the index or manifest.
    pub target: Digest,
    /// Evidence that was written with the record: see [`Documents::evidence`].
    pub evidence: Option<String>,
}

/// Store of a container runtime. Layers lie in it as snapshots: each has the chain id of itself and all layers below as name.
#[async_trait]
pub trait RuntimeStore: Send + Sync + fmt::Debug {
    /// Name for people.
    fn name(&self) -> String;

    /// Directory in which layers may be unpacked before they are moved into the store: on its file system, and not watched by the
    /// runtime. It may be missing.
    fn workshop(&self) -> &Path;

    /// Form of the store's layers.
    fn shape(&self) -> LayerShape;

    /// Makes a unique ID for an image to begin.
    fn new_id(&self) -> String;

    /// Begins an image of this ID; after an error it may have begun nevertheless. `workplace` is the number of the
    /// directory in the workshop where its layers are unpacked, by which an image that was never ended is found.
    ///
    /// # Errors
    /// The runtime refused it.
    async fn begin(&self, id: &str, workplace: u32, manifest: &Digest) -> Result<Arc<dyn Deposit>>;

    /// Returns true if the snapshot is there.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn has_snapshot(&self, chain_id: &str) -> Result<bool>;

    /// Returns the record of a name.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn record(&self, name: &str) -> Result<Option<NamedImage>>;

    /// Returns the store that a runtime handler uses.
    ///
    /// # Errors
    /// The runtime did not answer, does not describe its handlers, or has no such handler.
    async fn handler_store(&self, handler: &str) -> Result<HandlerStore>;

    /// Returns the origin that an engine recorded for a layer, in the engine's own words, if the layer was verified to be what
    /// this blob unpacks to. Sources that the runtime records do not count: they lack the port of the registry and say nothing
    /// about credentials.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn origin(&self, layer: StackedLayer<'_>, blob: &Digest) -> Result<Option<String>>;

    /// The layers that these blobs unpack to, as far as the store knows: diff ids by blobs. A hint: the layers may be gone.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn diff_ids(&self, blobs: &[Digest]) -> Result<BTreeMap<Digest, Digest>>;

    /// Returns true if the blob is there as it came.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn has_blob(&self, blob: &Digest) -> Result<bool>;

    /// Returns the verified bytes of a blob; `None` if there is no such blob.
    ///
    /// # Errors
    /// The runtime did not answer, the blob is longer than `limit`, or its bytes are damaged.
    async fn read_blob(&self, blob: &Digest, limit: usize) -> Result<Option<Vec<u8>>>;

    /// Returns why the runtime cannot decode a config, so that it would not show the image; `None` if it can, as far as is known.
    fn undecodable(&self, config: &[u8]) -> Option<String>;

    /// Lists the records of images that the runtime's CRI manages.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn records(&self) -> Result<Vec<RuntimeRecord>>;

    /// Removes a record, if it still leads to the same target.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn remove_record(&self, record: &RuntimeRecord) -> Result<()>;

    /// All snapshots, each with the one below it.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn snapshots(&self) -> Result<BTreeMap<String, String>>;

    /// Bytes on disk of a snapshot, without those below.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn snapshot_bytes(&self, name: &str) -> Result<u64>;

    /// Images that were begun at this workplace and never ended.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn unfinished(&self, workplace: u32) -> Result<Vec<UnfinishedDeposit>>;

    /// Gives up an image that was never ended. What no other image needs goes.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn give_up(&self, id: &str) -> Result<()>;
}

/// Facts about images in a runtime's store that CRI does not report.
#[async_trait]
pub trait RuntimeImageFacts: Send + Sync {
    /// The layers of all images; `None`: the runtime does not report them.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn image_layers(&self) -> Result<Option<ImageLayers>>;

    /// The engine that pulls images, and why, for people.
    async fn pull_engine(&self) -> String;

    /// Returns the names of records that lead to no image which the runtime shows: no removal finds them, and they keep content.
    /// `remove`: they are removed. `None`: the runtime's records are unknown.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn hidden_records(&self, remove: bool) -> Result<Option<Vec<String>>>;
}

/// A record of an image: a name, and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeRecord {
    /// Name, or the image ID.
    pub name: String,
    /// Digest of the manifest or index.
    pub target: Digest,
    /// Time of its last change, in seconds since 1970.
    pub updated_at: i64,
}

/// An image that was begun and never ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedDeposit {
    /// Id.
    pub id: String,
    /// Digest of its manifest, where it is known.
    pub manifest: Option<Digest>,
    /// When it was begun, in seconds since 1970.
    pub begun_at: i64,
}

/// A layer in its place.
#[derive(Clone, Copy, Debug)]
pub struct StackedLayer<'a> {
    /// Digest of the tar stream.
    pub diff_id: &'a Digest,
    /// Chain id: of this layer and all below it.
    pub chain_id: &'a Digest,
    /// Chain id of the layer below; `None`: this is the lowest.
    pub parent: Option<&'a Digest>,
}

/// Facts about a new layer that later pulls ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerFacts {
    /// The blob that it was unpacked from, where that is known.
    pub blob: Option<Digest>,
    /// The origin of the blob, in the engine's words.
    pub origin: Option<String>,
    /// The files do not depend on the layers below it.
    pub is_independent: bool,
}

/// Need of a layer's snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing: the layer is present, no matter which client added it, and is held.
    Present,
    /// The layer's files, then a commit.
    Open(OpenSlot),
    /// Something that only the runtime's own pull can give, with the reason.
    Unsupported(String),
}

/// A prepared snapshot that waits for its layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSlot {
    /// Key of the snapshot.
    pub key: String,
    /// Where the files go.
    pub destination: Destination,
}

/// Where the files of a layer go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// This empty directory is replaced by one with the layer's files.
    Directory(PathBuf),
    /// The layer becomes this EROFS file.
    ErofsFile(PathBuf),
    /// Nowhere: the store has them already.
    Present,
}

/// A layer of the store, for reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LowerLayer {
    /// A directory tree.
    Directory(PathBuf),
    /// An EROFS file.
    ErofsFile(PathBuf),
}

/// A document of an image: its bytes and media type.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// Bytes.
    pub bytes: &'a [u8],
    /// Media type.
    pub media_type: &'a str,
}

impl Document<'_> {
    /// Digest of the bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::sha256(self.bytes)
    }
}

/// Documents of an image.
#[derive(Clone, Debug)]
pub struct Documents<'a> {
    /// The indexes that lead to the manifest, the one that the name resolved to first; none: it resolved to the manifest.
    pub indexes: Vec<Document<'a>>,
    /// The manifest of the platform.
    pub manifest: Document<'a>,
    /// The config.
    pub config: &'a [u8],
    /// Chain id of the top layer; `None`: the image has no layers.
    pub top: Option<&'a Digest>,
    /// The reference that the image was pulled by.
    pub source: &'a Reference,
    /// Layers whose blobs are kept next to their files.
    pub kept_blobs: Vec<&'a Digest>,
    /// Text that is stored with each record by name and returned by [`RuntimeStore::record`]. A record that has one keeps it
    /// unless a new one is given.
    pub evidence: Option<String>,
}

impl Documents<'_> {
    /// The document that the name resolved to.
    #[must_use]
    pub fn target(&self) -> Document<'_> {
        self.indexes.first().copied().unwrap_or(self.manifest)
    }
}

/// An image on its way into a runtime's store. Whatever it makes or holds is safe from collection until it is ended. Every call may
/// be repeated.
#[async_trait]
pub trait Deposit: Send + Sync {
    /// Id, by which it is found if it is never ended.
    fn id(&self) -> &str;

    /// Holds the snapshot with this name, and with it those below. Returns false if it is not there.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn hold(&self, chain_id: &Digest) -> Result<bool>;

    /// Opens the slot of a layer. The layer below must be there.
    ///
    /// # Errors
    /// The runtime refused it.
    async fn open(&self, layer: StackedLayer<'_>) -> Result<Slot>;

    /// Moves files, which are durable, from `layer` to their place, and makes the move durable. Blocks.
    ///
    /// # Errors
    /// A system call failed.
    fn place(&self, layer: &Path, slot: &OpenSlot) -> io::Result<()>;

    /// Commits a layer whose files are in their place.
    ///
    /// # Errors
    /// The runtime refused it.
    async fn commit(&self, slot: &OpenSlot, layer: StackedLayer<'_>, facts: &LayerFacts) -> Result<()>;

    /// Records the origin of a layer of another client, once its blob was fetched and verified. A layer that has a
    /// recorded origin keeps it.
    ///
    /// # Errors
    /// The runtime refused it.
    async fn record_origin(&self, layer: StackedLayer<'_>, facts: &LayerFacts) -> Result<()>;

    /// Gives a slot back.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn abandon(&self, slot: &OpenSlot) -> Result<()>;

    /// The layers of a chain that is held, the highest first.
    ///
    /// # Errors
    /// The runtime did not answer, or they cannot be read from outside.
    async fn lower_layers(&self, chain_id: &Digest) -> Result<Vec<LowerLayer>>;

    /// Snapshots of layers whose files do not depend on those below, by diff id.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn independent_layers(&self) -> Result<BTreeMap<Digest, Digest>>;

    /// Writes a blob of a layer from a file that has it, verified. Blocks nothing but this future.
    ///
    /// # Errors
    /// The runtime refused it, or the file could not be read.
    async fn write_blob(&self, blob: &Digest, file: std::fs::File, source: &Reference) -> Result<()>;

    /// Writes the documents. They may refer to layers that are not there yet.
    ///
    /// # Errors
    /// The runtime refused one.
    async fn write_documents(&self, documents: &Documents<'_>) -> Result<()>;

    /// Writes the record by which a name leads to an image whose documents and layers are present.
    ///
    /// # Errors
    /// The runtime refused it.
    async fn write_record(&self, documents: &Documents<'_>, name: &str) -> Result<()>;

    /// Undoes all records that were written: names lead where they led before, and new ones are removed. Records that another
    /// client wrote since then stay.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn undo_records(&self) -> Result<()>;

    /// Ends it: the records, if there are any, keep everything from now on.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn end(&self) -> Result<()>;
}
