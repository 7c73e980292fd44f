//! [`Deposit`]: an image on its way into containerd's store. Layers lie unpacked in directories beside the snapshotter's own;
//! they are moved into prepared snapshots, committed from the lowest up, and the records are written last.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use oci::{Digest, Reference};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid};

use crate::{
    Destination, Error, ErrorKind, ImageRecord, Labels, Lease, Prepared, Result, SnapshotKind, Snapshotter, destination,
};

/// Labels that containerd 2.3 and later give to the snapshot of a layer: by the first, a layer is found on other chains.
const DIFF_ID: &str = "containerd.io/snapshot/diff-id";
const PARENT_CHAIN_ID: &str = "containerd.io/snapshot/parent-chain-id";
/// Labels by which blobs keep what they refer to.
const KEEPS_MANIFEST: &str = "containerd.io/gc.ref.content.m.0";
const KEEPS_CONFIG: &str = "containerd.io/gc.ref.content.config";
const KEEPS_SNAPSHOT: &str = "containerd.io/gc.ref.snapshot.";
/// Label of a blob with the repository that it came from; the host follows.
const SOURCE: &str = "containerd.io/distribution.source.";
/// Label of the records that the CRI plugin manages.
const MANAGED: (&str, &str) = ("io.cri-containerd.image", "managed");
/// Label of records that the kubelet must not collect; the CRI plugin knows it from containerd 1.6.22 and 1.7.3 on.
const PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");

/// An image on its way into containerd's store, under one lease.
#[derive(Clone, Debug)]
pub struct Deposit {
    lease: Lease,
    snapshotter: Snapshotter,
}

/// A layer of the image.
#[derive(Clone, Copy, Debug)]
pub struct StackedLayer<'a> {
    /// Digest of the tar stream.
    pub diff_id: &'a Digest,
    /// Chain id: of this layer and all below it.
    pub chain_id: &'a Digest,
    /// Chain id of the layer below; `None`: this is the lowest.
    pub parent: Option<&'a Digest>,
}

/// Need of a layer's snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing: the layer is there, whoever brought it, and the lease holds it.
    Present,
    /// The layer's files, then a commit.
    Open(OpenSlot),
    /// Something that only containerd's own pull can give, with the reason.
    Unsupported(String),
}

/// A prepared snapshot that waits for its layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSlot {
    key: String,
    /// Where the files go: [`Destination::Directory`], [`Destination::ErofsFile`], or [`Destination::Present`] for nowhere.
    pub destination: Destination,
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
    fn digest(&self) -> Digest {
        Digest::sha256(self.bytes)
    }
}

/// Documents of an image.
#[derive(Clone, Copy, Debug)]
pub struct Documents<'a> {
    /// The index that the name resolved to; `None`: the name resolved to the manifest.
    pub index: Option<Document<'a>>,
    /// The manifest of the platform.
    pub manifest: Document<'a>,
    /// The config.
    pub config: &'a [u8],
    /// Chain id of the top layer; `None`: the image has no layers.
    pub top: Option<&'a Digest>,
    /// Where the image came from.
    pub source: &'a Reference,
}

impl Documents<'_> {
    fn target(&self) -> Document<'_> {
        self.index.unwrap_or(self.manifest)
    }
}

impl Deposit {
    /// An image whose parts this lease holds until its records are there.
    #[must_use]
    pub fn new(lease: Lease, snapshotter: Snapshotter) -> Self {
        Self { lease, snapshotter }
    }

    /// The lease.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Opens the slot of a layer. Where the snapshotter takes the parent at the commit, all layers may be opened at once;
    /// otherwise the layer below must be committed.
    ///
    /// # Errors
    /// A call failed.
    pub async fn open(&self, layer: StackedLayer<'_>) -> Result<Slot> {
        let (chain, parent) = (layer.chain_id.to_string(), self.prepared_on(layer));
        let key = format!("extract-{} {chain}", self.lease.id());
        let name = &self.snapshotter.name;
        Ok(match self.lease.prepare(name, &key, &parent, &chain, labels(layer)).await? {
            Prepared::Present => Slot::Present,
            Prepared::Active(mounts) => match destination(&mounts, Path::exists) {
                Destination::Unknown(reason) => {
                    self.lease.remove_snapshot(name, &key).await?;
                    Slot::Unsupported(reason)
                }
                destination => Slot::Open(OpenSlot { key, destination }),
            },
        })
    }

    /// Commits a layer whose files are in their place and durable. The layer below must be committed.
    ///
    /// # Errors
    /// A call failed, or containerd made the snapshot without its parent.
    pub async fn commit(&self, slot: &OpenSlot, layer: StackedLayer<'_>) -> Result<()> {
        let (name, chain) = (&self.snapshotter.name, layer.chain_id.to_string());
        let parent = layer.parent.map(ToString::to_string);
        let late = parent.as_deref().filter(|_| self.snapshotter.rebases);
        self.lease.commit(name, &slot.key, &chain, late, labels(layer)).await?;
        if late.is_none() {
            return Ok(());
        }
        // A containerd that does not know the field would ignore it without a word, and the image could not start.
        match self.lease.snapshot(name, &chain).await? {
            Some(found) if found.kind == SnapshotKind::Committed && Some(found.parent.as_str()) == late => Ok(()),
            found => {
                let actual = found.map(|found| found.parent).unwrap_or_default();
                let message = format!("its parent is {actual:?} and not {:?}", late.unwrap_or_default());
                Err(Error::new(ErrorKind::Invalid, "Snapshots.Commit", &chain, message))
            }
        }
    }

