//! The sweep: what lies on the disk without a record, and records that nothing has, go. At open this undoes whatever a
//! killed process began; later it takes the layers that only a lease had kept. It never needs free space: where the disk
//! has none for a record, files go first and the records follow.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::Ordering;

use oci::Digest;
use redb::WriteTransaction;

use crate::content::blobs::drop_record;
use crate::disk::layout;
use crate::disk::remove_tree;
use crate::error::StoreError;
use crate::records::db::{DbError, Records, RecordsMut};
use crate::records::entries::{BlobEntry, LayerEntry, LayerId, Removed};
use crate::records::shares;
use crate::store::open::Inner;

/// What the records of a store that was opened say.
#[derive(Default)]
struct Found {
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

impl Inner {
    /// Brings the disk and the database together.
    pub(crate) fn sweep_at_open(&self) -> Result<(), StoreError> {
        self.sweep_points();
        // What is there for nobody goes first: on a full disk its space is what the records need.
        let ingest = self.layout.path.join(layout::INGEST);
        let names = layout::names(&ingest).map_err(|source| StoreError::io("list", &ingest, source))?;
        let greatest = names.iter().filter_map(number).max().unwrap_or(0);
        let (left, moved) = self.find_left(&names);
        let greatest = moved.last_key_value().map_or(greatest, |(number, _)| greatest.max(*number));
        let names: Vec<CString> = names.into_iter().filter(|name| !left.contains(name)).map(c_name).collect();
        if !names.is_empty() {
            tracing::info!(count = names.len(), "sweeping what was not committed");
        }
        // What cannot be deleted, such as a place where someone has mounted something, must not keep the store shut.
        if let Err(error) = remove_tree::remove_trees(self.layout.ingest.as_fd(), &names) {
            tracing::warn!(%error, path = %ingest.display(), "not everything could be swept");
        }
        self.next_ingest.store(greatest + 1, Ordering::Relaxed);

        // Records before directories: a directory is only deleted when no record names it.
        let mut found = self.db.read(|records| Ok::<_, StoreError>(look(records, &self.boot)?))?;
        self.distrust(found.torn.iter().chain(&found.damaged).copied());
        let mut tidy = found.unused.is_empty() && found.torn.is_empty() && found.torn_blobs.is_empty();
        if !tidy {
            match self.db.write(|transaction| tidy_records(transaction, &self.boot)) {
                Ok(after) => (found, tidy) = (after, true),
                Err(error) if error.is_disk_full() => {}
                Err(error) => return Err(error),
            }
        }
        let mut keep = found.known.clone();
        keep.extend(self.live_mounts()?.into_iter().flat_map(|(_, mount)| mount.layers));

        let layers = self.layout.path.join(layout::LAYERS);
        let names = layout::names(&layers).map_err(|source| StoreError::io("list", &layers, source))?;
        let greatest = names.iter().filter_map(number).max().unwrap_or(0);
        let is_stray = |name: &OsString| !number(name).is_some_and(|number| keep.contains(&LayerId(number)));
        let mut stray: Vec<CString> = names.into_iter().filter(is_stray).map(c_name).collect();
        self.bring_back(moved, &mut stray);
        if !stray.is_empty() {
            tracing::info!(count = stray.len(), "sweeping layers that no record names");
        }
        if let Err(error) = remove_tree::remove_trees(self.layout.layers.as_fd(), &stray) {
            tracing::warn!(%error, path = %layers.display(), "not everything could be swept");
        }
        let greatest_blob = self.sweep_blobs(|number| found.blobs.contains(&number))?;
        if !tidy {
            self.sync_file_system()?;
            if let Err(error) = self.db.write(|transaction| tidy_records(transaction, &self.boot)) {
                tracing::warn!(%error, "records of layers that are gone stay until there is space to delete them");
            }
        }
        let recorded = found.known.last().map_or(0, |id| id.0);
        let next = found.next.max(greatest + 1).max(recorded + 1).max(greatest_blob + 1);
        *self.commit.lock() = next;
        Ok(())
    }

    /// Deletes what an earlier failure has left over, if there was one. What still cannot be deleted waits for the next time.
    pub(crate) fn tidy_up(&self) {
        if !self.take_untidy() {
            return;
        }
        match self.sweep_strays() {
            Ok(true) => {}
            Ok(false) => self.note_untidy(),
            Err(error) => {
                tracing::warn!(%error, "what is left over could not be swept");
                self.note_untidy();
            }
        }
    }

