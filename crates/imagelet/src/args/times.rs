//! The parser of durations that limit how long a command waits. Parses, nothing more.

use std::time::Duration;

/// Parses a timeout above zero.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let time = base::GoDuration::parse_unsigned(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| "it must be a duration such as 90s or 2m30s".to_owned())
}
