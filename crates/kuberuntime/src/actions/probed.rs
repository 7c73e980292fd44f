//! [`ProbeResults`]: what the probes of a pod's containers said last.

use std::collections::BTreeMap;

/// What a probe said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// All is well.
    Success,
    /// It is not, often enough.
    Failure,
    /// Nothing yet that counts.
    Unknown,
}

/// What the probes of one container said last; `None`: nobody asked yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Whether it still works.
    pub liveness: Option<ProbeResult>,
    /// Whether it can serve.
    pub readiness: Option<ProbeResult>,
    /// Whether it has come up.
    pub startup: Option<ProbeResult>,
}

/// What probes said, by the ids of containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeResults(pub BTreeMap<String, Probed>);

impl ProbeResults {
    /// What the probes of a container said.
    #[must_use]
    pub fn of(&self, id: &str) -> Probed {
        self.0.get(id).copied().unwrap_or_default()
    }
}
