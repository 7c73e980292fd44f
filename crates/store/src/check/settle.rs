//! The last step of a check, with everything else held up: the records are examined, changed where that is asked for, and
//! held against the directories; then what is to go is deleted.

use std::collections::BTreeSet;

use cri_api::engine::CheckReport;
use oci::Digest;

use super::problem::{Faults, of_stray};
use super::records::{Examination, examine};
use crate::check::Checker;
use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::records::tables::Records;

impl Checker<'_> {
    /// Examines the records, and the directories against them; repairs both where that is asked for. `bad` says which
    /// layers and blobs were found damaged.
    pub(super) fn check_records(&self, bad: &Faults, repair: bool) -> Result<CheckReport, StoreError> {
        // No commit, removal or mount runs until the directories have been checked.
        let _commit = self.store.maintenance.commit.lock();
        let _deleting = self.store.catalog.disk.deleting.write();
        let _mounting = self.store.mounts.mounting.lock();
        let uses = self.store.mounts.uses()?;
        let mounted: BTreeSet<LayerId> = uses.iter().flat_map(|(_, used)| used.layers().iter().copied()).collect();
        let mut leases = self.store.maintenance.lease_table();
        let mut found = {
            let is_leased = |id| leases.holds(id);
            if repair {
                self.store.catalog.db.write(|transaction| {
                    let found = examine(transaction, &is_leased, bad)?;
                    for fix in &found.fixes {
                        fix.make(transaction)?;
                    }
                    Ok::<_, StoreError>(found)
                })?
            } else {
                self.store.catalog.db.read(|records| examine(records, &is_leased, bad))?
            }
        };
        if repair {
            self.store.layers.distrust(found.doomed.iter().copied());
            leases.orphans.extend(found.leased.iter().copied());
            for (at, problem) in found.problems.iter_mut().enumerate() {
                problem.repaired = !found.left.contains(&at);
            }
        }
        drop(leases);
        let Examination { mut problems, images, incomplete, doomed, doomed_blobs, .. } = found;
        if repair {
            // Layers that a mount still shows are deleted when it is unmounted.
            let doomed: Vec<LayerId> = doomed.into_iter().filter(|id| !mounted.contains(id)).collect();
            self.store.layers.delete_directories(&doomed)?;
            self.store.content.delete_blobs(doomed_blobs)?;
            self.store.catalog.refill_reserve();
        }
        let (rows, blobs) =
            self.store.catalog.db.read(|records| Ok::<_, StoreError>((records.layer_rows()?, records.blob_rows()?)))?;
        let known = rows.into_iter().filter(|(_, entry)| entry.as_ref().map_or(true, |entry| !entry.damaged));
        let mut keep: BTreeSet<LayerId> = known.map(|(id, _)| id).collect();
        keep.extend(mounted);
        let blobs: BTreeSet<u64> = blobs.into_iter().filter_map(|(_, row)| Some(row.ok()?.1.number)).collect();
        problems.extend(self.store.maintenance.find_strays(&keep, &blobs, repair)?.into_iter().map(of_stray));
        for problem in &problems {
            tracing::warn!(
                kind = ?problem.kind, subject = problem.subject, repaired = problem.repaired, detail = %problem.detail, "problem of the store"
            );
        }
        let incomplete_images = incomplete.iter().map(Digest::to_string).collect();
        Ok(CheckReport { images_checked: images, problems, incomplete_images, ..CheckReport::default() })
    }
}
