//! The `Range` header: the requested bytes of a blob. Pure. Called by [`crate::layout_registry`].

use std::ops::Range;

/// The part of a blob to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Everything: there is no such header, or it may be ignored.
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// The range is outside of the blob.
    Unsatisfiable,
}

/// Parses `bytes=first-last`, `bytes=first-` and `bytes=-count` (RFC 9110 §14). Several ranges, other units and invalid forms are answered
/// with the whole blob, which the RFC permits.
pub(crate) fn wanted(header: Option<&str>, size: u64) -> Wanted {
    let Some((first, last)) = header.and_then(|h| h.strip_prefix("bytes=")).and_then(|h| h.split_once('-')) else {
        return Wanted::Whole;
    };
    let (first, last) = (first.trim(), last.trim());
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let range = match (number(first), number(last)) {
        (Some(first), None) if last.is_empty() => first..size,
        (Some(first), Some(last)) if first <= last => first..size.min(last.saturating_add(1)),
        (None, Some(count)) if first.is_empty() => size.saturating_sub(count)..size,
        _ => return Wanted::Whole,
    };
    if range.is_empty() { Wanted::Unsatisfiable } else { Wanted::Part(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let cases = [
            (None, Wanted::Whole),
            (Some("bytes=0-3"), Wanted::Part(0..4)),
            (Some("bytes=4-"), Wanted::Part(4..10)),
            (Some("bytes=4-100"), Wanted::Part(4..10)),
            (Some("bytes=-3"), Wanted::Part(7..10)),
            (Some("bytes=-30"), Wanted::Part(0..10)),
            (Some("bytes=-0"), Wanted::Unsatisfiable),
            (Some("bytes=10-"), Wanted::Unsatisfiable),
            (Some("bytes=0-18446744073709551615"), Wanted::Part(0..10)),
            (Some("bytes=5-2"), Wanted::Whole),
            (Some("bytes=0-1,3-4"), Wanted::Whole),
            (Some("items=0-1"), Wanted::Whole),
            (Some("bytes=a-b"), Wanted::Whole),
            (Some("bytes=-"), Wanted::Whole),
        ];
        for (header, want) in cases {
            assert_eq!(wanted(header, 10), want, "{header:?}");
        }
        assert_eq!(wanted(Some("bytes=0-"), 0), Wanted::Unsatisfiable);
    }
}
