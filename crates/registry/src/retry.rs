//! The retry rule: which failures are worth another request, how often and how soon the same host is asked again, and when the
//! next host is. [`HostAttempts::failed`] decides, by [`RetryPolicy`], the [`Cause`] and a `Retry-After`; it is pure, but for the
//! jitter. The loops in `session`, `document` and `blob` drive it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use crate::error::{Cause, HostFailure, NO_ANSWER, RegistryError};

/// How often, how soon and how long the client tries.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// How often a request is made in all at the last host of a namespace; at the others half as often at most twice.
    pub attempts: u32,
    /// The wait before the second attempt; it doubles from there.
    pub base_delay: Duration,
    /// The longest wait that we choose ourselves.
    pub max_delay: Duration,
    /// The longest `Retry-After` that is waited for. If a registry asks for more, the error
    /// is returned at once and contains the time.
    pub max_retry_after: Duration,
    /// Time without data after which a connection is given up.
    pub idle_timeout: Duration,
    /// Time without data after which a mirror is left, as long as another host remains that is not known to fail. The mirror gets
    /// another chance, with `idle_timeout`, when every other host has failed.
    pub mirror_timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            base_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(15),
            max_retry_after: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(30),
            mirror_timeout: Duration::from_secs(2),
        }
    }
}

impl RetryPolicy {
    /// The wait after this many failures in a row (1 for the first): exponential, and of it a random part between half
    /// and all, so that many nodes do not return at once.
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        let doubled = self.base_delay.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        let whole = doubled.min(self.max_delay);
        let random = RandomState::new().build_hasher().finish();
        let part = u32::try_from(random & 0xffff).unwrap_or(0);
        whole / 2 + (whole / 2).saturating_mul(part) / 0xffff
    }
}

/// Returns the wait that an answer asks for: seconds, or a date. A date is measured against the answer's own `Date`, so that
/// this machine's clock does not matter; in an answer without one, against the time at which it was `received` (RFC 9110, section
/// 6.6.1).
pub(crate) fn retry_after(headers: &HeaderMap, received: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than fits is long enough in any case.
        return Some(Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let now = date.and_then(|date| httpdate::parse_http_date(date.trim()).ok()).unwrap_or(received);
    Some(then.duration_since(now).unwrap_or_default())
}

/// Attempts at a host that cannot be reached at all.
const UNREACHABLE_ATTEMPTS: u32 = 2;

/// The next step after a failure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RetryStep {
    /// Ask the same host again after this wait.
    Again(Duration),
    /// Ask the next host now.
    Next,
    /// No host is left: the request has failed.
    End,
}

/// A host as errors name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostLabel<'a> {
    pub(crate) name: &'a str,
    /// True for the registry itself, false for a mirror.
    pub(crate) upstream: bool,
}

/// The way through the hosts of one request.
#[derive(Debug)]
pub(crate) struct HostAttempts {
    order: Vec<usize>,
    at: usize,
    /// Failures in a row at the present host since it last made progress.
    failures: u32,
    /// The time of the first request to the present host.
    since: Instant,
    /// Mirrors that were left because they sent nothing in time.
    left: Vec<usize>,
    /// True if the hosts of the order are those that were left before.
    is_second_round: bool,
    past: Vec<HostFailure>,
}

impl HostAttempts {
    /// Hosts by index, most wanted first; at least one.
    pub(crate) fn new(order: Vec<usize>) -> Self {
        Self {
            order,
            at: 0,
            failures: 0,
            since: Instant::now(),
            left: Vec::new(),
            is_second_round: false,
            past: Vec::new(),
        }
    }

    /// The host to ask, if there is one.
    pub(crate) fn first(&self) -> Option<usize> {
        self.order.first().copied()
    }

    /// Returns the time since the first request to the present host.
    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the hosts after the present one.
    pub(crate) fn remaining(&self) -> &[usize] {
        &self.order[self.at + 1..]
    }

    /// The host to ask.
    pub(crate) fn host(&self) -> usize {
        self.order[self.at]
    }

    /// Records that bytes were received, which restores the budget of the last host. Other hosts keep their count, because a
    /// transfer that breaks off again and again is continued sooner at the next one.
    pub(crate) fn progressed(&mut self) {
        if self.remaining().is_empty() {
            self.failures = 0;
        }
    }

