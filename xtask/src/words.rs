//! Words and phrases that do not belong in the tree. `tidy.rs` reports each place as an error. CONTRIBUTING.md has the glossary.

use crate::counts::{after_visibility, type_name};
use crate::tidy_rules::numbered;

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
}
