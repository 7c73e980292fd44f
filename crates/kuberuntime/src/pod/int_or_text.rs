//! [`IntOrText`]: the `IntOrString` of Kubernetes, by which ports are given.

use std::fmt;

/// A number, or the name of something that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrText {
    /// A number.
    Int(i32),
    /// A name.
    Text(String),
}

impl Default for IntOrText {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl fmt::Display for IntOrText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
