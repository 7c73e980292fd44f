//! The configuration in force: defaults, then a kubelet's configuration if one is named, then our own file and its drop-ins, then
//! `IMAGELET_…` variables, then flags. Refuses unknown fields, invalid values and contradictions, and records the source of each value.
//! Reads files; acts on nothing. Called by `main` before anything else is opened.

mod check;
mod document;
mod error;
pub(crate) mod eviction;
mod files;
mod flag;
pub(crate) mod flags;
mod follow;
mod form;
pub(crate) mod keep;
mod kubelet;
mod model;
pub(crate) mod names;
pub(crate) mod reference;
pub(crate) mod reload;
pub(crate) mod removed;
pub(crate) mod schema;
pub(crate) mod setting;
pub(crate) mod settings;
pub(crate) mod show;
mod spelling;
pub(crate) mod value;

use std::path::PathBuf;

use crate::environment::Environment;
use document::Document;
pub(crate) use error::{ConfigError, Origin};
pub(crate) use files::{API_VERSION, KIND, NamedFiles};
pub(crate) use kubelet::migrate;
use manifest::yaml::{Node, Value};
pub(crate) use model::{Config, LogFormat};
use setting::{Given, Setting, of_field};
pub(crate) use store::Durability;
use value::Raw;

/// The setting that names a kubelet's file.
const KUBELET_CONFIG: &str = "kubeletConfig";

impl Config {
    /// Returns the configuration in force, or every error that its files and values have.
    pub(crate) fn load(environment: &Environment, files: &NamedFiles, given: Given) -> Result<Self, ConfigError> {
        let mut config = Self::defaults(environment);
        let mut errors = Vec::new();
        let own = files.read(&mut config.notes, &mut errors);
        // A kubelet's file has the lowest precedence, although any of the others may name it.
        if let Some(path) = kubelet_file(&own, &given) {
            let unused = kubelet::apply(&mut config, &path, &mut errors);
            config.notes.extend(unused.note(&path));
            config.notes.extend(unused.constants_note(&path));
        }
        for document in &own {
            config.apply_file(document, &mut errors);
        }
        for (setting, origin, text) in given {
            errors.extend(config.apply(setting, origin, Raw::Text(&text)).err());
        }
        // Signals of a kubelet's file are named together with all other ignored fields of that file.
        if let Some(origin) = config.origins.get("evictionHard").filter(|origin| !config.is_of_kubelet(origin))
            && let signals @ [_, ..] = eviction::passed_over(&config.eviction).as_slice()
        {
            let note = format!(
                "evictionHard ({origin}): passed over, as it does not concern imagelet: {}",
                signals.join(", ")
            );
            config.notes.push(note);
        }
        let findings = check::findings(&config);
        if !findings.is_empty() {
            errors.push(ConfigError::Invalid(findings));
        }
        ConfigError::all(errors).map(|()| config)
    }

    /// Returns true if the origin is the kubelet's file.
    fn is_of_kubelet(&self, origin: &Origin) -> bool {
        matches!((origin, &self.kubelet_config), (Origin::File { path, .. }, Some(kubelet)) if path == kubelet)
    }

    fn apply_file(&mut self, document: &Document, errors: &mut Vec<ConfigError>) {
        let base = document.base();
        for (key, node) in document.fields() {
            let fields: Vec<(String, &Node)> = match &node.value {
                // Some settings are maps themselves.
                Value::Map(inner) if of_field(key).is_none() && removed::of_field(key).is_none() => {
                    inner.iter().map(|(k, node)| (format!("{key}.{k}"), node)).collect()
                }
                _ => vec![(key.to_owned(), node)],
            };
            for (field, node) in fields {
                let applied = match of_field(&field) {
                    Some(setting) => {
                        self.apply(setting, document.origin(node), Raw::Node { value: &node.value, base: &base })
                    }
                    None => match removed::of_field(&field) {
                        Some(removed) => document.error(node, removed::refusal(&format!("field {field:?}"), removed)),
                        None => document.error(node, format!("unknown field {field:?}{}", names::hint(&field))),
                    },
                };
                errors.extend(applied.err());
            }
        }
    }
}

/// Returns the kubelet's file that a flag, a variable or our own files name. A name that is no path is reported later.
fn kubelet_file(own: &[Document], given: &[(&'static Setting, Origin, String)]) -> Option<PathBuf> {
    let is_it = |setting: &Setting| setting.field == KUBELET_CONFIG;
    let last = given.iter().rev().find(|(setting, ..)| is_it(setting));
    if let Some((_, _, text)) = last {
        return Raw::Text(text).path();
    }
    own.iter().rev().find_map(|document| {
        let (_, node) = document.fields().find(|(key, _)| *key == KUBELET_CONFIG)?;
        Raw::Node { value: &node.value, base: &document.base() }.path()
    })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
