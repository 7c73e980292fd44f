//! Settings of disk pressure, and `evictionHard` as written: the signals that this program supports. [`Thresholds`] describes a threshold.
//! Called by [`super::check`] and by the code that builds the options of collection.

use std::time::Duration;

use image_manager::gc::{Signal, Thresholds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::flag::Group::Collection as Group;
use super::flag::flag;
use super::form::{As, DAY, Pairs, Span};

/// Thresholds of disk pressure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Eviction {
    /// Signals and thresholds as they were written.
    #[serde(rename = "evictionHard", with = "As::<Pairs>")]
    #[schemars(
        description = "Thresholds of disk pressure: imagefs.available, imagefs.inodesFree, nodefs.available and nodefs.inodesFree, each \
                       with a quantity or a percentage; in the file a map. A signal that is not named has no threshold. The kubelet's \
                       other signals do not concern imagelet",
        extend("imagelet" = flag(Group, "eviction-hard").value("SIGNAL<VALUE").allowed("a map of texts").kubelet().reloads())
    )]
    pub(crate) hard: Vec<(String, String)>,
    #[serde(rename = "evictionPressureTransitionPeriod", with = "As::<Span<0, DAY>>")]
    #[schemars(
        description = "How long no threshold may be crossed until disk pressure ends",
        extend("imagelet" = flag(Group, "eviction-pressure-transition-period").kubelet().reloads())
    )]
    pub(crate) transition: Duration,
}

impl Default for Eviction {
    fn default() -> Self {
        Self { hard: defaults().collect(), transition: Duration::from_secs(300) }
    }
}

fn defaults() -> impl Iterator<Item = (String, String)> {
    let thresholds: Vec<_> =
        Thresholds::default().iter().map(|(signal, amount)| (signal.to_string(), amount.to_string())).collect();
    thresholds.into_iter()
}

impl Eviction {
    /// Adds the defaults of signals that are not named, as `mergeDefaultEvictionSettings` of a kubelet's file asks for.
    pub(super) fn merge_defaults(&mut self) {
        let missing: Vec<_> =
            defaults().filter(|(signal, _)| self.hard.iter().all(|(named, _)| named != signal)).collect();
        self.hard.extend(missing);
    }
}

/// Returns the configured signals that this program does not support.
pub(super) fn passed_over(eviction: &Eviction) -> Vec<&str> {
    let ours = |name: &str| Signal::ALL.iter().any(|signal| signal.as_str() == name);
    eviction.hard.iter().map(|(signal, _)| signal.as_str()).filter(|signal| !ours(signal)).collect()
}

/// Returns the thresholds in force, of a validated configuration.
pub(crate) fn thresholds(eviction: &Eviction) -> Thresholds {
    let pairs = eviction.hard.iter().map(|(signal, value)| (signal.as_str(), value.as_str()));
    Thresholds::parse(pairs).unwrap_or_default()
}

/// Returns all errors, one line each.
pub(super) fn findings(eviction: &Eviction) -> Vec<String> {
    let each = eviction.hard.iter();
    each.filter_map(|(signal, value)| Thresholds::parse([(signal.as_str(), value.as_str())]).err())
        .map(|error| error.to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_not_named_has_no_threshold_unless_defaults_are_merged() {
        let set = [("memory.available", "1Gi"), ("nodefs.available", "1%")];
        let hard = set.map(|(signal, value)| (signal.to_owned(), value.to_owned())).into();
        let alone = Eviction { hard, transition: Duration::ZERO };
        assert!(findings(&alone).is_empty());
        assert_eq!(passed_over(&alone), ["memory.available"]);
        let shown = |eviction: &Eviction| {
            let all: Vec<_> =
                thresholds(eviction).iter().map(|(signal, amount)| format!("{signal} {amount}")).collect();
            all.join(", ")
        };
        assert_eq!(shown(&alone), "nodefs.available 1%");
        let mut merged = alone.clone();
        merged.merge_defaults();
        assert_eq!(
            shown(&merged),
            "imagefs.available 15%, imagefs.inodesFree 5%, nodefs.available 1%, nodefs.inodesFree 5%"
        );
        assert_eq!(thresholds(&Eviction::default()), Thresholds::default());
    }
}
