//! [`Verdict`]: the result of looking at a layer or a kept blob, and the [`Faults`] of all. The check collects them; the records are
//! judged by them.

use std::collections::BTreeMap;

use super::problem::ProblemKind;
use crate::disk::layer::LayerId;

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

/// Faults by layer and by blob.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) layers: BTreeMap<LayerId, Fault>,
    /// By number.
    pub(super) blobs: BTreeMap<u64, Fault>,
}
