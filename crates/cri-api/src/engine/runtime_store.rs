//! [`RuntimeStore`]: the store of a container runtime, into which an engine puts images that it pulled itself. Plain types and
//! traits; the only implementation is that of containerd.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, FsInfo, ImageSpec, Kind, Result};
use async_trait::async_trait;
use oci::{Digest, Reference};

use crate::engine::{ConvertReport, ConvertRequest, ImageLayers};

/// Result of the detection of a runtime's store. A failed call is an error of the detection and never one of these.
#[derive(Clone, Debug)]
pub enum StoreDetection {
    /// An engine can put images into this store.
    Fillable(Arc<dyn RuntimeStore>),
    /// Only the runtime can pull into its store, for this reason.
    Unsuited(String),
}

/// Finds the store of a runtime, as the runtime is configured now.
#[async_trait]
pub trait FindRuntimeStore: Send + Sync {
    /// Detects the store in which the runtime searches for images, whose file system CRI describes as `images`.
    ///
    /// # Errors
    /// The runtime gave no reliable answer. The caller must retry and must not guess.
    async fn find(&self, images: &FsInfo) -> Result<StoreDetection>;
}

/// Store in which the runtime keeps images for a runtime handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerStore {
    /// The store of all other images.
    Default,
    /// Another store, with its display name.
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

/// Store of a container runtime. Layers are snapshots in it, and the name of a snapshot is the chain ID of its layer.
#[async_trait]
pub trait RuntimeStore: Send + Sync + fmt::Debug {
    /// Returns the display name of the store.
    fn name(&self) -> String;

    /// Returns the staging root: the directory in which layers are unpacked before they are moved into the store. The directory is
    /// on the file system of the store, the runtime does not watch it, and it may be missing.
    fn staging_root(&self) -> &Path;

    /// Returns the form in which layers are unpacked for the store.
    fn form(&self) -> UnpackedForm;

    /// Describes the form of new layers, with the reason where there is a choice.
    fn layers(&self) -> String;

    /// Returns a unique ID for [`RuntimeStore::begin`].
    fn new_id(&self) -> String;

    /// Begins an image with this ID, which may have begun even if this fails. `staging_slot` is the number of the directory in the
    /// staging root where its layers are unpacked. Interrupted images are found by that number.
    ///
    /// # Errors
    /// The runtime refused.
    async fn begin(&self, id: &str, staging_slot: u32, manifest: &Digest) -> Result<Arc<dyn Deposit>>;

    /// Holds the layers of a chain for a reader, until [`Deposit::end`]. Nothing is added. Returns `None` if a layer is missing or damaged.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn hold_layers(&self, chain_id: &Digest) -> Result<Option<Arc<dyn Deposit>>>;

    /// Returns true if the snapshot is present and all of its layers can be used. Mounts layers that are files and not mounted.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn has_layers(&self, chain_id: &str) -> Result<bool>;

    /// Returns after the runtime has removed images or layers, for whichever client. A removal before the call does not count.
    ///
    /// # Errors
    /// The runtime does not report removals.
    async fn removal(&self) -> Result<()> {
        std::future::pending().await
    }

    /// Frees what is left of layers that the runtime removed.
    ///
    /// # Errors
    /// The mounts cannot be read, or a layer cannot be unmounted.
    async fn sweep(&self) -> Result<()> {
        Ok(())
    }

    /// Checks layers that are files of ours: see [`RuntimeImageFacts::damaged_layers`].
    ///
    /// # Errors
    /// The directory of the store cannot be read, or a damaged layer cannot be removed.
    async fn damaged_layers(&self, _repair: bool) -> Result<Vec<DamagedLayer>> {
        Ok(Vec::new())
    }

