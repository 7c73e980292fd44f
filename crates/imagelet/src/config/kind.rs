//! The kinds of values that settings have: how each is parsed, how it is shown, and its placeholder in the help text. Called through
//! [`super::declare`].

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use oci::Secret;
use serde::Serialize;
use serde_json::{Value, json};

use super::value::{Raw, Wrong, show_bytes, show_duration, show_signed};

/// The kubelet's names for [`image_manager::VerificationPolicy`].
pub(crate) const POLICIES: [&str; 4] =
    ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"];

/// Largest number that the kubelet's integers can hold.
pub(crate) const MOST: i64 = i32::MAX as i64;

/// Properties of a kind for the help text, clap and tables.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// Placeholder of the value, such as `DIR`.
    pub(crate) value_name: String,
    /// Separator of the values of a list in a variable; the flag may be given again.
    pub(crate) list: Option<char>,
    /// True if values must not be shown.
    pub(crate) secret: bool,
    /// JSON schema of a value in the file.
    pub(crate) schema: Value,
}

impl Form {
    /// Creates the form of a single value.
    pub(super) fn of(value_name: &str, schema: Value) -> Self {
        Self { value_name: value_name.to_owned(), list: None, secret: false, schema }
    }

    /// Creates the form of a list of texts, or of another value whose parts have a separator in flags.
    pub(super) fn list(value_name: &str, separator: char, schema: Value) -> Self {
        Self { list: Some(separator), ..Self::of(value_name, schema) }
    }
}

type Read<V> = Box<dyn Fn(Raw<'_>) -> Result<V, Wrong> + Send + Sync>;
type Show<V> = Box<dyn Fn(&V) -> Value + Send + Sync>;

/// A kind of values of type `V`.
pub(crate) struct Kind<V> {
    /// Placeholder and separator.
    pub(super) form: Form,
    /// Reads and checks a value.
    pub(super) read: Read<V>,
    /// Returns a value in the form of the file; null if there is none.
    pub(super) show: Show<V>,
}

impl<V> Kind<V> {
    pub(super) fn new(
        form: Form,
        read: impl Fn(Raw<'_>) -> Result<V, Wrong> + Send + Sync + 'static,
        show: impl Fn(&V) -> Value + Send + Sync + 'static,
    ) -> Self {
        Self { form, read: Box::new(read), show: Box::new(show) }
    }

    /// Returns the same kind with another JSON schema, for values that are validated after everything is read.
    pub(super) fn schema(self, schema: Value) -> Self {
        Self { form: Form { schema, ..self.form }, ..self }
    }
}

/// The schema of a text.
fn any_text() -> Value {
    json!({"type": "string"})
}

/// The schema of a text that is not empty.
fn some_text() -> Value {
    json!({"type": "string", "minLength": 1})
}

/// The schema of a list of texts.
pub(super) fn texts() -> Value {
    json!({"type": "array", "items": any_text()})
}

/// The schema of a number within a range, or of a text of that form.
fn number_or_text(range: &RangeInclusive<u64>, pattern: &str) -> Value {
    let number = json!({"type": "integer", "minimum": range.start(), "maximum": range.end()});
    json!({"anyOf": [number, {"type": "string", "pattern": pattern}]})
}

const BYTES: &str = "^[0-9]+([KMGTPE]i)?$";
const QUANTITY: &str = "^[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";
const DURATION: &str = "^(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";
const SIGNED_DURATION: &str = "^-?(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// `true` or `false`.
pub(super) fn boolean() -> Kind<bool> {
    Kind::new(Form::of("BOOL", json!({"type": "boolean"})), |raw| raw.boolean(), |value| json!(value))
}

/// A whole number of either sign. [`super::check`] refuses those out of `range`, with the kubelet's wording; the schema has the range as
/// well.
pub(super) fn integer(range: RangeInclusive<i64>) -> Kind<i64> {
    let mut schema = json!({"type": "integer", "maximum": range.end()});
    if *range.start() != i64::MIN {
        schema["minimum"] = json!(range.start());
    }
    Kind::new(Form::of("N", schema), |raw| raw.integer(), |value| json!(value))
}

/// A whole number within a range.
pub(super) fn count<N: TryFrom<usize> + Serialize>(range: RangeInclusive<usize>) -> Kind<N> {
    let schema = json!({"type": "integer", "minimum": range.start(), "maximum": range.end()});
    let read = move |raw: Raw<'_>| {
        let count = raw.count(range.clone())?;
        N::try_from(count).map_err(|_| Wrong("a smaller number".to_owned()))
    };
    Kind::new(Form::of("N", schema), read, |value| json!(value))
}

/// A number of bytes within a range, such as `64Gi`.
pub(super) fn bytes<N: TryFrom<u64> + TryInto<u64> + Copy>(range: RangeInclusive<u64>) -> Kind<N> {
    let schema = number_or_text(&range, BYTES);
    let read = move |raw: Raw<'_>| {
        let bytes = raw.bytes(range.clone())?;
        N::try_from(bytes).map_err(|_| Wrong("a smaller number of bytes".to_owned()))
    };
    Kind::new(Form::of("BYTES", schema), read, |value| json!(show_bytes((*value).try_into().unwrap_or(u64::MAX))))
}

/// A number of bytes within a range, as a Kubernetes quantity.
pub(super) fn quantity(range: RangeInclusive<u64>) -> Kind<u64> {
    let form = Form::of("BYTES", number_or_text(&range, QUANTITY));
    Kind::new(form, move |raw| raw.quantity(range.clone()), |value| json!(show_bytes(*value)))
}

