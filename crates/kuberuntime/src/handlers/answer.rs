//! [`ProbeAnswer`]: the outcome of one question to a container.

use probe::ProbeOutcome;

/// Outcome of one question of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// All is well.
    Success,
    /// All is well, but somebody should read what was said.
    Warning,
    /// The container does not work.
    Failure,
    /// The question itself could not be asked; it counts for nothing.
    Unknown,
}

impl From<ProbeOutcome> for ProbeAnswer {
    fn from(outcome: ProbeOutcome) -> Self {
        match outcome {
            ProbeOutcome::Success => Self::Success,
            ProbeOutcome::Warning => Self::Warning,
            ProbeOutcome::Failure => Self::Failure,
        }
    }
}
