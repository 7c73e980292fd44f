//! [`Providers`]: the kubelet's exec credential providers. A CredentialProviderConfig names programs; for an image that
//! one of them matches, it gets a request on its standard input and prints credentials with a cache duration.
//!
//! A provider that fails yields no credentials and a [`Note`]: it never fails a pull by itself. The standard output of a
//! provider is never shown. The keyring, which calls this, decides which of the credentials are for which image.

mod cache;
mod config;
mod decode;
mod metrics;
mod options;
mod protocol;
mod provided;
mod provider;
#[cfg(test)]
mod test_support;
mod validate;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use base::single_flight::Group;
use futures::future::join_all;
use oci::Secret;
use tokio_util::task::TaskTracker;

use self::cache::Cache;
use self::decode::{ProviderConfig, TokenAttributes};
use self::metrics::Metrics;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::protocol::fuzzed_response;
use self::provider::{CachedAnswer, Provider, TokenUse};
use crate::pattern::Pattern;
use crate::{Note, Requester};
use base::GoDuration;

pub use self::options::{Clock, ExecOptions, ParseYaml, TokenError, TokenSource};
pub use self::provided::{Provided, ProvidedEntry};
pub(crate) use self::provider::ended;

/// Why a configuration of providers cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProviderConfigError(String);

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
    /// Reads `config` (a file, or a directory of them) and finds the programs in `bin_dir`. Blocks on the disk.
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
        let problems = validate::validate(&config, options.service_account_tokens);
        if !problems.is_empty() {
            let problems = validate::in_one_line(&problems);
            return Err(format!("failed to validate credential provider config: {problems}"));
        }
        let metrics = Metrics::new(&hash);
        let providers = config
            .into_iter()
            .map(|provider| build(provider, bin_dir, &options, &metrics).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Self { inner: Arc::new(Inner { providers, hash, metrics }) })
    }

    /// Asks every provider that matches `repository` (an image without tag and digest), all at once; from their caches
    /// where these hold an answer. Concurrent callers with the same request share one run of a program, which ends when the
    /// last of them cancels.
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

    /// Returns what needs no program and no token: the answers that the caches hold, and the names of
    /// the providers that would be asked.
    #[must_use]
    pub fn peek(&self, repository: &str, requester: &Requester) -> (Provided, Vec<String>) {
        let mut provided = Provided::default();
        let mut would_ask = Vec::new();
        for provider in &self.inner.providers {
            match provider.peek(repository, requester) {
                CachedAnswer::NotAsked => {}
                CachedAnswer::Answer(entries) => provided.entries.extend(entries),
                CachedAnswer::Unknown => would_ask.push(provider.name.clone()),
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
        flights: Group::default(),
        tracker: TaskTracker::new(),
        name: provider.name,
    })
}

/// Returns true if the program exists and may be executed.
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