    /// Records a failure of the present host.
    pub(crate) fn failed(&mut self, policy: &RetryPolicy, who: HostLabel<'_>, cause: Cause) -> RetryStep {
        self.failures += 1;
        let is_last = self.at + 1 == self.order.len();
        let budget = match is_last {
            true if cause.is_unreachable() => policy.attempts.min(UNREACHABLE_ATTEMPTS),
            true if self.is_second_round => policy.attempts.min(2),
            // A host that sends nothing may itself be fetching the content first.
            true => policy.attempts,
            // There is another host to ask: a second attempt for a brief failure, no more.
            false if cause.is_dead() || cause.is_silence() => 1,
            false => policy.attempts.min(2),
        };
        let wait = match cause.retry_after() {
            Some(asked) if asked > policy.max_retry_after || !is_last => None,
            Some(asked) => Some(asked.max(policy.delay(self.failures))),
            None => Some(policy.delay(self.failures)),
        };
        if cause.is_transient()
            && self.failures < budget
            && let Some(wait) = wait
        {
            return RetryStep::Again(wait);
        }
        if cause.is_silence() && !is_last && !who.upstream && !self.is_second_round {
            self.left.push(self.host());
        }
        self.past.push(HostFailure {
            host: who.name.to_owned(),
            upstream: who.upstream,
            attempts: self.failures,
            cause,
        });
        if is_last {
            if self.left.is_empty() {
                return RetryStep::End;
            }
            (self.order, self.at, self.is_second_round) = (std::mem::take(&mut self.left), 0, true);
        } else {
            self.at += 1;
        }
        (self.failures, self.since) = (0, Instant::now());
        RetryStep::Next
    }

    /// The error that names every host which failed.
    pub(crate) fn error(&self, asked: &str) -> RegistryError {
        RegistryError::new(asked, self.past.clone())
    }
}

