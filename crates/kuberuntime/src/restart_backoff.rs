//! [`RestartBackoff`]: how long a container that keeps ending waits before it is started again, as the kubelet's
//! CrashLoopBackOff: at once, then 10 s, doubled up to a limit, counted from its end, and forgotten when it ran for long.
//! Pure: the time is an argument, and nothing is logged or recorded. A clock that is set back or forward never makes a
//! container wait longer than its delay from then on. Called before each start of a container.

use std::collections::HashMap;
use std::time::Duration;

use base::GoDuration;
use cri_api::ContainerState;
use jiff::{SignedDuration, Timestamp};

use crate::labels::backoff_key;
use crate::observed::ObservedPod;
use crate::pod::{Container, Pod};

/// The first delay.
const FIRST: Duration = Duration::from_secs(10);
/// After this time without another exit, the delays start over.
const FORGET: SignedDuration = SignedDuration::from_secs(600);

/// Delays of containers.
#[derive(Clone, Debug)]
pub(crate) struct RestartBackoff {
    longest: Duration,
    entries: HashMap<String, RestartDelay>,
}

#[derive(Clone, Debug)]
struct RestartDelay {
    delay: Duration,
    /// Time at which the delay was set.
    updated: Timestamp,
    /// The run whose end is waited out, and when that was first seen.
    seen: Option<(String, Timestamp)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestartWait {
    /// End of the wait.
    pub until: Timestamp,
    /// The message of its waiting state, whose reason is `CrashLoopBackOff`.
    pub message: String,
    /// The message of the event `BackOff`.
    pub event: String,
}

impl RestartBackoff {
    /// Delays up to `longest`.
    #[must_use]
    pub(crate) fn new(longest: Duration) -> Self {
        Self { longest, entries: HashMap::new() }
    }

    /// Returns the wait of a container that is to be started, or `None` if it may start now; then its next delay is
    /// longer.
    pub(crate) fn check(
        &mut self,
        pod: &Pod,
        container: &Container,
        observed: &ObservedPod,
        now: Timestamp,
    ) -> Option<RestartWait> {
        let run = observed.runs(&container.name).find(|run| run.state == ContainerState::Exited)?;
        let ended = Timestamp::from_nanosecond(run.finished_at.into()).unwrap_or(now);
        let first = FIRST.min(self.longest);
        let entry = self.entries.entry(backoff_key(pod, container)).or_insert_with(|| RestartDelay {
            delay: Duration::ZERO,
            updated: now,
            seen: None,
        });
        if entry.delay > Duration::ZERO && ended.duration_since(entry.updated) <= FORGET {
            let first_seen = match &entry.seen {
                Some((id, seen)) if *id == run.id && *seen <= now => *seen,
                _ => now,
            };
            entry.seen = Some((run.id.clone(), first_seen));
            // An end in the future is of another clock.
            let until = ended.min(first_seen) + entry.delay;
            if until > now {
                let (name, title) = (&container.name, pod.title());
                let delay = GoDuration::from_millis_of(Duration::from_secs(entry.delay.as_secs()));
                return Some(RestartWait {
                    until,
                    message: format!("back-off {delay} restarting failed container={name} pod={title}"),
                    event: format!("Back-off restarting failed container {name} in pod {title}"),
                });
            }
            entry.delay = (entry.delay * 2).min(self.longest);
        } else {
            entry.delay = first;
        }
        (entry.updated, entry.seen) = (now, None);
        None
    }

    /// Returns true if [`Self::check`] would make the container wait. Changes nothing.
    #[must_use]
    pub(crate) fn waits(&self, pod: &Pod, container: &Container, observed: &ObservedPod, now: Timestamp) -> bool {
        let key = backoff_key(pod, container);
        let Some(entry) = self.entries.get(&key) else { return false };
        // Checks a copy: a check changes no entry but this one.
        let mut copy = Self { longest: self.longest, entries: HashMap::from([(key, entry.clone())]) };
        copy.check(pod, container, observed, now).is_some()
    }

    /// Forgets entries that no longer count: of removed pods, and of containers that ran for long.
    pub(crate) fn collect(&mut self, now: Timestamp) {
        let kept = FORGET + SignedDuration::try_from(self.longest).unwrap_or(FORGET);
        self.entries.retain(|_, entry| now.duration_since(entry.updated).abs() <= kept);
    }

    /// Returns true if there are no delays.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::PodOwner;
    use crate::observed::ObservedContainer;
    use serde_json::json;

