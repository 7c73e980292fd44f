//! The configuration in force: defaults, then the file, then `IMAGELET_…` variables, then flags. Refuses unknown
//! fields, bad values and contradictions, and says where each value came from. Reads one file; acts on nothing.
//! Called by `main` before anything else is opened.

pub(crate) mod flags;
pub(crate) mod settings;
pub(crate) mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::Environment;
use crate::exit::{Code, Failure};
use crate::yaml::{self, Node, Value};
use settings::{SETTINGS, Setting};
use value::{Raw, Wrong};

/// The group and version of the file.
pub(crate) const API_VERSION: &str = "imagelet.dev/v1alpha1";
/// The kind of the file.
pub(crate) const KIND: &str = "ImageletConfiguration";
/// Read when no other file is named, if it is there.
pub(crate) const DEFAULT_FILE: &str = "/etc/imagelet/config.yaml";

/// What survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    Full,
    Relaxed,
}

/// What one layer may hold at most: above it a pull fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) layer_bytes: u64,
    pub(crate) layer_entries: usize,
    pub(crate) path_depth: usize,
    pub(crate) header_bytes: u64,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Everything that can be configured. The fields are those of [`SETTINGS`].
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) root: PathBuf,
    pub(crate) image_service_endpoint: Option<String>,
    pub(crate) container_runtime_endpoint: Option<String>,
    pub(crate) runtime_request_timeout: Duration,
    pub(crate) registry_config_paths: Vec<PathBuf>,
    pub(crate) serialize_image_pulls: Option<bool>,
    pub(crate) max_parallel_image_pulls: Option<usize>,
    pub(crate) max_parallel_layers: usize,
    pub(crate) platform: oci::Platform,
    pub(crate) durability: Durability,
    pub(crate) limits: Limits,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LogLevel,
    /// Where the values came from, by field; absent ones are defaults.
    pub(crate) origins: BTreeMap<&'static str, Origin>,
}

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

/// Why there is no configuration. One line that names field, value and what is allowed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("read configuration {}: {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("configuration {}{}: {message}", path.display(), line.map(|l| format!(":{l}")).unwrap_or_default())]
    Shape { path: PathBuf, line: Option<u64>, message: String },
    #[error("{}: {value} is not allowed, must be {allowed}", name(origin, field))]
    Value { origin: Origin, field: &'static str, value: String, allowed: String },
    #[error("invalid configuration: {0}")]
    Contradiction(String),
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
        Self::new(code, error.to_string())
    }
}

impl Config {
    /// What holds where nothing is said.
    pub(crate) fn defaults(environment: &Environment) -> Self {
        let engine = image_service::EngineOptions::default();
        let limits = &engine.store.limits;
        Self {
            root: environment.default_root(),
            image_service_endpoint: None,
            container_runtime_endpoint: None,
            runtime_request_timeout: Duration::from_secs(120),
            registry_config_paths: vec!["/etc/imagelet/certs.d".into(), "/etc/containerd/certs.d".into()],
            serialize_image_pulls: None,
            max_parallel_image_pulls: None,
            max_parallel_layers: engine.max_parallel_layers,
            platform: oci::Platform::host(),
            durability: Durability::Full,
            limits: Limits {
                layer_bytes: limits.layer_bytes,
                layer_entries: usize::try_from(limits.entries).unwrap_or(usize::MAX),
                path_depth: limits.path_depth,
                header_bytes: limits.pax_header_bytes as u64,
            },
            log_format: LogFormat::Text,
            log_level: LogLevel::Info,
            origins: BTreeMap::new(),
        }
    }

    /// The configuration in force. `file` was asked for by name; otherwise the default file counts if it exists.
    pub(crate) fn load(environment: &Environment, file: Option<&Path>, given: Given) -> Result<Self, ConfigError> {
        let mut config = Self::defaults(environment);
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        match std::fs::read_to_string(path) {
            Ok(text) => config.apply_file(path, &text)?,
            Err(error) if file.is_none() && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(ConfigError::Read { path: path.to_owned(), message: error.to_string() }),
        }
        for (setting, origin, text) in given {
            config.apply(setting, origin, Raw::Text(&text))?;
        }
        config.check()?;
        Ok(config)
    }

    fn apply_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let shape = |line, message: String| ConfigError::Shape { path: path.to_owned(), line, message };
        let documents = yaml::documents(text).map_err(|e| shape(e.position.map(|p| p.line), e.message))?;
        let [document] = documents.as_slice() else {
            return Err(shape(None, format!("{} documents instead of one", documents.len())));
        };
        let Value::Map(entries) = &document.value else {
            return Err(shape(Some(document.position.line), format!("a map was expected, not {}", document.value)));
        };
        for (field, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match document.get(field) {
                Some(Node { value: Value::Text(got), .. }) if got == want => {}
                Some(Node { value, position }) => {
                    let message = format!("{field}: {value} is not allowed, must be {want}");
                    return Err(shape(Some(position.line), message));
                }
                None => return Err(shape(None, format!("{field} is missing, must be {want}"))),
            }
        }
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let base = absolute.parent().unwrap_or(Path::new("/"));
        for (key, node) in entries.iter().filter(|(key, _)| key != "apiVersion" && key != "kind") {
            let fields: Vec<(String, &Node)> = match &node.value {
                Value::Map(inner) => inner.iter().map(|(k, node)| (format!("{key}.{k}"), node)).collect(),
                _ => vec![(key.clone(), node)],
            };
            for (field, node) in fields {
                let line = node.position.line;
                let Some(setting) = SETTINGS.iter().find(|s| s.field == field) else {
                    let known: Vec<&str> = SETTINGS.iter().map(|s| s.field).collect();
                    return Err(shape(Some(line), format!("unknown field {field:?}; known: {}", known.join(", "))));
                };
                let origin = Origin::File { path: path.to_owned(), line };
                self.apply(setting, origin, Raw::Node { value: &node.value, base })?;
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
                Err(ConfigError::Value { origin, field: setting.field, value: raw.to_string(), allowed })
            }
        }
    }

    /// What no single value shows.
    fn check(&self) -> Result<(), ConfigError> {
        if let (Some(true), Some(n @ 2..)) = (self.serialize_image_pulls, self.max_parallel_image_pulls) {
            let text = format!("maxParallelImagePulls {n} must be 1 or absent while serializeImagePulls is true");
            return Err(ConfigError::Contradiction(text));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
