//! The part of the check that covers kept blobs, whose loss damages no image.

use std::collections::{BTreeMap, BTreeSet};

use cri_api::engine::ProblemKind;
use oci::Digest;

use super::fix::Fix;
use super::records::{Examiner, RecordChange, text};
use crate::error::StoreError;
use crate::records::tables::Records;

impl<R: Records> Examiner<'_, R> {
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
