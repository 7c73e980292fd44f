//! Words that a reader of Kubernetes or containerd does not expect in documents, and in comments, messages and names of Rust sources.
//!
//! Pure: finds the lines of one file. Called by `tidy.rs`.

use std::collections::BTreeSet;

use crate::counts::lines_without_tests;
use crate::tidy_rules::{Finding, numbered};

/// Words that do not belong in a comment, a message or a name. Put together so that this file does not hold them.
const WORDS: &[&str] = &[
    concat!("an", "ew"),
    concat!("bes", "ide"),
    concat!("bro", "ught"),
    concat!("he", "ard"),
    concat!("nobo", "dy"),
    concat!("somebo", "dy"),
    concat!("to", "ld"),
    concat!("who", "ever"),
    concat!("wh", "om"),
];
/// More words that do not belong in a name.
const WORDS_OF_NAMES: &[&str] = &["came", "comes", "goes", "gone", "hear", "look", "tell", "went"];
/// Keywords before a name that an item defines.
const DEFINES: &[&str] = &["const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union"];

/// The lines of a source with such words: a line of comment once, a line of the product with such a string once, a name once.
pub(crate) fn lines(text: &str, is_test: bool) -> Vec<usize> {
    let product = if is_test { BTreeSet::new() } else { lines_of_product(text) };
    let mut found = Vec::new();
    let mut in_string = false;
    for (number, line) in numbered(text) {
        let whole_comment = !in_string && line.trim_start().starts_with("//");
        if whole_comment {
            found.extend(has_word(line, WORDS).then_some(number));
            continue;
        }
        let parts = Parts::of(line, in_string);
        in_string = parts.in_string;
        found.extend(has_word(&parts.comment, WORDS).then_some(number));
        found.extend((product.contains(&number) && has_word(&parts.strings, WORDS)).then_some(number));
        let defined = parts.code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
        let defined: Vec<&str> = defined.collect();
        let names = defined.windows(2).filter(|pair| DEFINES.contains(&pair[0]) && !DEFINES.contains(&pair[1]));
        found.extend(names.filter(|pair| has_part(pair[1])).map(|_| number));
    }
    found
}

/// Directories of documents that keep the words of their time.
const RECORDS: &[&str] = &["docs/decisions/"];
/// Documents with sentences of other sources, whose words are counted in these, and with names of tests.
const FROM_SOURCES: &[&str] = &["docs/configuration.md", "docs/upstream-cases.md"];

/// For documents: the prose has no such word. Code in backticks and in fences is not prose.
pub(crate) fn document(name: &str, text: &str) -> Vec<Finding> {
    if RECORDS.iter().any(|directory| name.starts_with(directory)) || FROM_SOURCES.contains(&name) {
        return Vec::new();
    }
    let mut fenced = false;
    let mut found = Vec::new();
    for (number, line) in numbered(text) {
        fenced ^= line.trim_start().starts_with("```");
        let prose: String = line.split('`').step_by(2).collect();
        if let Some(word) = WORDS.iter().find(|word| !fenced && has_word(&prose, &[word])) {
            found.push(Finding::error(Some(number), format!("{word:?}: see the table of words in CONTRIBUTING.md")));
        }
    }
    found
}

/// The parts of a line.
#[derive(Default)]
struct Parts {
    code: String,
    strings: String,
    comment: String,
    /// A string continues on the next line.
    in_string: bool,
}

impl Parts {
    /// Takes a line apart. `in_string`: the line begins within a string. Raw strings with a quotation mark inside are taken for two.
    fn of(line: &str, in_string: bool) -> Self {
        let mut parts = Self { in_string, ..Self::default() };
        let mut rest = line.chars().peekable();
        while let Some(c) = rest.next() {
            match (parts.in_string, c) {
                (true, '\\') => {
                    rest.next();
                    parts.strings.push(' ');
                }
                (true, '"') => parts.in_string = false,
                (true, other) => parts.strings.push(other),
                (false, '\'') if rest.peek() == Some(&'"') => {
                    // A character literal.
                    rest.next();
                }
                (false, '"') => {
                    parts.in_string = true;
                    parts.strings.push(' ');
                }
                (false, '/') if rest.peek() == Some(&'/') => {
                    parts.comment = rest.collect();
                    break;
                }
                (false, other) => parts.code.push(other),
            }
        }
        parts
    }
}

fn has_word(text: &str, words: &[&str]) -> bool {
    text.split(|c: char| !c.is_alphabetic()).any(|word| words.contains(&word.to_lowercase().as_str()))
}

/// Returns true if a part of a name is such a word; parts are separated by underscores and capitals.
fn has_part(name: &str) -> bool {
    let mut spaced = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            spaced.push('_');
        }
        spaced.push(c);
    }
    has_word(&spaced, WORDS) || has_word(&spaced, WORDS_OF_NAMES)
}

/// The numbers of the lines outside of test modules.
fn lines_of_product(text: &str) -> BTreeSet<usize> {
    // A line of the product is the same slice of the text.
    let kept: BTreeSet<*const u8> = lines_without_tests(text).into_iter().map(str::as_ptr).collect();
    numbered(text).filter(|(_, line)| kept.contains(&line.as_ptr())).map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::{document, lines};

    #[test]
    fn words_are_found_in_the_prose_of_documents() {
        let word = concat!("nobo", "dy");
        let found = |name: &str, text: &str| -> Vec<usize> {
            document(name, text).into_iter().filter_map(|finding| finding.line).collect()
        };
        let text = format!("A page.\n| {word} | `{word}` |\n`{word}` here\n```\n{word}\n```\n{word}'s file\n");
        assert_eq!(found("docs/a.md", &text), [2, 7]);
        assert_eq!(found("README.md", &text), [2, 7]);
        assert_eq!(found("docs/decisions/0001-a.md", &text), Vec::<usize>::new());
        assert_eq!(found("docs/configuration.md", &text), Vec::<usize>::new());
    }

    #[test]
    fn words_are_found_in_comments_messages_and_names() {
        let word = concat!("nobo", "dy");
        for text in [
            format!("/// Is for {word}.\nfn f() {{}}\n"),
            format!("//! {word} calls it.\n"),
            format!("fn f() {{ g(1); // {word}\n}}\n"),
            format!("const TEXT: &str = \"{word} was there\";\n"),
            format!("const TEXT: &str = \"the first line \\\n    {word}\";\n"),
            format!("fn {word}_else() {{}}\n"),
            "struct LayerCame;\n".to_owned(),
            format!("m! {{ struct X {{ }} fn is_{word}() {{}} }}\n"),
        ] {
            assert_eq!(lines(&text, false).len(), 1, "{text}");
        }
        for text in [
            format!("fn f() {{ let {word} = 1; }}\n"),
            format!("fn f() {{ x.{word}(); }}\n"),
            format!("#[cfg(test)]\nmod tests {{\n    const TEXT: &str = \"{word}\";\n}}\n"),
            "fn lookup() {}\nstruct Lookup;\n".to_owned(),
        ] {
            assert_eq!(lines(&text, false), Vec::<usize>::new(), "{text}");
        }
        assert_eq!(lines(&format!("const TEXT: &str = \"{word}\";\n"), true), Vec::<usize>::new());
    }
}
