//! [`Problem`]: what is wrong with a manifest or a source.

/// A problem of a manifest or a source, and the pod that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: String,
    /// Namespace, name and uid, where they are known.
    pub(super) pod: Option<(String, String, String)>,
    /// True if the next read may succeed though nothing changed.
    pub(super) passing: bool,
    /// True if the problem was reported already.
    pub(super) told: bool,
}

impl Problem {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), pod: None, passing: false, told: false }
    }

    pub(super) fn passing(reason: impl Into<String>) -> Self {
        Self { passing: true, ..Self::new(reason) }
    }
}
