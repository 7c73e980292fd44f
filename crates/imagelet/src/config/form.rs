//! [`As`]: how the values of settings are written for which serde and schemars have no form: durations and sizes with a range, words,
//! and texts with a parser. Used by the types of the settings, as `#[serde(with = "As::<…>")]`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use base::GoDuration;
use jiff::SignedDuration;
use oci::{Quantity, parse_bytes, show_bytes};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::spelling::{show_duration, show_signed};

/// The kubelet's names for [`image_manager::VerificationPolicy`].
pub(crate) const POLICIES: [&str; 4] =
    ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"];

/// Largest number that the kubelet's integers can hold.
pub(crate) const MOST: i64 = i32::MAX as i64;

/// A written form of values.
pub(super) trait Form {
    /// The type of the values.
    type Of;

    /// Reads a value. An error has the reason for a refusal, unless that follows from the allowed values; then it is empty.
    fn read(value: Value) -> Result<Self::Of, String>;

    /// Returns a value as it is written.
    fn write(value: &Self::Of) -> Value;

    /// Returns the JSON schema. The entry `allowed` describes the allowed values as text.
    fn schema() -> Value;
}

/// Serialisation and JSON schema of a field by a form.
pub(super) struct As<F>(PhantomData<F>);

impl<F: Form> As<F> {
    pub(super) fn serialize<S: Serializer>(value: &F::Of, serializer: S) -> Result<S::Ok, S::Error> {
        F::write(value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<F::Of, D::Error> {
        F::read(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<F: Form> JsonSchema for As<F> {
    fn schema_name() -> Cow<'static, str> {
        "As".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        F::schema().try_into().unwrap_or_default()
    }
}

/// Returns the text of a value.
fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(String::new)
}

/// A value that may be unset.
pub(super) struct Maybe<F>(PhantomData<F>);

impl<F: Form> Form for Maybe<F> {
    type Of = Option<F::Of>;

    fn read(value: Value) -> Result<Self::Of, String> {
        if value.is_null() { Ok(None) } else { F::read(value).map(Some) }
    }

    fn write(value: &Self::Of) -> Value {
        value.as_ref().map_or(Value::Null, F::write)
    }

    fn schema() -> Value {
        F::schema()
    }
}

/// Patterns of texts in JSON schemas.
const BYTES: &str = "^[0-9]+([KMGTPE]i)?$";
const QUANTITY: &str = "^[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";
const DURATION: &str = "^(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";
const SIGNED_DURATION: &str = "^-?(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// Milliseconds of a second and of a day, for [`Span`].
pub(super) const SECOND: u64 = 1000;
pub(super) const DAY: u64 = 24 * 3600 * SECOND;

/// A duration in Go's spelling, within a range of milliseconds.
pub(super) struct Span<const FROM: u64, const TO: u64>;

impl<const FROM: u64, const TO: u64> Form for Span<FROM, TO> {
    type Of = Duration;

    fn read(value: Value) -> Result<Duration, String> {
        let range = Duration::from_millis(FROM)..=Duration::from_millis(TO);
        GoDuration::parse_unsigned(text(&value)?).filter(|span| range.contains(span)).ok_or_else(String::new)
    }

    fn write(value: &Duration) -> Value {
        show_duration(*value).into()
    }

    fn schema() -> Value {
        let [from, to] = [FROM, TO].map(|millis| show_duration(Duration::from_millis(millis)));
        let allowed = format!("a duration such as 90s or 2m30s, from {from} to {to}");
        json!({"type": "string", "pattern": DURATION, "allowed": allowed})
    }
}

/// An age: a duration of either sign and up to a year. [`super::check`] decides which values are allowed, in the kubelet's words.
pub(super) struct Age;

/// Longest age.
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

impl Form for Age {
    type Of = SignedDuration;

    fn read(value: Value) -> Result<SignedDuration, String> {
        let text = text(&value)?;
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let age = GoDuration::parse_unsigned(rest).filter(|age| *age <= YEAR);
        let age = age.and_then(|age| SignedDuration::try_from(age).ok()).ok_or_else(String::new)?;
        Ok(if negative { -age } else { age })
    }

    fn write(value: &SignedDuration) -> Value {
        show_signed(*value).into()
    }

    fn schema() -> Value {
        let allowed = format!("a duration such as 90s or 2m30s, up to {}", show_duration(YEAR));
        json!({"type": "string", "pattern": SIGNED_DURATION, "allowed": allowed})
    }
}

/// Returns the schema of a number of bytes within a range, or of a text of that form.
fn size_schema(from: u64, to: u64, pattern: &str, example: &str) -> Value {
    let number = json!({"type": "integer", "minimum": from, "maximum": to});
    let allowed = format!("a number of bytes such as {example}, from {} to {}", show_bytes(from), show_bytes(to));
    json!({"anyOf": [number, {"type": "string", "pattern": pattern}], "allowed": allowed})
}

/// A number of bytes within a range, such as `64Gi`.
pub(super) struct Size<const FROM: u64, const TO: u64>;

impl<const FROM: u64, const TO: u64> Form for Size<FROM, TO> {
    type Of = u64;

    fn read(value: Value) -> Result<u64, String> {
        let bytes = value.as_u64().or_else(|| parse_bytes(value.as_str()?));
        bytes.filter(|bytes| (FROM..=TO).contains(bytes)).ok_or_else(String::new)
    }

    fn write(value: &u64) -> Value {
        show_bytes(*value).into()
    }

    fn schema() -> Value {
        size_schema(FROM, TO, BYTES, "64Gi")
    }
}

/// A number of bytes within a range, as a Kubernetes quantity.
pub(super) struct Amount<const FROM: u64, const TO: u64>;

impl<const FROM: u64, const TO: u64> Form for Amount<FROM, TO> {
    type Of = u64;

    fn read(value: Value) -> Result<u64, String> {
        let parse = |text: &str| u64::try_from(text.parse::<Quantity>().ok()?.value()).ok();
        let bytes = value.as_u64().or_else(|| parse(value.as_str()?));
        bytes.filter(|bytes| (FROM..=TO).contains(bytes)).ok_or_else(String::new)
    }

    fn write(value: &u64) -> Value {
        show_bytes(*value).into()
    }

    fn schema() -> Value {
        size_schema(FROM, TO, QUANTITY, "10Mi")
    }
}

/// A whole number within a range.
pub(super) struct Count<N, const FROM: u64, const TO: u64>(PhantomData<N>);

impl<N: TryFrom<u64> + Serialize, const FROM: u64, const TO: u64> Form for Count<N, FROM, TO> {
    type Of = N;

    fn read(value: Value) -> Result<N, String> {
        let number = value.as_u64().filter(|number| (FROM..=TO).contains(number));
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(String::new)
    }

    fn write(value: &N) -> Value {
        json!(value)
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": FROM, "maximum": TO})
    }
}

/// Values that are written as a few words.
pub(super) trait Words: Copy + PartialEq + 'static {
    /// The words and their values.
    const WORDS: &'static [(&'static str, Self)];
}

