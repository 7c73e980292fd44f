//! Invariants of this crate's parsers for any input: run by libFuzzer (`fuzz/` at the top of the repository), and over
//! the committed corpora by a test. Compiled for tests and with the feature `fuzzing` only.

use crate::{AllowedTarget, HostsError, challenge, hosts, range_request, redact, token};

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The harnesses by name. Each panics where a parser does not keep what it has to.
pub const HARNESSES: &[Harness] = &[
    ("challenge", challenge),
    ("token", token),
    ("hosts", hosts),
    ("content-range", content_range),
    ("redact", redact),
    ("target", target),
];

/// Headers are lines: each is one.
fn challenge(bytes: &[u8]) {
    for challenge in challenge::parse(bytes.split(|byte| *byte == b'\n')) {
        assert_eq!(challenge.scheme, challenge.scheme.to_ascii_lowercase());
        for name in ["realm", "service", "scope", "error"] {
            assert!(challenge.get(name).is_none_or(|value| !value.is_empty()));
        }
    }
}

fn token(bytes: &[u8]) {
    if let Ok((token, lifetime)) = token::parse(bytes) {
        assert!(!token.is_empty() && !lifetime.is_zero());
        // It may have any character: what makes a header of it must not panic.
        let _ = token::bearer(&token);
    }
}

/// An error names a line that there is, and is itself one line.
fn hosts(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match hosts::parse(&text) {
        Ok(file) => assert!(!format!("{file:?}").is_empty()),
        Err(error) => {
            let lines = text.lines().count() + 1;
            let line = match &error {
                HostsError::Syntax { line, .. } | HostsError::Key { line, .. } => *line,
                _ => 1,
            };
            assert!((1..=lines).contains(&line), "line {line} of {lines}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}

fn content_range(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for (from, size) in [(0, 1), (5, 10), (0, u64::MAX), (u64::MAX - 1, u64::MAX)] {
        if let Some(until) = range_request::range_fits(&text, from, size) {
            assert!(from < until && until <= size);
        }
    }
}

/// The excerpt of a stranger's text is short, one line, without control characters, and has no token in it.
fn redact(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let shown = redact::text(&text, 200);
    assert!(shown.chars().count() <= 201);
    assert!(shown.chars().all(oci::text::is_printable), "{shown:?}");
    let token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=');
    for (at, _) in shown.match_indices("eyJ") {
        let length = shown[at..].chars().take_while(|c| token(*c)).count();
        assert!(length < 12, "a token is left in {shown:?}");
    }
}

fn target(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(target) = text.parse::<AllowedTarget>() {
        let written = target.to_string();
        let again: AllowedTarget = written.parse().expect("what is written can be read");
        assert_eq!(again.to_string(), written);
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
