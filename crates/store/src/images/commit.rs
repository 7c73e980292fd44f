//! Making an image visible, in five steps: attributes of implicit directories, renames into `layers/`, one sync of the
//! file system, one transaction, and the note in the shared layers. A kill between any two leaves an image that is
//! absent and directories that the next open sweeps; a failure is undone at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use oci::{Digest, ImageConfig};
use redb::WriteTransaction;

use crate::content::blobs::{Linked, NewBlob, named_by};
use crate::disk::layer::LayerId;
use crate::error::{CommitError, StoreError};
use crate::images::image_commit::{ImageCommit, LayerSource};
use crate::images::step::{Move, Step, has_implicit_root};
use crate::images::verify_digests;
use crate::maintenance::{Lease, LeaseTable};
use crate::options::Durability;
use crate::records::catalog::Catalog;
use crate::records::entries::{BlobEntry, ImageEntry, ImageRecord, LayerEntry};
use crate::records::release::{release_blobs, release_layers};
use crate::records::tables::{DocumentKind, Records, RecordsMut};
use crate::records::{digests, images};
use crate::store::Store;

impl Store {
    /// Makes an image visible, or gives an existing image its new names. All layers that the store had must have been found
    /// through `lease`.
    ///
    /// # Errors
    /// See [`CommitError`]. The store is then as it was before.
    pub fn commit_image(&self, lease: &Lease, commit: ImageCommit) -> Result<ImageRecord, CommitError> {
        let id = Digest::sha256(&commit.config);
        check_config(&id, &commit)?;
        let tag = commit.tag.as_ref().map(images::tag_name).transpose()?;
        let repo_digest = commit.repo_digest.as_ref().map(images::digest_name).transpose()?;
        verify_digests::verify(&commit, repo_digest.as_deref())?;

        self.maintenance.tidy_up();
        let mut next_layer = self.maintenance.commit.lock();
        // On a disk that is nearly full, what is left is for removals.
        let documents = [&commit.config, &commit.manifest].into_iter().chain(commit.indexes.first());
        self.catalog.ensure_room(documents.map(|document| document.len() as u64).sum())?;
        let steps = self.plan(lease, &commit.layers, &mut next_layer)?;
        self.patch_implicit(&steps)?;
        let moves: Vec<&Move> = steps.iter().filter_map(Step::as_move).collect();
        let mut named = named_by(&commit.manifest, &commit.manifest_media_type);
        named.retain(|blob| !commit.unverified_blobs.contains(blob));
        let blobs: Vec<&NewBlob> =
            commit.blobs.iter().map(Arc::as_ref).filter(|b| named.contains(b.digest())).collect();
        let mut linked = Linked::new(&self.content, blobs, &mut next_layer)?;
        let mut moved = Moved::new(self);
        for step in &moves {
            moved.rename(step)?;
        }
        if self.catalog.durability == Durability::Full && !(moves.is_empty() && linked.is_empty()) {
            self.sync_moved()?;
        }
        self.measure(&moves)?;
        // From this point to the leases below, a removal must not take what has just become visible.
        let mut leases = self.maintenance.lease_table();
        let written = self.catalog.db.write(|transaction| {
            let write = Write { transaction, id: &id, commit: &commit, tag, repo_digest, next_layer: *next_layer };
            write.image(&self.catalog, &steps, &mut linked, &named)
        });
        if written.as_ref().is_err_and(CommitError::is_unsure) {
            // Records without files would be worse than files without records.
            moved.leave();
            linked.leave();
        }
        let (record, released) = written?;
        for id in &record.layers {
            leases.orphans.remove(id);
        }
        self.lease_moved(moved, lease, &mut leases);
        drop(leases);
        linked.settle(&released);
        Ok(record)
    }

    /// Makes moved layers durable. Their new names exist already, so that these become durable as well; and a young store grows
    /// up, which costs the least when everything is on the disk.
    pub(crate) fn sync_moved(&self) -> Result<(), StoreError> {
        self.catalog.disk.sync_layers()?;
        let youth = self.catalog.db.youth();
        youth.end().map_err(|source| StoreError::io("settle", &self.catalog.disk.layout.path, source))
    }

