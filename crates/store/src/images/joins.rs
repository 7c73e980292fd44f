//! The files that the new layers of a commit share with committed layers, read from the lists of their files. [`crate::records::shares`]
//! counts it.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use crate::disk::layer::LayerId;
use crate::disk::layout;
use crate::error::StoreError;
use crate::images::step::{Move, Step};
use crate::layers::file_list::{FileOrigin, read_list};
use crate::records::entries::{LayerSet, Share};
use crate::records::tables::Records;
use crate::store::Store;

/// For each new layer of a commit, its shares with sets of layers that precede it.
pub(crate) type Joins = BTreeMap<LayerId, Vec<(LayerSet, Share)>>;

/// Files in a new layer that other layers have as well, and those layers.
type SharedFiles = BTreeMap<FileOrigin, (Share, LayerSet)>;

impl Store {
    /// Finds the sets of layers with which the new layers of a commit share files. Reads the lists of all layers, if a new one
    /// shares anything.
    pub(crate) fn find_shares(&self, steps: &[Step]) -> Result<Joins, StoreError> {
        let mut wanted: Vec<(LayerId, SharedFiles)> = Vec::new();
        for step in steps.iter().filter_map(Step::as_move).filter(|step| step.layer.shares) {
            wanted.push((step.id, self.wanted(step)?));
        }
        if wanted.is_empty() {
            return Ok(Joins::new());
        }
        for (id, row) in self.catalog.db.read(Records::layer_rows)? {
            // A layer that is removed meanwhile is not counted in the transaction.
            let Ok(directory) = self.catalog.disk.layout.open_layer(id) else { continue };
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
            let mut groups: BTreeMap<LayerSet, Share> = BTreeMap::new();
            for (object, (share, set)) in own {
                // New layers of the same image come one after the other.
                let twins = before.iter().filter(|(_, wanted)| wanted.contains_key(object)).map(|(id, _)| *id);
                let set: LayerSet = set.iter().copied().chain(twins).collect();
                let sum = groups.entry(set).or_default();
                *sum = sum.plus(*share);
            }
            joins.insert(*id, groups.into_iter().collect());
        }
        Ok(joins)
    }

    /// Returns the objects of other layers in a layer that is still private.
    fn wanted(&self, step: &Move) -> Result<SharedFiles, StoreError> {
        let path = self.catalog.disk.layout.ingest_path(step.number);
        let failed = |source| StoreError::io("read the list of files in", &path, source);
        let directory =
            layout::open_directory(&self.catalog.disk.layout.ingest, &step.number.to_string()).map_err(failed)?;
        let mut wanted = SharedFiles::new();
        for listed in read_list(directory.as_fd()).map_err(failed)? {
            let listed = listed.map_err(failed)?;
            if let Some(object) = listed.origin {
                let share = Share { bytes: listed.bytes, inodes: u64::from(!listed.cloned) };
                wanted.insert(object, (share, LayerSet::new()));
            }
        }
        Ok(wanted)
    }
}
