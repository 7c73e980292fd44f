//! kubectl's JSONPath templates: `{.items[*].id}`, `{range .items[*]}{.id}{"\n"}{end}`, filters, slices, quoted text. Paths are those of
//! RFC 9535 but for the way names are written; `jsonpath-rust` parses and evaluates them. As in kubectl, a missing field is no error and
//! yields nothing, `$` and `@` are the current object, and no line end is added. Called by the parent module.

use jsonpath_rust::parser::errors::JsonPathError;
use jsonpath_rust::parser::model::{JpQuery, Segment};
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

/// A parsed template.
#[derive(Debug)]
pub(crate) struct Template(Vec<Node>);

#[derive(Debug)]
enum Node {
    Text(String),
    Path(Query),
    Range(Query, Vec<Node>),
}

/// A path below the current object.
#[derive(Debug)]
pub(crate) struct Query {
    path: JpQuery,
    /// The rest of the path after a leading `items`.
    of_items: Option<JpQuery>,
}

impl Template {
    /// Parses a template. A template without braces is a single path.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if !text.contains('{') && text.starts_with(['.', '$', '@', '[']) {
            return Ok(Self(vec![Node::Path(Query::parse(text)?)]));
        }
        let mut nodes = Vec::new();
        let mut open: Vec<(Query, Vec<Node>)> = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            nodes.push(Node::Text(before.to_owned()));
            let end = find_outside(after, |c, depth| c == '}' && depth == 0);
            let end = end.ok_or_else(|| format!("the brace of {{{after:?} is not closed"))?;
            let mut action = after[..end].trim();
            rest = &after[end + 1..];
            while !action.is_empty() {
                match next_word(&mut action) {
                    "range" => open.push((Query::parse(next_word(&mut action))?, std::mem::take(&mut nodes))),
                    "end" => {
                        let (query, outer) = open.pop().ok_or("{end} stands outside of a {range}")?;
                        let inner = std::mem::replace(&mut nodes, outer);
                        nodes.push(Node::Range(query, inner));
                    }
                    quoted if quoted.starts_with(['"', '\'']) => nodes.push(Node::Text(unquote(quoted)?)),
                    path => nodes.push(Node::Path(Query::parse(path)?)),
                }
            }
        }
        nodes.push(Node::Text(rest.to_owned()));
        if open.is_empty() { Ok(Self(nodes)) } else { Err("a {range} has no {end}".to_owned()) }
    }

    /// Returns the template's rendering of a value.
    pub(super) fn render(&self, value: &Value) -> String {
        let mut out = String::new();
        write(&self.0, value, true, &mut out);
        out
    }
}

fn write(nodes: &[Node], value: &Value, is_root: bool, out: &mut String) {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Path(query) => {
                let found: Vec<String> = query.find(value, is_root).into_iter().map(text_of).collect();
                out.push_str(&found.join(" "));
            }
            Node::Range(query, inner) => {
                for item in query.find(value, is_root) {
                    write(inner, item, false, out);
                }
            }
        }
    }
}

/// Returns a value as text: strings as they are, objects and lists as JSON.
pub(super) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Query {
    /// Parses a path.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parsed = rfc9535(text).and_then(|path| parse_json_path(&path).map_err(|error| reason(&error)));
        let path = parsed.map_err(|why| format!("{text:?}: {why}"))?;
        let rest = path.segments.split_first().filter(|(first, _)| **first == Segment::name("items"));
        let of_items = rest.map(|(_, rest)| JpQuery::new(rest.to_vec()));
        Ok(Self { path, of_items })
    }

    /// Returns the values that the path selects. At the root, `items` also selects the list of a document that has another name.
    pub(super) fn find<'v>(&self, value: &'v Value, is_root: bool) -> Vec<&'v Value> {
        let (path, value) = match (&self.of_items, list_in(value)) {
            (Some(rest), Some(list)) if is_root => (rest, list),
            _ => (&self.path, value),
        };
        // An error is a result that is no part of the document, which only a function has. No path ends with a function.
        js_path_process(path, value).unwrap_or_default().into_iter().map(|selected| selected.val).collect()
    }
}

/// Returns the reason of a parser's error in one line.
fn reason(error: &JsonPathError) -> String {
    match error {
        JsonPathError::PestError(error) => error.variant.message().into_owned(),
        other => other.to_string(),
    }
}

