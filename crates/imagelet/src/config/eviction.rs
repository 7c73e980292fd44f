//! `evictionHard` as it is written: which of its signals mean something here, and what holds where it is silent. What a
//! threshold is, and whether it is one, [`Thresholds`] says. Called by [`super::check`] and by whoever makes the options of
//! collection.

use image_manager::gc::{Signal, Thresholds};

use super::model::Eviction;

/// The signals that do not concern us, of those that were set.
pub(super) fn passed_over(eviction: &Eviction) -> Vec<&str> {
    let ours = |name: &str| Signal::ALL.iter().any(|signal| signal.as_str() == name);
    eviction.hard.iter().flatten().map(|(signal, _)| signal.as_str()).filter(|signal| !ours(signal)).collect()
}

/// Signals and values as they hold, those that do not concern us as they were written.
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

/// The thresholds that hold, of a configuration that was checked.
pub(crate) fn thresholds(eviction: &Eviction) -> Thresholds {
    let pairs = in_force(eviction);
    Thresholds::parse(pairs.iter().map(|(signal, value)| (signal.as_str(), value.as_str()))).unwrap_or_default()
}

/// What is wrong.
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
        let alone = Eviction { hard: Some(hard), merge: false, transition: std::time::Duration::ZERO };
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
