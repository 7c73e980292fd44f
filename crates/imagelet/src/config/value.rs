//! A value of a setting as it was written: the text of a flag or variable, or a node of the configuration file. Converts it into the
//! setting's type, or returns what is allowed. Knows no setting. Called by [`super::kind`].

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::GoDuration;
use jiff::SignedDuration;
pub(crate) use oci::show_bytes;
use oci::{Quantity, Secret, parse_bytes};

use manifest::yaml::Value;

/// A refused value: the text names what is allowed instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) String);

/// A value as it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raw<'a> {
    /// From a flag or a variable. Lists of paths are separated by colons, as in `PATH`.
    Text(&'a str),
    /// From the file in the directory `base`, which relative paths are resolved against.
    Node { value: &'a Value, base: &'a Path },
}

impl Raw<'_> {
    /// Reads `true` or `false`.
    pub(crate) fn boolean(self) -> Result<bool, Wrong> {
        let value = match self {
            Self::Text("true") => Some(true),
            Self::Text("false") => Some(false),
            Self::Text(_) => None,
            Self::Node { value: Value::Bool(value), .. } => Some(*value),
            Self::Node { .. } => None,
        };
        value.ok_or_else(|| Wrong("true or false".into()))
    }

    /// Reads a whole number within a range.
    pub(crate) fn count(self, range: RangeInclusive<usize>) -> Result<usize, Wrong> {
        let value = match self {
            Self::Text(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            Self::Text(_) => None,
            Self::Node { value: Value::Number(n), .. } => n.as_u64().and_then(|n| usize::try_from(n).ok()),
            Self::Node { .. } => None,
        };
        value
            .filter(|n| range.contains(n))
            .ok_or_else(|| Wrong(format!("a whole number from {} to {}", range.start(), range.end())))
    }

    /// Reads a whole number of any size and sign; the caller validates the range.
    pub(crate) fn integer(self) -> Result<i64, Wrong> {
        let value = match self {
            Self::Text(text) => text.parse().ok().filter(|_| !text.starts_with('+')),
            Self::Node { value: Value::Number(n), .. } => n.as_i64(),
            Self::Node { .. } => None,
        };
        value.ok_or_else(|| Wrong("a whole number".into()))
    }

    /// Reads any text.
    pub(crate) fn text(self, allowed: &str) -> Result<String, Wrong> {
        self.string().map(str::to_owned).ok_or_else(|| Wrong(allowed.to_owned()))
    }

    /// Reads texts, possibly none. Commas separate them in flags and variables.
    pub(crate) fn words(self) -> Result<Vec<String>, Wrong> {
        let words: Option<Vec<String>> = match self {
            Self::Text("") => Some(Vec::new()),
            Self::Text(text) => Some(text.split(',').map(str::to_owned).collect()),
            Self::Node { value: Value::List(nodes), base } => {
                nodes.iter().map(|node| Raw::Node { value: &node.value, base }.string().map(str::to_owned)).collect()
            }
            Self::Node { .. } => None,
        };
        words.ok_or_else(|| Wrong("a list of texts".into()))
    }

    /// Reads a number of bytes within a range: a whole number, or one with a Kubernetes suffix such as `64Gi`.
    pub(crate) fn bytes(self, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
        let value = match self {
            Self::Node { value: Value::Number(n), .. } => n.as_u64(),
            _ => self.string().and_then(parse_bytes),
        };
        value.filter(|n| range.contains(n)).ok_or_else(|| {
            let (from, to) = (show_bytes(*range.start()), show_bytes(*range.end()));
            Wrong(format!("a number of bytes such as 64Gi, from {from} to {to}"))
        })
    }

    /// Reads a duration in Go's spelling within a range.
    pub(crate) fn duration(self, range: RangeInclusive<Duration>) -> Result<Duration, Wrong> {
        self.string().and_then(GoDuration::parse_unsigned).filter(|d| range.contains(d)).ok_or_else(|| {
            let (from, to) = (show_duration(*range.start()), show_duration(*range.end()));
            Wrong(format!("a duration such as 90s or 2m30s, from {from} to {to}"))
        })
    }

    /// Reads a duration of either sign and at most `limit`; the caller validates the range.
    pub(crate) fn signed(self, limit: Duration) -> Result<SignedDuration, Wrong> {
        let (negative, rest) = match self.string() {
            Some(text) => text.strip_prefix('-').map_or((false, Some(text)), |rest| (true, Some(rest))),
            None => (false, None),
        };
        let value = rest.and_then(GoDuration::parse_unsigned).filter(|value| *value <= limit);
        let value = value.and_then(|value| SignedDuration::try_from(value).ok());
        value
            .map(|value| if negative { -value } else { value })
            .ok_or_else(|| Wrong(format!("a duration such as 90s or 2m30s, up to {}", show_duration(limit))))
    }

    /// Reads a map of texts. In flags and variables, commas separate pairs, and `separator` the two texts of a pair.
    pub(crate) fn pairs(self, separator: char) -> Result<Vec<(String, String)>, Wrong> {
        let pair = |text: &str| {
            let (key, value) = text.split_once(separator)?;
            Some((key.trim().to_owned(), value.trim().to_owned())).filter(|(key, _)| !key.is_empty())
        };
        let pairs: Option<Vec<(String, String)>> = match self {
            Self::Text("") => Some(Vec::new()),
            Self::Text(text) => text.split(',').map(pair).collect(),
            Self::Node { value: Value::Map(entries), base } => entries
                .iter()
                .map(|(key, node)| {
                    let value = Raw::Node { value: &node.value, base }.string().map(str::to_owned);
                    value.map(|value| (key.clone(), value))
                })
                .collect(),
            Self::Node { .. } => None,
        };
        pairs.ok_or_else(|| {
            Wrong(match self {
                Self::Text(_) => format!("pairs such as name{separator}value, separated by commas"),
                Self::Node { .. } => "a map of texts".into(),
            })
        })
    }

    /// Reads one of a few words.
    pub(crate) fn choice<T: Copy>(self, words: &[(&str, T)]) -> Result<T, Wrong> {
        let found = self.string().and_then(|text| words.iter().find(|(word, _)| *word == text));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Wrong(format!("one of {}", names.join(", ")))
        })
    }

    /// Reads a path that is not empty, and makes it absolute.
    pub(crate) fn path(self) -> Result<PathBuf, Wrong> {
        self.string().and_then(|text| self.absolute(text)).ok_or_else(|| Wrong("a path".into()))
    }

    /// Reads a path; `None` for an empty text.
    pub(crate) fn optional_path(self) -> Result<Option<PathBuf>, Wrong> {
        if self.string() == Some("") { Ok(None) } else { self.path().map(Some) }
    }

    /// Reads a number of bytes within a range, as a Kubernetes quantity.
    pub(crate) fn quantity(self, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
        let value = match self {
            Self::Node { value: Value::Number(n), .. } => n.as_u64(),
            _ => self
                .string()
                .and_then(|text| text.parse::<Quantity>().ok())
                .and_then(|quantity| u64::try_from(quantity.value()).ok()),
        };
        value.filter(|n| range.contains(n)).ok_or_else(|| {
            let (from, to) = (show_bytes(*range.start()), show_bytes(*range.end()));
            Wrong(format!("a number of bytes such as 10Mi, from {from} to {to}"))
        })
    }

    /// Reads headers of a request. In the file a map, whose values are texts or lists of them. A refused value is never shown.
    pub(crate) fn headers(self) -> Result<Vec<(String, Secret)>, Wrong> {
        let wrong = || {
            Wrong(match self {
                Self::Text(_) => "headers such as Authorization:Bearer…, separated by commas".into(),
                Self::Node { .. } => "a map of headers, each with its value or a list of them".into(),
            })
        };
        let header = |name: &str, value: &str| {
            let name = name.trim();
            let good =
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
            let fits = value.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
            (good && fits).then(|| (name.to_owned(), Secret::new(value.trim())))
        };
        let headers: Option<Vec<_>> = match self {
            Self::Text("") => Some(Vec::new()),
            Self::Text(text) => {
                text.split(',').map(|pair| pair.split_once(':').and_then(|(name, value)| header(name, value))).collect()
            }
            Self::Node { value: Value::Map(entries), .. } => {
                let values = |node: &'_ Value| match node {
                    Value::Text(text) => Some(vec![text.clone()]),
                    Value::List(list) => list
                        .iter()
                        .map(|node| if let Value::Text(text) = &node.value { Some(text.clone()) } else { None })
                        .collect(),
                    _ => None,
                };
                let each = entries.iter().map(|(name, node)| {
                    values(&node.value)?.iter().map(|value| header(name, value)).collect::<Option<Vec<_>>>()
                });
                each.collect::<Option<Vec<_>>>().map(|lists| lists.into_iter().flatten().collect())
            }
            Self::Node { .. } => None,
        };
        headers.ok_or_else(wrong)
    }

    /// Reads paths, at least one.
    pub(crate) fn paths(self) -> Result<Vec<PathBuf>, Wrong> {
        let paths: Option<Vec<PathBuf>> = match self {
            Self::Text(text) => text.split(':').map(|t| self.absolute(t)).collect(),
            Self::Node { value: Value::List(nodes), base } => {
                nodes.iter().map(|node| Raw::Node { value: &node.value, base }.path().ok()).collect()
            }
            Self::Node { .. } => None,
        };
        paths.filter(|p| !p.is_empty()).ok_or_else(|| {
            Wrong(match self {
                Self::Text(_) => "paths separated by colons".into(),
                Self::Node { .. } => "a list of paths".into(),
            })
        })
    }

    /// Reads a text that `parse` accepts.
    pub(crate) fn parsed<T, E: fmt::Display>(
        self,
        allowed: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Wrong> {
        let text = self.string().ok_or_else(|| Wrong(allowed.to_owned()))?;
        parse(text).map_err(|error| Wrong(format!("{allowed} ({error})")))
    }

    fn string(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Node { value: Value::Text(text), .. } => Some(text),
            Self::Node { .. } => None,
        }
    }

    fn absolute(&self, text: &str) -> Option<PathBuf> {
        if text.is_empty() {
            return None;
        }
        match self {
            Self::Text(_) => std::path::absolute(text).ok(),
            Self::Node { base, .. } => Some(base.join(text)),
        }
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

/// Returns the shortest of Go's spellings: `2m`, `1m30s`, `500ms`.
pub(crate) fn show_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let mut text = String::new();
    for (count, unit) in [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s"), (millis.into(), "ms")] {
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Returns the same as [`show_duration`], with a sign for a negative duration.
pub(crate) fn show_signed(duration: SignedDuration) -> String {
    let sign = if duration.is_negative() { "-" } else { "" };
    format!("{sign}{}", show_duration(duration.unsigned_abs()))
}

/// Returns a duration as Go prints it, and so the kubelet's messages: `2m0s`.
pub(crate) fn go_duration(duration: SignedDuration) -> String {
    let sign = if duration.is_negative() { "-" } else { "" };
    format!("{sign}{}", GoDuration::from_millis_of(duration.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_either_sign() {
        let cases =
            [("2m", "2m", "2m0s"), ("-1h", "-1h", "-1h0m0s"), ("1.5s", "1s500ms", "1.5s"), ("20ms", "20ms", "20ms")];
        for (text, shown, go) in cases {
            let value = Raw::Text(text).signed(Duration::MAX).expect(text);
            assert_eq!((show_signed(value).as_str(), go_duration(value).as_str()), (shown, go));
        }
        assert_eq!(go_duration(SignedDuration::ZERO), "0s");
        for text in ["", "-", "--1s", "2", "3h"] {
            assert!(Raw::Text(text).signed(Duration::from_secs(7200)).is_err(), "{text}");
        }
    }

    #[test]
    fn pairs_of_texts() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(Raw::Text("a<1, b<2%").pairs('<'), Ok(vec![pair("a", "1"), pair("b", "2%")]));
        assert_eq!(Raw::Text("").pairs('<'), Ok(Vec::new()));
        for bad in ["a", "<1", "a<1,,b<2"] {
            let allowed = "pairs such as name<value, separated by commas";
            assert_eq!(Raw::Text(bad).pairs('<'), Err(Wrong(allowed.into())), "{bad}");
        }
    }

    #[test]
    fn durations() {
        let cases = [
            ("2m", Some(120_000)),
            ("1m30s", Some(90_000)),
            ("500ms", Some(500)),
            ("1.5h", Some(5_400_000)),
            ("0", Some(0)),
            ("", None),
            ("2", None),
            ("2 m", None),
            ("-2m", None),
            ("2d", None),
            ("m", None),
            ("1e9s", None),
        ];
        for (text, want) in cases {
            assert_eq!(GoDuration::parse_unsigned(text), want.map(Duration::from_millis), "{text:?}");
        }
        for text in ["2m", "1m30s", "500ms", "1h1ms", "0s"] {
            assert_eq!(GoDuration::parse_unsigned(text).map(show_duration).as_deref(), Some(text));
        }
    }

    #[test]
    fn bytes_within_a_range() {
        assert_eq!(Raw::Node { value: &Value::Number(5.into()), base: Path::new("/") }.bytes(0..=9), Ok(5));
        assert!(Raw::Text("1Ki").bytes(0..=9).is_err());
    }

    /// Returns the only value of a list; a document of null would have none.
    fn inner(node: &manifest::yaml::Node) -> &Value {
        let Value::List(list) = &node.value else { panic!("a list") };
        &list[0].value
    }

    #[test]
    fn wrong_values_say_what_is_allowed() {
        let node = |text: &str| manifest::yaml::documents(&format!("[{text}]")).expect("YAML").remove(0);
        fn raw(node: &manifest::yaml::Node) -> Raw<'_> {
            Raw::Node { value: inner(node), base: Path::new("/etc/x") }
        }
        assert_eq!(raw(&node("3")).count(1..=8), Ok(3));
        for bad in ["0", "9", "-1", "1.5", "'3'", "true", "null"] {
            let allowed = "a whole number from 1 to 8";
            assert_eq!(raw(&node(bad)).count(1..=8), Err(Wrong(allowed.into())), "{bad}");
        }
        for bad in ["0", "+3", "", "0x2", "99999999999999999999999"] {
            assert!(Raw::Text(bad).count(1..=8).is_err(), "{bad}");
        }
        assert!(raw(&node("120")).duration(Duration::ZERO..=Duration::MAX).is_err());
        assert_eq!(raw(&node("\"certs.d\"")).path(), Ok("/etc/x/certs.d".into()));
        assert_eq!(raw(&node("[\"/a\", \"b\"]")).paths(), Ok(vec!["/a".into(), "/etc/x/b".into()]));
        for bad in ["[]", "[\"\"]", "\"a\"", "[1]"] {
            assert_eq!(raw(&node(bad)).paths(), Err(Wrong("a list of paths".into())), "{bad}");
        }
        assert_eq!(Raw::Text("/a:/b").paths(), Ok(vec!["/a".into(), "/b".into()]));
        assert!(Raw::Text("/a:").paths().is_err());
        assert_eq!(Raw::Text("b").choice(&[("a", 1), ("b", 2)]), Ok(2));
        assert_eq!(Raw::Text("c").choice(&[("a", 1), ("b", 2)]), Err(Wrong("one of a, b".into())));
    }
}