    /// After the transaction: the moved layers belong to the store, and are leased by the pulls that unpacked them.
    pub(crate) fn lease_moved(&self, mut moved: Moved<'_>, lease: &Lease, leases: &mut LeaseTable) {
        for step in std::mem::take(&mut moved.done) {
            let own = Lease::new(Arc::clone(&self.maintenance));
            own.hold(leases, step.id);
            lease.hold(leases, step.id);
            step.layer.note_committed(step.id, own);
        }
    }
}

fn check_config(id: &Digest, commit: &ImageCommit) -> Result<(), CommitError> {
    let config = ImageConfig::parse(&commit.config).map_err(|source| CommitError::Config { id: id.clone(), source })?;
    if !config.rootfs.diff_ids.iter().eq(commit.layers.iter().map(LayerSource::diff_id)) {
        return Err(CommitError::LayersMismatch {
            id: id.clone(),
            expected: config.rootfs.diff_ids.len(),
            got: commit.layers.len(),
        });
    }
    Ok(())
}

/// Step 2: renames, which are undone unless the transaction succeeds.
pub(crate) struct Moved<'a> {
    store: &'a Store,
    /// Those that were made, which are taken back at the end.
    done: Vec<&'a Move>,
}

impl<'a> Moved<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        Self { store, done: Vec::new() }
    }

    pub(crate) fn rename(&mut self, step: &'a Move) -> Result<(), StoreError> {
        let layout = &self.store.catalog.disk.layout;
        let (from, to) = (step.number.to_string(), step.id.to_string());
        rustix::fs::renameat(&layout.ingest, from.as_str(), &layout.layers, to.as_str())
            .map_err(|source| StoreError::io("move a layer to", layout.layer_path(step.id), source))?;
        self.done.push(step);
        Ok(())
    }

    /// Leaves all moved layers in `layers/`, because the records may refer to them. They cannot be used before the records do.
    pub(crate) fn leave(&mut self) {
        for step in self.done.drain(..) {
            step.layer.note_lost();
        }
        self.store.catalog.disk.note_untidy();
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        let layout = &self.store.catalog.disk.layout;
        for step in &self.done {
            let (from, to) = (step.id.to_string(), step.number.to_string());
            if let Err(error) = rustix::fs::renameat(&layout.layers, from.as_str(), &layout.ingest, to.as_str()) {
                tracing::warn!(%error, layer = %step.id, "a layer could not be moved back; it is deleted later");
                step.layer.note_lost();
                self.store.catalog.disk.note_untidy();
            }
        }
    }
}

/// Step 4: the transaction.
struct Write<'a> {
    transaction: &'a WriteTransaction,
    id: &'a Digest,
    commit: &'a ImageCommit,
    tag: Option<String>,
    repo_digest: Option<String>,
    next_layer: u64,
}

