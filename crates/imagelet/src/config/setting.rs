//! [`Setting`]: a setting as data. The settings are the fields of [`Config`] and its parts, which schemars describes: names, types, ranges,
//! help texts and defaults are those of the JSON schema, and the extension [`Flag`] of a field adds what the command line needs. A setting
//! that is no field of these types does not exist. Called by [`crate::config`], by clap, by the reference page and by `imagelet config`.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::error::{ConfigError, Origin};
use super::flag::{Empty, Flag};
pub(crate) use super::flag::{Group, Zero};
use super::model::Config;
use super::spelling::without_secrets;
use super::value::{Raw, Shape, Wrong};

/// A setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Field of the configuration file, spelled as in KubeletConfiguration if it has the field. A dot selects an entry of a map.
    pub(crate) field: &'static str,
    /// The long flag, without dashes.
    pub(crate) flag: &'static str,
    /// The environment variable: `IMAGELET_` and the flag in capitals.
    pub(crate) variable: String,
    /// The short flag, if any: that of crictl.
    pub(crate) short: Option<char>,
    /// Placeholder of the value in the help text, such as `DIR`.
    pub(crate) value_name: String,
    /// Heading under which the help and the reference page show the setting.
    pub(crate) group: Group,
    /// Text of `--help` without the default.
    pub(crate) help: &'static str,
    /// The default in words, where that is more precise than the value.
    pub(crate) default_text: Option<&'static str>,
    /// Set for a field that is also taken from a kubelet's configuration file.
    pub(crate) kubelet: Option<Zero>,
    /// True if a running agent applies a new value when it reloads its configuration. Any other setting needs a restart.
    pub(crate) reloads: bool,
    /// JSON schema of a value in the file.
    pub(crate) schema: Map<String, Value>,
    /// Description of the allowed values.
    pub(super) allowed: String,
    /// Meaning of an empty text.
    pub(super) empty: Empty,
    /// The default in the form of the file; null if there is none.
    default: Value,
}

/// Values from the command line and the environment, in the order of [`SETTINGS`].
pub(crate) type Given = Vec<(&'static Setting, Origin, String)>;

/// All settings, in the order in which help and `imagelet config` show them.
pub(crate) static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let schema = schemars::schema_for!(Config);
    let fields = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut settings: Vec<Setting> = fields.into_iter().map(|(field, schema)| Setting::new(field, schema)).collect();
    // The sort is stable: within a group, the order of the fields is kept.
    settings.sort_by_key(|setting| setting.group);
    settings
});

/// Returns the setting of a field of the configuration file.
pub(crate) fn of_field(field: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.field == field)
}

impl Config {
    /// Sets a value and records its source.
    pub(super) fn apply(&mut self, setting: &'static Setting, origin: Origin, raw: Raw<'_>) -> Result<(), ConfigError> {
        match setting.apply(self, raw) {
            Ok(()) => {
                self.origins.insert(setting.field, origin);
                Ok(())
            }
            Err(Wrong(allowed)) => {
                Err(ConfigError::Value { origin, field: setting.field, value: raw.to_string(), allowed })
            }
        }
    }
}

