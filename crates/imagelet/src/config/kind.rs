//! The kinds of values that settings have: how each is read from what people write, how it is shown, and what stands for it
//! in the help text. Called through [`super::declare`].

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use oci::Secret;
use serde_json::{Value, json};

use super::value::{Raw, Wrong, show_bytes, show_duration, show_signed};

/// Properties of a kind for the help text, clap and tables.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// Placeholder of the value, such as `DIR`.
    pub(crate) value_name: String,
    /// Separator of the values of a list in a variable; the flag may be given again.
    pub(crate) list: Option<char>,
    /// Values must not be shown.
    pub(crate) secret: bool,
}

impl Form {
    /// The form of a single value.
    pub(super) fn of(value_name: &str) -> Self {
        Self { value_name: value_name.to_owned(), list: None, secret: false }
    }

    /// The form of a list.
    pub(super) fn list(value_name: &str, separator: char) -> Self {
        Self { list: Some(separator), ..Self::of(value_name) }
    }
}

/// A kind of values of type `V`.
pub(crate) trait Kind<V>: Send + Sync {
    /// Returns placeholder and separator.
    fn form(&self) -> Form;
    /// Reads and checks a value.
    fn read(&self, raw: Raw<'_>) -> Result<V, Wrong>;
    /// Returns a value in the form of the file; null where there is none.
    fn show(&self, value: &V) -> Value;
}

/// `true` or `false`.
pub(super) struct Bool;

impl Kind<bool> for Bool {
    fn form(&self) -> Form {
        Form::of("BOOL")
    }

    fn read(&self, raw: Raw<'_>) -> Result<bool, Wrong> {
        raw.boolean()
    }

    fn show(&self, value: &bool) -> Value {
        json!(value)
    }
}

/// A whole number of either sign; [`super::check`] says which are allowed.
pub(super) struct Integer;

impl Kind<i64> for Integer {
    fn form(&self) -> Form {
        Form::of("N")
    }

    fn read(&self, raw: Raw<'_>) -> Result<i64, Wrong> {
        raw.integer()
    }

    fn show(&self, value: &i64) -> Value {
        json!(value)
    }
}

/// A whole number within a range.
pub(super) struct Count(pub(super) RangeInclusive<usize>);

impl Kind<usize> for Count {
    fn form(&self) -> Form {
        Form::of("N")
    }

    fn read(&self, raw: Raw<'_>) -> Result<usize, Wrong> {
        raw.count(self.0.clone())
    }

    fn show(&self, value: &usize) -> Value {
        json!(value)
    }
}

impl Kind<u64> for Count {
    fn form(&self) -> Form {
        Form::of("N")
    }

    fn read(&self, raw: Raw<'_>) -> Result<u64, Wrong> {
        raw.count(self.0.clone()).map(|count| count as u64)
    }

    fn show(&self, value: &u64) -> Value {
        json!(value)
    }
}

/// A number of bytes within a range, such as `64Gi`.
pub(super) struct Bytes(pub(super) RangeInclusive<u64>);

impl Kind<u64> for Bytes {
    fn form(&self) -> Form {
        Form::of("BYTES")
    }

    fn read(&self, raw: Raw<'_>) -> Result<u64, Wrong> {
        raw.bytes(self.0.clone())
    }

    fn show(&self, value: &u64) -> Value {
        json!(show_bytes(*value))
    }
}

impl Kind<usize> for Bytes {
    fn form(&self) -> Form {
        Form::of("BYTES")
    }

    fn read(&self, raw: Raw<'_>) -> Result<usize, Wrong> {
        raw.bytes(self.0.clone()).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    fn show(&self, value: &usize) -> Value {
        json!(show_bytes(*value as u64))
    }
}

/// A number of bytes within a range, as a Kubernetes quantity.
pub(super) struct Quantity(pub(super) RangeInclusive<u64>);

impl Kind<u64> for Quantity {
    fn form(&self) -> Form {
        Form::of("BYTES")
    }

