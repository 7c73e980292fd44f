//! [`Provider`]: one credential provider with its cache. Decides whether it is asked and whether an earlier answer still
//! holds; concurrent callers with the same request share one run of the program, which continues while one of them is
//! waiting. Called by [`super::Providers`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use base::single_flight::Group;
use oci::{RegistryAuth, Secret};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::cache::{AccountKey, Cache, GLOBAL, Key, account_key, answer_key, flight_key, registry, token_hash};
use super::metrics::Metrics;
use super::options::{Clock, TokenSource};
use super::protocol::{self, CacheKeyType, Request, Response};
use super::provided::ProvidedEntry;
use crate::pattern::{PathMatch, Pattern};
use crate::process::{self, ProcessOutput, ProcessSpec, RunError};
use crate::{NodeSource, Requester, ServiceAccount, ServiceAccountCoordinates, Source};

/// Credentials of one answer, by pattern of images.
type ProvidedAuths = Arc<[(String, RegistryAuth)]>;
/// Result of a run of the program; the error is a one-line message.
type RunResult = Result<ProvidedAuths, Arc<str>>;

/// A provider.
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) api_version: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Values of the environment that are never shown.
    pub(super) hidden: Vec<Secret>,
    pub(super) patterns: Vec<Pattern>,
    pub(super) path_match: PathMatch,
    pub(super) default_cache_duration: Duration,
    /// `None` when it does not use service account tokens.
    pub(super) token_use: Option<TokenUse>,
    pub(super) tokens: Option<Arc<dyn TokenSource>>,
    pub(super) timeout: Duration,
    pub(super) clock: Clock,
    pub(super) metrics: Metrics,
    pub(super) cache: Cache<ProvidedAuths>,
    /// The runs under way. A run ends when its last waiter has left.
    pub(super) flights: Group<Key, CancellationToken, RunResult>,
    pub(super) tracker: TaskTracker,
}

/// How a provider uses service account tokens.
#[derive(Clone, Debug)]
pub(super) struct TokenUse {
    pub(super) audience: String,
    /// True if answers are cached for each token, rather than for each service account.
    pub(super) per_token: bool,
    pub(super) account_required: bool,
    pub(super) required_annotations: Vec<String>,
    pub(super) optional_annotations: Vec<String>,
}

/// The fields of a service account that a provider uses.
struct Account<'a> {
    account: Cow<'a, ServiceAccount>,
    token_use: &'a TokenUse,
    annotations: BTreeMap<String, String>,
}

impl Account<'_> {
    fn key(&self, token_hash: Option<&str>) -> Result<Key, String> {
        account_key(&AccountKey {
            namespace: &self.account.namespace,
            name: &self.account.name,
            uid: &self.account.uid,
            annotations: &self.annotations,
            token_hash,
        })
        .map_err(|e| format!("error generating service account cache key: {e}"))
    }
}

/// Use of a provider for one lookup.
enum ProviderUse<'a> {
    /// The provider is not for this image, or not for this pod.
    No,
    /// The answer does not depend on a service account.
    WithoutAccount,
    /// The answer is for this service account, if it has the annotations that are required.
    For(&'a ServiceAccount, &'a TokenUse),
}

/// Purpose of a run.
struct ProviderQuery {
    image: String,
    token: Secret,
    annotations: BTreeMap<String, String>,
    account_key: Key,
    /// True if the provider may answer the token as the password.
    may_echo: bool,
}

/// Result of a lookup that makes no token and runs no program.
pub(super) enum CachedAnswer {
    /// The provider is not for this image, or not for this pod.
    NotAsked,
    /// An earlier answer holds.
    Answer(Vec<ProvidedEntry>),
    /// No answer is cached: the provider would have to run.
    Unknown,
}

impl Provider {
    /// Returns the credentials for an image; none if the provider does not match it. The error is a one-line message.
    pub(super) async fn provide(
        self: &Arc<Self>,
        image: &str,
        requester: &Requester,
    ) -> Result<Vec<ProvidedEntry>, String> {
        let account = match self.asked(image, requester) {
            ProviderUse::No => return Ok(Vec::new()),
            ProviderUse::WithoutAccount => None,
            ProviderUse::For(account, token_use) => {
                match self.annotated(self.read_account(account).await?, token_use) {
                    None => return Ok(Vec::new()),
                    account => account,
                }
            }
        };
        let account = account.as_ref();
        if let Some(answer) = self.without_token(image, account)? {
            return Ok(self.entries(&answer, account));
        }

        let token = match account {
            Some(account) => self.token(account, requester).await?,
            None => Secret::default(),
        };
        let hash = token_hash(token.expose());
        let account_key = match account {
            Some(account) => account.key(account.token_use.per_token.then_some(hash.as_str()))?,
            None => Key::default(),
        };
        let found = self.cache.get(image, &account_key, (self.clock)());
        if let Some(answer) = found.map_err(|e| self.line(&format!("error generating cache key: {e}")))? {
            return Ok(self.entries(&answer, account));
        }

        let question = ProviderQuery {
            image: image.to_owned(),
            annotations: account.map(|a| a.annotations.clone()).unwrap_or_default(),
            may_echo: account.is_none_or(|a| a.token_use.per_token),
            token,
            account_key,
        };
        let flight = flight_key(image, &hash, &question.account_key)
            .map_err(|e| self.line(&format!("error generating singleflight key: {e}")))?;
        let answer = self.shared_run(&flight, question).await.map_err(|line| line.to_string())?;
        Ok(self.entries(&answer, account))
    }

