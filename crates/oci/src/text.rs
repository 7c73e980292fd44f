//! Foreign text on its way to a terminal or into a log: the only place that decides which characters are shown, and
//! what replaces the others. Called wherever an error or a table is worded for people.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns true if a character is shown and does nothing else. Control characters (C0, DEL and C1, which some terminals take for
/// escape sequences) are not, nor are line and paragraph separators and characters without a width of their own, among them
/// those that change the direction of a text (CVE-2021-42574).
#[must_use]
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The text with another character for each that is neither printable nor in `keep`.
#[must_use]
pub fn printable<'a>(text: &'a str, instead: char, keep: &[char]) -> Cow<'a, str> {
    let is_plain = |c: char| is_printable(c) || keep.contains(&c);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if is_plain(c) { c } else { instead }).collect()
}

/// The text with `\u202e` and the like, as JSON has it, for each character that is neither printable nor in `keep`.
#[must_use]
pub fn escaped<'a>(text: &'a str, keep: &[char]) -> Cow<'a, str> {
    let is_plain = |c: char| is_printable(c) || keep.contains(&c);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            // All of them are in the first plane.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_controls_are_not_printable() {
        let ranges = ['\0'..='\u{1f}', '\u{7f}'..='\u{9f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
        let others = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{200b}', '\u{feff}'];
        for c in ranges.into_iter().flatten().chain(others) {
            assert!(!is_printable(c), "{c:?}");
            assert_eq!(printable(&format!("a{c}b"), '?', &[]), "a?b", "{c:?}");
            let escaped = escaped(&format!("a{c}b"), &[]).into_owned();
            let back: String = serde_json::from_str(&format!("\"{escaped}\"")).expect("JSON");
            assert_eq!(back, format!("a{c}b"), "{c:?}");
        }
        for c in ['a', ' ', '~', '\u{a0}', 'é', 'ש', 'ا', '한', '…', '🦀'] {
            assert!(is_printable(c), "{c:?}");
        }
        assert!(matches!(printable("plain é\n", '?', &['\n']), Cow::Borrowed(_)));
        assert_eq!(escaped("a\nb\u{85}", &['\n']), "a\nb\\u0085");
    }
}
