//! Where in an object something is wrong, and what: [`FieldPath`], [`FieldError`] and [`FieldErrors`], in the forms of
//! apimachinery (`spec.containers[1].name: Required value`), so that people and tools find what they know. Knows no rule.

mod order;

use std::fmt;

/// The way to a field: `spec.containers[1].ports[0].containerPort`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(String);

impl FieldPath {
    /// Creates the path of the field `name` of the object itself.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Returns the path of the field `name` of the map at this place.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// Returns the path of the entry `index` of the list at this place.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// Returns the path of the entry `key` of the map at this place, whose keys are the user's own.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// Returns the path in the notation of Kubernetes, `spec.containers[0].name`; empty for the object itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if `other` is this field, or a field inside of it.
    #[must_use]
    pub fn holds(&self, other: &Self) -> bool {
        let Some(rest) = other.0.strip_prefix(&self.0) else { return false };
        rest.is_empty() || self.0.is_empty() || rest.starts_with(['.', '['])
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "the object" } else { &self.0 })
    }
}

/// A problem of a field, in the words of Kubernetes' `field.Error`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// The field is missing.
    #[error("Required value{}", after(.detail))]
    Required {
        /// More; may be empty.
        detail: String,
    },
    /// The value is not allowed.
    #[error("Invalid value: {value}{}", after(.detail))]
    Invalid {
        /// The value as shown: text in quotes.
        value: String,
        /// Values that are allowed.
        detail: String,
    },
    /// The value is not one of the supported ones.
    #[error("Unsupported value: {value:?}{}", choices(.supported))]
    Unsupported {
        /// The value as written.
        value: String,
        /// Supported values.
        supported: Vec<String>,
    },
    /// The value stands in its list twice.
    #[error("Duplicate value: {value:?}")]
    Duplicate {
        /// The value that stands there twice.
        value: String,
    },
    /// The field must not be set here.
    #[error("Forbidden: {detail}")]
    Forbidden {
        /// Message with the details.
        detail: String,
    },
    /// The value names something that does not exist.
    #[error("Not found: {value:?}")]
    NotFound {
        /// The name that nothing has.
        value: String,
    },
    /// The text is too long.
    #[error("Too long: may not be more than {max} bytes")]
    TooLong {
        /// The most bytes.
        max: usize,
    },
    /// No field of this name exists.
    #[error("Unknown field{}", hint(.closest))]
    Unknown {
        /// The field that was probably meant.
        closest: Option<String>,
    },
    /// Kubernetes knows it, and pods of this node cannot have it.
    #[error("Not supported: {reason}")]
    NotSupported {
        /// The reason why this node does not support the field.
        reason: String,
    },
}

