//! The configuration in force: defaults, then a kubelet's configuration where one is named, then our own file, then
//! `IMAGELET_…` variables, then flags. Refuses unknown fields, bad values and contradictions, and says where each value
//! came from. Reads files; acts on nothing. Called by `main` before anything else is opened.

mod check;
pub(crate) mod eviction;
pub(crate) mod flags;
pub(crate) mod keep;
mod kubelet;
mod model;
pub(crate) mod reference;
pub(crate) mod settings;
pub(crate) mod value;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::exit::{Code, Failure};
use crate::yaml::{self, Node, Value};
pub(crate) use image_service::{Resume, SharedContent};
pub(crate) use model::{Config, Durability, GcOrder, LayerFormat, LogFormat, LogLevel, PathMatch, Sharing};
use settings::{SETTINGS, Setting};
use value::{Raw, Wrong};

/// The group and version of the file.
pub(crate) const API_VERSION: &str = "imagelet.dev/v1alpha1";
/// The kind of the file.
pub(crate) const KIND: &str = "ImageletConfiguration";
/// Read when no other file is named, if it is there.
pub(crate) const DEFAULT_FILE: &str = "/etc/imagelet/config.yaml";

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    File { path: PathBuf, line: u64 },
    Variable(&'static str),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => write!(f, "--{flag}"),
        }
    }
}

/// Values from the command line and the environment, in the order of [`SETTINGS`].
pub(crate) type Given = Vec<(&'static Setting, Origin, String)>;

/// Why there is no configuration. Each finding is one line that names field, value and what is allowed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("read configuration {}: {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("configuration {}{}: {message}", path.display(), line.map(|l| format!(":{l}")).unwrap_or_default())]
    Shape { path: PathBuf, line: Option<u64>, message: String },
    #[error("{}: {value} is not allowed, must be {allowed}", name(origin, field))]
    Value { origin: Origin, field: &'static str, value: String, allowed: String },
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

/// How a setting is called where it was set.
fn name(origin: &Origin, field: &str) -> String {
    match origin {
        Origin::File { .. } => format!("{origin}: {field}"),
        Origin::Variable(_) | Origin::Flag(_) => origin.to_string(),
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        // A wrong flag is wrong usage; everything else is a matter of the configuration.
        let code = match &error {
            ConfigError::Value { origin: Origin::Flag(_), .. } => Code::Usage,
            _ => Code::Config,
        };
        let failures = error.to_string().lines().map(|line| Self::new(code, line)).collect();
        Self::all(failures).unwrap_or_else(|| Self::new(code, "the configuration is wrong"))
    }
}

/// A configuration file that was read: one document of the right kind.
struct Document {
    path: PathBuf,
    node: Node,
}

impl Document {
    /// Reads a file whose head must be this.
    fn read(path: &Path, api_version: &str, kind: &str) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), message: error.to_string() })?;
        let shape = |line, message: String| ConfigError::Shape { path: path.to_owned(), line, message };
        let mut documents = yaml::documents(&text).map_err(|e| shape(e.position.map(|p| p.line), e.message))?;
        let (1, Some(node)) = (documents.len(), documents.pop()) else {
            return Err(shape(None, format!("{} documents instead of one", documents.len())));
        };
        if !matches!(node.value, Value::Map(_)) {
            return Err(shape(Some(node.position.line), format!("a map was expected, not {}", node.value)));
        }
        for (field, want) in [("apiVersion", api_version), ("kind", kind)] {
            match node.get(field) {
                Some(Node { value: Value::Text(got), .. }) if got == want => {}
                Some(Node { value, position }) => {
                    let message = format!("{field}: {value} is not allowed, must be {want}");
                    return Err(shape(Some(position.line), message));
                }
                None => return Err(shape(None, format!("{field} is missing, must be {want}"))),
            }
        }
        Ok(Self { path: path.to_owned(), node })
    }

    /// The fields below the head, in their order.
    fn fields(&self) -> impl Iterator<Item = (&str, &Node)> {
        let entries: &[(String, Node)] = match &self.node.value {
            Value::Map(entries) => entries,
            _ => &[],
        };
        entries.iter().map(|(key, node)| (key.as_str(), node)).filter(|(key, _)| *key != "apiVersion" && *key != "kind")
    }

    /// The directory against which relative paths count.
    fn base(&self) -> PathBuf {
        let absolute = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        absolute.parent().unwrap_or(Path::new("/")).to_owned()
    }

    fn origin(&self, node: &Node) -> Origin {
        Origin::File { path: self.path.clone(), line: node.position.line }
    }

    fn error<T>(&self, node: &Node, message: String) -> Result<T, ConfigError> {
        Err(ConfigError::Shape { path: self.path.clone(), line: Some(node.position.line), message })
    }
}

impl Config {
    /// The configuration in force. `file` was asked for by name; otherwise the default file counts if it exists.
    pub(crate) fn load(environment: &Environment, file: Option<&Path>, given: Given) -> Result<Self, ConfigError> {
        let mut config = Self::defaults(environment);
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let there = file.is_some() || path.try_exists().unwrap_or(true);
        let own = if there { Some(Document::read(path, API_VERSION, KIND)?) } else { None };
        // Which kubelet's file is meant is known before it can be read, and it counts less than what names it.
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
        // In a kubelet's file they are named with everything else that is passed over there.
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
                Value::Map(inner) if SETTINGS.iter().all(|s| s.field != key) => {
                    inner.iter().map(|(k, node)| (format!("{key}.{k}"), node)).collect()
                }
                _ => vec![(key.to_owned(), node)],
            };
            for (field, node) in fields {
                let Some(setting) = SETTINGS.iter().find(|s| s.field == field) else {
                    let known: Vec<&str> = SETTINGS.iter().map(|s| s.field).collect();
                    return document.error(node, format!("unknown field {field:?}; known: {}", known.join(", ")));
                };
                self.apply(setting, document.origin(node), Raw::Node { value: &node.value, base: &base })?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, setting: &'static Setting, origin: Origin, raw: Raw<'_>) -> Result<(), ConfigError> {
        match (setting.apply)(self, raw) {
            Ok(()) => {
                self.origins.insert(setting.field, origin);
                Ok(())
            }
            Err(Wrong(allowed)) => {
                let value = if setting.is_secret() { "what was given".to_owned() } else { raw.to_string() };
                Err(ConfigError::Value { origin, field: setting.field, value, allowed })
            }
        }
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
