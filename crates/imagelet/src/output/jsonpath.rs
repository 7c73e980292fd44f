//! kubectl's JSONPath templates: `{.items[*].id}`, `{range .items[*]}{.id}{"\n"}{end}`, filters, slices, quoted text. Paths are translated
//! into those of RFC 9535, which a library evaluates. As in kubectl, a missing field is no error and yields nothing, `$` and `@` are the
//! current object, and no line end is added. Called by the parent module.

use serde_json::Value;
use serde_json_path::JsonPath;

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
    path: JsonPath,
    /// The rest of the path after a leading `items`.
    of_items: Option<String>,
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
                let end = find_outside(action, |c, depth| c.is_whitespace() && depth == 0).unwrap_or(action.len());
                let (word, others) = action.split_at(end);
                action = others.trim_start();
                match word {
                    "range" => {
                        let end = find_outside(action, |c, depth| c.is_whitespace() && depth == 0);
                        let (path, others) = action.split_at(end.unwrap_or(action.len()));
                        action = others.trim_start();
                        open.push((Query::parse(path)?, std::mem::take(&mut nodes)));
                    }
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
        let segments = translate(text).map_err(|why| format!("{text:?}: {why}"))?;
        let path = compile(&segments.concat()).map_err(|why| format!("{text:?}: {why}"))?;
        let of_items = segments.split_first().filter(|(first, _)| *first == "['items']");
        Ok(Self { path, of_items: of_items.map(|(_, rest)| rest.concat()) })
    }

    /// Returns the values that the path selects. At the root, `items` also selects the list of a document that has another name.
    pub(super) fn find<'v>(&self, value: &'v Value, is_root: bool) -> Vec<&'v Value> {
        let list = list_in(value).filter(|_| is_root);
        if let (Some(rest), Some(list)) = (&self.of_items, list) {
            return compile(rest).map(|path| path.query(list).all()).unwrap_or_default();
        }
        self.path.query(value).all()
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

fn compile(segments: &str) -> Result<JsonPath, String> {
    JsonPath::parse(&format!("${segments}")).map_err(|error| error.to_string())
}

/// Translates a path into segments of RFC 9535.
fn translate(path: &str) -> Result<Vec<String>, String> {
    let mut segments = Vec::new();
    let mut rest = path.strip_prefix(['$', '@']).unwrap_or(path);
    if !path.starts_with(['$', '@', '.', '[']) {
        return Err("a path begins with a dot".to_owned());
    }
    while !rest.is_empty() {
        let (descent, after) = match (rest.strip_prefix(".."), rest.strip_prefix('.')) {
            (Some(after), _) => ("..", after),
            (None, Some("")) => break,
            (None, Some(after)) => ("", after),
            (None, None) if rest.starts_with('[') => ("", rest),
            (None, None) => return Err(format!("{rest:?} stands behind a bracket without a dot")),
        };
        let segment;
        (segment, rest) = if after.starts_with('[') { bracket(after)? } else { name(after)? };
        segments.push(format!("{descent}{segment}"));
    }
    Ok(segments)
}

/// Splits off a name up to the next dot or bracket. A backslash quotes the following character: `.labels.app\.kubernetes\.io/name`.
fn name(text: &str) -> Result<(String, &str), String> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => {
                end = at;
                break;
            }
            ']' | ',' | '$' | '@' | '{' | '}' => return Err(format!("{c:?} cannot stand in a name: write ['…']")),
            c => name.push(c),
        }
    }
    match name.as_str() {
        "" => Err("a name is empty".to_owned()),
        "*" => Ok(("[*]".to_owned(), &text[end..])),
        name => Ok((format!("[{}]", literal(name)), &text[end..])),
    }
}

/// Splits off a pair of brackets: `[*]`, `[0]`, `[-1:]`, `['a','b']`, `[?(@.a=="b")]`.
fn bracket(text: &str) -> Result<(String, &str), String> {
    let inside = &text[1..];
    let end = find_outside(inside, |c, depth| c == ']' && depth == 0).ok_or("a bracket is not closed")?;
    let (inside, rest) = (inside[..end].trim(), &inside[end + 1..]);
    if let Some(condition) = inside.strip_prefix('?') {
        return Ok((format!("[?{}]", filter(condition)?), rest));
    }
    let mut selectors = Vec::new();
    let mut left = inside;
    loop {
        let end = find_outside(left, |c, _| c == ',').unwrap_or(left.len());
        let selector = left[..end].trim();
        let is_number = !selector.is_empty() && selector.chars().all(|c| c.is_ascii_digit() || "-:".contains(c));
        selectors.push(match selector {
            "*" => "*".to_owned(),
            quoted if quoted.starts_with(['\'', '"']) => literal(&unquote(quoted)?),
            number if is_number => number.to_owned(),
            other => return Err(format!("{other:?} is neither an index, a slice nor a quoted name")),
        });
        if end == left.len() {
            return Ok((format!("[{}]", selectors.join(",")), rest));
        }
        left = &left[end + 1..];
    }
}

/// Translates a condition with its paths and texts.
fn filter(condition: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = condition;
    while let Some(c) = rest.chars().next() {
        let end = match c {
            '"' | '\'' => {
                let end = quoted_end(rest).unwrap_or(rest.len());
                out.push_str(&literal(&unquote(&rest[..end])?));
                end
            }
            '@' | '$' => {
                let stops = |c: char, depth: usize| depth == 0 && (c.is_whitespace() || "=!<>&|)".contains(c));
                let end = find_outside(rest, stops).unwrap_or(rest.len());
                out.push(c);
                out.push_str(&translate(&rest[..end])?.concat());
                end
            }
            c => {
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[end..];
    }
    Ok(out)
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

/// Returns a text as a literal of RFC 9535.
fn literal(text: &str) -> String {
    let escaped = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if c < ' ' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("'{}'", text.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
#[path = "jsonpath_tests.rs"]
mod tests;
