//! The part of the check that covers data shared between images and between layers: kept blobs, whose loss damages no image, and
//! the shares of sets of layers.

use std::collections::{BTreeMap, BTreeSet};

use engine_api::ProblemKind;
use oci::Digest;

use super::fix::Fix;
use super::records::{Examiner, RecordChange, text};
use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::records::entries::LayerEntry;
use crate::records::entries::{LayerSet, key_of};
use crate::records::tables::Records;

impl<R: Records> Examiner<'_, R> {
    /// Gives what layers that are to go shared with one other to that one. After this, the sets are as they are to be.
    pub(super) fn shares(&mut self) -> Result<(), StoreError> {
        for (key, row) in self.records.share_rows()? {
            match row {
                Ok((set, share)) => drop(self.shares.before.insert(set, share)),
                Err(error) => {
                    self.blind = true;
                    self.add_problem(ProblemKind::DamagedRecord, format!("share {key}"), text(&error));
                    self.out.fixes.push(Fix::PutShare(key, None));
                }
            }
        }
        let stays = |id: &LayerId| {
            let kept = |row: &RecordChange<LayerEntry>| row.after.references > 0 || (self.is_leased)(*id);
            self.layers.get(id).is_some_and(|row| kept(row) && !row.after.damaged)
        };
        let mut lost = Vec::new();
        let mut given = Vec::new();
        for (set, share) in &self.shares.before {
            if !set.iter().all(|id| self.layers.contains_key(id)) {
                lost.push(key_of(set));
            }
            let left: LayerSet = set.iter().copied().filter(stays).collect();
            match left.iter().collect::<Vec<_>>().as_slice() {
                [] => {}
                [only] => given.push((**only, *share)),
                _ => {
                    let sum = self.shares.after.entry(left).or_default();
                    (sum.bytes, sum.inodes) = (sum.bytes + share.bytes, sum.inodes + share.inodes);
                }
            }
        }
        for (id, share) in given {
            if let Some(row) = self.layers.get_mut(&id) {
                row.after.stats.give(share);
            }
        }
        for key in lost {
            if !self.blind {
                self.add_problem(ProblemKind::DamagedRecord, format!("share {key}"), "one of its layers has no record");
            }
        }
        for set in self.shares.before.keys().filter(|set| !self.shares.after.contains_key(*set)) {
            self.out.fixes.push(Fix::PutShare(key_of(set), None));
        }
        for (set, share) in &self.shares.after {
            if self.shares.before.get(set) != Some(share) {
                self.out.fixes.push(Fix::PutShare(key_of(set), Some(*share)));
            }
        }
        Ok(())
    }

    /// After this, images have the blobs that they are to have.
    pub(super) fn blobs(&mut self) -> Result<(), StoreError> {
        for (key, row) in self.records.blob_rows()? {
            match row {
                Ok((digest, entry)) => drop(self.blobs.insert(digest, RecordChange::new(entry))),
                Err(error) => {
                    // From now on its file is one without a record.
                    self.blind = true;
                    self.add_problem(ProblemKind::DamagedRecord, format!("blob {key}"), text(&error));
                    self.out.fixes.push(Fix::DropBlob(key));
                }
            }
        }
        let lost = self.bad_blobs();
        let mut missing = Vec::new();
        for (id, image) in &mut self.images {
            for digest in &image.before.blobs {
                if !self.blobs.contains_key(digest) {
                    missing.push((digest.clone(), id.clone()));
                    image.after.blobs.remove(digest);
                }
            }
            image.after.blobs.retain(|digest| !lost.contains(digest));
        }
        if !self.blind {
            for (digest, id) in missing {
                let detail = format!("image {id} has it, and it has no record");
                self.add_problem(ProblemKind::DamagedRecord, format!("blob {digest}"), detail)
                    .images
                    .push(id.to_string());
            }
        }
        self.references_of_blobs();
        Ok(())
    }

    /// Reports the blobs that were found damaged. Returns those that are to be removed.
    fn bad_blobs(&mut self) -> BTreeSet<Digest> {
        let bad = self.bad;
        let mut lost = BTreeSet::new();
        let numbers: BTreeMap<u64, Digest> =
            self.blobs.iter().map(|(digest, row)| (row.before.number, digest.clone())).collect();
        for (number, bad) in &bad.blobs {
            // One that was removed meanwhile could not be read for that reason.
            let Some(digest) = numbers.get(number) else { continue };
            let images = self.images.iter().filter(|(_, image)| image.before.blobs.contains(digest));
            let images = images.map(|(id, _)| id.to_string()).collect();
            self.add_problem(bad.kind, format!("blob {digest}"), bad.detail.clone()).images = images;
            if bad.certain {
                lost.insert(digest.clone());
            } else {
                self.out.left.insert(self.out.problems.len() - 1);
            }
        }
        lost
    }

    fn references_of_blobs(&mut self) {
        let mut told = Vec::new();
        for (digest, row) in &mut self.blobs {
            let has = |blobs: &BTreeSet<Digest>| blobs.contains(digest);
            let kept = self.images.values().filter(|image| has(&image.after.blobs)).count() as u64;
            let had = self.images.values().filter(|image| has(&image.before.blobs)).count() as u64;
            let all = had + self.dropped.iter().filter(|image| has(&image.blobs)).count() as u64;
            row.after.references = kept;
            let counted = row.before.references;
            if counted != all && !self.blind {
                told.push((digest.clone(), format!("{counted} images are said to have it, and {all} have it")));
            }
        }
        for (digest, detail) in told {
            self.add_problem(ProblemKind::WrongCount, format!("blob {digest}"), detail);
        }
    }
}
