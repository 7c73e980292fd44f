//! Tests of globs against a matcher that tries everything, and of their bounds.

use proptest::prelude::*;

use super::*;

/// Matches a glob by trying everything: slow, but simple.
pub(crate) fn naive(glob: &[u8], text: &[u8]) -> bool {
    match glob {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|at| naive(rest, &text[at..])),
        [b'?', rest @ ..] => !text.is_empty() && naive(rest, &text[1..]),
        [b'[', low, b'-', high, b']', rest @ ..] => {
            text.first().is_some_and(|b| (low..=high).contains(&b)) && naive(rest, &text[1..])
        }
        [b'[', low, high, b']', rest @ ..] => {
            text.first().is_some_and(|b| b == low || b == high) && naive(rest, &text[1..])
        }
        [want, rest @ ..] => text.first() == Some(want) && naive(rest, &text[1..]),
    }
}

#[test]
fn classes_and_wildcards_are_those_of_go() {
    let cases = [
        ("[a-c]*", "bcd", true),
        ("[a-c]*", "xbcd", false),
        ("[^a-c]", "d", true),
        ("[^a-c]", "a", false),
        ("[^^]", "^", false),
        ("[a^]", "^", true),
        ("[[a]", "[", true),
        ("a]", "a]", true),
        ("*", "", true),
        ("?", "", false),
        ("**", "a", true),
        ("***a", "ba", true),
        ("a**", "a", true),
    ];
    for (glob, text, want) in cases {
        assert!(is_valid(glob), "{glob}");
        assert_eq!(matches(glob, text), want, "{glob} {text}");
    }
}

#[test]
fn many_long_globs_match_in_linear_time() {
    let glob = format!("{}b", "*a".repeat(100));
    assert!(!matches(&glob, &"a".repeat(250)));
    assert!(matches(&"*".repeat(200), &"a".repeat(250)));
    // Sets of the longest and most complicated globs are below the limit of a set.
    let globs: Vec<String> = (0..300).map(|n| format!("{n}-{}", "*[^a-y]".repeat(35))).collect();
    assert!(globs.iter().all(|glob| is_valid(glob)));
    let text = format!("299-{}", "z".repeat(249));
    assert_eq!(Matchers::default().find(globs.iter().map(String::as_str), &text), [299]);
}

proptest! {
    #[test]
    fn globs_match_as_a_naive_matcher_does(
        globs in prop::collection::vec("([ab]|[*]|[?]|\\[a-b\\]|\\[b-c\\]|\\[ac\\]){0,8}", 1..150), text in "[abc]{0,8}",
    ) {
        let want: Vec<usize> = (0..globs.len()).filter(|&at| naive(globs[at].as_bytes(), text.as_bytes())).collect();
        prop_assert_eq!(Matchers::default().find(globs.iter().map(String::as_str), &text), want);
        for glob in &globs[..1] {
            prop_assert!(is_valid(glob));
            prop_assert_eq!(matches(glob, &text), naive(glob.as_bytes(), text.as_bytes()));
        }
    }
}
