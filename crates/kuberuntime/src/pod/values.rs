//! How the plain values of manifests are read and written, with [`IntOrText`], the `IntOrString` of Kubernetes.

use std::fmt;

use jiff::Timestamp;
use oci::Quantity;
use serde_json::Value;

use super::read::{Json, ListEntry, Plain, expect};
use manifest::{FieldErrors, FieldPath};

/// A number, or the name of something that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrText {
    /// A number, for example of a port.
    Int(i32),
    /// The name of a port of the container.
    Text(String),
}

impl Default for IntOrText {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl fmt::Display for IntOrText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Json for String {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        expect(value.as_str().map(str::to_owned), value, &path, errors, "must be text")
    }

    fn to_value(&self) -> Value {
        Value::from(self.as_str())
    }
}

impl Plain for String {}

impl ListEntry for String {
    fn unreadable() -> Self {
        Self::new()
    }
}

impl Json for bool {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        expect(value.as_bool(), value, &path, errors, "must be true or false")
    }

    fn to_value(&self) -> Value {
        Value::from(*self)
    }
}

impl Plain for bool {}

impl Json for i64 {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        expect(value.as_i64(), value, &path, errors, "must be a whole number of 64 bits")
    }

    fn to_value(&self) -> Value {
        Value::from(*self)
    }
}

impl Plain for i64 {}

impl ListEntry for i64 {
    fn unreadable() -> Self {
        0
    }
}

impl Json for i32 {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        let number = value.as_i64().and_then(|number| Self::try_from(number).ok());
        expect(number, value, &path, errors, "must be a whole number of 32 bits")
    }

    fn to_value(&self) -> Value {
        Value::from(*self)
    }
}

impl Plain for i32 {}

impl Json for IntOrText {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        let number = value.as_i64().and_then(|number| i32::try_from(number).ok()).map(Self::Int);
        let read = number.or_else(|| value.as_str().map(|text| Self::Text(text.to_owned())));
        expect(read, value, &path, errors, "must be a whole number of 32 bits, or text")
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Int(number) => Value::from(*number),
            Self::Text(text) => Value::from(text.as_str()),
        }
    }
}

impl Plain for IntOrText {}

/// A quantity, written as text or as a number.
impl Json for Quantity {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => return expect(None, other, &path, errors, "must be a quantity"),
        };
        text.parse().map_err(|error: oci::QuantityError| errors.invalid(path, &text, error.to_string())).ok()
    }

    fn to_value(&self) -> Value {
        Value::from(self.to_string())
    }
}

impl Plain for Quantity {}

impl Json for Timestamp {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        let text = String::from_value(value, path.clone(), errors)?;
        text.parse().map_err(|_| errors.invalid(path, &text, "must be a time as in RFC 3339")).ok()
    }

    fn to_value(&self) -> Value {
        Value::from(self.to_string())
    }
}