    /// Returns the disk usage of layers that are files of ours, which the runtime counts wrongly.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn file_usage(&self) -> Result<LayerUsage> {
        Ok(LayerUsage::default())
    }

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

    /// Returns the origin that an engine recorded for a layer, in the engine's own format, if the layer was verified to be the
    /// unpacked form of this blob. Sources that the runtime records do not count: they lack the port of the registry and do not
    /// mention credentials.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn origin(&self, layer: StackedLayer<'_>, blob: &Digest) -> Result<Option<String>>;

    /// Returns the diff IDs of the layers that these blobs unpack to, as far as they are known. This is a hint: the layers may have
    /// been removed.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn diff_ids(&self, blobs: &[Digest]) -> Result<BTreeMap<Digest, Digest>>;

    /// Returns true if the store has the blob in its fetched form.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn has_blob(&self, blob: &Digest) -> Result<bool>;

    /// Returns the verified bytes of a blob; `None` if there is no such blob.
    ///
    /// # Errors
    /// The runtime did not answer, the blob is longer than `limit`, or its bytes are damaged.
    async fn read_blob(&self, blob: &Digest, limit: usize) -> Result<Option<Vec<u8>>>;

    /// Returns why the runtime cannot decode a config, and would therefore not list the image. Returns `None` if no reason is known.
    fn undecodable(&self, config: &[u8]) -> Option<String>;

    /// Lists the records of images that the runtime's CRI manages.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn records(&self) -> Result<Vec<RuntimeRecord>>;

    /// Removes a record, if it still has the same target.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn remove_record(&self, record: &RuntimeRecord) -> Result<()>;

    /// Returns all snapshots, each with its parent.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn snapshots(&self) -> Result<BTreeMap<String, String>>;

    /// Returns the bytes on disk of a snapshot, without its parents.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn snapshot_bytes(&self, name: &str) -> Result<u64>;

    /// Returns the interrupted images of this staging slot.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn unfinished(&self, staging_slot: u32) -> Result<Vec<UnfinishedDeposit>>;

    /// Discards an interrupted image, and removes content that no other image needs.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn give_up(&self, id: &str) -> Result<()>;
}

/// Facts about images in a runtime's store that CRI does not report.
#[async_trait]
pub trait RuntimeImageFacts: Send + Sync {
    /// Returns the layers of all images, or `None` if the runtime does not report them.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn image_layers(&self) -> Result<Option<ImageLayers>>;

    /// Returns when images were pulled, in nanoseconds since 1970, by image ID. Images whose time the runtime does not record are missing.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn pull_times(&self) -> Result<BTreeMap<String, i64>>;

    /// Describes the engine that pulls images, with the reason for the choice.
    async fn pull_engine(&self) -> String;

    /// Returns the names of hidden records: records of images that the runtime does not list, so that no removal finds them
    /// although they keep content. With `remove`, removes them. Returns `None` if the runtime's records are unknown.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn hidden_records(&self, remove: bool) -> Result<Option<Vec<String>>>;

    /// Returns the layers whose files are damaged, each with the reason. With `repair`, their images count as absent from now on, so that
    /// the next pull repairs them. The content of files has no checksum, and is not checked. `None` if no layers of the runtime are files
    /// of ours.
    ///
    /// # Errors
    /// The runtime did not answer, or the directory of its layers cannot be read.
    async fn damaged_layers(&self, repair: bool) -> Result<Option<Vec<DamagedLayer>>>;

    /// Converts the layers of images to another form, while containers run. Returns `None` if the runtime's store takes one form only.
    ///
    /// # Errors
    /// The runtime did not answer. Layers converted so far stay converted.
    async fn convert_layers(&self, request: &ConvertRequest) -> Result<Option<ConvertReport>>;

    /// Returns the bytes on disk of the layers with these diff IDs, lowest first; `None` if the runtime does not report them.
    ///
    /// # Errors
    /// The runtime did not answer, or lacks one of the layers.
    async fn layer_bytes(&self, _diff_ids: &[Digest]) -> Result<Option<Vec<u64>>> {
        Ok(None)
    }

    /// Holds the layers of an image for a reader. Returns `None` if the image is not present.
    ///
    /// # Errors
    /// `Unimplemented` if the layers cannot be read from outside; the runtime did not answer; a layer is missing or damaged.
    async fn hold_layers(&self, _image: &ImageSpec) -> Result<Option<HeldLayers>> {
        Err(Error::new(Kind::Unimplemented, "the layers of these images cannot be read"))
    }
}

/// The layers of an image in a runtime's store, which stay there until [`HeldLayers::end`].
pub struct HeldLayers {
    layers: Vec<(Digest, LowerLayer)>,
    hold: Option<Arc<dyn Deposit>>,
}

impl HeldLayers {
    /// Creates the value for layers that `hold` keeps, each with its diff ID, the highest first.
    #[must_use]
    pub fn new(layers: Vec<(Digest, LowerLayer)>, hold: Option<Arc<dyn Deposit>>) -> Self {
        Self { layers, hold }
    }

