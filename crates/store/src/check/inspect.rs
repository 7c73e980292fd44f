//! The check of one layer (its directory against its recipe, and the recipe's stream against the diff id) and of one kept blob
//! (its file against its record, and if it is read, its bytes against its digest). Returns the fault in words; changes nothing.

use std::io::{self, Read as _};
use std::os::fd::AsFd;

use cri_api::engine::ProblemKind;

use super::problem::{Fault, Verdict};
use super::{BlobTarget, Checker, Depth, LayerTarget};
use crate::disk::layer::Shape;
use crate::ingest::verify::{Progress, STEP, Unverified, of_recipe, verify_digest};
use crate::io_error::is_of_the_medium;
use crate::options::Cancelled;

impl Checker<'_> {
    pub(super) fn inspect_layer(&self, target: &LayerTarget, read: Progress<'_>, cancelled: Cancelled<'_>) -> Verdict {
        let missing = || {
            let detail = "its directory is gone".to_owned();
            Verdict::Fault(Fault { kind: ProblemKind::MissingLayer, detail, certain: true })
        };
        if !Shape::is_there(&self.store.catalog.disk.layout.layers, target.id) {
            return missing();
        }
        let directory = match self.store.catalog.disk.layout.open_layer(target.id) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return missing(),
            Err(error) => {
                return bad_layer(format!("its directory cannot be opened: {error}"), is_of_the_medium(&error));
            }
        };
        let (diff_id, shape) = (&target.entry.diff_id, target.entry.shape);
        let verified = match target.depth {
            Depth::Sizes => shape.examine(directory.as_fd()).map(drop).map_err(|error| of_recipe(&error)),
            Depth::Digest => verify_digest(&directory, diff_id, shape, read, cancelled),
            Depth::Files => self.store.ingests.hollow_copy(&directory, diff_id, shape, read, cancelled).map(drop),
        };
        match verified {
            Ok(()) => Verdict::Good,
            Err(Unverified::Cancelled) => Verdict::Cancelled,
            Err(Unverified::Differs { detail, certain }) => bad_layer(detail, certain),
        }
    }
}

fn bad_layer(detail: String, certain: bool) -> Verdict {
    let kind = if certain { ProblemKind::DamagedLayer } else { ProblemKind::UncheckedLayer };
    Verdict::Fault(Fault { kind, detail, certain })
}

impl Checker<'_> {
    pub(super) fn inspect_blob(&self, target: &BlobTarget, read: Progress<'_>, cancelled: Cancelled<'_>) -> Verdict {
        let BlobTarget { digest, entry, depth } = target;
        let mut file = match self.store.content.open_blob(entry.number) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return bad_blob("its file is gone", true),
            Err(error) => return bad_blob(format!("it cannot be opened: {error}"), is_of_the_medium(&error)),
        };
        match file.metadata() {
            Ok(metadata) if metadata.len() != entry.size => {
                return bad_blob(format!("it has {} bytes instead of {}", metadata.len(), entry.size), true);
            }
            Ok(_) => {}
            Err(error) => return bad_blob(format!("it cannot be looked at: {error}"), is_of_the_medium(&error)),
        }
        if *depth == Depth::Sizes {
            return Verdict::Good;
        }
        let mut hasher = digest.algorithm().hasher();
        let (mut buffer, mut untold) = (vec![0; 256 << 10], 0);
        loop {
            if cancelled() {
                return Verdict::Cancelled;
            }
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    hasher.update(&buffer[..length]);
                    untold += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return bad_blob(format!("it cannot be read: {error}"), is_of_the_medium(&error)),
            }
            if untold >= STEP {
                read(std::mem::take(&mut untold));
            }
        }
        read(untold);
        let got = hasher.finish();
        if got == *digest { Verdict::Good } else { bad_blob(format!("its content has the digest {got}"), true) }
    }
}

fn bad_blob(detail: impl Into<String>, certain: bool) -> Verdict {
    Verdict::Fault(Fault { kind: ProblemKind::DamagedBlob, detail: detail.into(), certain })
}
