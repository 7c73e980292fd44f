//! [`Note`]: something about a look-up that people should know.

use std::fmt;

/// Something about a look-up that people should know: a source that was left out, and why. One line, for logs, errors
/// and explanations; never a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line, lower-case, without a full stop.
    pub text: String,
}

impl Note {
    /// A note.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
