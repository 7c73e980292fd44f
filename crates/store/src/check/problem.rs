//! New [`Problem`]s; and [`Verdict`]: the result of looking at a layer or a kept blob, and the [`Faults`] of all, by which the records
//! are judged.

use std::collections::BTreeMap;

use cri_api::engine::{Problem, ProblemKind};

use crate::disk::layer::LayerId;
use crate::maintenance::strays::Stray;

pub(super) fn of_stray(stray: Stray) -> Problem {
    let kind = if stray.of_a_pull { ProblemKind::LeftOver } else { ProblemKind::Orphan };
    Problem { repaired: stray.deleted, ..new_problem(kind, stray.path, stray.detail) }
}

pub(super) fn new_problem(kind: ProblemKind, subject: impl Into<String>, detail: impl Into<String>) -> Problem {
    Problem { kind, subject: subject.into(), detail: detail.into(), images: Vec::new(), repaired: false }
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