/// Returns the list of a document: itself, its `items`, or its only field that is a list.
pub(super) fn list_in(value: &Value) -> Option<&Value> {
    if value.is_array() {
        return Some(value);
    }
    if let Some(items) = value.get("items") {
        return Some(items);
    }
    let mut lists = value.as_object()?.values().filter(|field| field.is_array());
    let list = lists.next();
    list.filter(|_| lists.next().is_none())
}

/// Returns a path with its names and texts as RFC 9535 writes them: kubectl's names have no quotes, may contain `-` and `/`, and a
/// backslash takes the following character as it is (`.labels.app\.kubernetes\.io/name`).
fn rfc9535(path: &str) -> Result<String, String> {
    if !path.starts_with(['$', '@', '.', '[']) {
        return Err("a path begins with a dot".to_owned());
    }
    let mut out = "$".to_owned();
    let mut rest = path.strip_prefix(['$', '@']).unwrap_or(path);
    // Within brackets, a path is an operand of a filter.
    let mut depth = 0_usize;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' | '\'' => {
                let end = quoted_end(rest).ok_or("a quote is not closed")?;
                out.push_str(&literal(&unquote(&rest[..end])?));
                end
            }
            '.' => {
                let dots = if rest.starts_with("..") { ".." } else { "." };
                let (name, length) = name(&rest[dots.len()..], depth > 0);
                let after = &rest[dots.len() + length..];
                out.push_str(if dots == ".." { dots } else { "" });
                match name.as_str() {
                    "" if after.starts_with('[') || rest == "." => {}
                    "" => return Err("a name is empty".to_owned()),
                    "*" => out.push_str("[*]"),
                    name => out.push_str(&format!("[{}]", literal(name))),
                }
                dots.len() + length
            }
            c => {
                match c {
                    '[' | '(' => depth += 1,
                    ']' | ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                // A number is taken whole: the point in it begins no name.
                let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
                let length = number.max(c.len_utf8());
                out.push_str(&rest[..length]);
                length
            }
        };
        rest = &rest[length..];
    }
    Ok(out)
}

/// Returns the name at the start, and its length in the text.
fn name(text: &str, in_filter: bool) -> (String, usize) {
    let is_end = |c: char| ".[],$@{}".contains(c) || in_filter && (c.is_whitespace() || "=!<>&|()".contains(c));
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            c if is_end(c) => return (name, at),
            c => name.push(c),
        }
    }
    (name, text.len())
}

/// Returns a text in quotes. JSON's form is one of RFC 9535's.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// Splits off the first word: whitespace within brackets and quotes is part of it.
fn next_word<'t>(text: &mut &'t str) -> &'t str {
    let end = find_outside(text, |c, depth| c.is_whitespace() && depth == 0).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    *text = rest.trim_start();
    word
}

/// Returns the index after a quoted text at the start.
fn quoted_end(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Returns the index of the first wanted character outside of quotes; `is_wanted` also gets the number of brackets that are open before it.
fn find_outside(text: &str, is_wanted: impl Fn(char, usize) -> bool) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if is_wanted(c, depth) {
            return Some(at);
        }
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            '"' | '\'' => {
                at += quoted_end(&text[at..])?;
                continue;
            }
            '\\' => at += text[at + 1..].chars().next().map_or(0, char::len_utf8),
            _ => {}
        }
        at += c.len_utf8();
    }
    None
}

/// Returns the text between quotes, with Go's escapes. In a name, kubectl expects dots to be escaped as well.
fn unquote(quoted: &str) -> Result<String, String> {
    let wrong = || format!("{quoted} is not a text in quotes");
    if quoted_end(quoted) != Some(quoted.len()) {
        return Err(wrong());
    }
    let mut text = String::new();
    let mut chars = quoted[1..quoted.len() - 1].chars();
    while let Some(c) = chars.next() {
        let digits = match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => Ok('\n'),
            ('\\', Some('t')) => Ok('\t'),
            ('\\', Some('r')) => Ok('\r'),
            ('\\', Some('x')) => Err(2),
            ('\\', Some('u')) => Err(4),
            ('\\', Some(c @ ('\\' | '"' | '\'' | '.'))) => Ok(c),
            ('\\', _) => return Err(format!("{quoted} has an escape that is not known")),
            (c, _) => Ok(c),
        };
        text.push(match digits {
            Ok(c) => c,
            Err(count) => {
                let digits: String = chars.by_ref().take(count).collect();
                u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).ok_or_else(wrong)?
            }
        });
    }
    Ok(text)
}

#[cfg(test)]
#[path = "jsonpath_tests.rs"]
mod tests;