    /// Returns the cached answer.
    pub(super) fn peek(&self, image: &str, requester: &Requester) -> CachedAnswer {
        let account = match self.asked(image, requester) {
            ProviderUse::No => return CachedAnswer::NotAsked,
            ProviderUse::WithoutAccount => None,
            // The API server would have to be asked for its annotations.
            ProviderUse::For(account, _) if account.origin.vouches() => return CachedAnswer::Unknown,
            ProviderUse::For(account, token_use) => match self.annotated(Cow::Borrowed(account), token_use) {
                None => return CachedAnswer::NotAsked,
                account => account,
            },
        };
        match self.without_token(image, account.as_ref()) {
            Ok(Some(answer)) => CachedAnswer::Answer(self.entries(&answer, account.as_ref())),
            Ok(None) | Err(_) => CachedAnswer::Unknown,
        }
    }

    /// Decides whether a lookup of `image` runs the provider, and for which service account.
    fn asked<'a>(&'a self, image: &str, requester: &'a Requester) -> ProviderUse<'a> {
        if !self.patterns.iter().any(|pattern| pattern.matches(image, self.path_match)) {
            return ProviderUse::No;
        }
        let Some(token_use) = &self.token_use else { return ProviderUse::WithoutAccount };
        let Some(account) = requester.service_account.as_ref().filter(|account| !account.name.is_empty()) else {
            if token_use.account_required {
                debug!(provider = self.name, pod = requester.name, "not asked: the pod has no service account");
                return ProviderUse::No;
            }
            return ProviderUse::WithoutAccount;
        };
        ProviderUse::For(account, token_use)
    }