impl Write<'_> {
    /// Writes the image. Returns it with the blobs that are no longer referenced.
    fn image(
        self,
        catalog: &Catalog,
        steps: &[Step],
        blobs: &mut Linked<'_>,
        named: &[Digest],
    ) -> Result<(ImageRecord, Vec<BlobEntry>), CommitError> {
        let Self { transaction, id, commit, .. } = self;
        put_new_layers(transaction, catalog, steps)?;
        transaction.put_next_layer(self.next_layer)?;
        let before = transaction.image(id)?;
        let layers: Vec<LayerId> = steps.iter().map(Step::id).collect();
        let manifest_digest = Digest::sha256(&commit.manifest);
        let (index, index_digest) = match (commit.indexes.first(), &before) {
            (Some(index), _) => (Some(index.clone()), Some(Digest::sha256(index))),
            (None, Some(before)) if before.manifest_digest == manifest_digest => {
                (transaction.document(id, DocumentKind::Index)?, before.index_digest.clone())
            }
            (None, _) => (None, None),
        };
        let length = |bytes: &[u8]| bytes.len() as u64;
        let document_bytes = length(&commit.config) + length(&commit.manifest) + index.as_deref().map_or(0, length);
        let mut entry = ImageEntry {
            manifest_digest,
            manifest_media_type: commit.manifest_media_type.clone(),
            index_digest,
            verified_digests: BTreeSet::new(),
            tags: before.as_ref().map(|entry| entry.tags.clone()).unwrap_or_default(),
            repo_digests: before.as_ref().map(|entry| entry.repo_digests.clone()).unwrap_or_default(),
            layers,
            blobs: BTreeSet::new(),
            document_bytes,
            size: 0,
            created_at_unix_nanos: before.as_ref().map_or(commit.created_at_unix_nanos, |e| e.created_at_unix_nanos),
            pinned: commit.pinned || before.as_ref().is_some_and(|entry| entry.pinned),
            annotations: commit.annotations.clone(),
        };
        // New references first, so that what both have is never without one.
        for layer in entry.distinct_layers() {
            let mut layer_entry = transaction.layer_of_image(layer)?;
            layer_entry.references += 1;
            transaction.put_layer(layer, &layer_entry)?;
        }
        blobs.give(transaction, &mut entry, named)?;
        entry.size = images::size_of(transaction, &entry)?;
        let mut released = Vec::new();
        if let Some(before) = &before {
            release_layers(transaction, before)?;
            released = release_blobs(transaction, before)?;
        }
        for name in [&self.tag, &self.repo_digest].into_iter().flatten() {
            images::take_name(transaction, id, name)?;
        }
        entry.verified_digests = digests::verified(before.as_ref(), self.repo_digest.as_deref());
        entry.tags.extend(self.tag);
        entry.repo_digests.extend(self.repo_digest);
        transaction.put_image(id, &entry)?;
        transaction.put_document(id, DocumentKind::Config, Some(&commit.config))?;
        transaction.put_document(id, DocumentKind::Manifest, Some(&commit.manifest))?;
        transaction.put_document(id, DocumentKind::Index, index.as_deref())?;
        let mut totals = transaction.totals()?;
        totals.bytes = (totals.bytes + document_bytes).saturating_sub(before.as_ref().map_or(0, |e| e.document_bytes));
        totals.images += u64::from(before.is_none());
        transaction.put_totals(&totals)?;
        Ok((images::assemble(transaction, id.clone(), entry)?, released))
    }
}

/// The records of layers that have moved; they take the place of those that they replace.
pub(crate) fn put_new_layers(
    transaction: &WriteTransaction,
    catalog: &Catalog,
    steps: &[Step],
) -> Result<(), StoreError> {
    for step in steps.iter().filter_map(Step::as_move) {
        new_layer(transaction, catalog, step)?;
        if step.replaces.is_some() {
            resize_images(transaction, step.id)?;
        }
    }
    Ok(())
}

fn new_layer(transaction: &WriteTransaction, catalog: &Catalog, step: &Move) -> Result<(), StoreError> {
    let mut entry = LayerEntry {
        diff_id: step.diff_id.clone(),
        chain_id: step.chain_id.clone(),
        stats: step.layer.stats(),
        shape: step.layer.shape,
        references: 0,
        implicit_root: has_implicit_root(&step.layer),
        unsynced_boot: catalog.unsynced_boot(),
        damaged: false,
    };
    let mut totals = transaction.totals()?;
    totals.add_layer(&entry.stats);
    if let Some(old) = step.replaces
        && let Some(old_entry) = transaction.layer(old)?
    {
        tracing::info!(layer = %old, new = %step.id, diff_id = %step.diff_id, "a layer is replaced by a new generation");
        entry.references = old_entry.references;
        for (image, mut image_entry) in transaction.images()? {
            if image_entry.layers.contains(&old) {
                for layer in image_entry.layers.iter_mut().filter(|layer| **layer == old) {
                    *layer = step.id;
                }
                transaction.put_image(&image, &image_entry)?;
            }
        }
        totals.drop_layer(&old_entry.stats);
        transaction.delete_layer(old, &old_entry)?;
    }
    transaction.put_layer(step.id, &entry)?;
    transaction.put_totals(&totals)
}

/// Sums the images up that have this layer.
fn resize_images(transaction: &WriteTransaction, layer: LayerId) -> Result<(), StoreError> {
    for (image, mut entry) in transaction.images()? {
        if entry.layers.contains(&layer) {
            entry.size = images::size_of(transaction, &entry)?;
            transaction.put_image(&image, &entry)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
