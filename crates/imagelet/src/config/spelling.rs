//! How values of settings are shown: durations in Go's spelling, and addresses without their secrets. Pure. Called by
//! [`super::form`], [`super::setting`] and [`super::check`].

use std::time::Duration;

use base::GoDuration;
use jiff::SignedDuration;

/// Returns the address with `xxxxx` in place of a password, as Go shows it, and of a query, which may contain a token.
pub(super) fn without_secrets(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else { return text.to_owned() };
    if url.password().is_none() && url.query().is_none() {
        return text.to_owned();
    }
    if url.password().is_some() && url.set_password(Some("xxxxx")).is_err() {
        return String::new();
    }
    if url.query().is_some() {
        url.set_query(Some("xxxxx"));
    }
    url.into()
}

/// Returns the shortest of Go's spellings: `2m`, `1m30s`, `500ms`.
pub(crate) fn show_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let mut text = String::new();
    for (count, unit) in [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s"), (millis.into(), "ms")] {
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Returns the same as [`show_duration`], with a sign for a negative duration.
pub(crate) fn show_signed(duration: SignedDuration) -> String {
    let sign = if duration.is_negative() { "-" } else { "" };
    format!("{sign}{}", show_duration(duration.unsigned_abs()))
}

/// Returns a duration as Go prints it, and so the kubelet's messages: `2m0s`.
pub(crate) fn go_duration(duration: SignedDuration) -> String {
    let sign = if duration.is_negative() { "-" } else { "" };
    format!("{sign}{}", GoDuration::from_millis_of(duration.unsigned_abs()))
}
