//! Bytes and durations in the spelling that people read. Called by tables, progress, and the status page.

use std::time::Duration;

/// Bytes with three digits and a decimal unit, as crictl and docker write them: `4.27MB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = count as f64;
    let mut unit = 0;
    // A value that would be shown as 1000 belongs to the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let number = format!("{value:.decimals$}");
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    format!("{number}{}", UNITS[unit])
}

/// A duration for people: `850ms`, `1.23s`, `2m3s`.
#[must_use]
pub fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{:.2}s", duration.as_secs_f64()),
        s => format!("{}m{}s", s / 60, s % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        let cases = [
            (0, "0B"),
            (999, "999B"),
            (1000, "1kB"),
            (4_270_000, "4.27MB"),
            (4_300_000, "4.3MB"),
            (42_700_000, "42.7MB"),
            (427_000_000, "427MB"),
            (999_600, "1MB"),
            (12_345_678_901, "12.3GB"),
            (u64::MAX, "18.4EB"),
        ];
        for (count, want) in cases {
            assert_eq!(bytes(count), want, "{count}");
        }
    }

    #[test]
    fn durations() {
        let cases = [(850, "850ms"), (1234, "1.23s"), (123_400, "2m3s")];
        for (millis, want) in cases {
            assert_eq!(seconds(Duration::from_millis(millis)), want);
        }
    }
}
