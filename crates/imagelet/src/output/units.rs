//! Bytes, durations and digests in the spelling that people read. Called by tables and by progress.

use std::time::Duration;

/// Bytes with three digits and a decimal unit, as crictl and docker write them: `4.27MB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = count as f64;
    let mut unit = 0;
    // What would be shown as 1000 is one of the next unit.
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

/// Bytes as people write them: `20GiB`, `20Gi`, `500MB`, `1.5G`, `4096`. Without `i`, units are powers of 1000.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start().strip_suffix(['B', 'b']).unwrap_or(unit.trim_start());
    let (letter, base) = match unit.strip_suffix('i') {
        Some(letter) => (letter, 1024_u64),
        None => (unit, 1000),
    };
    let power = match letter {
        "" if base == 1000 => 0,
        "k" | "K" => 1,
        "M" | "m" => 2,
        "G" | "g" => 3,
        "T" | "t" => 4,
        "P" | "p" => 5,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || number.ends_with('.') {
        return None;
    }
    let scale = u128::from(base.pow(power));
    let whole = whole.parse::<u64>().ok().map(u128::from)?.checked_mul(scale)?;
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? * scale };
    let digits = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    u64::try_from(whole + part / digits).ok()
}

/// A duration for people: `850ms`, `1.23s`, `2m3s`.
pub(crate) fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{:.2}s", duration.as_secs_f64()),
        s => format!("{}m{}s", s / 60, s % 60),
    }
}

/// A time of day to the second; empty where it is not known.
pub(crate) fn time(time: Option<jiff::Timestamp>) -> String {
    time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
}

/// The name of an image in a table; its id has a column of its own.
pub(crate) fn first_name(names: &[String]) -> String {
    names.first().cloned().unwrap_or_else(|| "<none>".to_owned())
}

/// The first twelve digits of an image id, or all of it with its algorithm.
pub(crate) fn id(id: &str, whole: bool) -> String {
    let hex = id.split_once(':').map_or(id, |(_, hex)| hex);
    match hex.get(..12) {
        Some(short) if !whole => short.to_owned(),
        _ => id.to_owned(),
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
    fn sizes_that_people_write() {
        let cases = [
            ("20GiB", Some(20 << 30)),
            ("20Gi", Some(20 << 30)),
            ("20G", Some(20_000_000_000)),
            ("500MB", Some(500_000_000)),
            ("1.5 KiB", Some(1536)),
            ("0.1k", Some(100)),
            ("4096", Some(4096)),
            ("4096B", Some(4096)),
            ("0", Some(0)),
            ("", None),
            ("GiB", None),
            ("1.", None),
            (".5G", None),
            ("1.2.3G", None),
            ("-1", None),
            ("1X", None),
            ("1i", None),
            ("99999999999999999999", None),
            ("99999999PiB", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse_bytes(text), want, "{text}");
        }
    }

    #[test]
    fn durations() {
        let cases = [(850, "850ms"), (1234, "1.23s"), (123_400, "2m3s")];
        for (millis, want) in cases {
            assert_eq!(seconds(Duration::from_millis(millis)), want);
        }
    }

    #[test]
    fn ids() {
        let whole = format!("sha256:{}", "0123456789abcdef".repeat(4));
        assert_eq!(id(&whole, false), "0123456789ab");
        assert_eq!(id(&whole, true), whole);
        assert_eq!(id("odd", false), "odd");
    }
}
