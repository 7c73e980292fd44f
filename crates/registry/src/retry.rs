//! [`RetryPolicy`]: how often and how soon a request is made again, and what a `Retry-After` means. Pure, but for the
//! jitter.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

/// How patient the client is.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// How often a request is made in all at the last host of a namespace; at the others half as often at most twice.
    pub attempts: u32,
    /// The wait before the second attempt; it doubles from there.
    pub base_delay: Duration,
    /// The longest wait that we choose ourselves.
    pub max_delay: Duration,
    /// The longest `Retry-After` that is waited for. A registry that asks for more is taken at its word: the error
    /// comes at once and says for how long.
    pub max_retry_after: Duration,
    /// How long nothing may come on a connection before it is given up.
    pub idle_timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            base_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(15),
            max_retry_after: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

impl RetryPolicy {
    /// The wait after this many failures in a row (1 for the first): exponential, and of it a random part between half
    /// and all, so that many nodes do not come back at once.
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        let doubled = self.base_delay.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        let whole = doubled.min(self.max_delay);
        let random = RandomState::new().build_hasher().finish();
        let part = u32::try_from(random & 0xffff).unwrap_or(0);
        whole / 2 + (whole / 2).saturating_mul(part) / 0xffff
    }
}

/// The wait that an answer asks for: seconds, or a date, which is measured against the answer's own `Date`, so that
/// this machine's clock does not matter.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than fits is long enough in any case.
        return Some(Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()));
    }
    let then = httpdate::parse_http_date(text).ok()?;
    let now = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?.trim()).ok()?;
    Some(then.duration_since(now).unwrap_or_default())
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
            let _ = retry_after(&headers);
        }
    }

    #[test]
    fn retry_after_forms() {
        let date = "Wed, 21 Oct 2015 07:28:00 GMT";
        let cases: [(&str, Option<&str>, Option<u64>); 10] = [
            ("120", None, Some(120)),
            ("18446744073709551615", None, Some(u32::MAX.into())),
            ("99999999999999999999999", None, Some(u32::MAX.into())),
            ("+7", None, None),
            (" 0 ", None, Some(0)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", Some(date), Some(30)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", Some(date), Some(0)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", None, None),
            ("soon", Some(date), None),
            ("-1", None, None),
        ];
        for (value, date, want) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().expect("header"));
            if let Some(date) = date {
                headers.insert(DATE, date.parse().expect("header"));
            }
            assert_eq!(retry_after(&headers), want.map(Duration::from_secs), "{value}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