    /// Returns the layers, each with its diff ID, the highest first.
    #[must_use]
    pub fn layers(&self) -> &[(Digest, LowerLayer)] {
        &self.layers
    }

    /// Releases the layers.
    ///
    /// # Errors
    /// The runtime did not answer. It releases the layers by itself later.
    pub async fn end(self) -> Result<()> {
        match self.hold {
            Some(hold) => hold.end().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for HeldLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLayers").field("layers", &self.layers).finish_non_exhaustive()
    }
}

/// Disk usage of layers that are files of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerUsage {
    /// Number of files.
    pub files: u64,
    /// Bytes on disk of the files.
    pub bytes: u64,
    /// Bytes that the runtime counts for these layers in its own figures.
    pub counted_bytes: u64,
}

/// A layer whose file is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedLayer {
    /// Path of the file.
    pub file: PathBuf,
    /// The reason.
    pub why: String,
}

/// A record of an image: a name and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeRecord {
    /// Name, or the image ID.
    pub name: String,
    /// Digest of the manifest or index.
    pub target: Digest,
    /// Time at which it was written first, in nanoseconds since 1970; 0 if the runtime does not record it.
    pub created_at: i64,
    /// Time of its last change, in seconds since 1970.
    pub updated_at: i64,
}

/// An interrupted image: begun and never ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedDeposit {
    /// ID.
    pub id: String,
    /// Digest of its manifest, where it is known.
    pub manifest: Option<Digest>,
    /// Time at which the image was begun, in seconds since 1970.
    pub begun_at: i64,
}

/// A layer in its stack.
#[derive(Clone, Copy, Debug)]
pub struct StackedLayer<'a> {
    /// Digest of the tar stream.
    pub diff_id: &'a Digest,
    /// Chain ID of this layer.
    pub chain_id: &'a Digest,
    /// Chain ID of the layer below; `None` for the lowest layer.
    pub parent: Option<&'a Digest>,
}

/// Facts about a new layer that later pulls use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerFacts {
    /// The blob that the layer was unpacked from, where that is known.
    pub blob: Option<Digest>,
    /// The origin of the blob, in the engine's format.
    pub origin: Option<String>,
    /// True if the files do not depend on the layers below.
    pub is_independent: bool,
}

/// The snapshot of a layer that is to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The layer is present, no matter which client added it, and is held.
    Present,
    /// The snapshot needs the layer's files, then a commit.
    Open(OpenSlot),
    /// Only the runtime's own pull can add the layer, for this reason.
    Unsupported(String),
}

/// A prepared snapshot that waits for its layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSlot {
    /// Key of the snapshot.
    pub key: String,
    /// Destination of the files.
    pub destination: Destination,
}

/// Destination of the files of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// An empty directory, which is replaced by one with the layer's files.
    Directory(PathBuf),
    /// The path of the EROFS file that the layer becomes.
    ErofsFile(PathBuf),
    /// The tree of a committed layer that cannot be used. Its files are replaced, and the snapshot stays.
    DamagedLayer(PathBuf),
    /// None: the store has the files already.
    Present,
}

/// Form in which layers are unpacked for a runtime's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnpackedForm {
    /// A directory tree.
    Directory,
    /// An EROFS file.
    ErofsFile,
    /// An EROFS file whose tree lies in a directory of it, so that an empty mount point is not taken for the tree.
    NestedErofsFile,
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
    /// Returns the digest of the bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::sha256(self.bytes)
    }
}

/// Documents of an image.
#[derive(Clone, Debug)]
pub struct Documents<'a> {
    /// The indexes from the resolved one to that of the manifest; empty if the name resolved to the manifest.
    pub indexes: Vec<Document<'a>>,
    /// The manifest of the platform.
    pub manifest: Document<'a>,
    /// The config.
    pub config: &'a [u8],
    /// Chain ID of the top layer; `None` if the image has no layers.
    pub top: Option<&'a Digest>,
    /// The reference that the image was pulled by.
    pub source: &'a Reference,
    /// Layers whose blobs are kept next to their files.
    pub kept_blobs: Vec<&'a Digest>,
    /// Text that is stored with each record by name and returned by [`RuntimeStore::record`]. `None` keeps the text of an existing
    /// record.
    pub evidence: Option<String>,
}

