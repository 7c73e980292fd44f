//! [`first_delay`]: when a container is asked for the first time. Pure. Called by [`super::ask`].

use std::time::Duration;

use super::ProbeKind;
use crate::hash::fnv64a;
use crate::pod::Probe;

/// A server has this long before it is first asked whether it is up, unless the manifest sets a delay: otherwise almost
/// every server would be reported as unhealthy right after its start.
const FIRST_BREATH: Duration = Duration::from_secs(1);
/// Within this, pods that ran before this process did are asked whether they can serve.
const ADOPTION: Duration = Duration::from_secs(2);

/// Facts that the time of the first question depends on, in addition to the probe.
pub(super) struct Circumstances<'a> {
    /// Time since the start of the container.
    pub(super) age: Duration,
    /// Time since this process began to probe.
    pub(super) asking_for: Duration,
    /// Key that differs from that of every other probe.
    pub(super) key: &'a str,
}

/// Returns the wait before the first probe. A liveness probe without an initial delay first runs after one
/// period, so that a slow start has at least the time of its thresholds and period. Containers that were running
/// before this process are not all probed at the same time.
pub(super) fn first_delay(kind: ProbeKind, probe: &Probe, circumstances: &Circumstances<'_>) -> Duration {
    let seconds = |number: i32| Duration::from_secs(u64::from(number.max(0).unsigned_abs()));
    let (period, delay) = (
        seconds(probe.period_seconds.unwrap_or_default().max(1)),
        seconds(probe.initial_delay_seconds.unwrap_or_default()),
    );
    let due = match kind {
        _ if !delay.is_zero() => delay,
        ProbeKind::Liveness => period,
        ProbeKind::Startup | ProbeKind::Readiness => FIRST_BREATH.min(period),
    };
    let Circumstances { age, asking_for, key } = circumstances;
    let wait = due.saturating_sub(*age);
    let adopted = age > asking_for && *asking_for < period;
    if !adopted {
        return wait;
    }
    let spread = match kind {
        ProbeKind::Liveness => period,
        // Until they are asked, pods count as not ready.
        ProbeKind::Startup | ProbeKind::Readiness => period.min(ADOPTION),
    };
    wait.max(spread.mul_f64(fraction(key)))
}

/// Returns a number from 0 to 1 for each key, spread evenly.
fn fraction(key: &str) -> f64 {
    // The end of a key reaches only the low bits of the hash by itself.
    let mut bits = fnv64a(key.as_bytes());
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits ^= bits >> 33;
    f64::from(u32::try_from(bits >> 32).expect("the upper half")) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(kind: ProbeKind, delay: i32, age: u64, asking_for: u64, key: &str) -> Duration {
        let probe = Probe { initial_delay_seconds: Some(delay), period_seconds: Some(10), ..Probe::default() };
        let circumstances =
            Circumstances { age: Duration::from_secs(age), asking_for: Duration::from_secs(asking_for), key };
        first_delay(kind, &probe, &circumstances)
    }

    #[test]
    fn the_first_probe_runs_after_the_initial_delay() {
        use ProbeKind::{Liveness, Readiness, Startup};
        // Kind, delay, age, how long this process asks, wait.
        let cases = [
            (Readiness, 0, 0, 100, 1),
            (Startup, 0, 0, 100, 1),
            (Liveness, 0, 0, 100, 10),
            (Readiness, 30, 0, 100, 30),
            (Liveness, 5, 0, 100, 5),
            (Liveness, 30, 10, 100, 20),
            (Readiness, 30, 40, 100, 0),
            (Liveness, 0, 4, 100, 6),
        ];
        for (kind, delay, age, asking_for, want) in cases {
            assert_eq!(wait(kind, delay, age, asking_for, "k").as_secs(), want, "{kind:?} {delay} {age}");
        }
    }

    #[test]
    fn a_thousand_containers_that_were_there_before_are_not_asked_at_once() {
        let mut tenths = [0; 10];
        for number in 0..1000 {
            let waits = wait(ProbeKind::Liveness, 0, 3600, 0, &format!("uid/c{number}/Liveness"));
            assert!(waits <= Duration::from_secs(10));
            tenths[usize::try_from(waits.as_secs().min(9)).expect("small")] += 1;
            let ready = wait(ProbeKind::Readiness, 5, 3600, 0, &format!("uid/c{number}/Readiness"));
            assert!(ready <= ADOPTION);
        }
        assert!(tenths.iter().all(|count| (60..150).contains(count)), "{tenths:?}");
        // A delay that is not over yet is kept, and so is the time of a process that has asked for long.
        assert!(wait(ProbeKind::Readiness, 60, 10, 0, "k") >= Duration::from_secs(50));
        assert_eq!(wait(ProbeKind::Liveness, 0, 3600, 11, "k"), Duration::ZERO);
    }
}
