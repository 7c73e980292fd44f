//! Settings of disk pressure, and `evictionHard` as written: the signals that this program supports, and the defaults of signals that it
//! does not name. [`Thresholds`] describes a threshold. Called by [`super::check`] and by the code that builds the options of collection.

use std::time::Duration;

use image_manager::gc::{Signal, Thresholds};
use serde_json::json;

use super::declare::{Group, Setting, settings};
use super::kind::{Form, boolean, duration};
use super::value::Raw;

const DAY: Duration = Duration::from_secs(24 * 3600);

settings! {
    /// When the disk is under pressure.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Eviction() {
        Collection {
            merge: bool = false =>
                "mergeDefaultEvictionSettings", "merge-default-eviction-settings", boolean(),
                "Signals that evictionHard does not name have their defaults", kubelet_with_zero(), reloads();
            transition: Duration = Duration::from_secs(300) =>
                "evictionPressureTransitionPeriod", "eviction-pressure-transition-period", duration(Duration::ZERO..=DAY),
                "How long no threshold may be crossed until disk pressure ends", kubelet(), reloads();
        }
        + other {
            /// Signals and thresholds as they were written; `None`: the defaults. Set by [`hard`].
            hard: Option<Vec<(String, String)>> = None;
        }
    }
}

/// The setting `evictionHard`. The thresholds in force depend on `mergeDefaultEvictionSettings`, too.
pub(super) fn hard() -> Setting<Eviction> {
    let help = "Thresholds of disk pressure: imagefs.available, imagefs.inodesFree, nodefs.available and \
                 nodefs.inodesFree, each with a quantity or a percentage; in the file a map. A signal that is not named has no threshold. The kubelet's other signals do not concern imagelet [default: \
                 imagefs.available<15%,imagefs.inodesFree<5%,nodefs.available<10%,nodefs.inodesFree<5%]";
    let apply = |target: &mut Eviction, raw: Raw<'_>| {
        target.hard = Some(raw.pairs('<')?);
        Ok(())
    };
    let show = |target: &Eviction| in_force(target).into_iter().map(|(signal, value)| (signal, json!(value))).collect();
    let carry = |from: &Eviction, to: &mut Eviction| to.hard.clone_from(&from.hard);
    let schema = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let (names, form) = (("evictionHard", "eviction-hard", help), Form::list("SIGNAL<VALUE", ',', schema));
    Setting::with(Group::Collection, names, form, (Box::new(apply), Box::new(show), Box::new(carry)))
        .kubelet()
        .reloads()
}

/// Returns the configured signals that this program does not support.
pub(super) fn passed_over(eviction: &Eviction) -> Vec<&str> {
    let ours = |name: &str| Signal::ALL.iter().any(|signal| signal.as_str() == name);
    eviction.hard.iter().flatten().map(|(signal, _)| signal.as_str()).filter(|signal| !ours(signal)).collect()
}

/// Returns the signals and values in force; unsupported ones as they were written.
pub(super) fn in_force(eviction: &Eviction) -> Vec<(String, String)> {
    let defaults =
        || Thresholds::default().iter().map(|(signal, amount)| (signal.to_string(), amount.to_string())).collect();
    match &eviction.hard {
        None => defaults(),
        Some(set) if eviction.merge => {
            let defaults: Vec<(String, String)> = defaults();
            let missing = defaults.into_iter().filter(|(signal, _)| set.iter().all(|(s, _)| s != signal));
            set.iter().cloned().chain(missing).collect()
        }
        Some(set) => set.clone(),
    }
}

/// Returns the thresholds in force, of a validated configuration.
pub(crate) fn thresholds(eviction: &Eviction) -> Thresholds {
    let pairs = in_force(eviction);
    Thresholds::parse(pairs.iter().map(|(signal, value)| (signal.as_str(), value.as_str()))).unwrap_or_default()
}

/// Returns all errors, one line each.
pub(super) fn findings(eviction: &Eviction) -> Vec<String> {
    let each = eviction.hard.iter().flatten();
    each.filter_map(|(signal, value)| Thresholds::parse([(signal.as_str(), value.as_str())]).err())
        .map(|error| error.to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_has_no_threshold_unless_defaults_are_merged() {
        let set = [("memory.available", "1Gi"), ("nodefs.available", "1%")];
        let hard = set.map(|(signal, value)| (signal.to_owned(), value.to_owned())).into();
        let alone = Eviction { hard: Some(hard), merge: false, transition: Duration::ZERO };
        assert!(findings(&alone).is_empty());
        assert_eq!(passed_over(&alone), ["memory.available"]);
        let shown = |eviction: &Eviction| {
            let all: Vec<_> =
                thresholds(eviction).iter().map(|(signal, amount)| format!("{signal} {amount}")).collect();
            all.join(", ")
        };
        assert_eq!(shown(&alone), "nodefs.available 1%");
        let merged = Eviction { merge: true, ..alone.clone() };
        assert_eq!(
            shown(&merged),
            "imagefs.available 15%, imagefs.inodesFree 5%, nodefs.available 1%, nodefs.inodesFree 5%"
        );
        let none = Eviction { hard: None, ..merged };
        assert_eq!(thresholds(&none), Thresholds::default());
    }
}