impl Documents<'_> {
    /// Returns the document that the name resolved to.
    #[must_use]
    pub fn target(&self) -> Document<'_> {
        self.indexes.first().copied().unwrap_or(self.manifest)
    }
}

/// An image that is being added to a runtime's store. Content that it adds or holds is safe from collection until [`Deposit::end`].
/// Every call may be repeated.
#[async_trait]
pub trait Deposit: Send + Sync {
    /// Returns the ID, by which an interrupted image is found.
    fn id(&self) -> &str;

    /// Holds the snapshot of this name and its parents. Returns false if there is none.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn hold(&self, chain_id: &Digest) -> Result<bool>;

    /// Opens the slots of these layers while the layers below them are still missing, for later calls of [`Deposit::open`]. Does
    /// nothing if the runtime has no such slots.
    ///
    /// # Errors
    /// The runtime refused.
    async fn open_early(&self, _: &[StackedLayer<'_>]) -> Result<()> {
        Ok(())
    }

    /// Opens the slot of a layer. The layer below must be present.
    ///
    /// # Errors
    /// The runtime refused.
    async fn open(&self, layer: StackedLayer<'_>) -> Result<Slot>;

    /// Moves durable files from `layer` to the destination of the slot, and makes the move durable. Blocks.
    ///
    /// # Errors
    /// A system call failed.
    fn place(&self, layer: &Path, slot: &OpenSlot) -> io::Result<()>;

    /// Commits a layer whose files are at their destination.
    ///
    /// # Errors
    /// The runtime refused.
    async fn commit(&self, slot: &OpenSlot, layer: StackedLayer<'_>, facts: &LayerFacts) -> Result<()>;

    /// Records the origin of a layer that another client added, after its blob was fetched and verified. An origin that is already
    /// recorded is kept.
    ///
    /// # Errors
    /// The runtime refused.
    async fn record_origin(&self, layer: StackedLayer<'_>, facts: &LayerFacts) -> Result<()>;

    /// Removes the prepared snapshot of a slot.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn abandon(&self, slot: &OpenSlot) -> Result<()>;

    /// Returns the layers of a chain that is held, the highest first.
    ///
    /// # Errors
    /// The runtime did not answer, or its layers cannot be read from outside.
    async fn lower_layers(&self, chain_id: &Digest) -> Result<Vec<LowerLayer>>;

    /// Records that the layer of this chain is about to change its form, so that it is found in either one. Returns the directory with
    /// the files of the layer.
    ///
    /// # Errors
    /// The runtime refused, or the store takes no layers of another form.
    async fn begin_exchange(&self, chain_id: &Digest, layer: &LowerLayer) -> Result<PathBuf>;

    /// Puts durable files in place of those of a layer, in one step, and moves them from `files`. Containers that run keep the files
    /// that they have. Blocks.
    ///
    /// # Errors
    /// A system call failed, and the layer is as before; or the store takes no layers of another form.
    fn exchange(&self, layer: &LowerLayer, files: &Path) -> io::Result<()>;

    /// Returns the snapshots of layers whose files do not depend on the layers below, by diff ID.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn independent_layers(&self) -> Result<BTreeMap<Digest, Digest>>;

    /// Writes the blob of a layer from a file with its verified bytes. Blocks only this future.
    ///
    /// # Errors
    /// The runtime refused, or the file could not be read.
    async fn write_blob(&self, blob: &Digest, file: std::fs::File, source: &Reference) -> Result<()>;

    /// Writes the documents, which may refer to layers that are not present yet.
    ///
    /// # Errors
    /// The runtime refused a document.
    async fn write_documents(&self, documents: &Documents<'_>) -> Result<()>;

    /// Writes the record of a name for an image whose documents and layers are present.
    ///
    /// # Errors
    /// The runtime refused.
    async fn write_record(&self, documents: &Documents<'_>, name: &str) -> Result<()>;

    /// Restores the records that were there before this image, and removes new ones. Records that another client has written since
    /// then are kept.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn undo_records(&self) -> Result<()>;

    /// Ends the protection of this image: from now on, its records keep its content.
    ///
    /// # Errors
    /// The runtime did not answer.
    async fn end(&self) -> Result<()>;
}
