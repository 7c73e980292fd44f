//! [`Authority`]: authenticates a client and authorizes its request by the API server. A process border:
//! [`crate::reviews`] implements it. Decides nothing itself.

use std::error::Error;
use std::fmt;

use async_trait::async_trait;
use oci::Secret;

/// The identity of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Name of the user.
    pub name: String,
    /// The user's id; empty where there is none.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Further facts, by key.
    pub extra: Vec<(String, Vec<String>)>,
}

/// Access to a subresource of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Verb of the API: `get`, `create`.
    pub verb: &'static str,
    /// Subresource of the Node: `proxy`, `log`, `stats`, `metrics`.
    pub subresource: &'static str,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes/{}", self.verb, self.subresource)
    }
}

/// Failure to get an answer from the API server.
pub type AuthorityError = Box<dyn Error + Send + Sync>;

/// The API server, as far as it vouches for clients.
#[async_trait]
pub trait Authority: Send + Sync {
    /// Returns the user of a token, by a TokenReview, or `None` for an invalid token.
    async fn review_token(&self, token: &Secret) -> Result<Option<Identity>, AuthorityError>;

    /// Returns true if a SubjectAccessReview allows this access to this node.
    async fn review_access(&self, identity: &Identity, access: Access) -> Result<bool, AuthorityError>;
}
