//! [`ProbeResults`]: the last results of the probes of a pod's containers.

use std::collections::BTreeMap;

/// Last result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// All is well.
    Success,
    /// The failures in a row have reached the failure threshold.
    Failure,
    /// No result that counts yet.
    Unknown,
}

/// Last results of the probes of one container; `None` for a probe that was never asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Liveness: the container works.
    pub liveness: Option<ProbeResult>,
    /// Readiness: the container can serve.
    pub readiness: Option<ProbeResult>,
    /// Startup probe.
    pub startup: Option<ProbeResult>,
}

/// Results of probes, by the ids of containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeResults(pub BTreeMap<String, Probed>);

impl ProbeResults {
    /// Results of one container's probes.
    #[must_use]
    pub fn of(&self, id: &str) -> Probed {
        self.0.get(id).copied().unwrap_or_default()
    }
}
