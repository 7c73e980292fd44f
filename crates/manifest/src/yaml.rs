//! YAML (and JSON, which is YAML) as a tree whose every node knows its place, read with budgets and without duplicate
//! keys. Knows no meaning of any document. Called by the readers of manifests and of the configuration.
//!
//! A tree and not typed structures: so every error can name file, line, field and value, and other objects
//! need no types.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, MessageFormatter as _, Spanned, UserMessageFormatter};

/// The largest text that is read at all. Manifests and configurations are far below it.
pub const MAX_BYTES: u64 = 8 << 20;

/// A position in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Number of the line.
    pub line: u64,
    /// Number of the letter in its line.
    pub column: u64,
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The place at which it begins.
    pub position: Position,
    /// The value itself.
    pub value: Value,
}

/// Value of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`, `~`, or nothing at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number or a fraction.
    Number(serde_json::Number),
    /// Text, quoted or not.
    Text(String),
    /// The items in their order.
    List(Vec<Node>),
    /// The entries in their order, each key once.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Returns the entry of a map; a null entry counts as absent, as in Kubernetes.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(k, _)| k == key).map(|(_, node)| node).filter(|node| node.value != Value::Null)
    }
}

impl Node {
    /// Returns the node of this path (`spec.containers[1].image`), or its last existing parent.
    pub fn at(&self, path: &str) -> &Self {
        let (step, rest) = match path.strip_prefix('[') {
            Some(path) => path.split_once(']').unwrap_or((path, "")),
            None => path.split_at(path.find(['.', '[']).unwrap_or(path.len())),
        };
        let next = match &self.value {
            Value::List(list) => step.parse::<usize>().ok().and_then(|index| list.get(index)),
            _ => self.get(step),
        };
        next.map_or(self, |next| next.at(rest.strip_prefix('.').unwrap_or(rest)))
    }
}

impl Value {
    /// Name of the type, without the value.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// The value in one line, cut where it is long.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Text(text) if text.chars().count() > 60 => {
                write!(f, "{:?}…", text.chars().take(60).collect::<String>())
            }
            Self::Text(text) => write!(f, "{text:?}"),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("a map"),
        }
    }
}

/// Failure to parse a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// The place of the fault, where the parser knows it.
    pub position: Option<Position>,
    /// Message in one line, without the place.
    pub message: String,
}

/// Stack of the thread that parses. A level of nesting takes up to 30 KiB of it in a build without optimisation, and
/// there may be [`MAX_DEPTH`] of them: more than the stacks of other threads have.
const STACK_BYTES: usize = 16 << 20;
/// Deepest nesting that is read.
const MAX_DEPTH: usize = 64;

/// Returns every document of `text` that is not empty, in order.
pub fn documents(text: &str) -> Result<Vec<Node>, YamlError> {
    let failed = |message: &str| YamlError { position: None, message: message.to_owned() };
    std::thread::scope(|scope| {
        let parser = std::thread::Builder::new()
            .name("yaml".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || serde_saphyr::from_multiple_with_options(text, options()).map_err(|e| describe(&e)))
            .map_err(|error| failed(&format!("no thread to parse it: {error}")))?;
        parser.join().unwrap_or_else(|_| Err(failed("the YAML parser panicked on it")))
    })
}

/// Parses a single document as JSON, for readers that have types of their own. The error is a message.
pub fn json(text: &str) -> Result<serde_json::Value, String> {
    let at = |e: YamlError| e.position.map_or(e.message.clone(), |p| format!("line {}: {}", p.line, e.message));
    let mut documents = documents(text).map_err(at)?;
    match (documents.len(), documents.pop()) {
        (1, Some(node)) => Ok(node.value.into()),
        (count, _) => Err(format!("{count} documents instead of one")),
    }
}

/// Parses every document that is not empty as JSON. The error is a message, and does not quote a text that is not YAML.
pub fn values(bytes: &[u8]) -> Result<Vec<serde_json::Value>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let at = |e: YamlError| e.position.map_or(e.message.clone(), |p| format!("line {}: {}", p.line, e.message));
    Ok(documents(text).map_err(at)?.into_iter().map(|node| node.value.into()).collect())
}

impl From<Value> for serde_json::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(value) => Self::Number(value),
            Value::Text(value) => Self::String(value),
            Value::List(list) => Self::Array(list.into_iter().map(|node| node.value.into()).collect()),
            Value::Map(map) => Self::Object(map.into_iter().map(|(key, node)| (key, node.value.into())).collect()),
        }
    }
}