    /// Deletes what no record names and nobody works with. Says whether all of it is gone.
    fn sweep_strays(&self) -> Result<bool, StoreError> {
        let _commit = self.commit.lock();
        let _deleting = self.deleting.write();
        let _mounting = self.mounting.lock();
        let mounted = self.live_mounts()?.into_iter().flat_map(|(_, mount)| mount.layers);
        let (layers, blobs) = self.db.read(|records| {
            let layers: BTreeSet<LayerId> = records.layer_rows()?.into_iter().map(|(id, _)| id).collect();
            // Of a record that cannot be read nobody knows which file it names.
            let blobs: Result<Vec<_>, _> = records.blob_rows()?.into_iter().map(|(_, row)| row).collect();
            Ok::<_, StoreError>((layers, blobs?))
        })?;
        let keep = layers.into_iter().chain(mounted).collect();
        let blobs = blobs.into_iter().map(|(_, entry)| entry.number).collect();
        let strays = self.look_for_orphans(&keep, &blobs, true)?;
        tracing::info!(count = strays.len(), "swept what was left over");
        Ok(strays.iter().all(|stray| stray.repaired))
    }

    /// Deletes layers that no image has and no lease holds, records first.
    pub(crate) fn sweep_layers(&self, candidates: &[LayerId]) -> Result<Removed, StoreError> {
        let _deleting = self.deleting.read();
        match self.unrecord_unused(candidates) {
            Err(error) if error.is_disk_full() => {
                let unused = {
                    let leases = self.lease_table();
                    let is_unused = |id: &LayerId| {
                        let entry = self.db.read(|records| Ok::<_, StoreError>(records.layer(*id)?))?;
                        Ok::<_, StoreError>(!leases.holds(*id) && entry.is_some_and(|entry| entry.references == 0))
                    };
                    let mut unused = Vec::new();
                    for id in candidates {
                        if is_unused(id)? {
                            unused.push(*id);
                        }
                    }
                    self.distrust(unused.iter().copied());
                    unused
                };
                if !self.make_space(&unused, &[])? {
                    return Err(error);
                }
                self.delete_layers(&self.unrecord_unused(candidates)?)
            }
            gone => self.delete_layers(&gone?),
        }
    }

    fn unrecord_unused(&self, candidates: &[LayerId]) -> Result<Vec<(LayerId, LayerEntry)>, StoreError> {
        let mut leases = self.lease_table();
        let gone = self.db.write(|transaction| {
            let mut totals = transaction.totals()?;
            let mut gone = Vec::new();
            for &id in candidates {
                if leases.holds(id) {
                    continue;
                }
                if let Some(entry) = transaction.layer(id)?
                    && entry.references == 0
                {
                    shares::leave(transaction, id)?;
                    transaction.delete_layer(id, &entry)?;
                    totals.drop_layer(&entry.stats);
                    gone.push((id, entry));
                }
            }
            transaction.put_totals(&totals)?;
            Ok::<_, StoreError>(gone)
        })?;
        for (id, _) in &gone {
            leases.orphans.remove(id);
        }
        Ok(gone)
    }

    /// Where the disk has no space for the record of a removal, and no reserve: deletes the files of layers and blobs that
    /// are to go anyway; nobody can use the layers since they are distrusted. Says whether there is something to try again
    /// with.
    pub(crate) fn make_space(&self, layers: &[LayerId], blobs: &[u64]) -> Result<bool, StoreError> {
        if layers.is_empty() && blobs.is_empty() {
            return Ok(false);
        }
        tracing::warn!(
            layers = layers.len(),
            blobs = blobs.len(),
            "the disk has no space for the record of a removal: files go first"
        );
        self.delete_blobs(blobs.iter().copied())?;
        self.delete_directories(layers)?;
        // A journalling file system hands freed blocks out again only after the journal's commit.
        self.sync_file_system()?;
        Ok(true)
    }

    /// Deletes the files of layers whose records are gone.
    pub(crate) fn delete_layers(&self, gone: &[(LayerId, LayerEntry)]) -> Result<Removed, StoreError> {
        let ids: Vec<LayerId> = gone.iter().map(|(id, _)| *id).collect();
        self.delete_directories(&ids)?;
        self.refill_reserve();
        Ok(freed(gone))
    }

