//! The check of a layer: its directory against its recipe, and the recipe's stream against the diff id. Says what is wrong in words;
//! changes nothing.

use std::io;
use std::os::fd::AsFd;

use super::problem::ProblemKind;
use super::verdict::{Fault, Verdict};
use super::{Depth, LayerTarget};
use crate::check::Checker;
use crate::disk::layer::Shape;
use crate::ingest::verify::{Cancelled, Progress, Unverified, of_recipe, verify_digest};
use crate::io_error::is_of_the_medium;

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
            Err(error) => return bad(format!("its directory cannot be opened: {error}"), is_of_the_medium(&error)),
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
            Err(Unverified::Differs { detail, certain }) => bad(detail, certain),
        }
    }
}

fn bad(detail: String, certain: bool) -> Verdict {
    let kind = if certain { ProblemKind::DamagedLayer } else { ProblemKind::UncheckedLayer };
    Verdict::Fault(Fault { kind, detail, certain })
}