/// Setting whose value is a word of a fixed list.
pub(super) struct Choice<T>(PhantomData<T>);

impl<T: Words> Form for Choice<T> {
    type Of = T;

    fn read(value: Value) -> Result<T, String> {
        let text = text(&value)?;
        T::WORDS.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(String::new)
    }

    fn write(value: &T) -> Value {
        T::WORDS.iter().find(|(_, known)| known == value).map_or(Value::Null, |(word, _)| json!(word))
    }

    fn schema() -> Value {
        json!({"enum": T::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>()})
    }
}

/// A text that a type parses.
pub(super) struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display> + fmt::Display> Form for Text<T> {
    type Of = T;

    fn read(value: Value) -> Result<T, String> {
        text(&value)?.parse().map_err(|error: T::Err| error.to_string())
    }

    fn write(value: &T) -> Value {
        value.to_string().into()
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// A list of texts, each of which a type parses.
pub(super) struct List<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display> + fmt::Display> Form for List<T> {
    type Of = Vec<T>;

    fn read(value: Value) -> Result<Vec<T>, String> {
        let Value::Array(items) = value else { return Err(String::new()) };
        items.iter().map(|item| text(item)?.trim().parse().map_err(|error: T::Err| error.to_string())).collect()
    }

    fn write(value: &Vec<T>) -> Value {
        value.iter().map(ToString::to_string).collect()
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "string"}})
    }
}

/// Checks of texts that are kept as they were written.
pub(super) trait Check {
    /// Checks a text, and returns the reason for a refusal.
    fn check(text: &str) -> Result<(), String>;
}

/// A text that passes a check.
pub(super) struct Checked<C>(PhantomData<C>);

impl<C: Check> Form for Checked<C> {
    type Of = String;

    fn read(value: Value) -> Result<String, String> {
        let text = text(&value)?;
        C::check(text).map(|()| text.to_owned())
    }

    fn write(value: &String) -> Value {
        json!(value)
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// Pairs of texts: a map in the file.
pub(super) struct Pairs;

impl Form for Pairs {
    type Of = Vec<(String, String)>;

    fn read(value: Value) -> Result<Self::Of, String> {
        let Value::Object(map) = value else { return Err(String::new()) };
        let pair = |(key, value): (String, Value)| Ok((key, text(&value)?.to_owned()));
        map.into_iter().map(pair).collect()
    }

    fn write(value: &Self::Of) -> Value {
        value.iter().map(|(key, value)| (key.clone(), json!(value))).collect()
    }

    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": {"type": "string"}})
    }
}
