//! [`NameGlob`]: a compiled glob over names: `*` is any text without `/`, `**` any text, everything else is itself. `globset` matches it.
//! Knows nothing of images. Called by the patterns of rules and pins.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use globset::{GlobBuilder, GlobMatcher};

/// Any text, `/` included, in the syntax of `globset`, which knows `**` only as a whole component of a path.
const ANY: &str = "{*,*/**/*}";

/// A compiled glob. Two globs are equal if their texts are.
#[derive(Clone, Debug)]
pub(super) struct NameGlob {
    text: String,
    /// `None` for a text without stars, which matches itself: a set of hundreds of images pins each by its whole name.
    matcher: Option<GlobMatcher>,
}

impl NameGlob {
    /// Compiles a glob over texts.
    ///
    /// # Errors
    /// The glob is too large.
    pub(super) fn new(glob: &str) -> Result<Self, String> {
        if !glob.contains('*') {
            return Ok(Self { text: glob.to_owned(), matcher: None });
        }
        Self::compile(&translate(glob))
    }

    /// Compiles a glob over names of images. One that matches every tag of a repository matches its digests, too.
    ///
    /// # Errors
    /// The glob is too large.
    pub(super) fn of_names(glob: &str) -> Result<Self, String> {
        match glob.strip_suffix(":*") {
            Some(repository) => Self::compile(&format!("{}{{:*,@*}}", translate(repository))),
            None => Self::new(glob),
        }
    }

    fn compile(glob: &str) -> Result<Self, String> {
        let glob = GlobBuilder::new(glob).literal_separator(true).backslash_escape(false).build();
        glob.map(|glob| Self { text: glob.glob().to_owned(), matcher: Some(glob.compile_matcher()) })
            .map_err(|error| format!("it cannot be compiled: {}", error.kind()))
    }

    /// Returns true if a text matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.matcher.as_ref().map_or_else(|| self.text == text, |matcher| matcher.is_match(text))
    }
}

impl PartialEq for NameGlob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NameGlob {}

impl PartialOrd for NameGlob {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NameGlob {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for NameGlob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

fn translate(glob: &str) -> String {
    let parts = glob.split("**").map(|part| part.split('*').map(globset::escape).collect::<Vec<_>>().join("*"));
    parts.collect::<Vec<_>>().join(ANY)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Matches a glob by trying everything: slow, but simple.
    fn naive(glob: &[u8], text: &[u8]) -> bool {
        match glob {
            [] => text.is_empty(),
            [b'*', b'*', rest @ ..] => (0..=text.len()).any(|n| naive(rest, &text[n..])),
            [b'*', rest @ ..] => {
                let reach = text.iter().position(|&b| b == b'/').unwrap_or(text.len());
                (0..=reach).any(|n| naive(rest, &text[n..]))
            }
            [byte, rest @ ..] => text.first() == Some(byte) && naive(rest, &text[1..]),
        }
    }

    #[test]
    fn other_characters_are_literal() {
        for text in ["[::1]:5000/a", "a?b", "{a,b}", r"a\b", "[!a]", "a!b"] {
            let glob = NameGlob::new(text).expect("a glob");
            assert!(glob.matches(text), "{text}");
            assert!(!["::1:5000/a", ":", "axb", "a", "ab", "b"].iter().any(|other| glob.matches(other)), "{text}");
        }
    }

    #[test]
    fn every_tag_includes_digests() {
        let glob = NameGlob::of_names("r.example/*/app:*").expect("a glob");
        for (name, want) in [
            ("r.example/team/app:1", true),
            ("r.example/team/app@sha256:00", true),
            ("r.example/team/apps@sha256:00", false),
            ("r.example/team/app", false),
            ("r.example/team/x/app:1", false),
        ] {
            assert_eq!(glob.matches(name), want, "{name}");
        }
        assert!(!NameGlob::of_names("r.example/app:1").expect("a glob").matches("r.example/app@sha256:00"));
    }

    proptest! {
        #[test]
        fn globs_match_as_a_naive_matcher_does(glob in "[ab/*]{0,8}", text in "[ab/]{0,10}") {
            let compiled = NameGlob::new(&glob).expect("a glob");
            prop_assert_eq!(compiled.matches(&text), naive(glob.as_bytes(), text.as_bytes()));
        }
    }
}
