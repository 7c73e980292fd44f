//! [`Flag`]: the properties of a setting that its JSON schema does not have. Named by the fields of the settings' types; read by
//! [`super::setting`]. Knows no setting.

use serde::{Deserialize, Serialize};

/// Properties of a setting that its JSON schema does not have: the extension `imagelet` of a field.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Flag {
    pub(super) group: Group,
    pub(super) name: String,
    pub(super) short: Option<char>,
    pub(super) value_name: Option<String>,
    pub(super) allowed: Option<String>,
    pub(super) kubelet: Option<Zero>,
    pub(super) reloads: bool,
    pub(super) empty: Empty,
}

/// Returns the extension of a field with this flag.
pub(super) fn flag(group: Group, name: &str) -> Flag {
    Flag {
        group,
        name: name.to_owned(),
        short: None,
        value_name: None,
        allowed: None,
        kubelet: None,
        reloads: false,
        empty: Empty::Hidden,
    }
}

impl Flag {
    /// Gives the flag a letter.
    pub(super) fn short(self, letter: char) -> Self {
        Self { short: Some(letter), ..self }
    }

    /// Sets the placeholder of the value. `DIR`, `FILE` and `PATH` are those of paths, which are made absolute.
    pub(super) fn value(self, name: &str) -> Self {
        Self { value_name: Some(name.to_owned()), ..self }
    }

    /// Sets the description of the allowed values.
    pub(super) fn allowed(self, values: &str) -> Self {
        Self { allowed: Some(values.to_owned()), ..self }
    }

    /// Takes the field from a kubelet's configuration file unless it is zero there.
    pub(super) fn kubelet(self) -> Self {
        Self { kubelet: Some(Zero::Unset), ..self }
    }

    /// Takes the field from a kubelet's configuration file, zero included.
    pub(super) fn kubelet_with_zero(self) -> Self {
        Self { kubelet: Some(Zero::Counts), ..self }
    }

    /// Takes a new value when a running agent reloads its configuration.
    pub(super) fn reloads(self) -> Self {
        Self { reloads: true, ..self }
    }

    /// Sets the meaning of an empty text.
    pub(super) fn empty(self, empty: Empty) -> Self {
        Self { empty, ..self }
    }
}

/// Meaning of a zero value in a kubelet's configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Zero {
    /// The field is treated as unset.
    Unset,
    /// The zero is a value.
    Counts,
}

/// Meaning of an empty text or list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Empty {
    /// An empty path is refused; another empty value is not shown.
    Hidden,
    /// Unsets the value. An unset value is not shown.
    Unset,
    /// Unsets the value, and is shown for an unset one.
    Shown,
}

/// Topic of a setting: a heading of the help text and of the reference page, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Group {
    Node,
    Pods,
    Cluster,
    Pulls,
    Credentials,
    Collection,
    Engine,
    Logging,
    Advanced,
}

impl Group {
    /// Returns the heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Node => "The node",
            Self::Pods => "Pods",
            Self::Cluster => "The cluster",
            Self::Pulls => "Pulls",
            Self::Credentials => "Credentials",
            Self::Collection => "Garbage collection",
            Self::Engine => "The embedded engine",
            Self::Logging => "The log",
            Self::Advanced => "Advanced",
        }
    }
}
