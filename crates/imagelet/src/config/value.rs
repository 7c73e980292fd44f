//! A value of a setting as it was written: the text of a flag or variable, or a node of the configuration file. Converts it into the JSON
//! value that the setting's type reads. Called by [`super::setting`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::GoDuration;
use manifest::yaml::Value as Yaml;
use serde_json::{Map, Value};

use super::flag::Empty;

/// A refused value: the text names what is allowed instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) String);

/// Spelling of a setting.
pub(super) struct Shape<'a> {
    /// The type in the JSON schema, if there is one.
    pub(super) kind: Option<&'a str>,
    /// True for a path or a list of paths.
    pub(super) is_path: bool,
    /// Separator of the values of a list in a flag.
    pub(super) separator: char,
    /// Meaning of an empty text.
    pub(super) empty: Empty,
    /// Description of the allowed values.
    pub(super) allowed: &'a str,
}

/// A value as it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raw<'a> {
    /// Text of a flag or a variable. Lists of paths are separated by colons, as in `PATH`.
    Text(&'a str),
    /// Node of the file in the directory `base`, against which relative paths are resolved.
    Node { value: &'a Yaml, base: &'a Path },
}

impl Raw<'_> {
    /// Returns the JSON value of a setting that is written in this way. Paths are absolute, and an empty text is null where it unsets the value.
    pub(super) fn read(self, shape: &Shape<'_>) -> Result<Value, Wrong> {
        let kind = shape.kind;
        let value = match kind {
            Some("boolean") => self.boolean(),
            Some("integer") => self.integer(),
            Some("array") => self.list(shape),
            Some("object") => self.map(),
            // Other than numbers of bytes, these are texts.
            _ => match self {
                Self::Node { value: Yaml::Number(number), .. } if kind.is_none() => Some(number.clone().into()),
                _ => self.text(shape),
            },
        };
        value.ok_or_else(|| {
            Wrong(match (self, kind) {
                (Self::Text(_), Some("array")) if shape.is_path => "paths separated by colons".to_owned(),
                (Self::Text(_), Some("object")) => "pairs such as name<value, separated by commas".to_owned(),
                (Self::Node { .. }, Some("object")) => "a map of texts".to_owned(),
                _ => shape.allowed.to_owned(),
            })
        })
    }

    fn boolean(self) -> Option<Value> {
        match self {
            Self::Text("true") => Some(true.into()),
            Self::Text("false") => Some(false.into()),
            Self::Node { value: Yaml::Bool(value), .. } => Some((*value).into()),
            _ => None,
        }
    }

    fn integer(self) -> Option<Value> {
        let number = match self {
            Self::Text(text) => text.parse::<i64>().ok().filter(|_| !text.starts_with('+')),
            Self::Node { value: Yaml::Number(number), .. } => number.as_i64(),
            Self::Node { .. } => None,
        };
        number.map(Value::from)
    }

    fn text(self, shape: &Shape<'_>) -> Option<Value> {
        match self.string()? {
            "" if shape.empty != Empty::Hidden => Some(Value::Null),
            text if shape.is_path => self.absolute(text),
            text => Some(text.into()),
        }
    }

    /// Reads a list of texts. In flags and variables, a separator is between them.
    fn list(self, shape: &Shape<'_>) -> Option<Value> {
        let item =
            |raw: Raw<'_>| if shape.is_path { raw.absolute(raw.string()?) } else { raw.string().map(Value::from) };
        let list: Vec<Value> = match self {
            Self::Text("") if !shape.is_path => Vec::new(),
            Self::Text(text) => text.split(shape.separator).map(|text| item(Raw::Text(text))).collect::<Option<_>>()?,
            Self::Node { value: Yaml::List(nodes), base } => {
                nodes.iter().map(|node| item(Raw::Node { value: &node.value, base })).collect::<Option<_>>()?
            }
            Self::Node { .. } => return None,
        };
        (!list.is_empty() || !shape.is_path).then_some(Value::Array(list))
    }

    /// Reads a map of texts. In flags and variables, commas separate pairs, and `<` the two texts of a pair.
    fn map(self) -> Option<Value> {
        let pair = |text: &str| {
            let (key, value) = text.split_once('<')?;
            Some((key.trim().to_owned(), value.trim().into())).filter(|(key, _)| !key.is_empty())
        };
        let pairs: Option<Map<String, Value>> = match self {
            Self::Text("") => Some(Map::new()),
            Self::Text(text) => text.split(',').map(pair).collect(),
            Self::Node { value: Yaml::Map(entries), base } => {
                let value = |node| Raw::Node { value: node, base }.string().map(Value::from);
                entries.iter().map(|(key, node)| Some((key.clone(), value(&node.value)?))).collect()
            }
            Self::Node { .. } => None,
        };
        pairs.map(Value::Object)
    }

    /// Returns the absolute path of a text; `None` if it is empty.
    pub(super) fn path(self) -> Option<PathBuf> {
        self.absolute(self.string()?).and_then(|path| Some(path.as_str()?.into()))
    }

    /// Returns true for this duration in Go's spelling.
    pub(super) fn is_duration(self, duration: Duration) -> bool {
        self.string().and_then(GoDuration::parse_unsigned) == Some(duration)
    }

    /// Returns true for this number.
    pub(super) fn is_number(self, number: i64) -> bool {
        self.integer() == Some(number.into())
    }

    fn string(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Node { value: Yaml::Text(text), .. } => Some(text),
            Self::Node { .. } => None,
        }
    }

    fn absolute(&self, text: &str) -> Option<Value> {
        if text.is_empty() {
            return None;
        }
        let path = match self {
            Self::Text(_) => std::path::absolute(text).ok()?,
            Self::Node { base, .. } => base.join(text),
        };
        serde_json::to_value(path).ok()
    }
}