fn after(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

fn choices(supported: &[String]) -> String {
    if supported.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = supported.iter().map(|choice| format!("{choice:?}")).collect();
    format!(": supported values: {}", quoted.join(", "))
}

fn hint(closest: &Option<String>) -> String {
    closest.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

/// A field and its problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// Path of the field.
    pub field: FieldPath,
    /// The problem, with the value where there is one.
    pub problem: FieldProblem,
}

/// Everything that is wrong with one object; in a `Result` there is at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Returns all errors, in the order of the document if they are of one.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.0.iter()
    }

    /// Returns true if there are no errors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `Ok` when nothing is wrong.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// Adds the errors of a later step, except in fields that have an error already: a field that could not be read is
    /// not reported as missing as well.
    pub fn merge(&mut self, later: Self) {
        let known = self.0.len();
        for error in later.0 {
            if !self.0[..known].iter().any(|k| k.field.holds(&error.field) || error.field.holds(&k.field)) {
                self.0.push(error);
            }
        }
    }

    /// Keeps those of which `keep` holds.
    pub fn retain(&mut self, keep: impl Fn(&FieldError) -> bool) {
        self.0.retain(keep);
    }

    /// Adds a problem of a field.
    pub fn push(&mut self, field: FieldPath, problem: FieldProblem) {
        self.0.push(FieldError { field, problem });
    }

    /// Adds the error of a field that is missing.
    pub fn required(&mut self, field: FieldPath, detail: impl Into<String>) {
        self.push(field, FieldProblem::Required { detail: detail.into() });
    }

    /// Adds the error of a text that is not allowed. The text is shown in quotes.
    pub fn invalid(&mut self, field: FieldPath, value: &str, detail: impl Into<String>) {
        self.push(field, FieldProblem::Invalid { value: format!("{value:?}"), detail: detail.into() });
    }

    /// Adds the error of a value that is not allowed. The value is shown as it is.
    pub fn invalid_plain(&mut self, field: FieldPath, value: impl fmt::Display, detail: impl Into<String>) {
        self.push(field, FieldProblem::Invalid { value: value.to_string(), detail: detail.into() });
    }

    /// Adds the error of a value that stands in its list twice.
    pub fn duplicate(&mut self, field: FieldPath, value: impl Into<String>) {
        self.push(field, FieldProblem::Duplicate { value: value.into() });
    }

    /// Adds the error of a field that must not be set.
    pub fn forbidden(&mut self, field: FieldPath, detail: impl Into<String>) {
        self.push(field, FieldProblem::Forbidden { detail: detail.into() });
    }

    /// Adds the error of a name that nothing has.
    pub fn not_found(&mut self, field: FieldPath, value: impl Into<String>) {
        self.push(field, FieldProblem::NotFound { value: value.into() });
    }

    /// Adds the error of a field that this node cannot honour.
    pub fn not_supported(&mut self, field: FieldPath, reason: impl Into<String>) {
        self.push(field, FieldProblem::NotSupported { reason: reason.into() });
    }

    /// Adds the error of a value that is not one of a fixed set.
    pub fn unsupported(&mut self, field: FieldPath, value: impl Into<String>, supported: &[&str]) {
        let supported = supported.iter().map(|s| (*s).to_owned()).collect();
        self.push(field, FieldProblem::Unsupported { value: value.into(), supported });
    }
}

impl std::error::Error for FieldErrors {}

/// As in aggregates of apimachinery, a single error is written as it is, and several in brackets.
impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [one] => write!(f, "{one}"),
            all => {
                f.write_str("[")?;
                for (index, error) in all.iter().enumerate() {
                    write!(f, "{}{error}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_those_of_apimachinery() {
        let spec = FieldPath::new("spec");
        let name = spec.child("containers").index(1).child("name");
        let mut errors = FieldErrors::default();
        errors.required(name.clone(), "");
        errors.invalid(name.clone(), "A b", "must be lower case");
        errors.invalid_plain(spec.child("priority"), 7, "must be less");
        errors.unsupported(spec.child("dnsPolicy"), "x", &["Default", "None"]);
        errors.duplicate(name.clone(), "a");
        errors.forbidden(FieldPath::new("metadata").child("labels").key("a/b"), "no");
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "spec.containers[1].name: Required value",
                "spec.containers[1].name: Invalid value: \"A b\": must be lower case",
                "spec.priority: Invalid value: 7: must be less",
                "spec.dnsPolicy: Unsupported value: \"x\": supported values: \"Default\", \"None\"",
                "spec.containers[1].name: Duplicate value: \"a\"",
                "metadata.labels[a/b]: Forbidden: no",
            ]
        );
    }

    #[test]
    fn one_place_is_reported_once() {
        let mut errors = FieldErrors::default();
        errors.forbidden(FieldPath::new("spec").child("containers").index(1), "no");
        let mut later = FieldErrors::default();
        later.required(FieldPath::new("spec").child("containers").index(1).child("name"), "");
        later.required(FieldPath::new("spec").child("containers").index(10).child("name"), "");
        later.required(FieldPath::new("spec").child("containersX"), "");
        errors.merge(later);
        assert_eq!(errors.iter().count(), 3);
        assert!(errors.to_string().starts_with("[spec.containers[1]: Forbidden: no, spec.containers[10].name: "));
    }
}
