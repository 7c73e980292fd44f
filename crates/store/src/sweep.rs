//! The sweep: what lies on the disk without a record, and records that nothing has, go. At open this undoes whatever a
//! killed process began; later it takes the layers that only a lease had kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::Ordering;

use redb::WriteTransaction;

use crate::db::{DbError, Records, RecordsMut};
use crate::error::StoreError;
use crate::layout;
use crate::open::Inner;
use crate::records::{LayerEntry, LayerId, Removed};
use crate::remove_tree;

impl Inner {
    /// Brings the disk and the database together.
    pub(crate) fn sweep_at_open(&self) -> Result<(), StoreError> {
        // Records first: a directory is only deleted when no record names it.
        let (known, next) = self.db.write(|transaction| {
            drop_untrusted(transaction, &self.boot)?;
            let mut known = BTreeSet::new();
            let mut totals = transaction.totals()?;
            for (id, entry) in transaction.layers()? {
                if entry.references == 0 {
                    transaction.delete_layer(id, &entry)?;
                    totals.drop_layer(&entry.stats);
                } else {
                    known.insert(id);
                }
            }
            transaction.put_totals(&totals)?;
            Ok::<_, StoreError>((known, transaction.next_layer()?))
        })?;

        // What cannot be deleted, such as a place where someone has mounted something, must not keep the store shut.
        let ingest = self.layout.path.join(layout::INGEST);
        let names = layout::names(&ingest).map_err(|source| StoreError::io("list", &ingest, source))?;
        let greatest = names.iter().filter_map(number).max().unwrap_or(0);
        let names: Vec<CString> = names.into_iter().map(c_name).collect();
        if !names.is_empty() {
            tracing::info!(count = names.len(), "sweeping what was not committed");
        }
        if let Err(error) = remove_tree::remove_trees(self.layout.ingest.as_fd(), &names) {
            tracing::warn!(%error, path = %ingest.display(), "not everything could be swept");
        }
        self.next_ingest.store(greatest + 1, Ordering::Relaxed);

        let layers = self.layout.path.join(layout::LAYERS);
        let names = layout::names(&layers).map_err(|source| StoreError::io("list", &layers, source))?;
        let greatest = names.iter().filter_map(number).max().unwrap_or(0);
        let is_stray = |name: &OsString| !number(name).is_some_and(|number| known.contains(&LayerId(number)));
        let stray: Vec<CString> = names.into_iter().filter(is_stray).map(c_name).collect();
        if !stray.is_empty() {
            tracing::info!(count = stray.len(), "sweeping layers that no record names");
        }
        if let Err(error) = remove_tree::remove_trees(self.layout.layers.as_fd(), &stray) {
            tracing::warn!(%error, path = %layers.display(), "not everything could be swept");
        }
        let recorded = known.last().map_or(0, |id| id.0);
        let next = next.max(greatest + 1).max(recorded + 1);
        *self.commit.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = next;
        Ok(())
    }

    /// Deletes layers that no image has and no lease holds, records first.
    pub(crate) fn sweep_layers(&self, candidates: &[LayerId]) -> Result<Removed, StoreError> {
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
        drop(leases);
        self.delete_layers(&gone)
    }

    /// Deletes the files of layers whose records are gone.
    pub(crate) fn delete_layers(&self, gone: &[(LayerId, LayerEntry)]) -> Result<Removed, StoreError> {
        let mut removed = Removed::default();
        let (mut trash, mut in_place) = (Vec::new(), Vec::new());
        for (id, entry) in gone {
            removed.freed_bytes += entry.stats.disk_bytes;
            removed.freed_inodes += entry.stats.inodes;
            let (name, new) = (id.to_string(), format!("trash-{id}"));
            match rustix::fs::renameat(&self.layout.layers, name.as_str(), &self.layout.ingest, new.as_str()) {
                Ok(()) => trash.push(c_name(new.into())),
                // The directory was gone before its record.
                Err(rustix::io::Errno::NOENT) => {}
                // A full disk may have no room for the new name.
                Err(_) => in_place.push(c_name(name.into())),
            }
        }
        remove_tree::remove_trees(self.layout.ingest.as_fd(), &trash)
            .map_err(|source| StoreError::io("delete layers in", self.layout.path.join(layout::INGEST), source))?;
        remove_tree::remove_trees(self.layout.layers.as_fd(), &in_place)
            .map_err(|source| StoreError::io("delete layers in", self.layout.path.join(layout::LAYERS), source))?;
        if let Err(error) = self.db.reserve().ensure() {
            tracing::warn!(%error, "the disk is still too full for the store's reserve");
        }
        Ok(removed)
    }

    /// At a clean end: what relaxed durability left to the page cache is written, and trusted from now on.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        let unsynced = |layers: Vec<(LayerId, LayerEntry)>| -> Vec<(LayerId, LayerEntry)> {
            layers.into_iter().filter(|(_, entry)| entry.unsynced_boot.is_some()).collect()
        };
        let waiting = unsynced(self.db.read(Records::layers)?);
        if waiting.is_empty() {
            return Ok(());
        }
        self.sync_file_system()?;
        self.db.write(|transaction| {
            for (id, mut entry) in waiting {
                entry.unsynced_boot = None;
                transaction.put_layer(id, &entry)?;
            }
            Ok(())
        })
    }
}

/// Layers that were written without a sync, and that a crash of the machine may have torn: they go, and the images that
/// have them.
fn drop_untrusted(transaction: &WriteTransaction, boot: &str) -> Result<(), DbError> {
    let layers: BTreeMap<LayerId, LayerEntry> = transaction.layers()?.into_iter().collect();
    let torn: BTreeSet<LayerId> = layers
        .iter()
        .filter(|(_, entry)| entry.unsynced_boot.as_deref().is_some_and(|written| written != boot))
        .map(|(id, _)| *id)
        .collect();
    if torn.is_empty() {
        return Ok(());
    }
    for (id, entry) in transaction.images()? {
        if entry.layers.iter().any(|layer| torn.contains(layer)) {
            tracing::warn!(image = %id, "dropped: it was not yet on the disk when the machine stopped");
            crate::remove::unrecord_image(transaction, &id, &entry)?;
        }
    }
    Ok(())
}

/// The number that a directory is named by.
fn number(name: &OsString) -> Option<u64> {
    name.to_str()?.parse().ok()
}

fn c_name(name: OsString) -> CString {
    CString::new(name.into_vec()).expect("file names have no zero byte")
}