    fn read(&self, raw: Raw<'_>) -> Result<u64, Wrong> {
        raw.quantity(self.0.clone())
    }

    fn show(&self, value: &u64) -> Value {
        json!(show_bytes(*value))
    }
}

/// A duration within a range.
pub(super) struct Span(pub(super) RangeInclusive<Duration>);

impl Kind<Duration> for Span {
    fn form(&self) -> Form {
        Form::of("DURATION")
    }

    fn read(&self, raw: Raw<'_>) -> Result<Duration, Wrong> {
        raw.duration(self.0.clone())
    }

    fn show(&self, value: &Duration) -> Value {
        json!(show_duration(*value))
    }
}

/// A duration of either sign, up to a limit; [`super::check`] says which are allowed.
pub(super) struct SignedSpan(pub(super) Duration);

impl Kind<SignedDuration> for SignedSpan {
    fn form(&self) -> Form {
        Form::of("DURATION")
    }

    fn read(&self, raw: Raw<'_>) -> Result<SignedDuration, Wrong> {
        raw.signed(self.0)
    }

    fn show(&self, value: &SignedDuration) -> Value {
        json!(show_signed(*value))
    }
}

/// Text that says what is allowed; shown unless it is empty. Placeholder, and what is allowed.
pub(super) struct Text(pub(super) &'static str, pub(super) &'static str);

impl Kind<String> for Text {
    fn form(&self) -> Form {
        Form::of(self.0)
    }

    fn read(&self, raw: Raw<'_>) -> Result<String, Wrong> {
        raw.text(self.1)
    }

