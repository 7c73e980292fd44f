//! Stores of earlier versions in which layers share files. Once, at the first open, their records are converted:
//!
//! - A directory layer with hard links to files of another layer, and a layer with blocks of another one (reflink), is complete and stays.
//!   The table `shares` had the bytes that sets of layers have in common. They are added to the first layer of each set, so that each
//!   byte on the disk is counted once.
//! - An EROFS file that has blocks in another layer's file (`device.1` and so on) cannot be read any more. The layer is recorded as damaged:
//!   its images are absent, and the next pull brings this layer back.
//!
//! Nothing but this module knows what such stores look like. Called by the sweep at open.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use redb::{ReadableTable as _, TableDefinition, TableError, WriteTransaction};
use rustix::fs::AtFlags;
use serde::{Deserialize, Serialize};

use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::maintenance::Maintenance;
use crate::recipe;
use crate::records::entries::{LayerEntry, decode};
use crate::records::images::size_of;
use crate::records::tables::{Records, RecordsMut};

/// Bytes that sets of layers have in common, by the numbers of the layers. A store without this table has no shared files.
const SHARES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("shares");
/// List of the files of a layer that could be shared.
const LIST: &str = "files.zst";

/// Disk usage that is in the numbers of no layer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Share {
    bytes: u64,
    inodes: u64,
}

impl Maintenance {
    /// Converts the records of a store with shared files. Returns true if it had some. On a full disk the records stay as they are until
    /// the next open; no layer that cannot be read is used meanwhile.
    pub(super) fn convert_shared_files(&self) -> Result<bool, StoreError> {
        let layers = self.catalog.db.read(|records| match records.open_table(SHARES) {
            Ok(_) => records.layer_rows().map(Some),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        })?;
        let Some(layers) = layers else { return Ok(false) };
        let readable = layers.into_iter().filter_map(|(id, entry)| Some((id, entry.ok()?)));
        let incomplete: BTreeSet<LayerId> =
            readable.filter(|(id, entry)| !entry.damaged && self.needs_devices(*id, entry)).map(|(id, _)| id).collect();
        self.layers.distrust(incomplete.iter().copied());
        match self.catalog.db.write(|transaction| convert(transaction, &incomplete)) {
            Ok(()) => Ok(true),
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, "records of shared files stay until there is space to convert them");
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if the layer is an EROFS file that is incomplete without files of other layers. An error of the disk says nothing
    /// about the layer; a check of the store finds it.
    fn needs_devices(&self, id: LayerId, entry: &LayerEntry) -> bool {
        if entry.shape.is_dir() {
            return false;
        }
        let opened =
            self.catalog.disk.layout.open_layer(id).and_then(|directory| recipe::read_erofs(directory.as_fd()));
        opened.is_err_and(|error| error.kind() == io::ErrorKind::Unsupported)
    }
}

fn convert(transaction: &WriteTransaction, incomplete: &BTreeSet<LayerId>) -> Result<(), StoreError> {
    let rows = transaction.layer_rows()?.into_iter();
    let mut layers: BTreeMap<LayerId, LayerEntry> = rows.filter_map(|(id, entry)| Some((id, entry.ok()?))).collect();
    // Damaged totals do not keep the store closed: a check puts them right.
    let mut totals = match transaction.totals() {
        Err(StoreError::Corrupt(_)) => None,
        totals => Some(totals?),
    };
    let mut lost = Share { bytes: 0, inodes: 0 };
    for id in incomplete {
        let Some(entry) = layers.get_mut(id) else { continue };
        tracing::warn!(layer = %id, diff_id = %entry.diff_id, "the layer shares blocks with another one, which is no longer supported: \
             its images are absent until they are pulled again");
        lost = lost.plus(Share { bytes: entry.stats.disk_bytes, inodes: entry.stats.inodes });
        (entry.stats.disk_bytes, entry.stats.inodes, entry.damaged) = (0, 0, true);
    }
    for (key, share) in shares(transaction)? {
        let set = key.split(',').filter_map(|number| number.parse().ok().map(LayerId));
        let mut kept = set.filter(|id| layers.get(id).is_some_and(|entry| !entry.damaged));
        match kept.next().and_then(|first| layers.get_mut(&first)) {
            Some(first) => {
                first.stats.disk_bytes += share.bytes;
                first.stats.inodes += share.inodes;
            }
            None => lost = lost.plus(share),
        }
    }
    for (id, entry) in &layers {
        transaction.put_layer(*id, entry)?;
    }
    for (id, entry) in transaction.image_rows()? {
        // A record that cannot be read, or has no layer, is for a check to find.
        let (Ok(id), Ok(mut entry)) = (id.parse(), entry) else { continue };
        match size_of(transaction, &entry) {
            Ok(size) => entry.size = size,
            Err(StoreError::Corrupt(_)) => continue,
            Err(error) => return Err(error),
        }
        transaction.put_image(&id, &entry)?;
    }
    if let Some(totals) = &mut totals {
        totals.bytes = totals.bytes.saturating_sub(lost.bytes);
        totals.inodes = totals.inodes.saturating_sub(lost.inodes);
        transaction.put_totals(totals)?;
    }
    transaction.delete_table(SHARES)?;
    Ok(())
}

/// Returns the rows that can be read, by the numbers of their layers.
fn shares(transaction: &WriteTransaction) -> Result<Vec<(String, Share)>, StoreError> {
    let table = transaction.open_table(SHARES)?;
    let mut found = Vec::new();
    for row in table.iter()? {
        let (key, value) = row?;
        let key = key.value().to_owned();
        match decode(format_args!("the share of {key}"), value.value()) {
            Ok(share) => found.push((key, share)),
            Err(error) => tracing::warn!(%error, "a record of shared files is dropped"),
        }
    }
    Ok(found)
}

impl Share {
    fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }
}

/// Removes the list of files from the private directory of a layer that an interrupted pull left.
pub(crate) fn remove_list(private: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::fs::unlinkat(private, LIST, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
