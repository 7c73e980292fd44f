//! Bytes, durations and digests in human-readable form. Called by tables and by progress.

pub(crate) use base::units::{bytes, seconds};
/// Parses bytes as people write them: `20GiB`, `20Gi`, `500MB`, `1.5G`, `4096`. Without `i`, units are powers of 1000.
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

/// Returns a number and its noun, in the plural unless it is one.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns a time to the second; empty if it is unknown.
pub(crate) fn time(time: Option<jiff::Timestamp>) -> String {
    time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
}

/// Returns the name of an image in a table; its id has a column of its own.
pub(crate) fn first_name(names: &[String]) -> String {
    names.first().cloned().unwrap_or_else(|| "<none>".to_owned())
}

/// Returns the first twelve digits of an image id, or all of it with its algorithm.
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
    fn ids() {
        let whole = format!("sha256:{}", "0123456789abcdef".repeat(4));
        assert_eq!(id(&whole, false), "0123456789ab");
        assert_eq!(id(&whole, true), whole);
        assert_eq!(id("odd", false), "odd");
    }
}
