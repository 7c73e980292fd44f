//! [`Providers`]: the kubelet's exec credential providers. A CredentialProviderConfig names programs; for an image that
//! one of them matches, it is handed a request on its standard input and prints credentials with a cache duration.
//!
//! A provider that fails yields no credentials and a [`Note`]: it never fails a pull by itself. What a
//! provider prints to its standard output is never shown to anybody. Which of the credentials are for which image is
//! decided by the keyring, which calls this.

mod cache;
mod config;
mod decode;
mod duration;
mod metrics;
mod protocol;
mod provider;
#[cfg(test)]
mod test_support;
mod validate;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use oci::{RegistryAuth, Secret};
use tokio::time::Instant;

use self::cache::Cache;
use self::config::{ProviderConfig, TokenAttributes};
use self::duration::GoDuration;
use self::metrics::Metrics;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::protocol::fuzzed_response;
use self::provider::{Known, Provider, TokenUse};
use crate::pattern::{PathMatch, Pattern};
use crate::{Note, Requester, ServiceAccount, Source};

pub(crate) use self::provider::ended;

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
    /// Whether providers may use service account tokens: the kubelet's feature gate
    /// `KubeletServiceAccountTokenForCredentialProviders`, which is on where nobody turned it off.
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
    /// What went wrong.
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
#[derive(Clone)]
pub struct Providers {
    inner: Arc<Inner>,
}

struct Inner {
    providers: Vec<Arc<Provider>>,
    hash: String,
    metrics: Metrics,
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.inner.providers.iter().map(|p| p.name.as_str()).collect();
        f.debug_tuple("Providers").field(&names).finish()
    }
}

impl Providers {
    /// Reads `config` (a file, or a directory of them) and looks the programs up in `bin_dir`. Blocks on the disk.
    ///
    /// # Errors
    /// The configuration cannot be read or is not valid, or a program is missing.
    pub fn load(config: &Path, bin_dir: &Path, options: ExecOptions) -> Result<Self, ProviderConfigError> {
        Self::read(config, bin_dir, options).map_err(ProviderConfigError)
    }

    fn read(config: &Path, bin_dir: &Path, options: ExecOptions) -> Result<Self, String> {
        let shown = bin_dir.display();
        fs::metadata(bin_dir).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("plugin binary directory {shown} did not exist"),
            _ => format!("error inspecting binary directory {shown}: {error}"),
        })?;
        let (config, hash) = config::read(config, &options.yaml)?;
        let complaints = validate::validate(&config, options.service_account_tokens);
        if !complaints.is_empty() {
            let complaints = validate::in_one_line(&complaints);
            return Err(format!("failed to validate credential provider config: {complaints}"));
        }
        let metrics = Metrics::new(&hash);
        let providers = config
            .providers
            .into_iter()
            .map(|provider| build(provider, bin_dir, &options, &metrics).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Self { inner: Arc::new(Inner { providers, hash, metrics }) })
    }

    /// Asks every provider that matches `repository` (an image without tag and digest), all at once; from their caches
    /// where these hold an answer. Callers that want the same at the same time share one run of a program, which ends
    /// when the last of them goes away.
    pub async fn provide(&self, repository: &str, requester: &Requester) -> Provided {
        let asked = self.inner.providers.iter().map(|provider| provider.provide(repository, requester));
        let mut provided = Provided::default();
        for answer in join_all(asked).await {
            match answer {
                Ok(entries) => provided.entries.extend(entries),
                Err(line) => provided.notes.push(Note::new(line)),
            }
        }
        provided
    }

    /// What is known without running a program and without a token: the answers that the caches hold, and the names of
    /// the providers that would be asked.
    #[must_use]
    pub fn peek(&self, repository: &str, requester: &Requester) -> (Provided, Vec<String>) {
        let mut provided = Provided::default();
        let mut would_ask = Vec::new();
        for provider in &self.inner.providers {
            match provider.peek(repository, requester) {
                Known::NotAsked => {}
                Known::Answer(entries) => provided.entries.extend(entries),
                Known::Unknown => would_ask.push(provider.name.clone()),
            }
        }
        (provided, would_ask)
    }

    /// The names of the providers that would be asked. Runs nothing.
    #[must_use]
    pub fn would_ask(&self, repository: &str, requester: &Requester) -> Vec<String> {
        self.peek(repository, requester).1
    }

    /// `sha256:` and the digest of the configuration's files.
    #[must_use]
    pub fn config_hash(&self) -> &str {
        &self.inner.hash
    }

    /// Puts the kubelet's metrics of providers into `registry`, under their full names (with `kubelet_`).
    pub fn register(&self, registry: &mut prometheus_client::registry::Registry) {
        self.inner.metrics.register(registry);
    }
}

fn build(
    provider: ProviderConfig,
    bin_dir: &Path,
    options: &ExecOptions,
    metrics: &Metrics,
) -> Result<Provider, String> {
    let program = bin_dir.join(&provider.name);
    let shown = program.display();
    executable(&program).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("plugin binary executable {shown} did not exist"),
        _ => format!("error inspecting binary executable {shown}: {error}"),
    })?;
    let failed = |error: &dyn fmt::Display| format!("error initializing plugin provider {}: {error}", provider.name);
    let patterns = provider
        .match_images
        .iter()
        .map(|text| Pattern::parse(text))
        .collect::<Result<_, _>>()
        .map_err(|error| failed(&error))?;
    let environment = environment(&options.environment, &provider.env);
    Ok(Provider {
        hidden: hidden(&environment),
        environment,
        program,
        api_version: provider.api_version,
        arguments: provider.args,
        patterns,
        path_match: options.path_match,
        default_cache_duration: provider.default_cache_duration.and_then(GoDuration::to_std).unwrap_or_default(),
        token_use: provider.token_attributes.map(token_use),
        tokens: options.tokens.clone(),
        timeout: options.timeout,
        cache: Cache::new((options.clock)()),
        clock: Arc::clone(&options.clock),
        metrics: metrics.clone(),
        flights: Mutex::new(HashMap::new()),
        name: provider.name,
    })
}

/// Whether the program is there and may be run.
fn executable(program: &Path) -> io::Result<()> {
    let found = fs::metadata(program)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

fn token_use(attributes: TokenAttributes) -> TokenUse {
    TokenUse {
        audience: attributes.audience,
        per_token: attributes.cache_type == validate::CACHE_TYPES[1],
        account_required: attributes.require_service_account.unwrap_or(true),
        required_annotations: attributes.required_annotations,
        optional_annotations: attributes.optional_annotations,
    }
}

/// The process's environment, and after it the provider's, which holds where both name the same.
fn environment(process: &[(OsString, OsString)], provider: &[(String, String)]) -> Vec<(OsString, OsString)> {
    let provider = provider.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    process.iter().cloned().chain(provider).collect()
}

/// The values whose names say that they are secrets.
fn hidden(environment: &[(OsString, OsString)]) -> Vec<Secret> {
    const TELLING: [&str; 6] = ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "KEY"];
    let telling = |name: &str| TELLING.iter().any(|part| name.to_ascii_uppercase().contains(part));
    environment
        .iter()
        .filter(|(name, value)| value.len() >= 4 && name.to_str().is_some_and(telling))
        .filter_map(|(_, value)| value.to_str().map(Secret::new))
        .collect()
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
