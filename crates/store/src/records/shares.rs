//! What layers have in common on the disk, as numbers: for every set of layers that share files, the bytes and inodes that
//! go with the last of them. A layer's own numbers are what goes with it alone, so that all sums stay right whoever comes and
//! goes. [`crate::ingest::share`] makes what is counted here; commits let a layer join, removals let it leave.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;

use redb::WriteTransaction;
use serde::{Deserialize, Serialize};

use crate::disk::layout;
use crate::error::StoreError;
use crate::images::plan::{Move, Step};
use crate::ingest::share::{Object, read_list};
use crate::records::db::{DbError, Records, RecordsMut};
use crate::records::entries::{ImageEntry, LayerId, LayerStats};
use crate::store::open::Inner;

/// What a set of layers has in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// Layers that share something.
pub(crate) type Set = BTreeSet<LayerId>;

/// What each new layer of a commit shares with which sets of layers that were here before it.
pub(crate) type Joins = BTreeMap<LayerId, Vec<(Set, Share)>>;

impl Share {
    fn is_nothing(self) -> bool {
        self == Self::default()
    }

    fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }

    fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), inodes: self.inodes.saturating_sub(other.inodes) }
    }
}

impl LayerStats {
    pub(crate) fn give(&mut self, share: Share) {
        self.disk_bytes += share.bytes;
        self.inodes += share.inodes;
    }

    fn take(&mut self, share: Share) {
        self.disk_bytes = self.disk_bytes.saturating_sub(share.bytes);
        self.inodes = self.inodes.saturating_sub(share.inodes);
    }
}

/// The key of a set's row.
pub(crate) fn key_of(set: &Set) -> String {
    set.iter().map(LayerId::to_string).collect::<Vec<_>>().join(",")
}

/// The set of a row, if its key is one.
pub(crate) fn set_of(key: &str) -> Option<Set> {
    key.split(',').map(|number| number.parse().ok().map(LayerId)).collect()
}

/// Bytes on disk of an image: documents, layers, kept blobs, and what its layers share with others.
pub(crate) fn size_of(records: &impl Records, image: &ImageEntry) -> Result<u64, DbError> {
    let layers = image.distinct_layers();
    let mut size = image.document_bytes;
    for layer in &layers {
        size += records.layer_of_image(*layer)?.stats.disk_bytes;
    }
    for digest in &image.blobs {
        size += records.blob(digest)?.map_or(0, |blob| blob.disk_bytes);
    }
    let shares = records.shares()?;
    Ok(size + shares.iter().filter(|(set, _)| !set.is_disjoint(&layers)).map(|(_, share)| share.bytes).sum::<u64>())
}

/// Lets a new layer, whose record is there, share with layers of which some may have gone.
pub(crate) fn join(transaction: &WriteTransaction, new: LayerId, joins: &[(Set, Share)]) -> Result<(), DbError> {
    for (set, share) in joins {
        let mut there = Set::new();
        for id in set {
            if transaction.layer(*id)?.is_some_and(|entry| !entry.damaged) {
                there.insert(*id);
            }
        }
        match there.iter().collect::<Vec<_>>().as_slice() {
            [] => {
                give(transaction, new, *share)?;
                let mut totals = transaction.totals()?;
                totals.bytes += share.bytes;
                totals.inodes += share.inodes;
                transaction.put_totals(&totals)?;
                continue;
            }
            [only] => {
                if let Some(mut entry) = transaction.layer(**only)? {
                    entry.stats.take(*share);
                    transaction.put_layer(**only, &entry)?;
                }
            }
            _ => {
                let left = transaction.share(&there)?.minus(*share);
                transaction.put_share(&there, left)?;
            }
        }
        there.insert(new);
        let more = transaction.share(&there)?.plus(*share);
        transaction.put_share(&there, more)?;
    }
    Ok(())
}

/// Takes a layer out of everything that it shares, before its record goes: what only one other layer has then is that one's
/// own.
pub(crate) fn leave(transaction: &WriteTransaction, id: LayerId) -> Result<(), DbError> {
    for (mut set, share) in transaction.shares()? {
        if !set.contains(&id) {
            continue;
        }
        transaction.put_share(&set, Share::default())?;
        set.remove(&id);
        match set.iter().collect::<Vec<_>>().as_slice() {
            [] => {}
            [only] => give(transaction, **only, share)?,
            _ => {
                let more = transaction.share(&set)?.plus(share);
                transaction.put_share(&set, more)?;
            }
        }
    }
    Ok(())
}

fn give(transaction: &WriteTransaction, id: LayerId, share: Share) -> Result<(), DbError> {
    if let Some(mut entry) = transaction.layer(id)?
        && !share.is_nothing()
    {
        entry.stats.give(share);
        transaction.put_layer(id, &entry)?;
    }
    Ok(())
}

/// What a new layer has of others, and who has it.
type Wanted = BTreeMap<Object, (Share, Set)>;

impl Inner {
    /// With whom the new layers of a commit share what. Reads the lists of all layers, if one of them shares anything.
    pub(crate) fn find_shares(&self, steps: &[Step]) -> Result<Joins, StoreError> {
        let mut wanted: Vec<(LayerId, Wanted)> = Vec::new();
        for step in steps.iter().filter_map(Step::as_move).filter(|step| step.layer.shares) {
            wanted.push((step.id, self.wanted(step)?));
        }
        if wanted.is_empty() {
            return Ok(Joins::new());
        }
        for (id, row) in self.db.read(Records::layer_rows)? {
            // One that goes meanwhile is not counted in the transaction.
            let Ok(directory) = self.layout.open_layer(id) else { continue };
            if row.is_err() {
                continue;
            }
            let Ok(list) = read_list(directory.as_fd()) else { continue };
            for listed in list.map_while(Result::ok) {
                let object = listed.object(id);
                for (_, wanted) in &mut wanted {
                    if let Some((_, set)) = wanted.get_mut(&object) {
                        set.insert(id);
                    }
                }
            }
        }
        let mut joins = Joins::new();
        for at in 0..wanted.len() {
            let (before, from) = wanted.split_at_mut(at);
            let Some((id, own)) = from.first_mut() else { break };
            let mut groups: BTreeMap<Set, Share> = BTreeMap::new();
            for (object, (share, set)) in own {
                // New layers of the same image come one after the other.
                let twins = before.iter().filter(|(_, wanted)| wanted.contains_key(object)).map(|(id, _)| *id);
                let set: Set = set.iter().copied().chain(twins).collect();
                let sum = groups.entry(set).or_default();
                *sum = sum.plus(*share);
            }
            joins.insert(*id, groups.into_iter().collect());
        }
        Ok(joins)
    }

    /// The objects of others in a layer that is still private.
    fn wanted(&self, step: &Move) -> Result<Wanted, StoreError> {
        let path = self.layout.ingest_path(step.number);
        let failed = |source| StoreError::io("read the list of files in", &path, source);
        let directory = layout::open_directory(&self.layout.ingest, &step.number.to_string()).map_err(failed)?;
        let mut wanted = Wanted::new();
        for listed in read_list(directory.as_fd()).map_err(failed)? {
            let listed = listed.map_err(failed)?;
            if let Some(object) = listed.origin {
                let share = Share { bytes: listed.bytes, inodes: u64::from(!listed.cloned) };
                wanted.insert(object, (share, Set::new()));
            }
        }
        Ok(wanted)
    }
}
