//! [`ContainerdDeposit`]: an image on its way into containerd's store, under one lease. Layers are unpacked in
//! directories next to the snapshotter's own; they are moved into prepared snapshots, committed from the lowest up, and
//! the records are written last.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use base::layer_mount::LayerMount;
use base::lock::Mutex;
use cri_api::engine::runtime_store::{
    Deposit, Destination, Documents, LayerFacts, LowerLayer, OpenSlot, Slot, StackedLayer,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use oci::{Digest, Reference};
use tokio::sync::OnceCell;

use crate::labels::{self, blob_source};
use crate::layout::{SnapshotLayout, layer_of};
use crate::mounted_layers::MountedLayers;
use crate::{Error, ErrorKind, ImageRecord, Labels, Lease, Prepared, Result, Snapshotter};

/// Number of snapshots that are prepared at once. containerd's database has one writer; the other work overlaps.
const EARLY_AT_ONCE: usize = 4;

/// An image on its way into containerd's store.
#[derive(Debug)]
pub struct ContainerdDeposit {
    lease: Lease,
    snapshotter: Snapshotter,
    layout: &'static dyn SnapshotLayout,
    mounted: MountedLayers,
    /// Number of the next snapshot that is created to read or to hold another one.
    next: AtomicU64,
    /// Guards the slots that were opened before their turn, by the chain IDs of their layers.
    early: Mutex<HashMap<String, Arc<OnceCell<Slot>>>>,
    /// Guards the records that were written, each with the one that it replaced.
    written: Mutex<Vec<(String, Option<ImageRecord>)>>,
}

impl ContainerdDeposit {
    /// Makes the deposit of an image whose parts this lease holds until its records are written.
    #[must_use]
    pub fn new(lease: Lease, snapshotter: Snapshotter, layout: &'static dyn SnapshotLayout) -> Self {
        let root = snapshotter.root.clone().unwrap_or_default();
        let mounted = MountedLayers::new(&snapshotter.name, &root);
        let (next, early, written) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        Self { lease, snapshotter, layout, mounted, next, early, written }
    }

    /// Uses what another deposit has found out about the layers of the snapshotter.
    pub(crate) fn with_layers(self, mounted: MountedLayers) -> Self {
        Self { mounted, ..self }
    }

    fn own_key(&self) -> String {
        format!("imagelet {} {}", self.lease.id(), self.next.fetch_add(1, Ordering::Relaxed))
    }

    async fn prepare(&self, layer: StackedLayer<'_>) -> Result<Slot> {
        let chain = layer.chain_id.to_string();
        let parent = layer.parent.filter(|_| !self.snapshotter.rebases).map(ToString::to_string).unwrap_or_default();
        let key = format!("extract-{} {chain}", self.lease.id());
        let name = &self.snapshotter.name;
        let labels = labels::of_layer(layer, &LayerFacts::default());
        Ok(match self.lease.prepare(name, &key, &parent, &chain, labels).await? {
            Prepared::Present => match self.mounted.damaged(&self.lease, &chain).await? {
                Some(layer) => {
                    let destination = Destination::DamagedLayer(layer.tree().to_owned());
                    Slot::Open(OpenSlot { key, destination })
                }
                None => Slot::Present,
            },
            Prepared::Active(mounts) => match self.layout.destination(&mounts, &Path::exists) {
                Ok(destination) => Slot::Open(OpenSlot { key, destination }),
                Err(reason) => {
                    self.lease.remove_snapshot(name, &key).await?;
                    Slot::Unsupported(reason)
                }
            },
        })
    }

    /// Prepares snapshots before their parents are committed, and keeps the slots for [`ContainerdDeposit::take_slot`].
    async fn prepare_early(&self, layers: &[StackedLayer<'_>]) -> Result<()> {
        let cells: Vec<_> = {
            let mut early = self.early.lock();
            let cell = |layer: &StackedLayer<'_>| Arc::clone(early.entry(layer.chain_id.to_string()).or_default());
            layers.iter().map(cell).collect()
        };
        let prepare = async |(layer, cell): (&StackedLayer<'_>, Arc<OnceCell<Slot>>)| -> Result<()> {
            cell.get_or_try_init(|| self.prepare(*layer)).await.map(drop)
        };
        stream::iter(layers.iter().zip(cells)).map(Ok).try_for_each_concurrent(EARLY_AT_ONCE, prepare).await
    }

    /// Returns the slot of a layer: the one that was opened early, unless another client has committed the layer since then.
    async fn take_slot(&self, layer: StackedLayer<'_>) -> Result<Slot> {
        let (name, chain) = (&self.snapshotter.name, layer.chain_id.to_string());
        let early = self.early.lock().remove(&chain);
        let Some(early) = early else { return self.prepare(layer).await };
        let slot = early.get_or_try_init(|| self.prepare(layer)).await?.clone();
        if let Slot::Open(open) = &slot
            && self.lease.hold_snapshot(name, &chain).await?
        {
            self.lease.remove_snapshot(name, &open.key).await?;
            return self.prepare(layer).await;
        }
        Ok(slot)
    }

    /// Commits a prepared snapshot. A parent that is only given at the commit is verified afterwards: a containerd that does not know
    /// the field ignores it, and the layers below would be missing from the image.
    async fn commit_key(&self, slot: &OpenSlot, layer: StackedLayer<'_>, labels: Labels) -> Result<()> {
        let (name, chain) = (&self.snapshotter.name, layer.chain_id.to_string());
        let parent = layer.parent.filter(|_| self.snapshotter.rebases).map(ToString::to_string);
        self.lease.commit(name, &slot.key, &chain, parent.as_deref(), labels).await?;
        let Some(parent) = parent else { return Ok(()) };
        let found = self.lease.snapshot(name, &chain).await?;
        if found.is_some_and(|found| found.parent == parent) {
            return Ok(());
        }
        self.lease.remove_snapshot(name, &chain).await?;
        let message = format!("the snapshot was committed without its parent {parent}, and was removed");
        Err(Error::new(ErrorKind::Failed, "Snapshots.Commit", &chain, message))
    }

    async fn commit_snapshot(&self, slot: &OpenSlot, layer: StackedLayer<'_>, facts: &LayerFacts) -> Result<()> {
        let (name, chain) = (&self.snapshotter.name, layer.chain_id.to_string());
        let mut labels = labels::of_layer(layer, facts);
        match &slot.destination {
            Destination::Directory(tree) => {
                let linked = LayerMount::of(tree).filter(LayerMount::is_linked);
                labels.extend(linked.and_then(|layer| layer.name()).map(|name| labels::of_directory(&name)));
                self.commit_key(slot, layer, labels).await?;
                let parent = layer.parent.map(ToString::to_string).unwrap_or_default();
                self.mounted.note(&chain, &parent, tree);
                Ok(())
            }
            // The snapshot was committed before its layer was damaged.
            Destination::DamagedLayer(_) => self.lease.set_snapshot_labels(name, &chain, &labels).await,
            Destination::ErofsFile(_) | Destination::Present => self.commit_key(slot, layer, labels).await,
        }
    }

    async fn label_snapshot(&self, layer: StackedLayer<'_>, facts: &LayerFacts) -> Result<()> {
        let (name, chain) = (&self.snapshotter.name, layer.chain_id.to_string());
        let found = self.lease.snapshot(name, &chain).await?;
        if found.is_none_or(|found| found.labels.contains_key(labels::ORIGIN)) {
            return Ok(());
        }
        self.lease.set_snapshot_labels(name, &chain, &labels::of_layer(layer, facts)).await
    }

    /// Writes a record, and remembers what it replaces before the call: it may take effect although it fails.
    async fn put_record(&self, record: &ImageRecord) -> Result<()> {
        let before = self.lease.image(&record.name).await?;
        self.written.lock().push((record.name.clone(), before));
        self.lease.put_image(record).await
    }

    async fn restore_records(&self) -> Result<()> {
        let written = std::mem::take(&mut *self.written.lock());
        for (name, before) in written.into_iter().rev() {
            let Some(found) = self.lease.image(&name).await? else { continue };
            // Another pull has taken the record over.
            if found.labels.get(labels::LEASE).is_none_or(|lease| lease != self.lease.id()) {
                continue;
            }
            match before {
                Some(before) => self.lease.put_image(&before).await?,
                None => self.lease.delete_image(&name, false).await?,
            }
        }
        Ok(())
    }

    async fn snapshot_layers(&self, chain_id: &Digest) -> Result<Vec<LowerLayer>> {
        let (name, chain, key) = (&self.snapshotter.name, chain_id.to_string(), self.own_key());
        let mounts = self.lease.view(name, &key, &chain).await?;
        self.lease.remove_snapshot(name, &key).await?;
        self.layout.lower_layers(&mounts).ok_or_else(|| {
            let message = format!("unsupported mounts: {mounts:?}");
            Error::new(ErrorKind::Invalid, "Snapshots.View", &chain, message)
        })
    }

    async fn put_documents(&self, documents: &Documents<'_>) -> Result<()> {
        let source = blob_source(documents.source);
        let config = Digest::sha256(documents.config);
        let mut of_config = Labels::from([source.clone()]);
        if let Some(top) = documents.top {
            of_config.insert(format!("{}{}", labels::KEEPS_SNAPSHOT, self.snapshotter.name), top.to_string());
        }
        self.lease.write_blob(&config, documents.config, &of_config).await?;
        let mut of_manifest = Labels::from([source.clone(), (labels::KEEPS_CONFIG.to_owned(), config.to_string())]);
        for (number, blob) in documents.kept_blobs.iter().enumerate() {
            of_manifest.insert(format!("{}{number}", labels::KEEPS_LAYER), blob.to_string());
        }
        let mut below = documents.manifest.digest();
        self.lease.write_blob(&below, documents.manifest.bytes, &of_manifest).await?;
        for index in documents.indexes.iter().rev() {
            let digest = index.digest();
            let of_index = Labels::from([source.clone(), (labels::KEEPS_MANIFEST.to_owned(), below.to_string())]);
            self.lease.write_blob(&digest, index.bytes, &of_index).await?;
            below = digest;
        }
        Ok(())
    }
}

#[async_trait]
impl Deposit for ContainerdDeposit {
    fn id(&self) -> &str {
        self.lease.id()
    }

    async fn hold(&self, chain_id: &Digest) -> cri_api::Result<bool> {
        let chain = chain_id.to_string();
        Ok(self.lease.hold_snapshot(&self.snapshotter.name, &chain).await?
            && self.mounted.are_ready(&self.lease, &chain).await?)
    }

    async fn open_early(&self, layers: &[StackedLayer<'_>]) -> cri_api::Result<()> {
        if !self.snapshotter.rebases {
            return Ok(());
        }
        Ok(self.prepare_early(layers).await?)
    }

    async fn open(&self, layer: StackedLayer<'_>) -> cri_api::Result<Slot> {
        Ok(self.take_slot(layer).await?)
    }

    fn place(&self, layer: &Path, slot: &OpenSlot) -> io::Result<()> {
        self.layout.place(layer, &slot.destination)
    }

    async fn commit(&self, slot: &OpenSlot, layer: StackedLayer<'_>, facts: &LayerFacts) -> cri_api::Result<()> {
        Ok(self.commit_snapshot(slot, layer, facts).await?)
    }

    async fn record_origin(&self, layer: StackedLayer<'_>, facts: &LayerFacts) -> cri_api::Result<()> {
        Ok(self.label_snapshot(layer, facts).await?)
    }

    async fn abandon(&self, slot: &OpenSlot) -> cri_api::Result<()> {
        if matches!(slot.destination, Destination::DamagedLayer(_)) {
            return Ok(());
        }
        Ok(self.lease.remove_snapshot(&self.snapshotter.name, &slot.key).await?)
    }

    async fn lower_layers(&self, chain_id: &Digest) -> cri_api::Result<Vec<LowerLayer>> {
        Ok(self.snapshot_layers(chain_id).await?)
    }

    async fn begin_exchange(&self, chain_id: &Digest, layer: &LowerLayer) -> cri_api::Result<PathBuf> {
        let (snapshotter, chain) = (&self.snapshotter.name, chain_id.to_string());
        let place = layer_of(layer).and_then(|layer| Some((layer.name()?, layer.tree().to_owned())));
        let unnamed = || Error::new(ErrorKind::Invalid, "convert", &chain, "the layer has no directory with a name");
        let (name, tree) = place.ok_or_else(unnamed)?;
        self.lease.set_snapshot_labels(snapshotter, &chain, &Labels::from([labels::of_directory(&name)])).await?;
        Ok(tree)
    }

    fn exchange(&self, layer: &LowerLayer, files: &Path) -> io::Result<()> {
        self.layout.exchange(layer, files)
    }

    async fn independent_layers(&self) -> cri_api::Result<BTreeMap<Digest, Digest>> {
        let found = self.lease.snapshots_with_label(&self.snapshotter.name, labels::INDEPENDENT, "true").await?;
        let ids = |snapshot: crate::Snapshot| {
            let diff_id = snapshot.labels.get(labels::DIFF_ID)?.parse().ok()?;
            Some((diff_id, snapshot.name.parse().ok()?))
        };
        Ok(found.into_iter().filter_map(ids).collect())
    }

    async fn write_blob(&self, blob: &Digest, file: File, source: &Reference) -> cri_api::Result<()> {
        Ok(self.lease.write_file(blob, file, &Labels::from([blob_source(source)])).await?)
    }

    async fn write_documents(&self, documents: &Documents<'_>) -> cri_api::Result<()> {
        Ok(self.put_documents(documents).await?)
    }

    async fn write_record(&self, documents: &Documents<'_>, name: &str) -> cri_api::Result<()> {
        let target = documents.target();
        let mut labels = labels::of_record(self.lease.id());
        // The record of the image ID is not of a name, so only records of names have evidence.
        if name != Digest::sha256(documents.config).to_string() {
            labels.extend(documents.evidence.as_deref().map(labels::of_evidence).unwrap_or_default());
        }
        let record = ImageRecord {
            name: name.to_owned(),
            labels,
            media_type: target.media_type.to_owned(),
            target: target.digest(),
            size: target.bytes.len() as u64,
            created_at: 0,
            updated_at: 0,
        };
        Ok(self.put_record(&record).await?)
    }

    async fn undo_records(&self) -> cri_api::Result<()> {
        Ok(self.restore_records().await?)
    }

    async fn end(&self) -> cri_api::Result<()> {
        Ok(self.lease.delete(false).await?)
    }
}

#[cfg(test)]
#[path = "deposit_tests/mod.rs"]
mod tests;
