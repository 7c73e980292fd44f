//! The kinds of values that settings have: how each is read from what people write, how it is shown, and what stands for it
//! in the help text. Called through [`super::declare`].

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

type Read<V> = Box<dyn Fn(Raw<'_>) -> Result<V, Wrong> + Send + Sync>;
type Show<V> = Box<dyn Fn(&V) -> Value + Send + Sync>;

/// A kind of values of type `V`.
pub(crate) struct Kind<V> {
    /// Placeholder and separator.
    pub(super) form: Form,
    /// Reads and checks a value.
    pub(super) read: Read<V>,
    /// Returns a value in the form of the file; null where there is none.
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
}

/// `true` or `false`.
pub(super) fn boolean() -> Kind<bool> {
    Kind::new(Form::of("BOOL"), |raw| raw.boolean(), |value| json!(value))
}

/// A whole number of either sign; [`super::check`] says which are allowed.
pub(super) fn integer() -> Kind<i64> {
    Kind::new(Form::of("N"), |raw| raw.integer(), |value| json!(value))
}

/// A whole number within a range.
pub(super) fn count<N: TryFrom<usize> + Serialize>(range: RangeInclusive<usize>) -> Kind<N> {
    let read = move |raw: Raw<'_>| {
        let count = raw.count(range.clone())?;
        N::try_from(count).map_err(|_| Wrong("a smaller number".to_owned()))
    };
    Kind::new(Form::of("N"), read, |value| json!(value))
}

/// A number of bytes within a range, such as `64Gi`.
pub(super) fn bytes<N: TryFrom<u64> + TryInto<u64> + Copy>(range: RangeInclusive<u64>) -> Kind<N> {
    let read = move |raw: Raw<'_>| {
        let bytes = raw.bytes(range.clone())?;
        N::try_from(bytes).map_err(|_| Wrong("a smaller number of bytes".to_owned()))
    };
    Kind::new(Form::of("BYTES"), read, |value| json!(show_bytes((*value).try_into().unwrap_or(u64::MAX))))
}

/// A number of bytes within a range, as a Kubernetes quantity.
pub(super) fn quantity(range: RangeInclusive<u64>) -> Kind<u64> {
    Kind::new(Form::of("BYTES"), move |raw| raw.quantity(range.clone()), |value| json!(show_bytes(*value)))
}

/// A duration within a range.
pub(super) fn duration(range: RangeInclusive<Duration>) -> Kind<Duration> {
    Kind::new(Form::of("DURATION"), move |raw| raw.duration(range.clone()), |value| json!(show_duration(*value)))
}

/// A duration of either sign, up to a limit; [`super::check`] says which are allowed.
pub(super) fn signed_duration(limit: Duration) -> Kind<SignedDuration> {
    Kind::new(Form::of("DURATION"), move |raw| raw.signed(limit), |value| json!(show_signed(*value)))
}

/// Text, shown unless it is empty; `allowed` says what is allowed.
pub(super) fn text(value_name: &str, allowed: &'static str) -> Kind<String> {
    let show = |value: &String| if value.is_empty() { Value::Null } else { json!(value) };
    Kind::new(Form::of(value_name), move |raw| raw.text(allowed), show)
}

/// A path, made absolute.
pub(super) fn path(value_name: &str) -> Kind<PathBuf> {
    Kind::new(Form::of(value_name), |raw| raw.path(), |value| json!(value))
}

/// A path, or an empty text for none.
pub(super) fn path_or_empty(value_name: &str) -> Kind<Option<PathBuf>> {
    let show = |value: &Option<PathBuf>| json!(value.as_deref().unwrap_or(Path::new("")));
    Kind::new(Form::of(value_name), |raw| raw.optional_path(), show)
}

/// A path that an empty text takes away again. In contrast to [`path_or_empty`] none is not shown.
pub(super) fn path_if_any(value_name: &str) -> Kind<Option<PathBuf>> {
    Kind::new(Form::of(value_name), |raw| raw.optional_path(), |value| json!(value))
}

/// Directories, separated by colons.
pub(super) fn directories() -> Kind<Vec<PathBuf>> {
    Kind::new(Form::list("DIR", ':'), |raw| raw.paths(), |value| json!(value))
}

/// Texts, separated by commas, that pass a check. None is not shown.
pub(super) fn words(value_name: &str, check: fn(Vec<String>) -> Result<Vec<String>, Wrong>) -> Kind<Vec<String>> {
    let show = |value: &Vec<String>| if value.is_empty() { Value::Null } else { json!(value) };
    Kind::new(Form::list(value_name, ','), move |raw| raw.words().and_then(check), show)
}

/// Parsed texts, separated by commas; none is not shown. `allowed` says what is allowed.
pub(super) fn list<T: FromStr + fmt::Display>(value_name: &str, allowed: &'static str) -> Kind<Vec<T>> {
    let read = move |raw: Raw<'_>| {
        let parsed = raw.words()?.iter().map(|word| word.trim().parse()).collect::<Result<_, _>>();
        parsed.map_err(|_| Wrong(allowed.to_owned()))
    };
    let show = |value: &Vec<T>| match value.as_slice() {
        [] => Value::Null,
        items => items.iter().map(|item| Value::from(item.to_string())).collect(),
    };
    Kind::new(Form::list(value_name, ','), read, show)
}

/// A choice of a few words.
pub(super) fn choice<T: Copy + PartialEq + Send + Sync>(words: &'static [(&'static str, T)]) -> Kind<T> {
    let form = Form::of(&words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join("|"));
    let show = move |value: &T| words.iter().find(|(_, v)| v == value).map_or(Value::Null, |(word, _)| json!(word));
    Kind::new(form, move |raw| raw.choice(words), show)
}

/// Another kind with a placeholder of its own.
pub(super) fn named<V>(value_name: &str, kind: Kind<V>) -> Kind<V> {
    Kind { form: Form { value_name: value_name.to_owned(), ..kind.form }, ..kind }
}

/// Another kind whose value may be absent, where nobody set it.
pub(super) fn unset<V: 'static>(kind: Kind<V>) -> Kind<Option<V>> {
    let Kind { form, read, show } = kind;
    Kind::new(form, move |raw| read(raw).map(Some), move |value| value.as_ref().map_or(Value::Null, &show))
}

/// Text with a parser of its own; `allowed` says what is allowed.
pub(super) fn parsed<V: 'static>(
    value_name: &str,
    allowed: &'static str,
    parse: fn(&str) -> Result<V, String>,
    show: fn(&V) -> Value,
) -> Kind<V> {
    Kind::new(Form::of(value_name), move |raw| raw.parsed(allowed, parse), show)
}

/// Headers of a request. Only their names are shown, since values may be passwords; so they cannot be read again.
pub(super) fn headers() -> Kind<Vec<(String, Secret)>> {
    let show = |value: &Vec<(String, Secret)>| {
        let names: Vec<&str> = value.iter().map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { Value::Null } else { json!(format!("{} (values are not shown)", names.join(", "))) }
    };
    Kind::new(Form { secret: true, ..Form::list("NAME:VALUE", ',') }, |raw| raw.headers(), show)
}
