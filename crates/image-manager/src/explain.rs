//! [`Explanation`]: what would happen to a request, and why. Made by
//! [`ImageManager::explain`](crate::ImageManager::explain), which changes nothing.

use std::fmt;

use crate::{Decision, EnsureImageError, Presence, PullPolicy};

/// What would happen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The image as it was requested.
    pub image: String,
    /// The name that the runtime would be sent; `None` where the request is no image name.
    pub sent: Option<String>,
    /// The policy.
    pub policy: PullPolicy,
    /// Whether it is here, as far as the policy asks.
    pub presence: Presence,
    /// The decision, or why there can be none.
    pub decision: Result<Decision, EnsureImageError>,
}

impl Explanation {
    /// One word: `use-local`, `pull`, `refuse`, or `fail` where nothing could be decided.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.decision.as_ref().map_or("fail", Decision::word)
    }

    /// The reason, for people.
    #[must_use]
    pub fn why(&self) -> String {
        match &self.decision {
            Ok(decision) => decision.why().to_owned(),
            Err(error) => format!("{}: {}", error.reason(), error.message()),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.image, self.word(), self.why())
    }
}
