//! Words that a reader of Kubernetes or containerd does not expect in comments, messages and names of Rust sources.
//!
//! Pure: finds the lines of one source. `words.rs` adds them to the numbers that may only fall.

use proc_macro2::{TokenStream, TokenTree};

use crate::counts::lines_without_tests;
use crate::tidy_rules::numbered;

/// Words that do not belong in a comment, a message or a name.
const WORDS: &[&str] = &["anew", "beside", "brought", "heard", "nobody", "somebody", "told", "whoever", "whom"];
/// More words that do not belong in a name.
const WORDS_OF_NAMES: &[&str] = &["came", "comes", "goes", "gone", "hear", "look", "tell", "went"];
/// Keywords before a name that an item defines.
const DEFINES: &[&str] = &["const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union"];

/// The lines of a source with such words: a line of comment once, a string of the product once, a name once.
pub(crate) fn lines(text: &str, is_test: bool) -> Vec<usize> {
    let mut found: Vec<usize> = numbered(text)
        .filter(|(_, line)| comment(line).is_some_and(|comment| has_word(comment, WORDS)))
        .map(|(number, _)| number)
        .collect();
    if let Ok(tokens) = text.parse::<TokenStream>() {
        let mut scan = Scan { product: if is_test { Vec::new() } else { lines_of_product(text) }, found: Vec::new() };
        scan.tokens(tokens);
        found.append(&mut scan.found);
    }
    found.sort_unstable();
    found
}

/// The comment of a line: the whole line, or its end.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("//")
        .or_else(|| line.split_once("; // ").or_else(|| line.split_once(", // ")).map(|(_, end)| end))
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

/// The numbers of the lines outside of test modules, in order.
fn lines_of_product(text: &str) -> Vec<usize> {
    // A line of the product is the same slice of the text.
    let kept: std::collections::BTreeSet<*const u8> = lines_without_tests(text).into_iter().map(str::as_ptr).collect();
    numbered(text).filter(|(_, line)| kept.contains(&line.as_ptr())).map(|(number, _)| number).collect()
}

struct Scan {
    product: Vec<usize>,
    found: Vec<usize>,
}

impl Scan {
    fn tokens(&mut self, tokens: TokenStream) {
        let mut defines = false;
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let line = token.span().start().line;
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    tokens.next_if(|next| matches!(next, TokenTree::Punct(punct) if punct.as_char() == '!'));
                    tokens.next_if(is_doc);
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let is_text = text.starts_with('"') || text.starts_with('r');
                    if is_text && self.product.binary_search(&line).is_ok() && has_word(&text, WORDS) {
                        self.found.push(line);
                    }
                }
                TokenTree::Ident(ident) => {
                    let word = ident.to_string();
                    if defines && has_part(&word) {
                        self.found.push(line);
                    }
                    defines = DEFINES.contains(&word.as_str());
                    continue;
                }
                TokenTree::Punct(_) => {}
            }
            defines = false;
        }
    }
}

/// Returns true for the brackets of a documentation attribute, which is the comment that was counted already.
fn is_doc(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(ident)) if ident == "doc")
}

#[cfg(test)]
mod tests {
    use super::lines;

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
