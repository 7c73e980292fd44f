//! [`GoDuration`]: a duration as Go reads and prints it (`1m30s`, `-1.5h`, `300ms`), as in the kubelet's configuration, in
//! its messages and in the answers of its credential providers.

use std::fmt;
use std::time::Duration;

/// A duration in nanoseconds, with a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(i64);

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

impl GoDuration {
    /// Reads a duration as Go's `time.ParseDuration` does. `None`: the text is no duration, or a longer one than fits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let total = i128::try_from(nanoseconds(rest)?).ok()?;
        i64::try_from(if negative { -total } else { total }).ok().map(Self)
    }

    /// Reads a duration without a sign, however long it is, as settings have them. `None`: the text is no such duration.
    #[must_use]
    pub fn parse_unsigned(text: &str) -> Option<Duration> {
        let total = nanoseconds(text)?;
        let below = u32::try_from(total % u128::from(SECOND)).ok()?;
        Some(Duration::new(u64::try_from(total / u128::from(SECOND)).ok()?, below))
    }

    /// The duration in full milliseconds, as people want it in messages: `0s`, `15ms`, `2m3.5s`.
    #[must_use]
    pub fn from_millis_of(duration: Duration) -> Self {
        let nanos = duration.as_millis().saturating_mul(u128::from(MILLISECOND));
        Self(i64::try_from(nanos).unwrap_or(i64::MAX))
    }

    /// Returns true if the duration is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The same as a [`Duration`]; `None` if it is negative.
    #[must_use]
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

/// The nanoseconds of a duration without a sign.
fn nanoseconds(text: &str) -> Option<u128> {
    if text == "0" {
        return Some(0);
    }
    if text.is_empty() {
        return None;
    }
    let (mut rest, mut total) = (text, 0_u128);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len()));
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len()));
        let unit = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => MICROSECOND,
            "ms" => MILLISECOND,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return None,
        };
        total = total.checked_add(times(number, unit)?)?;
        rest = after;
    }
    Some(total)
}

/// `number` (digits with at most one point) times `unit`.
fn times(number: &str, unit: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Digits below the nanosecond do not count: hours have 3.6e12 of them, so 18 digits are more than enough.
    let digits = &fraction[..fraction.len().min(18)];
    let parts: u128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let scale = 10u128.pow(u32::try_from(digits.len()).ok()?);
    whole.checked_mul(u128::from(unit))?.checked_add(parts * u128::from(unit) / scale)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        if total == 0 {
            return f.write_str("0s");
        }
        if total < SECOND {
            let (unit, name) = match total {
                n if n < MICROSECOND => (1, "ns"),
                n if n < MILLISECOND => (MICROSECOND, "µs"),
                _ => (MILLISECOND, "ms"),
            };
            return decimal(f, total, unit, name);
        }
        let (hours, minutes) = (total / HOUR, total % HOUR / MINUTE);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        decimal(f, total % MINUTE, SECOND, "s")
    }
}

fn decimal(f: &mut fmt::Formatter<'_>, total: u64, unit: u64, name: &str) -> fmt::Result {
    let (whole, below) = (total / unit, total % unit);
    if below == 0 {
        return write!(f, "{whole}{name}");
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{below:0width$}");
    write!(f, "{whole}.{}{name}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_round_trip() {
        let cases = [
            ("0", "0s"),
            ("0s", "0s"),
            ("-0", "0s"),
            ("1ns", "1ns"),
            ("1500ns", "1.5µs"),
            ("2us", "2µs"),
            ("2µs", "2µs"),
            ("2μs", "2µs"),
            ("300ms", "300ms"),
            ("1.5s", "1.5s"),
            (".5s", "500ms"),
            ("1.s", "1s"),
            ("10m", "10m0s"),
            ("-1m", "-1m0s"),
            ("+1m", "1m0s"),
            ("1h30m5.25s", "1h30m5.25s"),
            ("90m", "1h30m0s"),
            ("24h", "24h0m0s"),
            ("1m1m", "2m0s"),
            ("0.000000000000000000001h", "0s"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
            ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
        ];
        for (text, want) in cases {
            assert_eq!(GoDuration::parse(text).expect(text).to_string(), want, "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in [
            "",
            "-",
            "+",
            "1",
            ".",
            ".s",
            "1.2.3s",
            "s",
            "1d",
            "1 s",
            " 1s",
            "1s ",
            "--1s",
            "1e3s",
            "١s",
            "2562047h47m16.854775808s",
            "9999999999999999999999h",
            "99999999999h",
            "1sm",
        ] {
            assert_eq!(GoDuration::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn written_values_are_parsed(nanoseconds: i64) {
            let duration = GoDuration(nanoseconds);
            prop_assert_eq!(GoDuration::parse(&duration.to_string()), Some(duration));
        }

        #[test]
        fn parser_never_panics(text in "\\PC*", likely in "[-+]?([0-9.]{0,25}(ns|us|µs|ms|s|m|h)?){0,4}") {
            let _ = GoDuration::parse(&text);
            let _ = GoDuration::parse(&likely);
            let _ = GoDuration::parse_unsigned(&likely);
        }
    }

    #[test]
    fn duration_converts_to_std() {
        let of = |text: &str| GoDuration::parse(text).expect(text);
        assert_eq!(of("1m").to_std(), Some(std::time::Duration::from_secs(60)));
        assert_eq!(of("-1ns").to_std(), None);
        assert!(of("-1ns").is_negative() && !of("0").is_negative());
    }

    #[test]
    fn unsigned_durations_have_no_sign() {
        let cases = [
            ("0", Some(Duration::ZERO)),
            ("0.1s", Some(Duration::from_millis(100))),
            ("1.000000001s", Some(Duration::new(1, 1))),
            ("1m1.5s", Some(Duration::from_millis(61_500))),
            ("2μs", Some(Duration::from_micros(2))),
            ("9007199254740993ns", Some(Duration::from_nanos(9_007_199_254_740_993))),
            ("18446744073709551615.999999999s", Some(Duration::MAX)),
            ("18446744073709551616s", None),
            ("9999999999999999999999999999999999999999h", None),
            ("", None),
            ("-1s", None),
            ("-0", None),
            ("+1s", None),
            ("1", None),
            ("5 s", None),
            ("5x", None),
            ("..s", None),
            ("1e3s", None),
        ];
        for (text, want) in cases {
            assert_eq!(GoDuration::parse_unsigned(text), want, "{text:?}");
        }
    }

    #[test]
    fn durations_are_printed_in_milliseconds() {
        let cases = [
            (Duration::ZERO, "0s"),
            (Duration::from_micros(999), "0s"),
            (Duration::from_micros(1999), "1ms"),
            (Duration::from_millis(15), "15ms"),
            (Duration::from_millis(999), "999ms"),
            (Duration::from_secs(1), "1s"),
            (Duration::from_millis(1200), "1.2s"),
            (Duration::from_micros(1_234_999), "1.234s"),
            (Duration::from_millis(1010), "1.01s"),
            (Duration::from_secs(10), "10s"),
            (Duration::from_secs(60), "1m0s"),
            (Duration::from_millis(123_500), "2m3.5s"),
            (Duration::from_secs(3600), "1h0m0s"),
            (Duration::from_millis(3_661_001), "1h1m1.001s"),
            (Duration::from_secs(100 * 3600), "100h0m0s"),
        ];
        for (duration, want) in cases {
            assert_eq!(GoDuration::from_millis_of(duration).to_string(), want);
        }
    }
}
