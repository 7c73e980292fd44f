//! Words and phrases that are being removed from the tree. `tidy.rs` counts them.
//!
//! Each part of the tree has a number in [`LEFT`], which only goes down: more than that is an error, and fewer is one until the number is
//! lowered. The table of replacements is under "Language" in the project's guide to style; CONTRIBUTING.md has the glossary.

use std::cmp::Ordering;

use crate::counts::{after_visibility, type_name};
use crate::tidy_rules::numbered;

/// The most places that a finding names.
const PLACES: usize = 10;

/// First words of a comment that does not stand alone.
const FIRST_WORDS: &[&str] = &["It", "Its", "What", "Whether", "One", "Who", concat!("Who", "ever")];
/// Phrases that no reader knows. Put together so that this file does not hold them.
const PHRASES: &[&str] = &[
    concat!("by hal", "ving"),
    concat!("left to ", "him"),
    concat!("with the last ", "of them"),
    concat!("the begin ", "of"),
];
/// Names of types that say no role.
const TYPES: &[&str] = &["Found", "Place", "Held", "Known", "Shown"];
/// Names of functions that say no action.
const FUNCTIONS: &[&str] = &["look", "tell", concat!("to", "ld")];

/// The lines of a file that have such words, each as often as it has some.
pub(crate) fn lines(name: &str, text: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut in_comment = false;
    for (number, line) in numbered(text) {
        let line = line.trim_start();
        let mut count: usize = PHRASES.iter().map(|phrase| line.matches(phrase).count()).sum();
        if !name.ends_with(".rs") {
            lines.extend(std::iter::repeat_n(number, count));
            continue;
        }
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(comment) = comment.filter(|_| !in_comment) {
            let word = comment.split(|c: char| !c.is_alphabetic()).find(|w| !w.is_empty()).unwrap_or_default();
            count += usize::from(FIRST_WORDS.contains(&word) && comment.trim_start().starts_with(word));
        }
        in_comment = comment.is_some();
        count += usize::from(type_name(line).is_some_and(|name| TYPES.contains(&name)));
        count += usize::from(function_name(line).is_some_and(|name| FUNCTIONS.contains(&name)));
        lines.extend(std::iter::repeat_n(number, count));
    }
    lines
}

fn function_name(line: &str) -> Option<&str> {
    let line = after_visibility(line);
    let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

/// The part of the tree that a file belongs to: its crate, or its first directory.
pub(crate) fn part(name: &str) -> &str {
    let depth = if name.starts_with("crates/") { 2 } else { 1 };
    let end = name.match_indices('/').nth(depth - 1).map(|(at, _)| at);
    end.map_or(".", |end| &name[..end])
}

/// Returns the parts whose count differs from the table. `found` has for each such word its part of the tree and its place.
pub(crate) fn check(found: &[(String, String)], left: &[(&str, usize)]) -> Vec<String> {
    let mut parts: Vec<&str> = found.iter().map(|(p, _)| p.as_str()).chain(left.iter().map(|(p, _)| *p)).collect();
    parts.sort_unstable();
    parts.dedup();
    let verdict = |part: &&str| {
        let places: Vec<&str> = found.iter().filter(|(p, _)| p == part).map(|(_, place)| place.as_str()).collect();
        let (is, may) = (places.len(), left.iter().find(|(p, _)| p == part).map_or(0, |(_, n)| *n));
        match is.cmp(&may) {
            Ordering::Equal => None,
            Ordering::Greater => {
                let places = places[..is.min(PLACES)].join(", ");
                Some(format!("{part}: {is} words of those in xtask/src/words.rs, {may} at most: {places}"))
            }
            Ordering::Less => {
                Some(format!("{part}: {is} words are left of {may}: lower the number in xtask/src/words.rs"))
            }
        }
    };
    parts.iter().filter_map(verdict).collect()
}

/// Parts of the tree, and how many such words they have. A part that is not named has none.
pub(crate) const LEFT: &[(&str, usize)] = &[("crates/agent", 11)];

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn words_are_counted_where_they_say_nothing() {
        let count = |text: &str| lines("crates/a/src/x.rs", text).len();
        for text in [
            "/// It is not.\n",
            "//! What it is.\n",
            "    /// Whether it is.\n",
            "pub(crate) struct Found {\n",
            "enum Place {\n",
            "    pub(super) async fn look(&self) {\n",
            &format!("// is {}\n", PHRASES[1]),
        ] {
            assert_eq!(count(text), 1, "{text}");
        }
        for text in [
            "/// Returns true if it is.\n/// What it is not.\n",
            "// It is not.\n",
            "/// Items of it.\n",
            "struct FoundImage;\nlet Found = 1;\n",
            "fn look_up() {}\nx.look();\n",
        ] {
            assert_eq!(count(text), 0, "{text}");
        }
        assert_eq!(lines("docs/a.md", &format!("No.\nIt is {}.\n", PHRASES[0])), [2]);
    }

    #[test]
    fn parts_are_crates_and_directories() {
        let parts = ["crates/store/src/lib.rs", "xtask/src/main.rs", "README.md", "docs/decisions/1.md"].map(part);
        assert_eq!(parts, ["crates/store", "xtask", ".", "docs"]);
    }

    #[test]
    fn the_numbers_only_go_down() {
        let counted = ["a", "b", "a", "a"].map(|part| (part.to_owned(), "x.rs:1".to_owned()));
        assert_eq!(check(&counted, &[("a", 3), ("b", 1)]), Vec::<String>::new());
        assert_eq!(check(&counted, &[("a", 4), ("b", 1)]).len(), 1, "fewer");
        assert_eq!(check(&counted, &[("a", 3)]).len(), 1, "more");
    }
}
