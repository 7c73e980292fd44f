//! [`ExecOptions`]: how credential providers are run, and the two things that this crate does not do itself: reading YAML
//! and making service account tokens.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use oci::Secret;
use tokio::time::Instant;

use crate::pattern::PathMatch;
use crate::{Requester, ServiceAccount};

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Reads one YAML document (JSON is YAML) without repeated keys; the error is a message. An argument, because this
/// crate has no YAML parser.
pub type ParseYaml = Arc<dyn Fn(&str) -> Result<serde_json::Value, String> + Send + Sync>;

/// How providers are run.
#[derive(Clone)]
pub struct ExecOptions {
    /// The environment of the programs; the variables of their configuration are added to it.
    pub environment: Vec<(OsString, OsString)>,
    /// Returns the current time.
    pub clock: Clock,
    /// Reads the configuration's text.
    pub yaml: ParseYaml,
    /// Maker of service account tokens. Without it, providers that need one are noted as failed.
    pub tokens: Option<Arc<dyn TokenSource>>,
    /// True if providers may use service account tokens: the kubelet's feature gate
    /// `KubeletServiceAccountTokenForCredentialProviders`, which is on by default.
    pub service_account_tokens: bool,
    /// Where a path in `matchImages` may end within an image's path.
    pub path_match: PathMatch,
    /// How long one run may take; the kubelet gives one minute.
    pub timeout: Duration,
}

impl fmt::Debug for ExecOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the environment: it may hold secrets.
        f.debug_struct("ExecOptions").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Makes tokens of service accounts (the TokenRequest API, or a replacement).
pub trait TokenSource: Send + Sync {
    /// The account with its uid and annotations. Called for accounts of an API server ([`crate::Origin`]); a manifest has both.
    fn account<'a>(&'a self, account: &'a ServiceAccount) -> BoxFuture<'a, Result<ServiceAccount, TokenError>>;

    /// A token of `account` for `audience`, bound to the pod `requester`.
    fn token<'a>(
        &'a self,
        account: &'a ServiceAccount,
        audience: &'a str,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<Secret, TokenError>>;
}

/// The reason why there is no token. The text is shown to users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(pub String);
