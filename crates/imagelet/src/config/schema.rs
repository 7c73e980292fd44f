//! The JSON schema (draft 2020-12) of the configuration file, made from the settings' types. It refuses unknown fields and values of
//! the wrong form; contradictions between fields and the range of durations and sizes in text are left to [`super::check`] and the types.
//! Called by `imagelet config schema`.

use serde_json::{Map, Value, json};

use super::setting::SETTINGS;
use super::{API_VERSION, KIND};

/// Returns the schema.
pub(crate) fn schema() -> Value {
    let mut properties = Map::new();
    properties.insert("apiVersion".into(), json!({"const": API_VERSION}));
    properties.insert("kind".into(), json!({"const": KIND}));
    for setting in SETTINGS.iter() {
        let mut property = setting.schema.clone();
        let help = setting.help;
        let (description, default) = match setting.default_text {
            // A default in words is more precise than the value that it stands for.
            Some(text) => (format!("{help} [default: {text}]"), &Value::Null),
            None => (help.to_owned(), setting.default()),
        };
        property.insert("description".to_owned(), description.into());
        if !default.is_null() {
            property.insert("default".to_owned(), default.clone());
        }
        let property = Value::Object(property);
        match setting.field.split_once('.') {
            None => {
                properties.insert(setting.field.into(), property);
            }
            Some((outer, inner)) => {
                let map = json!({"type": "object", "additionalProperties": false, "properties": {}});
                let outer = properties.entry(outer).or_insert(map);
                outer["properties"][inner] = property;
            }
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("{KIND} ({API_VERSION})"),
        "type": "object",
        "required": ["apiVersion", "kind"],
        "additionalProperties": false,
        "properties": properties,
    })
}

/// Returns the schema as the text of a file.
pub(crate) fn text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_copy_is_up_to_date() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.schema.json");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == super::text(),
            "run: cargo run -p imagelet -- config schema > docs/configuration.schema.json"
        );
    }
}
