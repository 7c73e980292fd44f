//! The configuration in force as data: in the form of the file, and as a list of its values with the source of each. Neither contains
//! secrets. Called by `imagelet config`, and by everything that reports the configuration.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::error::Origin;
use super::setting::SETTINGS;
use super::{API_VERSION, Config, KIND};

/// A setting with its value in force.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EffectiveValue {
    /// The field of the file.
    pub(crate) field: &'static str,
    /// Null if there is none.
    pub(crate) value: Value,
    /// The kind of source.
    pub(crate) source: &'static str,
    /// The source: file and line, variable or flag; absent for a default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// True if a running agent applies a new value when it reloads its configuration.
    pub(crate) reloads: bool,
    /// The value in one line.
    #[serde(skip)]
    pub(crate) shown: String,
}

/// Returns the configuration in the form of the file. Unset values are left out.
pub(crate) fn document(config: &Config) -> Value {
    let fields = config.fields();
    document_of(SETTINGS.iter().map(|setting| (setting.field, setting.value_in(&fields))))
}

/// Returns a configuration file with these fields, without those that are null.
pub(crate) fn document_of(fields: impl Iterator<Item = (&'static str, Value)>) -> Value {
    let mut map = Map::new();
    map.insert("apiVersion".into(), json!(API_VERSION));
    map.insert("kind".into(), json!(KIND));
    for (field, value) in fields.filter(|(_, value)| !value.is_null()) {
        match field.split_once('.') {
            None => {
                map.insert(field.into(), value);
            }
            Some((outer, inner)) => {
                let entry = map.entry(outer).or_insert_with(|| json!({}));
                if let Value::Object(object) = entry {
                    object.insert(inner.into(), value);
                }
            }
        }
    }
    Value::Object(map)
}

/// Returns every setting with its value and its source.
pub(crate) fn effective(config: &Config) -> Vec<EffectiveValue> {
    let fields = config.fields();
    let one = |setting: &'static super::setting::Setting| {
        let origin = config.origins.get(setting.field);
        let source = match origin {
            None => "default",
            Some(origin) if config.is_of_kubelet(origin) => "kubelet",
            Some(Origin::File { .. }) => "file",
            Some(Origin::Variable(_)) => "variable",
            Some(Origin::Flag(_)) => "flag",
        };
        let value = setting.value_in(&fields);
        EffectiveValue {
            field: setting.field,
            source,
            from: origin.map(ToString::to_string),
            reloads: setting.reloads,
            shown: setting.line(&value),
            value,
        }
    };
    SETTINGS.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NamedFiles;
    use crate::environment::Environment;

    #[test]
    fn what_is_shown_can_be_read_again() {
        let defaults = Config::defaults(&Environment::default());
        let text = serde_saphyr::to_string(&document(&defaults)).expect("YAML");
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        std::fs::write(file.path(), &text).expect("written");
        let read = Config::load(&Environment::default(), &NamedFiles::of(file.path()), Vec::new());
        let read = read.unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(document(&read), document(&defaults), "{text}");
    }

    #[test]
    fn values_say_where_they_come_from_and_keep_secrets() {
        let directory = tempfile::tempdir().expect("a directory");
        let (ours, theirs) = (directory.path().join("c.yaml"), directory.path().join("k.yaml"));
        let head = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
        let text = "kubeletConfig: k.yaml\nstaticPodURL: https://me:s3cret@config.example/pods\nroot: /r\n";
        std::fs::write(&ours, head + text).expect("written");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n";
        std::fs::write(&theirs, text).expect("written");
        let root = super::super::of_field("durability").expect("a setting");
        let given = vec![(root, Origin::Flag("durability"), "relaxed".to_owned())];
        let config = Config::load(&Environment::default(), &NamedFiles::of(&ours), given).expect("loads");
        let all = effective(&config);
        let of = |field: &str| {
            let one = all.iter().find(|value| value.field == field).expect("there");
            let from = one.from.as_deref().map(|from| from.rsplit('/').next().unwrap_or_default());
            (one.source, from, one.value.clone())
        };
        assert_eq!(of("maxPods"), ("kubelet", Some("k.yaml:3"), json!(7)));
        assert_eq!(of("root"), ("file", Some("c.yaml:5"), json!("/r")));
        assert_eq!(of("durability"), ("flag", Some("--durability"), json!("relaxed")));
        assert_eq!(of("pullMemory").0, "default");
        assert_eq!(of("staticPodURL").2, "https://me:xxxxx@config.example/pods");
        let written = serde_json::to_string(&all).expect("JSON") + &document(&config).to_string();
        assert!(!written.contains("s3cret"), "{written}");
    }
}