impl fmt::Display for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Node { value, .. } => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::of_field;
    use crate::config::spelling::without_secrets;

    /// Reads the value of a setting of each kind.
    fn read(field: &str, raw: Raw<'_>) -> Result<Value, String> {
        raw.read(&of_field(field).expect("a setting").shape()).map_err(|wrong| wrong.0)
    }

    /// Returns the only value of a list; a document of null would have none.
    fn inner(node: &manifest::yaml::Node) -> &Yaml {
        let Yaml::List(list) = &node.value else { panic!("a list") };
        &list[0].value
    }

    #[test]
    fn texts_and_nodes_become_values() {
        let cases = [
            ("seccompDefault", "true", "true"),
            ("maxPods", "7", "7"),
            ("maxPods", "-1", "-1"),
            ("clusterDomain", "a", "\"a\""),
            ("pullMemory", "5", "5"),
            ("pullMemory", "1Mi", "\"1Mi\""),
            ("root", "sub", "\"/etc/x/sub\""),
            ("resolvConf", "\"\"", "null"),
            ("clusterDNS", "[a, b]", "[\"a\",\"b\"]"),
            ("clusterDNS", "[]", "[]"),
            ("registryConfigPaths", "[/a, b]", "[\"/a\",\"/etc/x/b\"]"),
            ("evictionHard", "{b: 1%, a: x}", "{\"b\":\"1%\",\"a\":\"x\"}"),
        ];
        for (field, text, want) in cases {
            let node = manifest::yaml::documents(&format!("[{text}]")).expect("YAML").remove(0);
            let value = read(field, Raw::Node { value: inner(&node), base: Path::new("/etc/x") }).expect(text);
            assert_eq!(value.to_string(), want, "{field}: {text}");
        }
        let cases = [
            ("clusterDNS", "a,b", "[\"a\",\"b\"]"),
            ("clusterDNS", "", "[]"),
            ("registryConfigPaths", "/a:/b", "[\"/a\",\"/b\"]"),
            ("evictionHard", "a<1, b<2%", "{\"a\":\"1\",\"b\":\"2%\"}"),
            ("evictionHard", "", "{}"),
            ("imageServiceEndpoint", "", "null"),
        ];
        for (field, text, want) in cases {
            assert_eq!(read(field, Raw::Text(text)).expect(text).to_string(), want, "{field}: {text}");
        }
    }

    #[test]
    fn wrong_values_say_what_is_allowed() {
        let cases: [(&str, &[&str], &str); 5] = [
            ("seccompDefault", &["1", "'true'", "null"], "true or false"),
            ("maxPods", &["1.5", "'3'", "true", "null"], "a whole number"),
            ("clusterDomain", &["1", "[a]", "null"], "a domain"),
            ("registryConfigPaths", &["[]", "['']", "a", "[1]"], "a list of paths"),
            ("evictionHard", &["a", "{a: 5}", "null"], "a map of texts"),
        ];
        for (field, texts, allowed) in cases {
            for text in texts {
                let node = manifest::yaml::documents(&format!("[{text}]")).expect("YAML").remove(0);
                let got = read(field, Raw::Node { value: inner(&node), base: Path::new("/") });
                assert_eq!(got, Err(allowed.to_owned()), "{field}: {text}");
            }
        }
        for (field, text, allowed) in [
            ("maxPods", "+3", "a whole number"),
            ("maxPods", "99999999999999999999999", "a whole number"),
            ("root", "", "a path"),
            ("registryConfigPaths", "/a:", "paths separated by colons"),
            ("evictionHard", "a", "pairs such as name<value, separated by commas"),
            ("evictionHard", "a<1,,b<2", "pairs such as name<value, separated by commas"),
        ] {
            assert_eq!(read(field, Raw::Text(text)), Err(allowed.to_owned()), "{field}: {text}");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (text, want) in [
            ("https://config.example/pods", "https://config.example/pods"),
            ("https://me:secret@config.example/pods", "https://me:xxxxx@config.example/pods"),
            ("https://config.example/pods?token=secret&node=edge", "https://config.example/pods?xxxxx"),
            ("https://me:secret@config.example/?secret", "https://me:xxxxx@config.example/?xxxxx"),
        ] {
            assert_eq!(without_secrets(text), want);
        }
    }
}
