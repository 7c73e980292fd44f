//! Compares the records with each other and with the documents: pure over one snapshot of the database. Returns the faults and
//! the changes that would repair them; [`super::fix`] makes them. Knows no directory: the caller passes the damaged layers.

use std::collections::{BTreeMap, BTreeSet};

use cri_api::engine::{Problem, ProblemKind};
use oci::{Digest, ImageConfig};
use redb::ReadableTable;

use super::fix::Fix;
use super::problem::Faults;
use super::problem::new_problem;
use crate::disk::layer::LayerId;
use crate::error::StoreError;
use crate::records::entries::{BlobEntry, ImageEntry, LayerEntry, Totals};
use crate::records::tables::{DOCUMENTS, DocumentKind, IMAGES, Records};

#[derive(Default)]
pub(super) struct Examination {
    pub(super) problems: Vec<Problem>,
    /// Which of them no fix puts right, by position.
    pub(super) left: BTreeSet<usize>,
    pub(super) fixes: Vec<Fix>,
    pub(super) images: u64,
    /// Images that lack a layer once the fixes are made.
    pub(super) incomplete: BTreeSet<Digest>,
    /// Layers whose directories are to go once the fixes are made.
    pub(super) doomed: Vec<LayerId>,
    /// Numbers of blobs whose files are to go once the fixes are made.
    pub(super) doomed_blobs: Vec<u64>,
    /// Layers that only a lease keeps once the fixes are made.
    pub(super) leased: Vec<LayerId>,
}

pub(super) struct Examiner<'a, R> {
    pub(super) records: &'a R,
    pub(super) is_leased: &'a dyn Fn(LayerId) -> bool,
    pub(super) bad: &'a Faults,
    pub(super) layers: BTreeMap<LayerId, RecordChange<LayerEntry>>,
    pub(super) images: BTreeMap<Digest, RecordChange<ImageEntry>>,
    /// Kept blobs: no references are to be left where one is to go.
    pub(super) blobs: BTreeMap<Digest, RecordChange<BlobEntry>>,
    /// Images that are to go, as far as their records could be read.
    pub(super) dropped: Vec<ImageEntry>,
    /// Some record could not be read: what it had cannot be counted.
    pub(super) blind: bool,
    pub(super) out: Examination,
}

/// A record as it is and as it is to be.
pub(super) struct RecordChange<T> {
    pub(super) before: T,
    pub(super) after: T,
}

impl<T: Clone + PartialEq> RecordChange<T> {
    pub(super) fn new(entry: T) -> Self {
        Self { before: entry.clone(), after: entry }
    }

    fn is_changed(&self) -> bool {
        self.before != self.after
    }
}

/// Examines all records.
pub(super) fn examine<R: Records>(
    records: &R,
    is_leased: &dyn Fn(LayerId) -> bool,
    bad: &Faults,
) -> Result<Examination, StoreError> {
    let mut examiner = Examiner {
        records,
        is_leased,
        bad,
        layers: BTreeMap::new(),
        images: BTreeMap::new(),
        blobs: BTreeMap::new(),
        dropped: Vec::new(),
        blind: false,
        out: Examination::default(),
    };
    examiner.layers()?;
    examiner.images()?;
    examiner.unreferenced_documents()?;
    examiner.damaged_layers();
    examiner.names()?;
    examiner.references();
    examiner.blobs()?;
    examiner.sizes();
    examiner.ways()?;
    examiner.totals()?;
    Ok(examiner.end())
}

