//! Globs of one part of a host (`*`, `?`, `[a-z]`, `[^a-z]`) as in Go's `path.Match`. `globset` matches them, in linear time. Checks the
//! syntax, which is stricter than that of `globset`. Called by the patterns and their index.

use std::sync::OnceLock;

use globset::{Glob, GlobSet};

/// Characters that begin a wildcard.
pub(crate) const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Globs of one set. So few globs of a host's length stay far below the size limit of a set.
const PER_SET: usize = 64;

/// Returns true if a text is a glob whose character classes are complete and whose ranges are in order.
pub(crate) fn is_valid(glob: &str) -> bool {
    has_complete_classes(glob) && Glob::new(glob).is_ok()
}

/// Returns true if the text matches a glob, which may be a plain text.
pub(crate) fn matches(glob: &str, text: &str) -> bool {
    if !glob.contains(WILDCARDS) {
        return glob == text;
    }
    Glob::new(glob).is_ok_and(|glob| glob.compile_matcher().is_match(text))
}

/// Returns true if every character class has members and an end. `-` is a member of none, but part of a range.
fn has_complete_classes(glob: &str) -> bool {
    let mut rest = glob;
    while let Some((_, after)) = rest.split_once('[') {
        let Some((class, after)) = after.split_once(']') else { return false };
        let mut members = class.strip_prefix('^').unwrap_or(class).as_bytes();
        if members.is_empty() {
            return false;
        }
        while !members.is_empty() {
            members = match members {
                [b'-', ..] | [_, b'-'] | [_, b'-', b'-', ..] => return false,
                [_, b'-', _, rest @ ..] | [_, rest @ ..] => rest,
                [] => members,
            };
        }
        rest = after;
    }
    true
}

/// Matchers of a list of globs, made for the first text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matchers(OnceLock<Box<[GlobSet]>>);

impl Matchers {
    /// Forgets the matchers, because the list has changed.
    pub(crate) fn reset(&mut self) {
        self.0 = OnceLock::new();
    }

    /// Returns the positions of the matching globs in the list, in ascending order.
    pub(crate) fn find<'g>(&self, globs: impl Iterator<Item = &'g str>, text: &str) -> Vec<usize> {
        let sets = self.0.get_or_init(|| sets(globs));
        let numbered = sets.iter().enumerate().map(|(at, set)| (at * PER_SET, set));
        numbered.flat_map(|(first, set)| set.matches(text).into_iter().map(move |at| first + at)).collect()
    }
}

fn sets<'g>(globs: impl Iterator<Item = &'g str>) -> Box<[GlobSet]> {
    let globs: Vec<Glob> = globs.map(|glob| Glob::new(glob).expect("a pattern's globs are valid")).collect();
    let sets = globs.chunks(PER_SET);
    sets.map(|globs| GlobSet::new(globs).expect("a set of this size is below the limit")).collect()
}

#[cfg(test)]
#[path = "glob_tests.rs"]
pub(crate) mod tests;