impl Cause {
    /// Returns true if the same request may well succeed when it is made again.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Status { status, .. } => {
                matches!(status.as_u16(), 408 | 429 | 499 | 500 | 502 | 503 | 504 | 520..=524)
            }
            Self::Connect(_) | Self::Transport(_) | Self::Idle { .. } | Self::Truncated { .. } | Self::Range(_) => true,
            _ => false,
        }
    }

    /// Returns true if the host was not reached at all.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect(_))
    }

    /// Returns true if the host was not reached or did not answer, so that further requests would wait as long in vain.
    pub(crate) fn is_dead(&self) -> bool {
        self.is_unreachable() || matches!(self, Self::Idle { what: NO_ANSWER, .. })
    }

    /// Returns true if the host does not have the content.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// Returns true if the host sent nothing for too long.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Idle { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap() {
        let policy = RetryPolicy { max_delay: Duration::from_secs(3), ..RetryPolicy::default() };
        for (failures, whole) in [(1, 500), (2, 1000), (3, 2000), (4, 3000), (40, 3000), (4000, 3000)] {
            let whole = Duration::from_millis(whole);
            for _ in 0..50 {
                let delay = policy.delay(failures);
                assert!(delay >= whole / 2 && delay <= whole, "{failures}: {delay:?}");
            }
        }
    }

    #[test]
    fn jitter_varies() {
        let policy = RetryPolicy::default();
        let first = policy.delay(3);
        assert!((0..50).any(|_| policy.delay(3) != first));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(value in r"[ -~]{0,40}", date in r"[ -~]{0,40}") {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().expect("printable"));
            headers.insert(DATE, date.parse().expect("printable"));
            let _ = retry_after(&headers, SystemTime::UNIX_EPOCH);
        }
    }

    #[test]
    fn retry_after_forms() {
        let date = "Wed, 21 Oct 2015 07:28:00 GMT";
        let received = httpdate::parse_http_date("Wed, 21 Oct 2015 07:27:50 GMT").expect("a date");
        let cases: [(&str, Option<&str>, Option<u64>); 12] = [
            ("120", None, Some(120)),
            ("18446744073709551615", None, Some(u32::MAX.into())),
            ("99999999999999999999999", None, Some(u32::MAX.into())),
            ("+7", None, None),
            (" 0 ", None, Some(0)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", Some(date), Some(30)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", Some(date), Some(0)),
            // Without a date of its own, or with one that is none: the time of receipt.
            ("Wed, 21 Oct 2015 07:28:30 GMT", None, Some(40)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", None, Some(0)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", Some("yesterday"), Some(40)),
            ("soon", Some(date), None),
            ("-1", None, None),
        ];
        for (value, date, want) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().expect("header"));
            if let Some(date) = date {
                headers.insert(DATE, date.parse().expect("header"));
            }
            assert_eq!(retry_after(&headers, received), want.map(Duration::from_secs), "{value}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), received), None);
    }

    const WHO: HostLabel<'static> = HostLabel { name: "h", upstream: true };

    fn status(code: u16, retry_after: Option<u64>) -> Cause {
        Cause::Status {
            status: StatusCode::from_u16(code).expect("valid"),
            message: String::new(),
            retry_after: retry_after.map(Duration::from_secs),
            name_invalid: false,
        }
    }

    /// Names a step without its wait, which is random.
    fn word(step: &RetryStep) -> &'static str {
        match step {
            RetryStep::Again(_) => "again",
            RetryStep::Next => "next",
            RetryStep::End => "end",
        }
    }

    #[test]
    fn steps() {
        let policy = RetryPolicy { attempts: 3, ..RetryPolicy::default() };
        let connect = || Cause::Connect("refused".into());
        let silent = || Cause::Idle { after: Duration::from_secs(60), what: NO_ANSWER };
        let cases: Vec<(&str, usize, Vec<Cause>, Vec<&str>)> = vec![
            ("only host, 404", 1, vec![status(404, None)], vec!["end"]),
            (
                "only host, 500",
                1,
                vec![status(500, None), status(500, None), status(500, None)],
                vec!["again", "again", "end"],
            ),
            ("only host, unreachable", 1, vec![connect(), connect()], vec!["again", "end"]),
            ("mirror 404", 2, vec![status(404, None), status(404, None)], vec!["next", "end"]),
            ("mirror unreachable", 2, vec![connect(), status(404, None)], vec!["next", "end"]),
            ("mirror that says nothing", 2, vec![silent(), silent()], vec!["next", "again"]),
            ("mirror 503", 2, vec![status(503, None), status(503, None)], vec!["again", "next"]),
            ("mirror 429 asks to wait", 2, vec![status(429, Some(1)), status(404, None)], vec!["next", "end"]),
            ("429 with a short wait", 1, vec![status(429, Some(1))], vec!["again"]),
            ("429 with a wait beyond the cap", 1, vec![status(429, Some(3600))], vec!["end"]),
            ("TLS", 1, vec![Cause::Tls("bad".into())], vec!["end"]),
            ("wrong content", 1, vec![Cause::Content("bad".into())], vec!["end"]),
        ];
        for (name, hosts, causes, want) in cases {
            let mut attempts = HostAttempts::new((0..hosts).collect());
            let got: Vec<&str> = causes.into_iter().map(|c| word(&attempts.failed(&policy, WHO, c))).collect();
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn mirror_that_was_left_is_asked_again_when_the_registry_fails() {
        let policy = RetryPolicy { attempts: 3, ..RetryPolicy::default() };
        let silent = || Cause::Idle { after: Duration::from_secs(2), what: NO_ANSWER };
        let mirror = HostLabel { name: "m", upstream: false };
        let mut attempts = HostAttempts::new(vec![7, 8]);
        assert_eq!(attempts.failed(&policy, mirror, silent()), RetryStep::Next);
        assert_eq!((attempts.host(), attempts.remaining().len()), (8, 0));
        // The registry has its whole budget: the mirror is no other host that could be asked instead.
        let steps: Vec<&str> = (0..3).map(|_| word(&attempts.failed(&policy, WHO, status(500, None)))).collect();
        assert_eq!((steps, attempts.host()), (vec!["again", "again", "next"], 7));
        let steps: Vec<&str> = (0..2).map(|_| word(&attempts.failed(&policy, mirror, silent()))).collect();
        assert_eq!(steps, ["again", "end"]);
    }

    #[test]
    fn mirror_whose_transfers_break_off_is_left() {
        let policy = RetryPolicy::default();
        let mut attempts = HostAttempts::new(vec![0, 1]);
        let broken = || Cause::Truncated { got: 100, size: 200 };
        let steps: Vec<&str> = (0..2)
            .map(|_| {
                attempts.progressed();
                word(&attempts.failed(&policy, WHO, broken()))
            })
            .collect();
        assert_eq!(steps, ["again", "next"]);
    }

    #[test]
    fn retry_after_is_waited_for() {
        let policy = RetryPolicy::default();
        let mut attempts = HostAttempts::new(vec![0]);
        assert_eq!(attempts.failed(&policy, WHO, status(429, Some(7))), RetryStep::Again(Duration::from_secs(7)));
    }

    #[test]
    fn progress_gives_a_new_budget() {
        let policy = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
        let mut attempts = HostAttempts::new(vec![0]);
        let broken = || Cause::Transport("reset".into());
        for _ in 0..10 {
            assert_eq!(word(&attempts.failed(&policy, WHO, broken())), "again");
            attempts.progressed();
        }
        assert_eq!(word(&attempts.failed(&policy, WHO, broken())), "again");
        assert_eq!(word(&attempts.failed(&policy, WHO, broken())), "end");
    }
}
