//! The last step of a check, with everything else held up: the records are examined, changed where that is asked for, and
//! held against the directories; then what is to go is deleted.

use std::collections::BTreeSet;

use oci::Digest;
use redb::WriteTransaction;

use super::records::{Examination, examine};
use super::{AllBad, CheckReport};
use crate::error::StoreError;
use crate::records::db::{DbError, Records, RecordsMut};
use crate::records::entries::{BlobEntry, ImageEntry, LayerEntry, LayerId, Totals, encode};
use crate::records::shares::Share;
use crate::records::tables::{BLOBS, BY_CHAIN_ID, BY_DIFF_ID, DOCUMENTS, IMAGES, LAYERS, SHARES};
use crate::store::open::Inner;

/// A change that puts something right.
pub(super) enum Fix {
    /// A layer's record that cannot be read.
    DropLayerRow(LayerId),
    /// An image's record and its documents, whatever they are.
    DropImageRow(String),
    DropName(String),
    PutName(String, Digest),
    DropWay {
        by_chain: bool,
        key: String,
    },
    PutLayer(LayerId, LayerEntry),
    DeleteLayer(LayerId, LayerEntry),
    PutImage(Digest, ImageEntry),
    PutTotals(Totals),
    /// What a set of layers has in common, by its key; nothing takes the row away.
    PutShare(String, Option<Share>),
    PutBlob(Digest, BlobEntry),
    /// A blob's record, by its key, which may be none.
    DropBlob(String),
}

impl Fix {
    fn make(&self, transaction: &WriteTransaction) -> Result<(), DbError> {
        match self {
            Self::DropLayerRow(id) => drop(transaction.open_table(LAYERS)?.remove(id.0)?),
            Self::DropImageRow(id) => {
                transaction.open_table(IMAGES)?.remove(id.as_str())?;
                let mut documents = transaction.open_table(DOCUMENTS)?;
                for kind in 0..=u8::MAX {
                    documents.remove((id.as_str(), kind))?;
                }
            }
            Self::DropName(name) => transaction.delete_name(name)?,
            Self::PutName(name, id) => transaction.put_name(name, id)?,
            Self::DropWay { by_chain, key } => {
                let table = if *by_chain { BY_CHAIN_ID } else { BY_DIFF_ID };
                transaction.open_table(table)?.remove(key.as_str())?;
            }
            Self::PutLayer(id, entry) => transaction.put_layer(*id, entry)?,
            Self::DeleteLayer(id, entry) => transaction.delete_layer(*id, entry)?,
            Self::PutImage(id, entry) => transaction.put_image(id, entry)?,
            Self::PutTotals(totals) => transaction.put_totals(totals)?,
            Self::PutShare(key, Some(share)) => {
                drop(transaction.open_table(SHARES)?.insert(key.as_str(), encode(share).as_slice())?)
            }
            Self::PutShare(key, None) => drop(transaction.open_table(SHARES)?.remove(key.as_str())?),
            Self::PutBlob(digest, entry) => transaction.put_blob(digest, entry)?,
            Self::DropBlob(key) => drop(transaction.open_table(BLOBS)?.remove(key.as_str())?),
        }
        Ok(())
    }
}

impl Inner {
    /// Examines the records, and the directories against them; repairs both where that is asked for. `bad` says which
    /// layers and blobs were found damaged.
    pub(super) fn check_records(&self, bad: &AllBad, repair: bool) -> Result<CheckReport, StoreError> {
        // Nobody commits, removes or mounts until the directories have been looked at.
        let _commit = self.commit.lock();
        let _deleting = self.deleting.write();
        let _mounting = self.mounting.lock();
        let mounts = self.live_mounts()?;
        let mounted: BTreeSet<LayerId> = mounts.into_iter().flat_map(|(_, mount)| mount.layers).collect();
        let mut leases = self.lease_table();
        let mut found = {
            let is_leased = |id| leases.holds(id);
            if repair {
                self.db.write(|transaction| {
                    let found = examine(transaction, &is_leased, bad)?;
                    for fix in &found.fixes {
                        fix.make(transaction)?;
                    }
                    Ok::<_, StoreError>(found)
                })?
            } else {
                self.db.read(|records| Ok::<_, StoreError>(examine(records, &is_leased, bad)?))?
            }
        };
        if repair {
            self.distrust(found.doomed.iter().copied());
            leases.orphans.extend(found.leased.iter().copied());
            for (at, problem) in found.problems.iter_mut().enumerate() {
                problem.repaired = !found.left.contains(&at);
            }
        }
        drop(leases);
        let Examination { mut problems, images, incomplete, doomed, doomed_blobs, .. } = found;
        if repair {
            // What a mount still shows goes when it is unmounted.
            let doomed: Vec<LayerId> = doomed.into_iter().filter(|id| !mounted.contains(id)).collect();
            self.delete_directories(&doomed)?;
            self.delete_blobs(doomed_blobs)?;
            self.refill_reserve();
        }
        let (rows, blobs) =
            self.db.read(|records| Ok::<_, StoreError>((records.layer_rows()?, records.blob_rows()?)))?;
        let known = rows.into_iter().filter(|(_, entry)| entry.as_ref().map_or(true, |entry| !entry.damaged));
        let mut keep: BTreeSet<LayerId> = known.map(|(id, _)| id).collect();
        keep.extend(mounted);
        let blobs: BTreeSet<u64> = blobs.into_iter().filter_map(|(_, row)| Some(row.ok()?.1.number)).collect();
        problems.extend(self.look_for_orphans(&keep, &blobs, repair)?);
        for problem in &problems {
            tracing::warn!(
                kind = ?problem.kind, subject = problem.subject, repaired = problem.repaired, "{}", problem.detail
            );
        }
        Ok(CheckReport { images, problems, incomplete: incomplete.into_iter().collect(), ..CheckReport::default() })
    }
}
