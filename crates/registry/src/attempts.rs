//! [`HostAttempts`]: which host is asked next, and when, after a failure. A small state machine without I/O; the loops in
//! `repository` and `blob` drive it.

use std::time::Duration;

use crate::error::{Cause, HostFailure, RegistryError};
use crate::retry::RetryPolicy;

/// HostAttempts at a host that cannot be reached at all.
const UNREACHABLE_ATTEMPTS: u32 = 2;

/// What to do after a failure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RetryStep {
    /// Ask the same host again after this wait.
    Again(Duration),
    /// Ask the next host now.
    Next,
    /// There is nobody left.
    End,
}

/// A host as errors name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostLabel<'a> {
    pub(crate) name: &'a str,
    /// It is the registry itself.
    pub(crate) upstream: bool,
}

/// The way through the hosts of one request.
#[derive(Debug)]
pub(crate) struct HostAttempts {
    order: Vec<usize>,
    at: usize,
    /// Failures in a row at the present host since it last made progress.
    failures: u32,
    past: Vec<HostFailure>,
}

impl HostAttempts {
    /// Hosts by index, most wanted first; at least one.
    pub(crate) fn new(order: Vec<usize>) -> Self {
        Self { order, at: 0, failures: 0, past: Vec::new() }
    }

    /// The host to ask.
    pub(crate) fn host(&self) -> usize {
        self.order[self.at]
    }

    /// Bytes came: the budget of the present host is whole again.
    pub(crate) fn progressed(&mut self) {
        self.failures = 0;
    }

    /// Takes note of a failure of the present host.
    pub(crate) fn failed(&mut self, policy: &RetryPolicy, who: HostLabel<'_>, cause: Cause) -> RetryStep {
        self.failures += 1;
        let is_last = self.at + 1 == self.order.len();
        let budget = match is_last {
            true if cause.is_unreachable() => policy.attempts.min(UNREACHABLE_ATTEMPTS),
            // One that says nothing may be about to fetch what it was asked for itself.
            true => policy.attempts,
            // There is somebody else to ask: a second try for a hiccup, no more.
            false if cause.is_dead() => 1,
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
        self.past.push(HostFailure {
            host: who.name.to_owned(),
            upstream: who.upstream,
            attempts: self.failures,
            cause,
        });
        if is_last {
            return RetryStep::End;
        }
        self.at += 1;
        self.failures = 0;
        RetryStep::Next
    }

    /// The error that names every host which failed.
    pub(crate) fn error(&self, asked: &str) -> RegistryError {
        RegistryError::new(asked, self.past.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    const WHO: HostLabel<'static> = HostLabel { name: "h", upstream: true };

    fn status(code: u16, retry_after: Option<u64>) -> Cause {
        Cause::Status {
            status: StatusCode::from_u16(code).expect("valid"),
            message: String::new(),
            retry_after: retry_after.map(Duration::from_secs),
            name_invalid: false,
        }
    }

    /// Waits are random, so that only what kind of step it is can be compared.
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
        let silent = || Cause::Idle { after: Duration::from_secs(60), what: crate::error::NO_ANSWER };
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