    const START: i64 = 1_700_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(START + second).expect("a time")
    }

    fn pod() -> Pod {
        let manifest = json!({"apiVersion": "v1", "kind": "Pod",
                              "metadata": {"name": "p", "namespace": "n", "uid": "u"},
                              "spec": {"containers": [{"name": "a", "image": "x:1"}]}});
        Pod::from_json(&manifest).expect("a pod")
    }

    fn seen(state: ContainerState, id: &str, ended: i64) -> ObservedPod {
        let run = ObservedContainer {
            id: id.into(),
            name: "a".into(),
            state,
            finished_at: (START + ended) * 1_000_000_000,
            ..ObservedContainer::default()
        };
        ObservedPod::new(PodOwner::default(), [], [run])
    }

    fn check(backoff: &mut RestartBackoff, id: &str, ended: i64, now: i64) -> Option<i64> {
        let (pod, seen) = (pod(), seen(ContainerState::Exited, id, ended));
        let waits = backoff.waits(&pod, &pod.spec.containers[0], &seen, at(now));
        let wait = backoff.check(&pod, &pod.spec.containers[0], &seen, at(now));
        assert_eq!(waits, wait.is_some());
        wait.map(|wait| wait.until.as_second() - START)
    }

    // upstream: podactions/TestDoBackOff/container running
    // upstream: podactions/TestDoBackOff/not in backoff
    // upstream: podactions/TestDoBackOff/in backoff
    #[test]
    fn delays_double_and_are_forgotten() {
        let pod = pod();
        let backoff = &mut RestartBackoff::new(Duration::from_secs(300));
        assert_eq!(backoff.check(&pod, &pod.spec.containers[0], &seen(ContainerState::Running, "r", 0), at(0)), None);
        assert!(backoff.is_empty());
        assert_eq!(check(backoff, "r0", 0, 0), None);
        let mut now = 0;
        for delay in [10, 20, 40, 80, 160, 300, 300] {
            let ended = now + 3;
            let id = format!("r{ended}");
            assert_eq!(check(backoff, &id, ended, ended), Some(ended + delay));
            assert_eq!(check(backoff, &id, ended, ended + delay - 1), Some(ended + delay));
            now = ended + delay;
            assert_eq!(check(backoff, &id, ended, now), None, "{delay}");
        }
        // It ran for ten minutes and a second.
        let ended = now + 601;
        assert_eq!(check(backoff, "late", ended, ended), None);
        assert_eq!(check(backoff, "later", ended + 1, ended + 1), Some(ended + 11));
    }

    #[test]
    fn messages_are_those_of_the_kubelet() {
        let (pod, backoff) = (pod(), &mut RestartBackoff::new(Duration::from_secs(300)));
        let mut now = 0;
        for delay in [0, 10, 20, 40, 80, 160] {
            now += delay;
            assert_eq!(check(backoff, "r", now - delay, now), None);
        }
        let wait = backoff.check(&pod, &pod.spec.containers[0], &seen(ContainerState::Exited, "s", now), at(now));
        let wait = wait.expect("waits");
        assert_eq!(wait.message, "back-off 5m0s restarting failed container=a pod=p_n(u)");
        assert_eq!(wait.event, "Back-off restarting failed container a in pod p_n(u)");
    }

    #[test]
    fn a_clock_step_extends_the_backoff_by_one_delay_at_most() {
        let backoff = &mut RestartBackoff::new(Duration::from_secs(300));
        assert_eq!(check(backoff, "r0", 0, 0), None);
        // The end is an hour ahead of our clock: it counts from when it was seen.
        assert_eq!(check(backoff, "r1", 500, 5), Some(15));
        assert_eq!(check(backoff, "r1", 500, 15), None);
        // Our clock is set back by an hour while it waits: it waits for one delay more, from then.
        assert_eq!(check(backoff, "r2", 20, 20), Some(40));
        assert_eq!(check(backoff, "r2", 20, -3580), Some(-3560));
        assert_eq!(check(backoff, "r2", 20, -3560), None);
    }

    #[test]
    fn a_short_limit_is_kept_and_old_entries_go() {
        let backoff = &mut RestartBackoff::new(Duration::from_secs(5));
        assert_eq!(check(backoff, "r0", 0, 0), None);
        assert_eq!(check(backoff, "r1", 1, 1), Some(6));
        backoff.collect(at(600));
        assert_eq!(backoff.entries.len(), 1);
        backoff.collect(at(606));
        assert_eq!(backoff.entries.len(), 0);
    }
}
