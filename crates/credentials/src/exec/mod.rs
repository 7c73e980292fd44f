//! [`Providers`]: the kubelet's exec credential providers. A CredentialProviderConfig names programs; for an image that
//! one of them matches, it is handed a request on its standard input and prints credentials with a cache duration.
//!
//! A provider that fails yields no credentials and a [`Note`](crate::Note): it never fails a pull by itself. What a
//! provider prints to its standard output is never shown to anybody. Which of the credentials are for which image is
//! decided by the keyring, which calls this.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use oci::{RegistryAuth, Secret};
use tokio::time::Instant;

use crate::{Note, Requester, ServiceAccount, Source};

/// Where the time comes from.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Reads one YAML document (JSON is YAML) without repeated keys; the error is for people. An argument, because only
/// the program knows YAML.
pub type ParseYaml = Arc<dyn Fn(&str) -> Result<serde_json::Value, String> + Send + Sync>;

/// How providers are run.
#[derive(Clone)]
pub struct ExecOptions {
    /// The environment of the programs; what their configuration sets comes on top.
    pub environment: Vec<(OsString, OsString)>,
    /// Where the time comes from.
    pub clock: Clock,
    /// Reads the configuration's text.
    pub yaml: ParseYaml,
    /// Who makes service account tokens. Without it, providers that need one are noted as failed.
    pub tokens: Option<Arc<dyn TokenSource>>,
    /// How long one run may take; the kubelet gives one minute.
    pub timeout: Duration,
}

impl fmt::Debug for ExecOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the environment: it may hold secrets.
        f.debug_struct("ExecOptions").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Makes tokens of service accounts (the TokenRequest API, or whatever stands for it).
pub trait TokenSource: Send + Sync {
    /// A token of `account` for `audience`, bound to the pod `requester`.
    fn token<'a>(
        &'a self,
        account: &'a ServiceAccount,
        audience: &'a str,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<Secret, TokenError>>;
}

/// Why there is no token. The text is shown to people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(pub String);

/// Why a configuration of providers cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProviderConfigError(String);

/// What the providers answered for one image.
#[derive(Clone, Debug, Default)]
pub struct Provided {
    /// Credentials in the order of the configuration, each with the pattern of images that it is for. They are not
    /// yet narrowed to the image.
    pub entries: Vec<ProvidedEntry>,
    /// What went wrong, or why a provider was not asked.
    pub notes: Vec<Note>,
}

/// One credential of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvidedEntry {
    /// The images that it is for: a pattern as in a docker configuration.
    pub location: String,
    /// The credential.
    pub auth: RegistryAuth,
    /// The provider, with the service account where one was used.
    pub source: Source,
}

/// The configured credential providers. Cheap to clone; clones share their caches.
#[derive(Clone, Debug)]
pub struct Providers {
    hash: Arc<str>,
}

impl Providers {
    /// Reads `config` (a file, or a directory of them) and looks the programs up in `bin_dir`. Blocks on the disk.
    ///
    /// # Errors
    /// The configuration cannot be read or is not valid, or a program is missing.
    pub fn load(_config: &Path, _bin_dir: &Path, _options: ExecOptions) -> Result<Self, ProviderConfigError> {
        Err(ProviderConfigError("credential providers cannot be configured yet".to_owned()))
    }

    /// Asks every provider that matches `repository` (an image without tag and digest), all at once; from their caches
    /// where these hold an answer.
    pub async fn provide(&self, _repository: &str, _requester: &Requester) -> Provided {
        Provided::default()
    }

    /// The names of the providers that would be asked. Runs nothing.
    #[must_use]
    pub fn would_ask(&self, _repository: &str, _requester: &Requester) -> Vec<String> {
        Vec::new()
    }

    /// `sha256:` and the digest of the configuration's files.
    #[must_use]
    pub fn config_hash(&self) -> &str {
        &self.hash
    }

    /// Puts the kubelet's metrics of providers into `registry`, under their full names (with `kubelet_`).
    pub fn register(&self, _registry: &mut prometheus_client::registry::Registry) {}
}