    /// Gives a slot back, after a failure.
    ///
    /// # Errors
    /// The call failed.
    pub async fn abandon(&self, slot: &OpenSlot) -> Result<()> {
        self.lease.remove_snapshot(&self.snapshotter.name, &slot.key).await
    }

    /// Writes the documents. They may refer to layers that are not there yet.
    ///
    /// # Errors
    /// A call failed.
    pub async fn write_documents(&self, documents: &Documents<'_>) -> Result<()> {
        let source = source(documents.source);
        let config = Digest::sha256(documents.config);
        let label = |key: &str, value: String| Labels::from([(key.to_owned(), value), source.clone()]);
        let mut of_config = Labels::from([source.clone()]);
        if let Some(top) = documents.top {
            of_config.insert(format!("{KEEPS_SNAPSHOT}{}", self.snapshotter.name), top.to_string());
        }
        let Document { bytes, .. } = documents.manifest;
        let manifest = documents.manifest.digest();
        self.lease.write_blob(&config, documents.config, &of_config).await?;
        self.lease.write_blob(&manifest, bytes, &label(KEEPS_CONFIG, config.to_string())).await?;
        if let Some(index) = documents.index {
            let labels = label(KEEPS_MANIFEST, manifest.to_string());
            self.lease.write_blob(&index.digest(), index.bytes, &labels).await?;
        }
        Ok(())
    }

    /// Writes the records of an image whose documents and layers are there: the one by id first, then those by name. From
    /// then on the records keep everything, and the lease may go.
    ///
    /// # Errors
    /// A call failed.
    pub async fn write_records(&self, documents: &Documents<'_>, names: &[String], pinned: bool) -> Result<()> {
        let target = documents.target();
        let mut labels = Labels::from([(MANAGED.0.to_owned(), MANAGED.1.to_owned())]);
        if pinned {
            labels.insert(PINNED.0.to_owned(), PINNED.1.to_owned());
        }
        let mut record = ImageRecord {
            name: Digest::sha256(documents.config).to_string(),
            labels,
            media_type: target.media_type.to_owned(),
            target: target.digest(),
            size: target.bytes.len() as u64,
        };
        self.lease.put_image(&record).await?;
        for name in names {
            record.name.clone_from(name);
            self.lease.put_image(&record).await?;
        }
        Ok(())
    }

    fn prepared_on(&self, layer: StackedLayer<'_>) -> String {
        match layer.parent {
            Some(parent) if !self.snapshotter.rebases => parent.to_string(),
            _ => String::new(),
        }
    }
}

fn labels(layer: StackedLayer<'_>) -> Labels {
    let mut labels = Labels::from([(DIFF_ID.to_owned(), layer.diff_id.to_string())]);
    if let Some(parent) = layer.parent {
        labels.insert(PARENT_CHAIN_ID.to_owned(), parent.to_string());
    }
    labels
}

/// Label with the repository that a blob came from. The host stands without port and brackets.
fn source(image: &Reference) -> (String, String) {
    let domain = image.domain();
    let host = match domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => domain.split_once(':').map_or(domain, |(host, _)| host),
    };
    (format!("{SOURCE}{host}"), image.path().to_owned())
}

/// Moves an unpacked layer to its destination in a prepared snapshot, and makes the move durable; the files must be durable
/// already. The root gets the owner 0:0 and the mode 0755, as containerd's own unpacking leaves it: it becomes the root
/// of containers. Both lie on one file system. Blocks.
///
/// # Errors
/// The move failed; the destination is not empty; the destination is not on the file system of the layer.
pub fn move_into(layer: &Path, destination: &Destination) -> io::Result<()> {
    let to: &PathBuf = match destination {
        Destination::Directory(to) => {
            rustix::fs::chownat(CWD, layer, Some(Uid::ROOT), Some(Gid::ROOT), AtFlags::SYMLINK_NOFOLLOW)?;
            rustix::fs::chmod(layer, Mode::from_raw_mode(0o755))?;
            to
        }
        Destination::ErofsFile(to) => to,
        Destination::Present | Destination::Unknown(_) => return Ok(()),
    };
    rustix::fs::rename(layer, to)?;
    // The root's own attributes, then the name.
    File::open(to)?.sync_all()?;
    let parent = to.parent().ok_or_else(|| io::Error::other(format!("{} has no parent", to.display())))?;
    File::open(parent)?.sync_all()
}

#[cfg(test)]
#[test]
fn the_source_of_a_blob_has_no_port() {
    for (name, host, repository) in [
        ("busybox", "docker.io", "library/busybox"),
        ("registry.example:5000/team/app:1", "registry.example", "team/app"),
        ("[fd00::1]:5000/app:1", "fd00::1", "app"),
    ] {
        let reference = Reference::parse(name).expect("a reference");
        assert_eq!(source(&reference), (format!("{SOURCE}{host}"), repository.to_owned()));
    }
}
