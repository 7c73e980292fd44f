//! [`Taint`]: taints that a node has from its creation, written `KEY=VALUE:EFFECT`, and the one that it has by default. Pure. Called
//! by the configuration and by [`super::register`].

use std::fmt;
use std::str::FromStr;

use super::labels::{is_name, is_qualified_name};

/// The taint of a node by default: not every pod can run here, so only those are scheduled that tolerate it.
pub const DEFAULT_TAINT: &str = "imagelet.dev/node:NoSchedule";

/// The effects of a taint.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// A name of up to 63 characters; in front of it, if there is one, a DNS domain and a slash.
    pub key: String,
    /// Empty, or a value that a label could have.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Reason for which a text is not a taint.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaintError {
    /// Without `:`.
    #[error("{0}: a taint is written KEY=VALUE:EFFECT or KEY:EFFECT")]
    Form(String),
    /// The key is no qualified name, as Kubernetes wants keys of taints.
    #[error("{0}: this is no name of a taint")]
    Key(String),
    /// The value is none that a taint may have.
    #[error("{key}: {value:?} is no value of a taint")]
    Value {
        /// Key of the taint.
        key: String,
        /// Refused value.
        value: String,
    },
    /// The effect is none that Kubernetes knows.
    #[error("{key}: {effect:?} is no effect; there are NoSchedule, PreferNoSchedule and NoExecute")]
    Effect {
        /// Key of the taint.
        key: String,
        /// Refused effect.
        effect: String,
    },
}

impl FromStr for Taint {
    type Err = TaintError;

    fn from_str(text: &str) -> Result<Self, TaintError> {
        let (left, effect) = text.rsplit_once(':').ok_or_else(|| TaintError::Form(text.to_owned()))?;
        let (key, value) = left.split_once('=').unwrap_or((left, ""));
        if !is_qualified_name(key) {
            return Err(TaintError::Key(key.to_owned()));
        }
        if !value.is_empty() && !is_name(value) {
            return Err(TaintError::Value { key: key.to_owned(), value: value.to_owned() });
        }
        if !EFFECTS.contains(&effect) {
            return Err(TaintError::Effect { key: key.to_owned(), effect: effect.to_owned() });
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "{}:{}", self.key, self.effect),
            value => write!(f, "{}={value}:{}", self.key, self.effect),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_read_and_written() {
        for text in [DEFAULT_TAINT, "a=b:NoExecute", "dedicated.example/team=x-1:PreferNoSchedule"] {
            assert_eq!(text.parse::<Taint>().map(|taint| taint.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("a=:NoSchedule".parse::<Taint>().map(|taint| taint.to_string()), Ok("a:NoSchedule".to_owned()));
        for (text, want) in [
            ("a", TaintError::Form("a".into())),
            ("/:NoSchedule", TaintError::Key("/".into())),
            ("a=b c:NoSchedule", TaintError::Value { key: "a".into(), value: "b c".into() }),
            ("a=b:Never", TaintError::Effect { key: "a".into(), effect: "Never".into() }),
        ] {
            assert_eq!(text.parse::<Taint>(), Err(want));
        }
    }
}
