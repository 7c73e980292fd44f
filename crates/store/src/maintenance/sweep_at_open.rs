//! The sweep at open: removes files without a record, and unreferenced records. It undoes whatever a killed process began. It
//! never needs free space: where the disk has none for a record, files are deleted first and the records follow.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use oci::Digest;
use redb::WriteTransaction;

use crate::disk::layer::LayerId;
use crate::disk::layout::{self, c_name, number};
use crate::disk::remove_tree;
use crate::error::StoreError;
use crate::maintenance::Maintenance;
use crate::records::entries::LayerEntry;
use crate::records::release::{drop_record, unrecord_image, unrecord_layer};
use crate::records::tables::Records;

/// The records of a store at its opening, sorted by what becomes of their files.
#[derive(Default)]
struct OpenRecords {
    /// Layers whose directories stay.
    known: BTreeSet<LayerId>,
    /// Layers that no image has.
    unused: Vec<LayerId>,
    /// Layers that were written without a sync, and that a stop of the machine may have torn.
    torn: BTreeSet<LayerId>,
    damaged: BTreeSet<LayerId>,
    /// Numbers of kept blobs.
    blobs: BTreeSet<u64>,
    /// Blobs that were written without a sync before the machine stopped.
    torn_blobs: Vec<Digest>,
    next: u64,
}

impl Maintenance {
    /// Brings the disk and the database together.
    pub(crate) fn sweep_at_open(&self) -> Result<(), StoreError> {
        self.mounts.sweep_points();
        // Unreferenced files are removed first: on a full disk the records need their space.
        let ingest = self.catalog.disk.layout.path.join(layout::INGEST);
        let names = layout::names(&ingest).map_err(|source| StoreError::io("list", &ingest, source))?;
        let greatest = names.iter().filter_map(number).max().unwrap_or(0);
        let (left, moved) = self.content.find_left(&names);
        let greatest = moved.last_key_value().map_or(greatest, |(number, _)| greatest.max(*number));
        let names: Vec<CString> = names.into_iter().filter(|name| !left.contains(name)).map(c_name).collect();
        if !names.is_empty() {
            tracing::info!(count = names.len(), "sweeping what was not committed");
        }
        // Names that cannot be deleted, such as a mount point in use, must not prevent the open.
        if let Err(error) = remove_tree::remove_trees(self.catalog.disk.layout.ingest.as_fd(), &names) {
            tracing::warn!(%error, path = %ingest.display(), "not everything could be swept");
        }
        self.content.next_ingest.store(greatest + 1, Ordering::Relaxed);

        // Records before directories: a directory is only deleted when no record names it.
        let mut found = self.catalog.db.read(|records| sort_records(records, &self.catalog.boot))?;
        self.layers.distrust(found.torn.iter().chain(&found.damaged).copied());
        let mut tidy = found.unused.is_empty() && found.torn.is_empty() && found.torn_blobs.is_empty();
        if !tidy {
            match self.catalog.db.write(|transaction| tidy_records(transaction, &self.catalog.boot)) {
                Ok(after) => (found, tidy) = (after, true),
                Err(error) if error.is_disk_full() => {}
                Err(error) => return Err(error),
            }
        }
        if self.convert_shared_files()? {
            found = self.catalog.db.read(|records| sort_records(records, &self.catalog.boot))?;
            self.layers.distrust(found.damaged.iter().copied());
        }
        let mut keep = found.known.clone();
        keep.extend(self.mounts.live_mounts()?.into_iter().flat_map(|(_, mount)| mount.layers));
        let users = self.mounts.view.users();
        match &users {
            Ok(users) => keep.extend(users.iter().flat_map(|user| user.layers.iter().copied())),
            Err(error) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "layers without a record are kept, since the layers that podman uses are not known"
                );
            }
        }

        let layers = self.catalog.disk.layout.path.join(layout::LAYERS);
        let names = layout::names(&layers).map_err(|source| StoreError::io("list", &layers, source))?;
        let greatest = names.iter().filter_map(number).max().unwrap_or(0);
        let is_stray = |name: &OsString| !number(name).is_some_and(|number| keep.contains(&LayerId(number)));
        let mut stray: Vec<CString> = names.into_iter().filter(is_stray).map(c_name).collect();
        self.content.bring_back(moved, &mut stray);
        if users.is_err() {
            stray.clear();
        }
        if !stray.is_empty() {
            tracing::info!(count = stray.len(), "sweeping layers that no record names");
        }
        if let Err(error) = remove_tree::remove_trees(self.catalog.disk.layout.layers.as_fd(), &stray) {
            tracing::warn!(%error, path = %layers.display(), "not everything could be swept");
        }
        let greatest_blob = self.content.sweep_blobs(|number| found.blobs.contains(&number))?;
        if !tidy {
            self.catalog.disk.sync_file_system()?;
            if let Err(error) = self.catalog.db.write(|transaction| tidy_records(transaction, &self.catalog.boot)) {
                tracing::warn!(%error, "records of layers that are gone stay until there is space to delete them");
            }
        }
        let recorded = found.known.last().map_or(0, |id| id.0);
        let next = found.next.max(greatest + 1).max(recorded + 1).max(greatest_blob + 1);
        *self.commit.lock() = next;
        Ok(())
    }
}