    fn show(&self, value: &String) -> Value {
        if value.is_empty() { Value::Null } else { json!(value) }
    }
}

/// A path, made absolute.
pub(super) struct Path(pub(super) &'static str);

impl Kind<PathBuf> for Path {
    fn form(&self) -> Form {
        Form::of(self.0)
    }

    fn read(&self, raw: Raw<'_>) -> Result<PathBuf, Wrong> {
        raw.path()
    }

    fn show(&self, value: &PathBuf) -> Value {
        json!(value)
    }
}

/// A path, or an empty text for none.
pub(super) struct PathOrEmpty(pub(super) &'static str);

impl Kind<Option<PathBuf>> for PathOrEmpty {
    fn form(&self) -> Form {
        Form::of(self.0)
    }

    fn read(&self, raw: Raw<'_>) -> Result<Option<PathBuf>, Wrong> {
        raw.optional_path()
    }

    fn show(&self, value: &Option<PathBuf>) -> Value {
        json!(value.as_deref().unwrap_or(std::path::Path::new("")))
    }
}

/// A path that an empty text takes away again. In contrast to [`PathOrEmpty`] none is not shown.
pub(super) struct PathIfAny(pub(super) &'static str);

impl Kind<Option<PathBuf>> for PathIfAny {
    fn form(&self) -> Form {
        Form::of(self.0)
    }

    fn read(&self, raw: Raw<'_>) -> Result<Option<PathBuf>, Wrong> {
        raw.optional_path()
    }

    fn show(&self, value: &Option<PathBuf>) -> Value {
        json!(value)
    }
}

/// Directories, separated by colons.
pub(super) struct Directories;

impl Kind<Vec<PathBuf>> for Directories {
    fn form(&self) -> Form {
        Form::list("DIR", ':')
    }

    fn read(&self, raw: Raw<'_>) -> Result<Vec<PathBuf>, Wrong> {
        raw.paths()
    }

    fn show(&self, value: &Vec<PathBuf>) -> Value {
        json!(value)
    }
}

/// Texts, separated by commas, that pass a check. None is not shown.
pub(super) struct Words(pub(super) &'static str, pub(super) fn(Vec<String>) -> Result<Vec<String>, Wrong>);

impl Kind<Vec<String>> for Words {
    fn form(&self) -> Form {
        Form::list(self.0, ',')
    }

    fn read(&self, raw: Raw<'_>) -> Result<Vec<String>, Wrong> {
        raw.words().and_then(self.1)
    }

    fn show(&self, value: &Vec<String>) -> Value {
        if value.is_empty() { Value::Null } else { json!(value) }
    }
}

/// Parsed texts, separated by commas; none is not shown. Placeholder, and what is allowed.
pub(super) struct List(pub(super) &'static str, pub(super) &'static str);

impl<T: FromStr + fmt::Display> Kind<Vec<T>> for List {
    fn form(&self) -> Form {
        Form::list(self.0, ',')
    }

    fn read(&self, raw: Raw<'_>) -> Result<Vec<T>, Wrong> {
        let words = raw.words()?;
        let parsed = words.iter().map(|word| word.trim().parse()).collect::<Result<_, _>>();
        parsed.map_err(|_| Wrong(self.1.to_owned()))
    }

    fn show(&self, value: &Vec<T>) -> Value {
        if value.is_empty() { Value::Null } else { value.iter().map(|item| Value::from(item.to_string())).collect() }
    }
}

/// A choice of a few words.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq + Send + Sync> Kind<T> for Choice<T> {
    fn form(&self) -> Form {
        Form::of(&self.0.iter().map(|(word, _)| *word).collect::<Vec<_>>().join("|"))
    }

    fn read(&self, raw: Raw<'_>) -> Result<T, Wrong> {
        raw.choice(self.0)
    }

    fn show(&self, value: &T) -> Value {
        self.0.iter().find(|(_, v)| v == value).map_or(Value::Null, |(word, _)| json!(word))
    }
}

/// Another kind with a placeholder of its own.
pub(super) struct Named<K>(pub(super) &'static str, pub(super) K);

impl<V, K: Kind<V>> Kind<V> for Named<K> {
    fn form(&self) -> Form {
        Form { value_name: self.0.to_owned(), ..self.1.form() }
    }

    fn read(&self, raw: Raw<'_>) -> Result<V, Wrong> {
        self.1.read(raw)
    }

    fn show(&self, value: &V) -> Value {
        self.1.show(value)
    }
}

/// Another kind whose value may be absent, where nobody set it.
pub(super) struct Unset<K>(pub(super) K);

impl<V, K: Kind<V>> Kind<Option<V>> for Unset<K> {
    fn form(&self) -> Form {
        self.0.form()
    }

    fn read(&self, raw: Raw<'_>) -> Result<Option<V>, Wrong> {
        self.0.read(raw).map(Some)
    }

    fn show(&self, value: &Option<V>) -> Value {
        value.as_ref().map_or(Value::Null, |value| self.0.show(value))
    }
}

/// Text with a parser of its own.
pub(super) struct Parsed<V> {
    pub(super) value_name: &'static str,
    pub(super) allowed: &'static str,
    pub(super) parse: fn(&str) -> Result<V, String>,
    pub(super) show: fn(&V) -> Value,
}

impl<V> Kind<V> for Parsed<V> {
    fn form(&self) -> Form {
        Form::of(self.value_name)
    }

    fn read(&self, raw: Raw<'_>) -> Result<V, Wrong> {
        raw.parsed(self.allowed, self.parse)
    }

    fn show(&self, value: &V) -> Value {
        (self.show)(value)
    }
}

/// Headers of a request. Only their names are shown, since values may be passwords; so they cannot be read again.
pub(super) struct Headers;

impl Kind<Vec<(String, Secret)>> for Headers {
    fn form(&self) -> Form {
        Form { secret: true, ..Form::list("NAME:VALUE", ',') }
    }

    fn read(&self, raw: Raw<'_>) -> Result<Vec<(String, Secret)>, Wrong> {
        raw.headers()
    }

    fn show(&self, value: &Vec<(String, Secret)>) -> Value {
        let names: Vec<&str> = value.iter().map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { Value::Null } else { json!(format!("{} (values are not shown)", names.join(", "))) }
    }
}
