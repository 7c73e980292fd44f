//! [`Problem`]: a thing that is wrong in the store, as a check reports it; [`Verdict`]: the result of looking at a layer or a kept
//! blob, and the [`Faults`] of all, by which the records are judged.

use std::collections::BTreeMap;

use oci::Digest;

use crate::disk::layer::LayerId;
use crate::maintenance::strays::Stray;

/// A thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    pub subject: String,
    /// A line for people.
    pub detail: String,
    /// The images that it concerns.
    pub images: Vec<Digest>,
    /// True if it is no more.
    pub repaired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemKind {
    /// A layer's directory is not there.
    MissingLayer,
    /// A layer's content is not what it was.
    DamagedLayer,
    /// A kept blob is not there, or not what it was. Its images are whole without it.
    DamagedBlob,
    /// A config, manifest or index is not what it was.
    DamagedDocument,
    /// A record cannot be read, or refers to something that is not there.
    DamagedRecord,
    /// A name leads to no image, not to the one that has it, or has a digest that is not the image's.
    WrongName,
    /// A count or a sum is wrong.
    WrongCount,
    /// A layer that no image has.
    UnusedLayer,
    /// A directory that no record names.
    Orphan,
    /// A left-over of a pull.
    LeftOver,
    /// A layer could not be looked at: the machine was short of something. Nothing is done about it.
    UncheckedLayer,
}

impl Problem {
    pub(super) fn of_stray(stray: Stray) -> Self {
        let kind = if stray.of_a_pull { ProblemKind::LeftOver } else { ProblemKind::Orphan };
        Self { repaired: stray.deleted, ..Self::new(kind, stray.path, stray.detail) }
    }

    pub(super) fn new(kind: ProblemKind, subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, subject: subject.into(), detail: detail.into(), images: Vec::new(), repaired: false }
    }
}

/// The result of looking at a layer or a blob.
pub(super) enum Verdict {
    Good,
    Fault(Fault),
    Cancelled,
}

/// A fault of a layer or a blob.
pub(super) struct Fault {
    pub(super) kind: ProblemKind,
    pub(super) detail: String,
    /// True if it is that, and not the looking at it, that failed.
    pub(super) certain: bool,
}

#[derive(Default)]
pub(super) struct Faults {
    pub(super) layers: BTreeMap<LayerId, Fault>,
    /// By number.
    pub(super) blobs: BTreeMap<u64, Fault>,
}