/// A duration within a range.
pub(super) fn duration(range: RangeInclusive<Duration>) -> Kind<Duration> {
    let form = Form::of("DURATION", json!({"type": "string", "pattern": DURATION}));
    Kind::new(form, move |raw| raw.duration(range.clone()), |value| json!(show_duration(*value)))
}

/// A duration of either sign, up to a limit; [`super::check`] decides which values are allowed.
pub(super) fn signed_duration(limit: Duration) -> Kind<SignedDuration> {
    let form = Form::of("DURATION", json!({"type": "string", "pattern": SIGNED_DURATION}));
    Kind::new(form, move |raw| raw.signed(limit), |value| json!(show_signed(*value)))
}

/// Text, shown unless it is empty; `allowed` says what is allowed.
pub(super) fn text(value_name: &str, allowed: &'static str) -> Kind<String> {
    let show = |value: &String| if value.is_empty() { Value::Null } else { json!(value) };
    Kind::new(Form::of(value_name, any_text()), move |raw| raw.text(allowed), show)
}

/// A path, made absolute.
pub(super) fn path(value_name: &str) -> Kind<PathBuf> {
    Kind::new(Form::of(value_name, some_text()), |raw| raw.path(), |value| json!(value))
}

/// A path, or an empty text for none.
pub(super) fn path_or_empty(value_name: &str) -> Kind<Option<PathBuf>> {
    let show = |value: &Option<PathBuf>| json!(value.as_deref().unwrap_or(Path::new("")));
    Kind::new(Form::of(value_name, any_text()), |raw| raw.optional_path(), show)
}

/// A path that an empty text unsets. Unlike with [`path_or_empty`], an unset path is not shown.
pub(super) fn path_if_any(value_name: &str) -> Kind<Option<PathBuf>> {
    Kind::new(Form::of(value_name, any_text()), |raw| raw.optional_path(), |value| json!(value))
}

/// Directories, separated by colons.
pub(super) fn directories() -> Kind<Vec<PathBuf>> {
    let schema = json!({"type": "array", "items": some_text(), "minItems": 1});
    Kind::new(Form::list("DIR", ':', schema), |raw| raw.paths(), |value| json!(value))
}

/// Texts, separated by commas, that pass a check. An empty list is not shown.
pub(super) fn words(value_name: &str, check: fn(Vec<String>) -> Result<Vec<String>, Wrong>) -> Kind<Vec<String>> {
    let show = |value: &Vec<String>| if value.is_empty() { Value::Null } else { json!(value) };
    Kind::new(Form::list(value_name, ',', texts()), move |raw| raw.words().and_then(check), show)
}

/// Parsed texts, separated by commas; an empty list is not shown. `allowed` describes the allowed values.
pub(super) fn list<T: FromStr + fmt::Display>(value_name: &str, allowed: &'static str) -> Kind<Vec<T>> {
    let read = move |raw: Raw<'_>| {
        let parsed = raw.words()?.iter().map(|word| word.trim().parse()).collect::<Result<_, _>>();
        parsed.map_err(|_| Wrong(allowed.to_owned()))
    };
    let show = |value: &Vec<T>| match value.as_slice() {
        [] => Value::Null,
        items => items.iter().map(|item| Value::from(item.to_string())).collect(),
    };
    Kind::new(Form::list(value_name, ',', texts()), read, show)
}

/// A choice of a few words.
pub(super) fn choice<T: Copy + PartialEq + Send + Sync>(words: &'static [(&'static str, T)]) -> Kind<T> {
    let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let form = Form::of(&names.join("|"), json!({"enum": names}));
    let show = move |value: &T| words.iter().find(|(_, v)| v == value).map_or(Value::Null, |(word, _)| json!(word));
    Kind::new(form, move |raw| raw.choice(words), show)
}

/// Wraps a kind with a placeholder of its own.
pub(super) fn named<V>(value_name: &str, kind: Kind<V>) -> Kind<V> {
    Kind { form: Form { value_name: value_name.to_owned(), ..kind.form }, ..kind }
}

/// Wraps a kind whose value may be unset.
pub(super) fn unset<V: 'static>(kind: Kind<V>) -> Kind<Option<V>> {
    let Kind { form, read, show } = kind;
    Kind::new(form, move |raw| read(raw).map(Some), move |value| value.as_ref().map_or(Value::Null, &show))
}

/// Text with a parser of its own; `allowed` describes the allowed values.
pub(super) fn parsed<V: 'static>(
    value_name: &str,
    allowed: &'static str,
    parse: fn(&str) -> Result<V, String>,
    show: fn(&V) -> Value,
) -> Kind<V> {
    Kind::new(Form::of(value_name, any_text()), move |raw| raw.parsed(allowed, parse), show)
}

/// Headers of a request. Only their names are shown, since values may be passwords; so the shown form cannot be read again.
pub(super) fn headers() -> Kind<Vec<(String, Secret)>> {
    let show = |value: &Vec<(String, Secret)>| {
        let names: Vec<&str> = value.iter().map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { Value::Null } else { json!(format!("{} (values are not shown)", names.join(", "))) }
    };
    let values = json!({"anyOf": [any_text(), texts()]});
    let schema = json!({"type": "object", "additionalProperties": values});
    Kind::new(Form { secret: true, ..Form::list("NAME:VALUE", ',', schema) }, |raw| raw.headers(), show)
}
