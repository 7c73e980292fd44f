//! [`ManifestFields`]: reads the fields of one object of a manifest, strictly, and keeps on after a mistake, so that all of them are
//! reported at once. What cannot be read counts as absent. [`Json`] and [`ManifestField`] say how each type is read and written. Knows
//! types, not meanings. Called by every type of the model.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use manifest::{FieldErrors, FieldPath, FieldProblem};

/// An object of a manifest.
pub(crate) trait ManifestObject: Sized {
    /// Takes the fields; what it does not take is unknown.
    fn read(fields: &mut ManifestFields<'_>) -> Self;
    /// Adds the fields that say something.
    fn write(&self, object: &mut Map<String, Value>);
}

/// A value of a manifest.
pub(crate) trait Json: Sized {
    /// Reads a value. `None`: it is of another type, which is added to `errors`, or it says nothing.
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self>;
    fn to_value(&self) -> Value;
}

/// A value that stands in lists.
pub(crate) trait ListEntry: Json {
    /// Value for an entry that cannot be read, so that those behind it keep their index.
    fn unreadable() -> Self;
}

/// A value whose default says nothing.
pub(crate) trait Plain: Json + Default + PartialEq {}

/// A field of an object.
pub(crate) trait ManifestField: Sized {
    fn read(fields: &mut ManifestFields<'_>, name: &'static str) -> Self;
    /// Adds the field, unless it says nothing.
    fn write(&self, name: &str, object: &mut Map<String, Value>);
}

/// The fields of one object, and what was found wrong so far.
pub(crate) struct ManifestFields<'a> {
    path: FieldPath,
    map: &'a Map<String, Value>,
    known: Vec<&'static str>,
    errors: &'a mut FieldErrors,
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

impl<'a> ManifestFields<'a> {
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

    /// The value of a field; `None` if it is absent or cannot be read.
    pub(crate) fn get<T: Json>(&mut self, name: &'static str) -> Option<T> {
        let value = self.take(name)?;
        T::from_value(value, self.path.child(name), self.errors)
    }

    /// Refuses the fields that no reader has taken.
    fn finish(self) {
        for key in self.map.keys().filter(|key| !self.known.contains(&key.as_str())) {
            let closest = base::nearest(key, self.known.iter().copied()).map(str::to_owned);
            self.errors.push(self.path.child(key), FieldProblem::Unknown { closest });
        }
    }
}

impl<T: Json> ManifestField for Option<T> {
    fn read(fields: &mut ManifestFields<'_>, name: &'static str) -> Self {
        fields.get(name)
    }

    fn write(&self, name: &str, object: &mut Map<String, Value>) {
        if let Some(value) = self {
            object.insert(name.to_owned(), value.to_value());
        }
    }
}

impl<T: Plain> ManifestField for T {
    fn read(fields: &mut ManifestFields<'_>, name: &'static str) -> Self {
        fields.get(name).unwrap_or_default()
    }

    fn write(&self, name: &str, object: &mut Map<String, Value>) {
        if *self != Self::default() {
            object.insert(name.to_owned(), self.to_value());
        }
    }
}

impl<T: ManifestObject> Json for T {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        let map = expect(value.as_object(), value, &path, errors, "must be a map")?;
        let mut fields = ManifestFields { path, map, known: Vec::new(), errors };
        let read = T::read(&mut fields);
        fields.finish();
        Some(read)
    }

    fn to_value(&self) -> Value {
        let mut object = Map::new();
        self.write(&mut object);
        Value::Object(object)
    }
}

impl<T: ManifestObject> ListEntry for T {
    fn unreadable() -> Self {
        let (map, mut errors) = (Map::new(), FieldErrors::default());
        T::read(&mut ManifestFields { path: FieldPath::default(), map: &map, known: Vec::new(), errors: &mut errors })
    }
}

impl<T: ListEntry> Json for Vec<T> {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        let list = expect(value.as_array(), value, &path, errors, "must be a list")?.iter().enumerate();
        Some(list.map(|(i, value)| T::from_value(value, path.index(i), errors).unwrap_or_else(T::unreadable)).collect())
    }

    fn to_value(&self) -> Value {
        self.iter().map(Json::to_value).collect()
    }
}

impl<T: ListEntry + PartialEq> Plain for Vec<T> {}

impl<T: Json> Json for BTreeMap<String, T> {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        let map = expect(value.as_object(), value, &path, errors, "must be a map")?.iter();
        Some(map.filter_map(|(key, value)| Some((key.clone(), T::from_value(value, path.key(key), errors)?))).collect())
    }

    fn to_value(&self) -> Value {
        self.iter().map(|(key, value)| (key.clone(), value.to_value())).collect()
    }
}

impl<T: Json + PartialEq> Plain for BTreeMap<String, T> {}

/// A word of a fixed set; an empty text says nothing.
pub(crate) fn word<T: Copy>(
    words: &[(&str, T)],
    value: &Value,
    path: FieldPath,
    errors: &mut FieldErrors,
) -> Option<T> {
    let text = String::from_value(value, path.clone(), errors).filter(|text| !text.is_empty())?;
    let word = words.iter().find(|(word, _)| *word == text);
    if word.is_none() {
        let supported: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        errors.unsupported(path, text, &supported);
    }
    word.map(|(_, word)| *word)
}

/// Reads a value out of JSON; paths of errors begin with `name`.
///
/// # Errors
/// Everything that cannot be read.
pub(crate) fn from_text<T: Json + Default>(text: &str, name: &str) -> Result<T, FieldErrors> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::new(name));
    let read = match serde_json::from_str::<Value>(text) {
        Ok(value) => T::from_value(&value, path, &mut errors),
        Err(_) => {
            errors.invalid_plain(path, "text", "must be JSON");
            None
        }
    };
    errors.into_result().map(|()| read.unwrap_or_default())
}

/// Adds `detail` to the errors if nothing was read.
pub(super) fn expect<T>(
    read: Option<T>,
    value: &Value,
    path: &FieldPath,
    errors: &mut FieldErrors,
    detail: &str,
) -> Option<T> {
    if read.is_none() {
        errors.invalid_plain(path.clone(), shown(value), detail);
    }
    read
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
