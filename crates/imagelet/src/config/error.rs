//! The source of a value, and the errors of loading a configuration. Called by everything that reads one.

use std::fmt;
use std::path::PathBuf;

use crate::exit::{Code, Failure};

/// The source of a value.
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

/// Errors of loading a configuration. Each finding is one line that names field, value and what is allowed.
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
    /// Several errors of the other variants.
    #[error("{}", lines(.0))]
    Several(Vec<Self>),
}

fn lines(errors: &[ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl ConfigError {
    /// Returns the exit code: a wrong flag is wrong usage; every other error concerns the configuration.
    fn code(&self) -> Code {
        match self {
            Self::Value { origin: Origin::Flag(_), .. } => Code::Usage,
            _ => Code::Config,
        }
    }

    /// Combines several errors into one; `Ok` if there are none.
    pub(super) fn all(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.pop() {
            None => Ok(()),
            Some(only) if errors.is_empty() => Err(only),
            Some(last) => {
                errors.push(last);
                Err(Self::Several(errors))
            }
        }
    }
}

/// Returns the name of a setting as used where it was set.
fn name(origin: &Origin, field: &str) -> String {
    match origin {
        Origin::File { .. } => format!("{origin}: {field}"),
        Origin::Variable(_) | Origin::Flag(_) => origin.to_string(),
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let error = match error {
            ConfigError::Several(errors) => {
                let of_files = errors.iter().any(|error| error.code() == Code::Config);
                let failure = Self::all(errors.into_iter().map(Self::from).collect());
                let failure = failure.unwrap_or_else(|| Self::new(Code::Config, "the configuration is wrong"));
                return if of_files { failure.with_code(Code::Config) } else { failure };
            }
            error => error,
        };
        let code = error.code();
        let failures = error.to_string().lines().map(|line| Self::new(code, line)).collect();
        Self::all(failures).unwrap_or_else(|| Self::new(code, "the configuration is wrong"))
    }
}
