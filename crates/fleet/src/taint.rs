//! The taint with which a node registers until it has the images that it needs first. Decides when it is removed. Pure. Called by
//! the controller, because a node may not remove its own taints.

use std::time::Duration;

use jiff::Timestamp;

/// A set that the node has to have before it takes pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredSet {
    /// Name of the set.
    pub name: String,
    /// The node reported every image of the set's current rollout.
    pub is_ready: bool,
}

/// The step that is due for a tainted node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaintStep {
    /// Nothing: sets are missing.
    Keep,
    /// Every required set is ready.
    Remove,
    /// The deadline passed; the names are those of the missing sets.
    RemoveLate(Vec<String>),
}

/// Decides about the taint of a node that was created at `created`. A node without required sets needs no taint.
#[must_use]
pub fn decide(sets: &[RequiredSet], created: Timestamp, deadline: Duration, now: Timestamp) -> TaintStep {
    let missing: Vec<String> = sets.iter().filter(|set| !set.is_ready).map(|set| set.name.clone()).collect();
    let age = now.duration_since(created);
    let is_late = Duration::try_from(age).is_ok_and(|age| age >= deadline);
    match missing.is_empty() {
        true => TaintStep::Remove,
        false if is_late => TaintStep::RemoveLate(missing),
        false => TaintStep::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taint_stays_until_the_sets_are_there_or_the_deadline_passes() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let set = |name: &str, is_ready| RequiredSet { name: name.into(), is_ready };
        let deadline = Duration::from_secs(60);
        for (name, sets, now, want) in [
            ("no set", vec![], 100, TaintStep::Remove),
            ("all ready", vec![set("a", true), set("b", true)], 101, TaintStep::Remove),
            ("one missing", vec![set("a", true), set("b", false)], 159, TaintStep::Keep),
            ("too late", vec![set("a", true), set("b", false)], 160, TaintStep::RemoveLate(vec!["b".into()])),
            ("a clock that is behind", vec![set("b", false)], 10, TaintStep::Keep),
        ] {
            assert_eq!(decide(&sets, at(100), deadline, at(now)), want, "{name}");
        }
    }
}