/// Limits that no honest manifest meets: a chart of operators with all of their kinds has 200,000 nodes. Comments are not kept:
/// their buffer is small, and a long comment in front of a list entry would count as an attack.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 1_200_000,
            max_nodes: 600_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: 1_024,
            max_recorded_anchor_events: 100_000,
            max_recorded_anchor_bytes: 1 << 20,
            max_total_scalar_bytes: 8 << 20,
            max_merge_keys: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 16,
        },
        emit_comments: false,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn describe(error: &Error) -> YamlError {
    let error = error.without_snippet();
    let position = error.location().map(|at| Position { line: at.line(), column: at.column() }).filter(|p| p.line > 0);
    let message = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key {key:?} stands twice"),
        Error::Budget { .. } => "too large, too deep, or expands to too much".to_owned(),
        other => UserMessageFormatter.format_message(other).into_owned(),
    };
    // The parser's message may have several lines.
    YamlError { position, message: message.split_whitespace().collect::<Vec<_>>().join(" ") }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        let position = Position { line: spanned.referenced.line(), column: spanned.referenced.column() };
        Ok(Self { position, value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = access.next_element()? {
            list.push(node);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = access.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, path: &[&str]) -> u64 {
        let documents = documents(text).expect("parses");
        path.iter().fold(&documents[0], |node, key| node.get(key).expect("present")).position.line
    }

    #[test]
    fn documents_with_their_lines() {
        let got = documents("# head\na: 1\n---\n---\n# long\nb: 2\n").expect("parses");
        assert_eq!(got.iter().map(|d| d.position.line).collect::<Vec<_>>(), [2, 6]);
        assert!(documents("").expect("parses").is_empty());
        assert!(documents("---\n# nothing\n---\n").expect("parses").is_empty());
        assert_eq!(line("a:\n  b:\n    c: x\n", &["a", "b", "c"]), 3);
    }

    #[test]
    fn scalars_keep_their_types() {
        let got = documents("{a: 1, b: '1', c: yes, d: true, e: ~, f: 1.5, g: [x], h: 0o17}").expect("parses");
        let Value::Map(entries) = &got[0].value else { panic!("a map") };
        let shown: Vec<String> = entries.iter().map(|(k, n)| format!("{k}={}", n.value)).collect();
        assert_eq!(shown, ["a=1", "b=\"1\"", "c=\"yes\"", "d=true", "e=null", "f=1.5", "g=a list", "h=15"]);
        assert!(got[0].get("e").is_none());
    }

    #[test]
    fn json_is_yaml_even_with_tabs_and_on_one_long_line() {
        let got = documents("{\n\t\"a\": [\n\t\t1,\n\t\t2\n\t],\n\t\"b\": \"x\\u00e9\\/\"\n}\n").expect("parses");
        assert_eq!(got[0].get("b").expect("b").value, Value::Text("xé/".into()));
        let long: Vec<String> = (0..2000).map(|n| format!("word{n}")).collect();
        let text = serde_json::json!({"a": {"b": long, "c": "x".repeat(5000)}, "d": "y"}).to_string();
        assert_eq!(documents(&text).expect("parses")[0].get("d").expect("d").value, Value::Text("y".into()));
    }

    #[test]
    fn one_document_becomes_json() {
        let got = json("a: [1, x, true, ~, 1.5]\nb: {c: d}\n").expect("parses");
        assert_eq!(got, serde_json::json!({"a": [1, "x", true, null, 1.5], "b": {"c": "d"}}));
        assert_eq!(json("a: 1\n---\nb: 2\n"), Err("2 documents instead of one".to_owned()));
        assert_eq!(json("a: 1\na: 2\n"), Err("line 2: the key \"a\" stands twice".to_owned()));
    }

    #[test]
    fn anchors_and_merges_work() {
        let got = documents("base: &b {image: x}\none:\n  <<: *b\n  name: n\n").expect("parses");
        let one = got[0].get("one").expect("one");
        assert_eq!(one.get("image").expect("merged").value, Value::Text("x".into()));
    }

    #[test]
    fn errors_say_where() {
        let error = documents("a: 1\nb: [1, 2\n").expect_err("refused");
        assert!(error.position.is_some_and(|p| p.line >= 2), "{error:?}");
        let error = documents("a: 1\nb: 2\na: 3\n").expect_err("refused");
        assert_eq!(error.position.map(|p| p.line), Some(3), "{error:?}");
        assert_eq!(error.message, "the key \"a\" stands twice");
    }

    #[test]
    fn many_comments_are_no_attack() {
        let comments = "  # a line of prose\n".repeat(200);
        let got = documents(&format!("a:\n{comments}  - 1\n{comments}  - 2\n")).expect("parses");
        assert!(matches!(&got[0].get("a").expect("a").value, Value::List(l) if l.len() == 2));
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let line = vec![format!("*a{}", n - 1); 10].join(", ");
            text.push_str(&format!("a{n}: &a{n} [{line}]\n"));
        }
        assert!(documents(&text).is_err());
    }

    #[test]
    fn deep_flow_lists_are_refused() {
        assert!(documents(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn deep_block_lists_are_refused() {
        assert!(documents(&"- ".repeat(100_000)).is_err());
    }

    #[test]
    fn deep_maps_are_refused() {
        assert!(documents(&"{a: ".repeat(100_000)).is_err());
        let block: String = (0..5000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert!(documents(&block).is_err());
    }

    #[test]
    fn what_is_deep_but_allowed_fits_the_stack() {
        let block: String = (0..60).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert_eq!(documents(&format!("{block}{}b\n", " ".repeat(60))).expect("parses").len(), 1);
        assert!(documents(&format!("{}x{}", "[".repeat(60), "]".repeat(60))).is_ok());
    }
}
