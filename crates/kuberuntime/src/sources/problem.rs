//! [`Problem`]: what is wrong with a manifest or a source.

/// What is wrong, and with which pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: String,
    /// Namespace, name and uid, where they are known.
    pub(super) pod: Option<(String, String, String)>,
    /// Whether the next look may find it mended though nothing changed.
    pub(super) passing: bool,
    /// Whether somebody told it already.
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