    /// Deletes the directories of layers, all at once. Goes on after a failure and reports the first one.
    pub(crate) fn delete_directories(&self, ids: &[LayerId]) -> Result<(), StoreError> {
        let (mut trash, mut in_place) = (Vec::new(), Vec::new());
        for id in ids {
            let (name, new) = (id.to_string(), format!("trash-{id}"));
            self.note_busy(&new, true);
            match rustix::fs::renameat(&self.layout.layers, name.as_str(), &self.layout.ingest, new.as_str()) {
                Ok(()) => trash.push(c_name(new.into())),
                // The directory was gone before its record.
                Err(rustix::io::Errno::NOENT) => self.note_busy(&new, false),
                // A full disk may have no room for the new name.
                Err(_) => {
                    self.note_busy(&new, false);
                    in_place.push(c_name(name.into()));
                }
            }
        }
        let failed = |directory| {
            let path = self.layout.path.join(directory);
            move |source| StoreError::io("delete layers in", path, source)
        };
        let first = remove_tree::remove_trees(self.layout.ingest.as_fd(), &trash).map_err(failed(layout::INGEST));
        for name in &trash {
            self.note_busy(&name.to_string_lossy(), false);
        }
        let second = remove_tree::remove_trees(self.layout.layers.as_fd(), &in_place).map_err(failed(layout::LAYERS));
        if first.is_err() || second.is_err() {
            self.note_untidy();
        }
        first.and(second)
    }

    pub(crate) fn refill_reserve(&self) {
        if let Err(error) = self.db.reserve().ensure() {
            tracing::warn!(%error, "the disk is still too full for the store's reserve");
        }
    }

    /// What relaxed durability left to the page cache is written, and trusted from now on; a young store grows up.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        let rows = self.db.read(Records::layer_rows)?;
        let unsynced = |(id, entry): (LayerId, Result<LayerEntry, DbError>)| {
            entry.ok().filter(|entry| entry.unsynced_boot.is_some()).map(|entry| (id, entry))
        };
        let waiting: Vec<(LayerId, LayerEntry)> = rows.into_iter().filter_map(unsynced).collect();
        let blobs = self.db.read(Records::blob_rows)?.into_iter().filter_map(|(_, row)| row.ok());
        let blobs: Vec<(Digest, BlobEntry)> = blobs.filter(|(_, entry)| entry.unsynced_boot.is_some()).collect();
        let youth = self.db.youth();
        if waiting.is_empty() && blobs.is_empty() && !youth.is_young() {
            return Ok(());
        }
        self.sync_file_system()?;
        youth.end().map_err(|source| StoreError::io("settle", &self.layout.path, source))?;
        self.db.write(|transaction| {
            for (digest, mut entry) in blobs {
                entry.unsynced_boot = None;
                transaction.put_blob(&digest, &entry)?;
            }
            for (id, mut entry) in waiting {
                entry.unsynced_boot = None;
                transaction.put_layer(id, &entry)?;
            }
            Ok(())
        })
    }
}

/// What these layers gave back.
pub(crate) fn freed(gone: &[(LayerId, LayerEntry)]) -> Removed {
    gone.iter().fold(Removed::default(), |sum, (_, entry)| Removed {
        freed_bytes: sum.freed_bytes + entry.stats.disk_bytes,
        freed_inodes: sum.freed_inodes + entry.stats.inodes,
    })
}

fn look(records: &impl Records, boot: &str) -> Result<Found, DbError> {
    let mut found = Found { next: records.next_layer()?, ..Found::default() };
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
                // Its files may be all that is left of it.
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

/// Drops images that have a torn layer, and layers that no image has. Answers how the records look afterwards.
fn tidy_records(transaction: &WriteTransaction, boot: &str) -> Result<Found, StoreError> {
    drop_untrusted(transaction, boot)?;
    for digest in look(transaction, boot)?.torn_blobs {
        drop_record(transaction, &digest)?;
    }
    let mut totals = transaction.totals()?;
    for (id, entry) in transaction.layer_rows()? {
        if entry.is_ok_and(|entry| entry.references == 0) {
            // What it shared with one other layer is that one's from now on, and it may itself have come by some.
            shares::leave(transaction, id)?;
            let entry = transaction.layer_of_image(id)?;
            transaction.delete_layer(id, &entry)?;
            totals.drop_layer(&entry.stats);
        }
    }
    transaction.put_totals(&totals)?;
    Ok(look(transaction, boot)?)
}

/// Layers that were written without a sync, and that a crash of the machine may have torn: they go, and the images that
/// have them.
fn drop_untrusted(transaction: &WriteTransaction, boot: &str) -> Result<(), DbError> {
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
            crate::images::remove::unrecord_image(transaction, &id, &entry)?;
        }
    }
    Ok(())
}

/// The number that a directory is named by.
pub(crate) fn number(name: &OsString) -> Option<u64> {
    name.to_str()?.parse().ok()
}

pub(crate) fn c_name(name: OsString) -> CString {
    CString::new(name.into_vec()).expect("file names have no zero byte")
}