impl Setting {
    /// Creates the setting of a field from its JSON schema.
    fn new(field: String, schema: Value) -> Self {
        let Value::Object(mut schema) = schema else { panic!("field {field} has no schema") };
        let mut take = |key: &str| schema.remove(key).unwrap_or_default();
        let flag: Flag = serde_json::from_value(take("imagelet")).expect("every field of the configuration has a flag");
        let (help, default, kind) = (take("description"), take("default"), take("allowed"));
        take("format");
        // An unset value is an absent one.
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|name| name != "null");
            let name = types.pop().unwrap_or_default();
            schema.insert("type".to_owned(), name);
        }
        let is_path = matches!(flag.value_name.as_deref(), Some("DIR" | "FILE" | "PATH"));
        if is_path && flag.empty == Empty::Hidden {
            match schema.get_mut("items").and_then(Value::as_object_mut) {
                Some(items) => items.insert("minLength".to_owned(), 1.into()),
                None => schema.insert("minLength".to_owned(), 1.into()),
            };
        }
        let help = help.as_str().unwrap_or_default().to_owned();
        let (help, default_text) = match help.split_once(" [default: ") {
            None => (help, None),
            Some((text, rest)) => (text.to_owned(), rest.strip_suffix(']').map(|text| &*text.to_owned().leak())),
        };
        let variable = format!("IMAGELET_{}", flag.name.replace('-', "_").to_uppercase());
        let allowed = flag.allowed.or_else(|| kind.as_str().map(str::to_owned));
        let mut setting = Self {
            field: field.leak(),
            flag: flag.name.leak(),
            variable,
            short: flag.short,
            value_name: flag.value_name.unwrap_or_else(|| value_name(&schema)),
            group: flag.group,
            help: help.leak(),
            default_text,
            kubelet: flag.kubelet,
            reloads: flag.reloads,
            allowed: allowed.unwrap_or_else(|| allowed_by(&schema, is_path)),
            schema,
            empty: flag.empty,
            default: Value::Null,
        };
        setting.default = setting.shown_value(default);
        setting
    }

    /// Checks a value and stores it in `config`.
    pub(super) fn apply(&self, config: &mut Config, raw: Raw<'_>) -> Result<(), Wrong> {
        let value = raw.read(&self.shape())?;
        config.replace(self.field, value).map_err(|error| match error.as_str() {
            "" => Wrong(self.allowed.clone()),
            why => Wrong(format!("{} ({why})", self.allowed)),
        })
    }

    /// Returns the value of a configuration in the form of the file; null if there is none.
    #[cfg(test)]
    pub(crate) fn show(&self, config: &Config) -> Value {
        self.value_in(&config.fields())
    }

    /// Returns the value among the fields of a configuration in the form of the file; null if there is none.
    pub(crate) fn value_in(&self, fields: &Map<String, Value>) -> Value {
        self.shown_value(fields.get(self.field).cloned().unwrap_or_default())
    }

    /// Returns the value of a configuration in one line; empty if there is none.
    #[cfg(test)]
    pub(crate) fn shown(&self, config: &Config) -> String {
        self.line(&self.show(config))
    }

    fn shown_value(&self, value: Value) -> Value {
        match value {
            Value::Null if self.empty == Empty::Shown => "".into(),
            Value::String(text) if text.is_empty() && self.empty != Empty::Shown => Value::Null,
            Value::Array(list) if list.is_empty() && self.empty != Empty::Shown => Value::Null,
            Value::String(text) if self.value_name == "URL" => without_secrets(&text).into(),
            value => value,
        }
    }

    /// Returns the default; null if there is none.
    pub(crate) fn default(&self) -> &Value {
        &self.default
    }

    /// Returns the default in one line, if there is any: in words, otherwise the value.
    pub(crate) fn default_line(&self) -> Option<String> {
        let text = self.default_text.map(str::to_owned);
        text.or_else(|| Some(self.line(&self.default)).filter(|line| !line.is_empty()))
    }

    /// Returns a value of this setting in one line; empty for null.
    pub(crate) fn line(&self, value: &Value) -> String {
        match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            Value::Array(list) => {
                let separator = self.separator().map(String::from).unwrap_or_default();
                list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(&separator)
            }
            Value::Object(map) => {
                let pairs = map.iter().map(|(key, value)| format!("{key}<{}", value.as_str().unwrap_or_default()));
                pairs.collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        }
    }

    /// Returns how the setting is written.
    pub(super) fn shape(&self) -> Shape<'_> {
        Shape {
            kind: self.schema.get("type").and_then(Value::as_str),
            is_path: self.is_path(),
            separator: self.separator().unwrap_or(','),
            empty: self.empty,
            allowed: &self.allowed,
        }
    }

    /// Returns true for a path or a list of paths.
    fn is_path(&self) -> bool {
        matches!(self.value_name.as_str(), "DIR" | "FILE" | "PATH")
    }

    /// Returns the separator of the values of a list or of the pairs of a map in a variable; the flag may be given again.
    pub(crate) fn separator(&self) -> Option<char> {
        match self.schema.get("type").and_then(Value::as_str) {
            Some("array") if self.is_path() => Some(':'),
            Some("array" | "object") => Some(','),
            _ => None,
        }
    }
}

/// Returns the words of a choice.
fn words(schema: &Map<String, Value>) -> Option<Vec<&str>> {
    Some(schema.get("enum")?.as_array()?.iter().filter_map(Value::as_str).collect())
}

/// Returns the default placeholder of a value.
fn value_name(schema: &Map<String, Value>) -> String {
    match (words(schema), schema.get("type").and_then(Value::as_str)) {
        (Some(words), _) => words.join("|"),
        (None, Some("boolean")) => "BOOL".to_owned(),
        (None, Some("integer")) => "N".to_owned(),
        (None, Some("string")) => "DURATION".to_owned(),
        (None, _) => "BYTES".to_owned(),
    }
}

/// Returns the description of the allowed values where neither the field nor its form has one.
fn allowed_by(schema: &Map<String, Value>, is_path: bool) -> String {
    let number = |key: &str| schema.get(key).and_then(Value::as_u64).unwrap_or_default();
    match (words(schema), schema.get("type").and_then(Value::as_str)) {
        (Some(words), _) => format!("one of {}", words.join(", ")),
        (None, Some("boolean")) => "true or false".to_owned(),
        (None, Some("integer")) => format!("a whole number from {} to {}", number("minimum"), number("maximum")),
        (None, Some("array")) if is_path => "a list of paths".to_owned(),
        (None, Some("array")) => "a list of texts".to_owned(),
        _ => "a path".to_owned(),
    }
}
