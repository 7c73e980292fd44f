//! [`Fields`]: reads the fields of one object of a manifest, strictly, and keeps on after a mistake, so that all of them are
//! told at once. What it cannot read counts as absent. Knows types, not meanings. Called by the `read` of every type of
//! the model.

use std::collections::BTreeMap;

use oci::Quantity;
use serde_json::{Map, Value};

use super::int_or_text::IntOrText;
use crate::field::{FieldErrors, FieldPath, FieldProblem};

/// A type that an object of a manifest becomes.
pub(crate) trait Read {
    /// Takes the fields; what it does not take is unknown.
    fn read(fields: &mut Fields<'_>) -> Self;
}

/// A fixed set of words, with a value for each.
pub(crate) trait Word: Sized + Copy + 'static {
    /// All of them.
    const WORDS: &'static [(&'static str, Self)];
}

/// The fields of one object, and what was found wrong so far.
pub(crate) struct Fields<'a> {
    path: FieldPath,
    map: &'a Map<String, Value>,
    known: Vec<&'static str>,
    errors: &'a mut FieldErrors,
}

/// Reads an object that is not in a list or a map of another one.
pub(crate) fn object<T: Read>(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<T> {
    let Value::Object(map) = value else {
        errors.invalid_plain(path, shown(value), "must be a map");
        return None;
    };
    let mut fields = Fields { path, map, known: Vec::new(), errors };
    let read = T::read(&mut fields);
    fields.finish();
    Some(read)
}

/// Value for an entry of a list that is not a map, so that those behind it keep their index.
fn nothing<T: Read>() -> T {
    let (map, mut errors) = (Map::new(), FieldErrors::default());
    T::read(&mut Fields { path: FieldPath::default(), map: &map, known: Vec::new(), errors: &mut errors })
}

/// A value in one line; what could be long or secret is not shown.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.chars().count() > 60 => {
            format!("{:?}…", text.chars().take(60).collect::<String>())
        }
        Value::String(text) => format!("{text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}

impl<'a> Fields<'a> {
    /// Where the object is.
    pub(crate) fn path(&self) -> &FieldPath {
        &self.path
    }

    /// For complaints that need more than a type.
    pub(crate) fn errors(&mut self) -> &mut FieldErrors {
        self.errors
    }

    /// The value of a field; null counts as absent, as Kubernetes has it.
    fn take(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&mut self, name: &str, value: &str, detail: &str) {
        let path = self.path.child(name);
        self.errors.invalid_plain(path, value, detail);
    }

    /// Returns true if the field is set, without taking it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// Takes fields whose meaning is of no concern on one node.
    pub(crate) fn ignored(&mut self, names: &[&'static str]) {
        self.known.extend(names);
    }

    /// Refuses a field that is there.
    pub(crate) fn not_supported(&mut self, name: &'static str, reason: &str) {
        if self.take(name).is_some_and(|value| !is_empty(value)) {
            let path = self.path.child(name);
            self.errors.not_supported(path, reason);
        }
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => Some(text.clone()),
            other => {
                let value = shown(other);
                self.wrong(name, &value, "must be text");
                None
            }
        }
    }

    /// A text, empty when it is not there.
    pub(crate) fn string(&mut self, name: &'static str) -> String {
        self.text(name).unwrap_or_default()
    }

    /// True or false.
    pub(crate) fn boolean(&mut self, name: &'static str) -> Option<bool> {
        match self.take(name)? {
            Value::Bool(value) => Some(*value),
            other => {
                let value = shown(other);
                self.wrong(name, &value, "must be true or false");
                None
            }
        }
    }

    /// True or false, false when it is not there.
    pub(crate) fn flag(&mut self, name: &'static str) -> bool {
        self.boolean(name).unwrap_or_default()
    }

    /// A whole number.
    pub(crate) fn long(&mut self, name: &'static str) -> Option<i64> {
        let value = self.take(name)?;
        match value.as_i64() {
            Some(number) => Some(number),
            None => {
                let value = shown(value);
                self.wrong(name, &value, "must be a whole number of 64 bits");
                None
            }
        }
    }

    /// A whole number of 32 bits.
    pub(crate) fn int(&mut self, name: &'static str) -> Option<i32> {
        let value = self.take(name)?;
        match value.as_i64().and_then(|number| i32::try_from(number).ok()) {
            Some(number) => Some(number),
            None => {
                let value = shown(value);
                self.wrong(name, &value, "must be a whole number of 32 bits");
                None
            }
        }
    }

    /// A whole number, or a text.
    pub(crate) fn int_or_text(&mut self, name: &'static str) -> Option<IntOrText> {
        let value = self.take(name)?;
        let read = match value {
            Value::String(text) => Some(IntOrText::Text(text.clone())),
            other => other.as_i64().and_then(|number| i32::try_from(number).ok()).map(IntOrText::Int),
        };
        if read.is_none() {
            let value = shown(value);
            self.wrong(name, &value, "must be a whole number of 32 bits, or text");
        }
        read
    }

    /// A word of a fixed set; an empty text counts as absent.
    pub(crate) fn word<T: Word>(&mut self, name: &'static str) -> Option<T> {
        let text = self.text(name).filter(|text| !text.is_empty())?;
        if let Some((_, word)) = T::WORDS.iter().find(|(word, _)| *word == text) {
            return Some(*word);
        }
        let supported: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        let path = self.path.child(name);
        self.errors.unsupported(path, text, &supported);
        None
    }

    /// A quantity, written as text or as a number.
    pub(crate) fn quantity(&mut self, name: &'static str) -> Option<Quantity> {
        let value = self.take(name)?;
        let path = self.path.child(name);
        quantity(value, path, self.errors)
    }

    /// Quantities by name.
    pub(crate) fn quantities(&mut self, name: &'static str) -> BTreeMap<String, Quantity> {
        self.entries(name, quantity)
    }

    pub(crate) fn texts_by_name(&mut self, name: &'static str) -> BTreeMap<String, String> {
        self.entries(name, |value, path, errors| match value {
            Value::String(text) => Some(text.clone()),
            other => {
                errors.invalid_plain(path, shown(other), "must be text");
                None
            }
        })
    }

    fn entries<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&Value, FieldPath, &mut FieldErrors) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let path = self.path.child(name);
        self.known.push(name);
        match self.map.get(name) {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(Value::Object(map)) => map
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), read(value, path.key(key), self.errors)?)))
                .collect(),
            Some(other) => {
                self.errors.invalid_plain(path, shown(other), "must be a map");
                BTreeMap::new()
            }
        }
    }

    pub(crate) fn texts(&mut self, name: &'static str) -> Vec<String> {
        self.items(name, |value, path, errors| match value {
            Value::String(text) => text.clone(),
            other => {
                errors.invalid_plain(path, shown(other), "must be text");
                String::new()
            }
        })
    }

    /// Whole numbers.
    pub(crate) fn longs(&mut self, name: &'static str) -> Vec<i64> {
        self.items(name, |value, path, errors| {
            value.as_i64().unwrap_or_else(|| {
                errors.invalid_plain(path, shown(value), "must be a whole number of 64 bits");
                0
            })
        })
    }

    /// Objects.
    pub(crate) fn list<T: Read>(&mut self, name: &'static str) -> Vec<T> {
        self.items(name, |value, path, errors| object(value, path, errors).unwrap_or_else(nothing))
    }

    fn items<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&Value, FieldPath, &mut FieldErrors) -> T,
    ) -> Vec<T> {
        let path = self.path.child(name);
        self.known.push(name);
        match self.map.get(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => {
                list.iter().enumerate().map(|(index, value)| read(value, path.index(index), self.errors)).collect()
            }
            Some(other) => {
                self.errors.invalid_plain(path, shown(other), "must be a list");
                Vec::new()
            }
        }
    }

    pub(crate) fn object<T: Read>(&mut self, name: &'static str) -> Option<T> {
        let path = self.path.child(name);
        self.known.push(name);
        let value = self.map.get(name).filter(|value| !value.is_null())?;
        object(value, path, self.errors)
    }

    /// Refuses what nobody took.
    fn finish(self) {
        for key in self.map.keys().filter(|key| !self.known.contains(&key.as_str())) {
            let closest = closest(key, &self.known);
            self.errors.push(self.path.child(key), FieldProblem::Unknown { closest });
        }
    }
}

fn quantity(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Quantity> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => {
            errors.invalid_plain(path, shown(other), "must be a quantity");
            return None;
        }
    };
    text.parse().map_err(|error: oci::QuantityError| errors.invalid(path, &text, error.to_string())).ok()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Object(_) | Value::Number(_) => false,
    }
}

/// The field that was probably meant: the same but for case, or with at most two letters wrong.
fn closest(wrong: &str, names: &[&'static str]) -> Option<String> {
    let wrong: Vec<char> = wrong.to_lowercase().chars().take(64).collect();
    let distance = |name: &str| {
        let name: Vec<char> = name.to_lowercase().chars().collect();
        let mut row: Vec<usize> = (0..=name.len()).collect();
        for (i, x) in wrong.iter().enumerate() {
            let mut before = std::mem::replace(&mut row[0], i + 1);
            for (j, y) in name.iter().enumerate() {
                let replaced = before + usize::from(x != y);
                before = row[j + 1];
                row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
            }
        }
        row[name.len()]
    };
    let best = names.iter().map(|name| (distance(name), *name)).min();
    best.filter(|(distance, name)| *distance <= 2 && *distance < name.len() / 2).map(|(_, name)| name.to_owned())
}