    /// The account with its uid and annotations: a manifest has them, those of an API server are read there.
    async fn read_account<'a>(&self, account: &'a ServiceAccount) -> Result<Cow<'a, ServiceAccount>, String> {
        let Some(tokens) = self.tokens.as_ref().filter(|_| account.origin.vouches()) else {
            return Ok(Cow::Borrowed(account));
        };
        let ServiceAccount { namespace, name, .. } = account;
        let read = tokens.account(account).await.map(Cow::Owned);
        read.map_err(|error| self.line(&format!("failed to get service account {namespace}/{name}: {error}")))
    }

    /// The account as the provider gets it; `None` if an annotation is missing that is required.
    fn annotated<'a>(&self, account: Cow<'a, ServiceAccount>, token_use: &'a TokenUse) -> Option<Account<'a>> {
        match annotations(&account, token_use) {
            Ok(annotations) => Some(Account { account, token_use, annotations }),
            Err(error) => {
                debug!(provider = self.name, account = account.name, "not asked: {error}");
                None
            }
        }
    }

    /// An earlier answer, where no token is needed to find it.
    fn without_token(&self, image: &str, account: Option<&Account<'_>>) -> Result<Option<ProvidedAuths>, String> {
        let key = match account {
            Some(account) if account.token_use.per_token => return Ok(None),
            Some(account) => account.key(None).map_err(|e| self.line(&e))?,
            None => Key::default(),
        };
        self.cache.get(image, &key, (self.clock)()).map_err(|e| self.line(&format!("error generating cache key: {e}")))
    }

    async fn token(&self, account: &Account<'_>, requester: &Requester) -> Result<Secret, String> {
        let ServiceAccount { namespace, name, .. } = &*account.account;
        let failed =
            |cause: &str| self.line(&format!("failed to get service account token {namespace}/{name}: {cause}"));
        match &self.tokens {
            Some(tokens) => tokens
                .token(&account.account, &account.token_use.audience, requester)
                .await
                .map_err(|e| failed(&e.to_string())),
            None => Err(failed("there is nothing here that makes such tokens")),
        }
    }

    /// Waits for the run that is under way for this key, or for a new one.
    async fn shared_run(self: &Arc<Self>, key: &Key, question: ProviderQuery) -> RunResult {
        let (mut ticket, flight) = self.flights.join(key, (), CancellationToken::new);
        if let Some(flight) = flight {
            let (this, left) = (Arc::clone(self), flight.shared().clone());
            self.tracker.spawn(async move {
                tokio::select! {
                    biased;
                    // Dropping the run kills the program.
                    () = left.cancelled() => {}
                    result = this.run(&question) => flight.land(result),
                }
            });
        }
        let panicked = || Err(self.line("the run panicked: this is a fault of the program").into());
        ticket.wait().await.unwrap_or_else(panicked)
    }

    async fn run(&self, question: &ProviderQuery) -> RunResult {
        // A run that ended after this caller missed the cache has left its answer there.
        if let Ok(Some(answer)) = self.cache.get(&question.image, &question.account_key, (self.clock)()) {
            return Ok(answer);
        }
        self.ask(question).await.map_err(Arc::from)
    }

    async fn ask(&self, question: &ProviderQuery) -> Result<ProvidedAuths, String> {
        let ProviderQuery { image, token, annotations, .. } = question;
        debug!(provider = self.name, image, "asking a credential provider");
        let input = protocol::request(&Request { image, token, annotations }, &self.api_version);
        let mut secrets: Vec<&str> = self.hidden.iter().map(Secret::expose).collect();
        secrets.push(token.expose());
        let begun = (self.clock)();
        let result = process::run(&ProcessSpec {
            program: &self.program,
            arguments: &self.arguments,
            environment: &self.environment,
            input: &input,
            timeout: self.timeout,
            secrets: &secrets,
        })
        .await;
        self.metrics.ran(&self.name, (self.clock)().saturating_duration_since(begun));
        let answer = self.read(result, image).and_then(|response| self.accept(&response, question));
        if answer.is_err() {
            self.metrics.failed(&self.name);
        }
        answer
    }

    fn read(&self, result: Result<ProcessOutput, RunError>, image: &str) -> Result<Response, String> {
        let failed =
            |cause: &str| format!("error execing credential provider plugin {} for image {image}: {cause}", self.name);
        let ran = result.map_err(|e| failed(&e.to_string()))?;
        if !ran.status.success() {
            let passwords = protocol::passwords(&ran.stdout);
            let complaint = ran.complaint(&passwords.iter().map(Secret::expose).collect::<Vec<_>>());
            let status = ended(ran.status);
            return Err(failed(&if complaint.is_empty() { status } else { format!("{status}: {complaint}") }));
        }
        protocol::response(&ran.stdout, &self.api_version).map_err(|e| self.line(&e.to_string()))
    }

    /// Checks a response, and caches it for its duration.
    fn accept(&self, response: &Response, question: &ProviderQuery) -> Result<ProvidedAuths, String> {
        let ProviderQuery { image, token, may_echo, account_key, .. } = question;
        if !may_echo && !token.is_empty() && response.auth.values().any(|(_, password)| password == token) {
            return Err(self.line(&format!(
                "it returned the service account token as the password for image {image:?}, which is not allowed when \
                 service account cache type is not set to 'Token'"
            )));
        }
        let base = match response.cache_key_type {
            Some(CacheKeyType::Image) => image,
            Some(CacheKeyType::Registry) => registry(image),
            Some(CacheKeyType::Global) => GLOBAL,
            None => return Err(self.line("credential provider plugin did not return a valid cacheKeyType")),
        };
        let answer: ProvidedAuths = response
            .auth
            .iter()
            .map(|(pattern, (username, password))| {
                let auth =
                    RegistryAuth { username: username.clone(), password: password.clone(), ..RegistryAuth::default() };
                (pattern.clone(), auth)
            })
            .collect();
        let lasting = match response.cache_duration {
            Some(duration) => duration.to_std().unwrap_or_default(),
            None => self.default_cache_duration,
        };
        let key = answer_key(base, account_key).map_err(|e| self.line(&format!("error generating cache key: {e}")))?;
        self.cache.put(key, Arc::clone(&answer), lasting, (self.clock)());
        Ok(answer)
    }

    fn entries(&self, answer: &ProvidedAuths, account: Option<&Account<'_>>) -> Vec<ProvidedEntry> {
        let source = match account {
            Some(Account { account, .. }) => Source::ServiceAccount {
                provider: self.name.clone(),
                account: ServiceAccountCoordinates {
                    namespace: account.namespace.clone(),
                    name: account.name.clone(),
                    uid: account.uid.clone(),
                },
            },
            None => Source::Node(NodeSource::Provider(self.name.clone())),
        };
        answer
            .iter()
            .map(|(location, auth)| ProvidedEntry {
                location: location.clone(),
                auth: auth.clone(),
                source: source.clone(),
            })
            .collect()
    }

    fn line(&self, text: &str) -> String {
        format!("credential provider {}: {text}", self.name)
    }
}

/// The annotations that a provider wants.
fn annotations(account: &ServiceAccount, wanted: &TokenUse) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for key in &wanted.required_annotations {
        let value = account.annotations.get(key).ok_or_else(|| format!("required annotation {key} not found"))?;
        found.insert(key.clone(), value.clone());
    }
    for key in &wanted.optional_annotations {
        if let Some(value) = account.annotations.get(key) {
            found.insert(key.clone(), value.clone());
        }
    }
    Ok(found)
}

/// How a program ended, in Go's words.
pub(crate) fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
