//! The configuration in force: defaults, then a kubelet's configuration where one is named, then our own file, then
//! `IMAGELET_…` variables, then flags. Refuses unknown fields, bad values and contradictions, and says where each value
//! came from. Reads files; acts on nothing. Called by `main` before anything else is opened.

mod check;
mod declare;
mod document;
mod error;
pub(crate) mod eviction;
pub(crate) mod flags;
pub(crate) mod keep;
mod kind;
mod kubelet;
mod model;
pub(crate) mod names;
pub(crate) mod reference;
pub(crate) mod settings;
pub(crate) mod table;
pub(crate) mod value;

use std::path::Path;

use crate::environment::Environment;
use document::Document;
pub(crate) use error::{ConfigError, Origin};
use manifest::yaml::{Node, Value};
pub(crate) use model::{Config, LogFormat};
pub(crate) use store::Durability;
use table::{Given, of_field};
use value::Raw;

/// Group and version of the configuration file.
pub(crate) const API_VERSION: &str = "imagelet.dev/v1alpha1";
/// Kind of the configuration file.
pub(crate) const KIND: &str = "ImageletConfiguration";
/// The configuration file that is read by default, if it exists.
pub(crate) const DEFAULT_FILE: &str = "/etc/imagelet/config.yaml";

impl Config {
    /// Returns the configuration in force. `file` was named; without it the default file counts if it exists.
    pub(crate) fn load(environment: &Environment, file: Option<&Path>, given: Given) -> Result<Self, ConfigError> {
        let mut config = Self::defaults(environment);
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let there = file.is_some() || path.try_exists().unwrap_or(true);
        let own = if there { Some(Document::read(path, API_VERSION, KIND)?) } else { None };
        // The name of the kubelet's file has to be known before that file can be read, and the file that names it counts more.
        if let Some(own) = &own {
            config.apply_file(own)?;
        }
        for (setting, origin, text) in &given {
            config.apply(setting, origin.clone(), Raw::Text(text))?;
        }
        if let Some(path) = config.kubelet_config.take() {
            let mut whole = Self::defaults(environment);
            kubelet::apply(&mut whole, &path)?;
            if let Some(own) = &own {
                whole.apply_file(own)?;
            }
            for (setting, origin, text) in given {
                whole.apply(setting, origin, Raw::Text(&text))?;
            }
            config = whole;
        }
        // Signals of a kubelet's file are named with everything else that is passed over there.
        if let Some(origin) = config.origins.get("evictionHard").filter(|origin| !config.is_of_kubelet(origin))
            && let signals @ [_, ..] = eviction::passed_over(&config.eviction).as_slice()
        {
            let note = format!(
                "evictionHard ({origin}): passed over, as it does not concern imagelet: {}",
                signals.join(", ")
            );
            config.notes.push(note);
        }
        match check::findings(&config) {
            findings if findings.is_empty() => Ok(config),
            findings => Err(ConfigError::Invalid(findings)),
        }
    }

    fn is_of_kubelet(&self, origin: &Origin) -> bool {
        matches!((origin, &self.kubelet_config), (Origin::File { path, .. }, Some(kubelet)) if path == kubelet)
    }

    fn apply_file(&mut self, document: &Document) -> Result<(), ConfigError> {
        let base = document.base();
        for (key, node) in document.fields() {
            let fields: Vec<(String, &Node)> = match &node.value {
                // Some settings are maps themselves.
                Value::Map(inner) if of_field(key).is_none() => {
                    inner.iter().map(|(k, node)| (format!("{key}.{k}"), node)).collect()
                }
                _ => vec![(key.to_owned(), node)],
            };
            for (field, node) in fields {
                let Some(setting) = of_field(&field) else {
                    return document.error(node, format!("unknown field {field:?}{}", names::hint(&field)));
                };
                self.apply(setting, document.origin(node), Raw::Node { value: &node.value, base: &base })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
