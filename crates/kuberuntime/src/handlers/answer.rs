//! [`ProbeAnswer`]: the outcome of one question to a container.

use probe::Outcome;

/// Outcome of one question of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All is well.
    Success,
    /// All is well, but somebody should read what was said.
    Warning,
    /// The container does not work.
    Failure,
    /// The question itself could not be asked; it counts for nothing.
    Unknown,
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Success => Self::Success,
            Outcome::Warning => Self::Warning,
            Outcome::Failure => Self::Failure,
        }
    }
}
