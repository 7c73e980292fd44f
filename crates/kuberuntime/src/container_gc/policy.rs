//! Rules and facts for a round of collection: [`ContainerGcPolicy`], how many containers that have ended stay, and for how long, with
//! the kubelet's names, units, defaults and messages; and [`PodStates`], the states of pods.

use std::time::Duration;

use jiff::SignedDuration;

/// Limits of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerGcPolicy {
    /// Minimum age of a container (`minimum-container-ttl-duration`).
    pub min_age: Duration,
    /// Maximum number of dead runs of one container of a pod (`maximum-dead-containers-per-container`); `None` for no limit.
    pub max_per_pod_container: Option<usize>,
    /// Maximum number of dead containers on the node (`maximum-dead-containers`); `None` for no limit.
    pub max_containers: Option<usize>,
}

impl Default for ContainerGcPolicy {
    fn default() -> Self {
        Self { min_age: Duration::ZERO, max_per_pod_container: Some(1), max_containers: None }
    }
}

/// Values that are not a valid policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerGcPolicyError {
    /// An age below zero.
    #[error("invalid minimum garbage collection age: -{}", go(.0.unsigned_abs()))]
    NegativeAge(SignedDuration),
}

impl ContainerGcPolicy {
    /// Creates a policy from the kubelet's values: a number below zero is no limit.
    ///
    /// # Errors
    /// An age below zero.
    pub fn new(
        min_age: SignedDuration,
        max_per_pod_container: i64,
        max_containers: i64,
    ) -> Result<Self, ContainerGcPolicyError> {
        let min_age = Duration::try_from(min_age).map_err(|_| ContainerGcPolicyError::NegativeAge(min_age))?;
        let limit = |number: i64| match number {
            ..0 => None,
            number => Some(usize::try_from(number).unwrap_or(usize::MAX)),
        };
        Ok(Self { min_age, max_per_pod_container: limit(max_per_pod_container), max_containers: limit(max_containers) })
    }
}

/// Formats a duration of a second or more like Go: `1m0s`, `1.5s`.
fn go(time: Duration) -> String {
    let (hours, minutes) = (time.as_secs() / 3600, time.as_secs() / 60 % 60);
    let seconds = format!("{}.{:09}", time.as_secs() % 60, time.subsec_nanos());
    let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// States of the pods of a node, by uid.
pub trait PodStates: Send + Sync {
    /// Returns true if every source of pods has reported. Before that, an unknown pod may only be late.
    fn sources_ready(&self) -> bool;

    /// Returns true if everything of the pod may be removed: it is deleted and has ended, or the sources are ready and
    /// none has it.
    fn content_removable(&self, pod_uid: &str) -> bool;

    /// Returns true if the pod's containers may be removed under disk pressure: it has ended, deleted or not.
    fn runtime_removable(&self, pod_uid: &str) -> bool;
}

/// No source of pods: every pod may be wanted by another program, for example a kubelet. Only what exceeds the policy's
/// limits is removed.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPodSource;

impl PodStates for NoPodSource {
    fn sources_ready(&self) -> bool {
        false
    }

    fn content_removable(&self, _pod_uid: &str) -> bool {
        false
    }

    fn runtime_removable(&self, _pod_uid: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_kubelets() {
        assert_eq!(ContainerGcPolicy::new(SignedDuration::ZERO, 1, -1), Ok(ContainerGcPolicy::default()));
        let policy = ContainerGcPolicy::new(SignedDuration::from_mins(1), -7, 0).expect("a policy");
        let want = (Duration::from_secs(60), None, Some(0));
        assert_eq!((policy.min_age, policy.max_per_pod_container, policy.max_containers), want);
        for (millis, text) in [(1, "0.001s"), (1500, "1.5s"), (60_000, "1m0s"), (36_000_000, "10h0m0s")] {
            let error = ContainerGcPolicy::new(SignedDuration::from_millis(-millis), 1, -1).expect_err("below zero");
            assert_eq!(error.to_string(), format!("invalid minimum garbage collection age: -{text}"));
        }
    }
}
