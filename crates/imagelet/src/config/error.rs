//! Where a value came from, and why there is no configuration. Called by everything that reads one.

use std::fmt;
use std::path::PathBuf;

use crate::exit::{Code, Failure};

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
