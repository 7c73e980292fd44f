//! [`Trigger`]: why a round of collection runs. A word for metrics and the log.

/// Why a round runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The timer, or a nudge.
    Periodic,
    /// There is disk pressure.
    Pressure,
    /// A pull found no space.
    Pull,
    /// A person asked.
    Command,
}

impl Trigger {
    pub(super) const ALL: [Self; 4] = [Self::Periodic, Self::Pressure, Self::Pull, Self::Command];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Pressure => "pressure",
            Self::Pull => "pull",
            Self::Command => "command",
        }
    }
}
