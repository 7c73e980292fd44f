//! Ages as kubectl prints them: two units at most, and the second one only while it matters.

use jiff::Timestamp;

/// Returns how long ago a time was; `<unknown>` if the time is not known.
pub fn since(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| "<unknown>".to_owned(), |time| human(now.as_second() - time.as_second()))
}

/// Formats a number of seconds. It is negative if a clock was set back meanwhile.
pub fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |large: i64, unit: &str, small: i64, rest: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{rest}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 | 0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, "h", s / MINUTE % 60, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, "d", s / HOUR % 24, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s / DAY % 365, "d"),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_kubectls() {
        let (minute, hour, day) = (60, 3600, 86_400);
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (2 * minute + 1, "2m1s"),
            (9 * minute + 59, "9m59s"),
            (10 * minute + 5, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (7 * hour + 5 * minute, "7h5m"),
            (8 * hour + minute, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (2 * day + 5 * hour, "2d5h"),
            (8 * day + hour, "8d"),
            (729 * day, "729d"),
            (730 * day, "2y"),
            (731 * day, "2y1d"),
            (8 * 365 * day, "8y"),
        ];
        for (seconds, want) in cases {
            assert_eq!(human(seconds), want, "{seconds}");
        }
        let time = |second| Timestamp::from_second(second).expect("a time");
        assert_eq!((since(None, time(5)), since(Some(time(3)), time(5))), ("<unknown>".into(), "2s".into()));
    }
}
