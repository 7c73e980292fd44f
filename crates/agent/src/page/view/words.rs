//! Figures, times and names as every part of the page writes them. Pure; called by the parts.

use base::units;
use jiff::Timestamp;
use maud::{Markup, html};

use crate::age;

/// Bytes with three digits.
pub(super) fn bytes(count: u64) -> String {
    units::bytes(count)
}

/// Formats a number with a narrow space between thousands.
pub(super) fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 * 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// `1 image`, `2 images`.
pub(super) fn plural(number: usize, word: &str) -> String {
    format!("{} {word}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Renders the time since an event, with the time itself for programs and as a tooltip.
pub(super) fn time(time: Option<Timestamp>, now: Timestamp) -> Markup {
    html! {
        @match time {
            None => span.none { "unknown" },
            Some(time) => {
                @let exact = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                time datetime=(exact) title=(exact) { (age::human(now.as_second().saturating_sub(time.as_second()).max(0))) }
            }
        }
    }
}

/// Formats a duration in milliseconds.
pub(super) fn duration(milliseconds: u64) -> String {
    units::seconds(std::time::Duration::from_millis(milliseconds))
}

/// Formats a duration in whole seconds, if it has any.
pub(super) fn whole_duration(milliseconds: u64) -> String {
    duration(milliseconds).replace(".00s", "s")
}

/// Renders the name of an image, with its distinctive part emphasised.
pub(super) fn image_name(name: &str) -> Markup {
    let at = name.rfind('/').map_or(0, |slash| slash + 1);
    let (path, rest) = name.split_at(at);
    // A digest is long, and its first digits tell it apart.
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) => (rest, Some(short(digest))),
        None => (rest, None),
    };
    html! {
        bdi.image title=(name) {
            span.path { (path) } (rest)
            @if let Some(digest) = digest { span.path { "@" (digest) } }
        }
    }
}

/// Returns the first twelve digits of a digest.
pub(super) fn short(digest: &str) -> &str {
    let hex = digest.split_once(':').map_or(digest, |(_, hex)| hex);
    hex.get(..12).unwrap_or(hex)
}

/// Returns a part of a whole in percent with two decimals, for positions in a picture.
pub(super) fn percent(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { (part / whole * 100.0).clamp(0.0, 100.0) } else { 0.0 };
    format!("{share:.2}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let cases = [(0, "0"), (999, "999"), (1000, "1\u{202f}000"), (1_234_567, "1\u{202f}234\u{202f}567")];
        for (number, want) in cases {
            assert_eq!(count(number), want);
        }
        assert_eq!((plural(1, "image"), plural(0, "layer")), ("1 image".to_owned(), "0 layers".to_owned()));
        let cases = [((1.0, 3.0), "33.33%"), ((5.0, 0.0), "0.00%"), ((9.0, 3.0), "100.00%"), ((f64::NAN, 1.0), "NaN%")];
        for ((part, whole), want) in cases {
            assert_eq!(percent(part, whole), want);
        }
    }

    #[test]
    fn names_are_split_and_escaped() {
        let html = image_name("r.example:5000/a/<b>:1@sha256:0123456789abcdef").into_string();
        let want = "<bdi class=\"image\" title=\"r.example:5000/a/&lt;b&gt;:1@sha256:0123456789abcdef\"><span class=\"path\">\
                    r.example:5000/a/</span>&lt;b&gt;:1<span class=\"path\">@0123456789ab</span></bdi>";
        assert_eq!(html, want);
        assert_eq!(short("sha256:ab"), "ab");
        assert_eq!(short("ääääääääääääää").chars().count(), 6);
        let now = Timestamp::from_second(100).expect("a time");
        assert!(time(Some(Timestamp::from_second(40).expect("a time")), now).into_string().ends_with(">60s</time>"));
        assert!(time(Some(Timestamp::from_second(140).expect("a time")), now).into_string().ends_with(">0s</time>"));
    }
}
