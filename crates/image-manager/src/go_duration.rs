//! [`GoDuration`]: a duration as Go prints it, cut to milliseconds, because people and tools read the kubelet's event
//! messages: `0s`, `15ms`, `1.234s`, `2m3.5s`, `1h0m0s`.

use std::fmt;
use std::time::Duration;

/// Prints a duration as Go does.
#[derive(Clone, Copy, Debug)]
pub struct GoDuration(pub Duration);

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        if millis < 1000 {
            return write!(f, "{millis}ms");
        }
        let (minutes, rest) = (millis / 60_000, millis % 60_000);
        let (hours, minutes) = (minutes / 60, minutes % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        let seconds = format!("{}.{:03}", rest / 1000, rest % 1000);
        write!(f, "{}s", seconds.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_go_does() {
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
            assert_eq!(GoDuration(duration).to_string(), want);
        }
    }
}