impl<R: Records> Examiner<'_, R> {
    pub(super) fn add_problem(
        &mut self,
        kind: ProblemKind,
        subject: impl Into<String>,
        detail: impl Into<String>,
    ) -> &mut Problem {
        self.out.problems.push(new_problem(kind, subject, detail));
        self.out.problems.last_mut().expect("it was just put there")
    }

    fn layers(&mut self) -> Result<(), StoreError> {
        for (id, entry) in self.records.layer_rows()? {
            match entry {
                Ok(entry) => drop(self.layers.insert(id, RecordChange::new(entry))),
                Err(error) => {
                    self.blind = true;
                    self.add_problem(ProblemKind::DamagedRecord, format!("layer {id}"), text(&error));
                    self.out.fixes.push(Fix::DropLayerRow(id));
                    self.out.doomed.push(id);
                }
            }
        }
        Ok(())
    }

    fn images(&mut self) -> Result<(), StoreError> {
        for (key, entry) in self.records.image_rows()? {
            self.out.images += 1;
            let subject = format!("image {key}");
            let (id, entry) = match (key.parse::<Digest>(), entry) {
                (Ok(id), Ok(entry)) => (id, entry),
                (Err(error), _) => {
                    self.blind = true;
                    self.add_problem(ProblemKind::DamagedRecord, subject, format!("its id is none: {error}"));
                    self.out.fixes.push(Fix::DropImageRow(key));
                    continue;
                }
                (Ok(id), Err(error)) => {
                    self.blind = true;
                    self.add_problem(ProblemKind::DamagedRecord, subject, text(&error)).images.push(id.to_string());
                    self.out.fixes.push(Fix::DropImageRow(key));
                    continue;
                }
            };
            let (wrong, document_bytes) = self.documents(&id, &entry)?;
            if let Some((kind, detail)) = wrong {
                self.add_problem(kind, subject, detail).images.push(id.to_string());
                self.out.fixes.push(Fix::DropImageRow(key));
                self.dropped.push(entry);
                continue;
            }
            let mut row = RecordChange::new(entry);
            row.after.document_bytes = document_bytes;
            self.images.insert(id, row);
        }
        Ok(())
    }

    /// Why an image's documents or layers cannot be trusted, if so, and how many bytes the documents have.
    fn documents(&self, id: &Digest, entry: &ImageEntry) -> Result<(Option<(ProblemKind, String)>, u64), StoreError> {
        let document = |kind| self.records.document(id, kind);
        let (config, manifest, index) =
            (document(DocumentKind::Config)?, document(DocumentKind::Manifest)?, document(DocumentKind::Index)?);
        let bytes = [&config, &manifest, &index].into_iter().flatten().map(|bytes| bytes.len() as u64).sum();
        let parts = [("config", &config, Some(id)), ("manifest", &manifest, Some(&entry.manifest_digest))];
        for (name, content, digest) in parts.into_iter().chain([("index", &index, entry.index_digest.as_ref())]) {
            let detail = match (content, digest) {
                (Some(content), Some(digest)) if digest.algorithm().digest(content) != *digest => {
                    format!("its {name} has the digest {} instead of {digest}", digest.algorithm().digest(content))
                }
                (None, Some(digest)) => format!("its {name} {digest} is gone"),
                _ => continue,
            };
            return Ok((Some((ProblemKind::DamagedDocument, detail)), bytes));
        }
        let diff_ids =
            config.as_deref().map(ImageConfig::parse).and_then(Result::ok).map(|config| config.rootfs.diff_ids);
        let of_layers: Option<Vec<&Digest>> =
            entry.layers.iter().map(|layer| self.layers.get(layer).map(|row| &row.before.diff_id)).collect();
        let detail = match (diff_ids, of_layers) {
            (None, _) => "its config cannot be read".to_owned(),
            (_, None) => "one of its layers has no record".to_owned(),
            (Some(diff_ids), Some(layers)) if !diff_ids.iter().eq(layers.iter().copied()) => {
                "its layers are not those of its config".to_owned()
            }
            _ => return Ok((None, bytes)),
        };
        Ok((Some((ProblemKind::DamagedRecord, detail)), bytes))
    }

    fn unreferenced_documents(&mut self) -> Result<(), StoreError> {
        let mut left = BTreeSet::new();
        for row in self.records.table(DOCUMENTS)?.iter()? {
            let (key, _) = row?;
            let (id, _) = key.value();
            if self.records.table(IMAGES)?.get(id)?.is_none() {
                left.insert(id.to_owned());
            }
        }
        for id in left {
            self.add_problem(ProblemKind::LeftOver, format!("documents of image {id}"), "there is no such image");
            self.out.fixes.push(Fix::DropImageRow(id));
        }
        Ok(())
    }

    fn damaged_layers(&mut self) {
        let bad = self.bad;
        for (id, bad) in &bad.layers {
            // One that was removed meanwhile could not be read for that reason.
            let Some(row) = self.layers.get_mut(id).filter(|row| !row.before.damaged) else { continue };
            if bad.certain {
                row.after.damaged = true;
                row.after.stats.disk_bytes = 0;
                row.after.stats.inodes = 0;
                self.out.doomed.push(*id);
            }
            let detail = format!("{}: {}", row.before.diff_id, bad.detail);
            let images = self.images.iter().filter(|(_, image)| image.before.layers.contains(id));
            let images = images.map(|(image, _)| image.to_string()).collect();
            let problem = self.add_problem(bad.kind, format!("layer {id}"), detail);
            problem.images = images;
            // Uncertain faults are not acted upon.
            if !bad.certain {
                self.out.left.insert(self.out.problems.len() - 1);
            }
        }
        for (id, image) in &self.images {
            let lacks = |layer: &LayerId| self.layers.get(layer).is_some_and(|row| row.after.damaged);
            if image.before.layers.iter().any(lacks) {
                self.out.incomplete.insert(id.clone());
            }
        }
    }

    fn references(&mut self) {
        let mut kept: BTreeMap<LayerId, u64> = BTreeMap::new();
        for layer in self.images.values().flat_map(|image| image.before.distinct_layers()) {
            *kept.entry(layer).or_default() += 1;
        }
        let mut all = kept.clone();
        for layer in self.dropped.iter().flat_map(ImageEntry::distinct_layers) {
            *all.entry(layer).or_default() += 1;
        }
        let mut told = Vec::new();
        for (id, row) in &mut self.layers {
            let (kept, all) = (kept.get(id).copied().unwrap_or(0), all.get(id).copied().unwrap_or(0));
            let counted = row.before.references;
            row.after.references = kept;
            if counted != all && !self.blind {
                let detail = format!("{counted} images are said to have it, and {all} have it");
                told.push((ProblemKind::WrongCount, *id, detail));
            }
            if kept > 0 {
                continue;
            }
            if (self.is_leased)(*id) {
                self.out.leased.push(*id);
                continue;
            }
            if counted == 0 {
                told.push((ProblemKind::UnusedLayer, *id, "no image has it".to_owned()));
            }
            self.out.doomed.push(*id);
        }
        for (kind, id, detail) in told {
            self.add_problem(kind, format!("layer {id}"), detail);
        }
    }

    fn sizes(&mut self) {
        let mut told = Vec::new();
        for (id, image) in &mut self.images {
            let layers = image.before.distinct_layers();
            let sum = |bytes: &dyn Fn(&RecordChange<LayerEntry>) -> u64| {
                layers.iter().filter_map(|id| self.layers.get(id)).map(bytes).sum::<u64>()
            };
            let documents = image.after.document_bytes;
            let blobs = |image: &ImageEntry| {
                let rows = image.blobs.iter().filter_map(|digest| self.blobs.get(digest));
                rows.map(|row| row.before.disk_bytes).sum::<u64>()
            };
            let before = documents + sum(&|row| row.before.stats.disk_bytes) + blobs(&image.before);
            image.after.size = documents + sum(&|row| row.after.stats.disk_bytes) + blobs(&image.after);
            if image.before.size != before || image.before.document_bytes != documents {
                let detail = format!("its size is said to be {}, and is {before}", image.before.size);
                told.push((id.clone(), detail));
            }
        }
        for (id, detail) in told {
            self.add_problem(ProblemKind::WrongCount, format!("image {id}"), detail).images.push(id.to_string());
        }
    }

    fn totals(&mut self) -> Result<(), StoreError> {
        let (mut before, mut after) = (Totals::default(), Totals::default());
        for (id, row) in &self.layers {
            before.add_layer(&row.before.stats);
            if row.after.references > 0 || self.out.leased.contains(id) {
                after.add_layer(&row.after.stats);
            }
        }
        for row in self.blobs.values() {
            before.add_blob(&row.before);
            if row.after.references > 0 {
                after.add_blob(&row.after);
            }
        }
        for image in self.images.values() {
            before.images += 1;
            before.bytes += image.after.document_bytes;
            after.images += 1;
            after.bytes += image.after.document_bytes;
        }
        before.images += self.dropped.len() as u64;
        before.bytes += self.dropped.iter().map(|image| image.document_bytes).sum::<u64>();
        let recorded = self.records.totals();
        match &recorded {
            Err(error) => {
                let error = text(error);
                self.add_problem(ProblemKind::DamagedRecord, "totals", error);
            }
            Ok(recorded) if *recorded != before && !self.blind => {
                let detail = format!(
                    "{} bytes, {} inodes, {} images, {} layers and {} blobs are said to be here; {}, {}, {}, {} and {} are",
                    recorded.bytes,
                    recorded.inodes,
                    recorded.images,
                    recorded.layers,
                    recorded.blobs,
                    before.bytes,
                    before.inodes,
                    before.images,
                    before.layers,
                    before.blobs
                );
                self.add_problem(ProblemKind::WrongCount, "totals", detail);
            }
            Ok(_) => {}
        }
        if recorded.is_ok_and(|recorded| recorded == after) {
            return Ok(());
        }
        self.out.fixes.push(Fix::PutTotals(after));
        Ok(())
    }

    fn end(mut self) -> Examination {
        for (id, row) in &self.layers {
            if row.after.references == 0 && !self.out.leased.contains(id) {
                self.out.fixes.push(Fix::DeleteLayer(*id, row.before.clone()));
            } else if row.is_changed() {
                self.out.fixes.push(Fix::PutLayer(*id, row.after.clone()));
            }
        }
        for (digest, row) in &self.blobs {
            if row.after.references == 0 {
                self.out.fixes.push(Fix::DropBlob(digest.to_string()));
                self.out.doomed_blobs.push(row.before.number);
            } else if row.is_changed() {
                self.out.fixes.push(Fix::PutBlob(digest.clone(), row.after.clone()));
            }
        }
        for (id, row) in &self.images {
            if row.is_changed() {
                self.out.fixes.push(Fix::PutImage(id.clone(), row.after.clone()));
            }
        }
        self.out.doomed.sort_unstable();
        self.out.doomed.dedup();
        self.out
    }
}

pub(super) fn text(error: &StoreError) -> String {
    match error {
        StoreError::Database(error) | StoreError::Unsure(error) => error.to_string(),
        StoreError::Corrupt(what) | StoreError::Displaced(what) => what.clone(),
        error => error.to_string(),
    }
}