fn sort_records(records: &impl Records, boot: &str) -> Result<OpenRecords, StoreError> {
    let mut found = OpenRecords { next: records.next_layer()?, ..OpenRecords::default() };
    for (id, entry) in records.layer_rows()? {
        match entry {
            Ok(entry) if entry.unsynced_boot.as_deref().is_some_and(|written| written != boot) => {
                found.torn.insert(id);
            }
            Ok(entry) if entry.references == 0 => found.unused.push(id),
            Ok(entry) if entry.damaged => {
                found.damaged.insert(id);
            }
            Ok(_) => {
                found.known.insert(id);
            }
            Err(error) => {
                // Only its files may be left.
                tracing::error!(error = ?error, "a record cannot be read: check and repair the store");
                found.known.insert(id);
            }
        }
    }
    for (_, row) in records.blob_rows()? {
        match row {
            Ok((digest, entry)) if entry.unsynced_boot.as_deref().is_some_and(|written| written != boot) => {
                found.torn_blobs.push(digest);
            }
            Ok((_, entry)) => {
                found.blobs.insert(entry.number);
            }
            // Nothing is lost with a blob.
            Err(error) => tracing::error!(error = ?error, "a record cannot be read: check and repair the store"),
        }
    }
    Ok(found)
}

/// Drops images that have a torn layer, and layers that no image has. Returns the state of the records afterwards.
fn tidy_records(transaction: &WriteTransaction, boot: &str) -> Result<OpenRecords, StoreError> {
    drop_untrusted(transaction, boot)?;
    for digest in sort_records(transaction, boot)?.torn_blobs {
        drop_record(transaction, &digest)?;
    }
    for (id, entry) in transaction.layer_rows()? {
        if entry.is_ok_and(|entry| entry.references == 0) {
            unrecord_layer(transaction, id)?;
        }
    }
    sort_records(transaction, boot)
}

/// Layers that were written without a sync, and that a crash of the machine may have torn: they go, and the images that
/// have them.
fn drop_untrusted(transaction: &WriteTransaction, boot: &str) -> Result<(), StoreError> {
    let torn: BTreeMap<LayerId, LayerEntry> = transaction
        .layer_rows()?
        .into_iter()
        .filter_map(|(id, entry)| Some((id, entry.ok()?)))
        .filter(|(_, entry)| entry.unsynced_boot.as_deref().is_some_and(|written| written != boot))
        .collect();
    if torn.is_empty() {
        return Ok(());
    }
    for (id, entry) in transaction.images()? {
        if entry.layers.iter().any(|layer| torn.contains_key(layer)) {
            tracing::warn!(image = %id, "dropped: it was not yet on the disk when the machine stopped");
            unrecord_image(transaction, &id, &entry)?;
        }
    }
    Ok(())
}
