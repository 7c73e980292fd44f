//! When a pod is synced next ([`next_sync`]), as in the kubelet's pod workers, and the randomness that keeps pods from
//! being synced all at once ([`Jitter`]). Pure: the time is an argument. Called by the worker of a pod.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use jiff::Timestamp;

use super::AgentOptions;
use crate::sync::SyncReport;

/// The reason of a container that waits out its back-off, which is no error: when it ends is known.
const CRASH_LOOP: &str = "CrashLoopBackOff";

/// Time of the next sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextSync {
    /// Another one at once: there is something new to do.
    Now,
    /// Another one after so long, unless something happens.
    After(Duration),
}

/// Work that is left after a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemainingWork {
    Nothing,
    /// Only the work that had just been done.
    TheSame,
    /// Another cause.
    More,
}

/// Returns when a pod is synced again after `report`.
pub(super) fn next_sync(
    report: &SyncReport,
    left: RemainingWork,
    now: Timestamp,
    options: &AgentOptions,
    jitter: &mut Jitter,
) -> NextSync {
    let retry = report.retry_at.map(|at| {
        let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        wait.min(options.resync)
    });
    if report.cancelled {
        // The sync was cancelled because there is something new.
        return NextSync::Now;
    }
    if report.network_not_ready {
        return NextSync::After(options.network_backoff);
    }
    if has_failed(report) {
        let wait = jitter.spread(options.error_backoff);
        return NextSync::After(retry.map_or(wait, |retry| retry.min(wait)));
    }
    match (retry, left) {
        (Some(retry), _) => NextSync::After(retry),
        (None, RemainingWork::More) => NextSync::Now,
        (None, RemainingWork::TheSame) => NextSync::After(options.relist),
        (None, RemainingWork::Nothing) => NextSync::After(jitter.spread(options.resync)),
    }
}

/// Returns true if anything failed, apart from containers that wait out their back-off.
fn has_failed(report: &SyncReport) -> bool {
    let mut waits = report.starts.values().flatten();
    !report.errors.is_empty() || waits.any(|waiting| waiting.reason != CRASH_LOOP)
}

/// Randomness with a seed: the same seed, the same waits.
#[derive(Clone, Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64, uid: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (seed, uid).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// `base` and up to half of it more.
    pub(super) fn spread(&mut self, base: Duration) -> Duration {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let part = u32::try_from(mixed & 0xffff).unwrap_or(0);
        base + (base / 2).saturating_mul(part) / 0xffff
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::status::api::Waiting;

    fn report(starts: &[&str], errors: usize, retry: Option<i64>) -> SyncReport {
        let waiting = |reason: &&str| Waiting { reason: (*reason).to_owned(), message: String::new() };
        let starts: BTreeMap<_, _> =
            starts.iter().map(|reason| ((*reason).to_owned(), Some(waiting(reason)))).collect();
        SyncReport {
            starts,
            retry_at: retry.map(|second| Timestamp::from_second(second).unwrap()),
            errors: vec!["x".to_owned(); errors],
            ..SyncReport::default()
        }
    }

    #[test]
    fn waits_are_the_kubelets() {
        let options = AgentOptions::default();
        let mut jitter = Jitter::new(1, "u");
        let mut wait = |report: &SyncReport, left| match next_sync(
            report,
            left,
            Timestamp::from_second(1000).unwrap(),
            &options,
            &mut jitter,
        ) {
            NextSync::Now => 0.0,
            NextSync::After(wait) => wait.as_secs_f64(),
        };
        let within = |wait: f64, base: f64| assert!((base..=base * 1.5).contains(&wait), "{wait} of {base}");
        within(wait(&report(&[], 0, None), RemainingWork::Nothing), 60.0);
        within(wait(&report(&["ErrImagePull"], 1, None), RemainingWork::TheSame), 10.0);
        within(wait(&report(&[], 1, None), RemainingWork::Nothing), 10.0);
        // A back-off ends when it ends, and not later.
        for (retry, want) in [(1007, 7.0), (990, 0.0), (5000, 60.0)] {
            assert_eq!(wait(&report(&[CRASH_LOOP], 0, Some(retry)), RemainingWork::TheSame), want);
        }
        // With another error as well, the earlier time counts.
        within(wait(&report(&[CRASH_LOOP, "ErrImagePull"], 1, Some(1050)), RemainingWork::TheSame), 10.0);
        assert_eq!(wait(&report(&[CRASH_LOOP, "ErrImagePull"], 1, Some(1003)), RemainingWork::TheSame), 3.0);
        assert_eq!(wait(&SyncReport { network_not_ready: true, ..report(&[], 1, None) }, RemainingWork::TheSame), 1.0);
        assert_eq!(wait(&report(&[], 0, None), RemainingWork::More), 0.0);
        assert_eq!(wait(&report(&[], 0, None), RemainingWork::TheSame), 1.0);
        assert_eq!(wait(&SyncReport { cancelled: true, ..report(&[], 3, None) }, RemainingWork::More), 0.0);
    }

    #[test]
    fn pods_are_spread_and_the_seed_decides() {
        let mut waits: Vec<_> =
            (0..40).map(|n| Jitter::new(7, &n.to_string()).spread(Duration::from_secs(60))).collect();
        assert_eq!(waits[3], Jitter::new(7, "3").spread(Duration::from_secs(60)));
        assert_ne!(waits[3], Jitter::new(8, "3").spread(Duration::from_secs(60)));
        waits.sort();
        waits.dedup();
        assert!(waits.len() > 35 && waits[waits.len() - 1] - waits[0] > Duration::from_secs(15));
    }
}
