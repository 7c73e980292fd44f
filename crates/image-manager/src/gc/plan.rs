//! [`Plan`]: what [`select`](super::select()) decided, for machines and for people. It removes nothing.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use base::GoDuration;

/// The images to remove, in order, and the reason for keeping each of the others. Numbers are those of the inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Images to remove.
    pub remove: Vec<Removal>,
    /// Images to keep.
    pub kept: Vec<Kept>,
    /// Bytes to free.
    pub wanted: u64,
    /// Bytes that are freed when all of it is done, as far as is known.
    pub frees: u64,
}

/// An image to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Which one.
    pub image: usize,
    /// Bytes that this frees after the removals before it.
    pub frees: u64,
    /// Why the image is removed.
    pub because: RemovedBecause,
    /// Until when the image is protected: it is removed all the same, after all others.
    pub protected_until: Option<Timestamp>,
}

impl Removal {
    /// Returns the reason for the removal, for users.
    #[must_use]
    pub fn why(&self) -> String {
        let why = match (self.because, self.protected_until) {
            (RemovedBecause::Space, None) => "its space is needed",
            (RemovedBecause::Space, Some(_)) => "its space is needed, and nothing else suffices",
            (RemovedBecause::Age, _) => "unused for longer than images are kept",
            (RemovedBecause::Unused, _) => "unused",
        };
        match self.protected_until {
            None => why.to_owned(),
            Some(until) => format!("{why}, although it was pulled before its use and is protected until {until}"),
        }
    }
}

/// Reason for the removal of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemovedBecause {
    /// Space was needed.
    Space,
    /// Unused for longer than the maximum age.
    Age,
    /// The removal of all unused images was requested.
    Unused,
}

impl RemovedBecause {
    /// The word of the metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Space => "space",
            Self::Age => "age",
            Self::Unused => "unused",
        }
    }
}

/// An image to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which one.
    pub image: usize,
    /// Why the image stays.
    pub because: Because,
}

/// Reason for keeping an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// A container, the sandbox or a volume uses it.
    InUse {
        /// The user, for people.
        by: String,
    },
    /// The runtime has it pinned.
    PinnedByRuntime,
    /// Pinned in imagelet.
    Pinned,
    /// An image set of the cluster names it.
    PinnedByImageSet,
    /// A rule of the configuration keeps it.
    Rule {
        /// The rule, as it was written.
        rule: String,
    },
    /// Pre-pulled, and the goal is reached without it.
    Protected {
        /// Until when it is removed after all others.
        until: Timestamp,
    },
    /// Not on the node for long enough.
    TooYoung {
        /// For how long it is on the node.
        age: Duration,
        /// How long it would have to be.
        min_age: Duration,
    },
    /// Used or pulled not long enough ago.
    UsedWithin {
        /// For how long it was not used.
        idle: Duration,
        /// For how long that would have to be.
        limit: Duration,
    },
    /// Removal was tried in this round and failed.
    CannotBeRemoved,
    /// The goal is reached without it, or it would free nothing.
    NotNeeded,
}

impl Because {
    /// All words that [`Because::word`] knows.
    pub const WORDS: [&'static str; 8] =
        ["in-use", "pinned", "rule", "protected", "too-young", "used-within", "cannot-be-removed", "not-needed"];

    /// The reason in a word, for metrics and scripts.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "in-use",
            Self::PinnedByRuntime | Self::Pinned | Self::PinnedByImageSet => "pinned",
            Self::Rule { .. } => "rule",
            Self::Protected { .. } => "protected",
            Self::TooYoung { .. } => "too-young",
            Self::UsedWithin { .. } => "used-within",
            Self::CannotBeRemoved => "cannot-be-removed",
            Self::NotNeeded => "not-needed",
        }
    }
}

/// Whole seconds, as people want ages.
fn age(duration: Duration) -> GoDuration {
    GoDuration::from_millis_of(Duration::from_secs(duration.as_secs()))
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { by } => write!(f, "in use by {by}"),
            Self::PinnedByRuntime => f.write_str("pinned by the runtime"),
            Self::Pinned => f.write_str("pinned"),
            Self::PinnedByImageSet => f.write_str("pinned by an image set of the cluster"),
            Self::Rule { rule } => write!(f, "kept by rule {rule}"),
            Self::Protected { until } => write!(f, "pulled before its use, and protected until {until}"),
            Self::TooYoung { age: is, min_age } => {
                write!(f, "pulled {} ago, and images stay for at least {}", age(*is), age(*min_age))
            }
            Self::UsedWithin { idle, limit } => {
                write!(f, "not used for {}, which is not longer than {}", age(*idle), age(*limit))
            }
            Self::CannotBeRemoved => f.write_str("it could not be removed"),
            Self::NotNeeded => f.write_str("its space is not needed"),
        }
    }
}
