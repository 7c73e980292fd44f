//! [`Keyring`]: every credential that may be tried for an image and a pod, in the order in which they are tried: the pod's
//! pull secrets, the node's docker configuration with its helpers, the credential providers.
//!
//! Does not decide presence or access, and turns an error of a source into a note: only a pull secret of the right
//! type with broken content fails the lookup, as in the kubelet. The image manager calls it.

use base::lock::Mutex;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oci::{Reference, RegistryAuth};
use tokio::time::Instant;

use crate::docker_config::{DockerConfigError, Entry};
use crate::exec::{Clock, Provided, Providers};
use crate::helper::{self, HelperOptions};
use crate::index::{PatternMatch, is_default_registry};
use crate::node_files::{NodeConfig, NodeConfigs, NodeFile, NodeFiles};
use crate::pull_secrets::{Parsed, PullSecrets};
use crate::{Candidate, Index, NodeSource, Note, PathMatch, Requester, SecretCoordinates, Source, credential_hash};

/// How long the answer of a credential helper is kept, unless node files are kept for less.
const HELPER_ANSWER: Duration = Duration::from_secs(60);
const MAX_HELPER_ANSWERS: usize = 1024;

/// Sources of a keyring.
#[derive(Clone)]
pub struct KeyringOptions {
    /// Where a pattern's path may end.
    pub path_match: PathMatch,
    /// Possible paths of the node's docker configuration.
    pub node_files: NodeFiles,
    /// How long node files are believed without being read again, when nothing shows that they changed.
    pub node_cache: Duration,
    /// How credential helpers are run.
    pub helpers: HelperOptions,
    /// The credential providers, where there are any.
    pub providers: Option<Providers>,
    /// Returns the current time.
    pub clock: Clock,
}

impl Default for KeyringOptions {
    /// The kubelet's behaviour without node files and providers; the safe path match.
    fn default() -> Self {
        Self {
            path_match: PathMatch::default(),
            node_files: NodeFiles::default(),
            node_cache: Duration::from_secs(300),
            helpers: HelperOptions::default(),
            providers: None,
            clock: Arc::new(Instant::now),
        }
    }
}

/// Failure of a lookup of credentials.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// A pull secret of the right type is broken.
    #[error("cannot read pull secret {}/{}: {problem}", secret.namespace, secret.name)]
    Secret {
        /// The secret.
        secret: SecretCoordinates,
        /// Description of the error.
        problem: DockerConfigError,
    },
}

/// The credentials for one image and one pod.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// In the order in which they are to be tried. Empty: the pull is anonymous.
    pub candidates: Vec<Candidate>,
    /// Notes for users; never a secret.
    pub notes: Vec<Note>,
}

/// Candidates that need no program to run.
#[derive(Clone, Debug, Default)]
pub struct Preview {
    /// In the order in which they are to be tried, without those of helpers and of providers that would be asked.
    pub candidates: Vec<Candidate>,
    /// The helpers and providers that would be asked, in words.
    pub would_ask: Vec<String>,
    /// Notes for users; never a secret.
    pub notes: Vec<Note>,
}

/// Every source of credentials of a node.
pub struct Keyring {
    options: KeyringOptions,
    secrets: PullSecrets,
    node: NodeConfigs,
    /// By helper and registry.
    answers: Mutex<HashMap<(String, String), Arc<AnswerSlot>>>,
    hasher: RandomState,
}

/// Answer of a helper for a registry.
#[derive(Default)]
struct AnswerSlot {
    /// How many runs have ended. Callers that waited for a failed run get its error; a later caller starts another run.
    ended: AtomicU64,
    /// Held while the helper runs.
    answer: tokio::sync::Mutex<Option<HelperAnswer>>,
}

struct HelperAnswer {
    auth: Result<Option<RegistryAuth>, Note>,
    at: Instant,
    generation: u64,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("node_files", &self.options.node_files).finish_non_exhaustive()
    }
}

impl Keyring {
    /// Reads nothing yet.
    #[must_use]
    pub fn new(options: KeyringOptions) -> Self {
        let node = NodeConfigs::new(&options.node_files, options.path_match, options.node_cache, options.clock.clone());
        let secrets = PullSecrets::new(options.path_match);
        Self { options, secrets, node, answers: Mutex::default(), hasher: RandomState::new() }
    }

    /// Returns the credentials that may be tried for `image` on behalf of `requester`, each once. May run helpers and providers.
    ///
    /// # Errors
    /// See [`KeyringError`]; nothing that a helper, a provider or a node file does wrong is an error.
    pub async fn candidates(&self, image: &Reference, requester: &Requester) -> Result<Candidates, KeyringError> {
        let repository = &*image.repository();
        let mut found = self.of_secrets(repository, requester)?;
        let node = self.node.get().await;
        let provided = async {
            match &self.options.providers {
                Some(providers) => providers.provide(repository, requester).await,
                None => Provided::default(),
            }
        };
        let helpers = futures::future::join_all(node.files.iter().map(|file| self.ask_helper(repository, file, &node)));
        let (helped, provided) = futures::join!(helpers, provided);
        for (file, helped) in node.files.iter().zip(helped) {
            match helped {
                Ok(helped) => found.candidates.extend(helped),
                Err(note) => found.notes.push(note),
            }
            add_file(repository, file, &mut found);
        }
        found.notes.extend(node.notes.iter().cloned());
        self.add_provided(repository, provided, &mut found);
        remove_duplicates(&mut found.candidates);
        Ok(found)
    }

    /// Returns the credentials that the pod's own pull secrets have for `image`, and nothing else: no file is read, no
    /// program is run.
    ///
    /// # Errors
    /// See [`KeyringError`].
    pub fn secrets_only(&self, image: &Reference, requester: &Requester) -> Result<Candidates, KeyringError> {
        let mut found = self.of_secrets(&image.repository(), requester)?;
        remove_duplicates(&mut found.candidates);
        Ok(found)
    }

    /// The same as [`Keyring::candidates`] without running any program.
    ///
    /// # Errors
    /// See [`KeyringError`].
    pub async fn preview(&self, image: &Reference, requester: &Requester) -> Result<Preview, KeyringError> {
        let repository = &*image.repository();
        let mut found = self.of_secrets(repository, requester)?;
        let node = self.node.get().await;
        let mut would_ask = Vec::new();
        for file in &node.files {
            if let Some((helper, server)) = helper_for(repository, file) {
                would_ask.push(format!("{} for {server}", NodeSource::Helper(helper.to_owned())));
            }
            add_file(repository, file, &mut found);
        }
        found.notes.extend(node.notes.iter().cloned());
        if let Some(providers) = &self.options.providers {
            let (known, names) = providers.peek(repository, requester);
            self.add_provided(repository, known, &mut found);
            would_ask.extend(names.into_iter().map(|name| NodeSource::Provider(name).to_string()));
        }
        remove_duplicates(&mut found.candidates);
        Ok(Preview { candidates: found.candidates, would_ask, notes: found.notes })
    }

    /// Returns true if [`Keyring::fingerprint`] reads file metadata, and may wait for a disk.
    #[must_use]
    pub fn reads_files(&self) -> bool {
        !self.node.is_empty()
    }

    /// Returns a number that changes when a lookup for this pod may have another result: with the content of its secrets, its
    /// service account, the node's files and the configuration of providers. It means nothing outside of this process.
    /// Blocks, where the node has files ([`Keyring::reads_files`]).
    #[must_use]
    pub fn fingerprint(&self, _image: &str, requester: &Requester) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for secret in &requester.secrets {
            (&secret.namespace, &secret.name, &secret.uid, &secret.kind).hash(&mut hasher);
            for (key, value) in &secret.data {
                (key, value.expose()).hash(&mut hasher);
            }
            hasher.write_u8(0xff);
        }
        if let Some(account) = &requester.service_account {
            (&account.namespace, &account.name, &account.uid, &account.annotations).hash(&mut hasher);
        }
        self.options.providers.as_ref().map(Providers::config_hash).hash(&mut hasher);
        self.node.fingerprint(&mut hasher);
        hasher.finish()
    }

    /// As in the kubelet, the secrets of a pod are one index: the greater pattern is first, whichever secret has it.
    fn of_secrets(&self, repository: &str, requester: &Requester) -> Result<Candidates, KeyringError> {
        let mut answer = Candidates::default();
        let mut parsed: Vec<(usize, Arc<Parsed>)> = Vec::with_capacity(requester.secrets.len());
        for (at, secret) in requester.secrets.iter().enumerate() {
            match self.secrets.parse(secret) {
                Ok(Ok(one)) => {
                    answer.notes.extend(one.notes.iter().cloned());
                    parsed.push((at, one));
                }
                Ok(Err(note)) => answer.notes.push(note),
                Err(problem) => return Err(KeyringError::Secret { secret: secret.coordinates(), problem }),
            }
        }
        let mut matches: Vec<(usize, PatternMatch<'_, Entry>)> = Vec::new();
        let mut found = Vec::new();
        for (at, one) in &parsed {
            one.index.find(repository, &mut found);
            matches.extend(found.drain(..).map(|found| (*at, found)));
        }
        // Stable: the same pattern in two secrets keeps the pod's order.
        matches.sort_by(|(_, a), (_, b)| b.cmp_pattern(a));
        let candidate = |at: usize, entry: &Entry| entry.candidate(Source::Secret(requester.secrets[at].coordinates()));
        answer
            .candidates
            .extend(matches.iter().flat_map(|(at, found)| found.values.iter().map(|entry| candidate(*at, entry))));
        if matches.is_empty() && is_default_registry(repository) {
            let all = parsed.iter().flat_map(|(at, one)| one.index.of_default_registry().iter().map(|e| (*at, e)));
            answer.candidates.extend(all.map(|(at, entry)| candidate(at, entry)));
        }
        Ok(answer)
    }

    fn add_provided(&self, repository: &str, provided: Provided, found: &mut Candidates) {
        found.notes.extend(provided.notes);
        let mut index = Index::new(self.options.path_match);
        for entry in provided.entries {
            let text = match &entry.source {
                Source::ServiceAccount { provider, .. } | Source::Node(NodeSource::Provider(provider)) => {
                    provider.clone()
                }
                other => other.to_string(),
            };
            let candidate = Candidate { hash: credential_hash(&entry.auth), auth: entry.auth, source: entry.source };
            if let Err(error) = index.insert(&entry.location, candidate) {
                let text = format!("a credential of provider {text} is ignored: invalid pattern: {error}");
                found.notes.push(Note::new(text));
            }
        }
        found.candidates.extend(index.lookup(repository).into_iter().cloned());
    }

    /// Asks the helper that a file names for the image's registry, once for all concurrent callers.
    async fn ask_helper(
        &self,
        repository: &str,
        file: &NodeFile,
        node: &NodeConfig,
    ) -> Result<Option<Candidate>, Note> {
        let Some((helper, server)) = helper_for(repository, file) else { return Ok(None) };
        let slot = {
            let mut answers = self.answers.lock();
            if answers.len() >= MAX_HELPER_ANSWERS {
                answers.retain(|_, slot| Arc::strong_count(slot) > 1);
            }
            answers.entry((helper.to_owned(), server.to_owned())).or_default().clone()
        };
        let ended = slot.ended.load(Ordering::Acquire);
        let mut answer = slot.answer.lock().await;
        let now = (self.options.clock)();
        let lifetime = self.options.node_cache.min(HELPER_ANSWER);
        let usable = |answer: &&HelperAnswer| match answer.auth {
            Ok(_) => answer.generation == node.generation && now.duration_since(answer.at) < lifetime,
            Err(_) => slot.ended.load(Ordering::Acquire) > ended,
        };
        let auth = match answer.as_ref().filter(usable) {
            Some(answer) => answer.auth.clone()?,
            None => {
                let auth = helper::get(helper, server, &self.options.helpers).await;
                let auth = auth
                    .map(|auth| auth.filter(|auth| !auth.is_anonymous()))
                    .map_err(|error| Note::new(format!("{} failed: {error}", NodeSource::Helper(helper.to_owned()))));
                let at = (self.options.clock)();
                *answer = Some(HelperAnswer { auth: auth.clone(), at, generation: node.generation });
                slot.ended.fetch_add(1, Ordering::Release);
                auth?
            }
        };
        Ok(auth.map(|auth| Candidate {
            hash: credential_hash(&auth),
            auth,
            source: Source::Node(NodeSource::Helper(helper.to_owned())),
        }))
    }
}

/// Adds what a file itself has.
fn add_file(repository: &str, file: &NodeFile, found: &mut Candidates) {
    let source = || Source::Node(NodeSource::File(file.path.clone()));
    found.candidates.extend(file.index.lookup(repository).into_iter().map(|entry| entry.candidate(source())));
}

/// Returns the helper for an image, and the name under which it knows the registry. A host's own helper takes precedence
/// over the one of all hosts, and may be the empty one.
fn helper_for<'a>(repository: &'a str, file: &'a NodeFile) -> Option<(&'a str, &'a str)> {
    let helper = file.helpers.lookup(repository).first().map(|own| own.as_str()).or(file.store.as_deref());
    let helper = helper.filter(|helper| !helper.is_empty())?;
    let server = match repository.split_once('/') {
        Some(("docker.io", _)) => "https://index.docker.io/v1/",
        Some((domain, _)) => domain,
        None => return None,
    };
    Some((helper, server))
}

/// Keeps the first of several equal credentials.
fn remove_duplicates(candidates: &mut Vec<Candidate>) {
    if candidates.len() < 2 {
        return;
    }
    let mut seen = HashSet::with_capacity(candidates.len());
    let first: Vec<bool> = candidates
        .iter()
        .map(|candidate| {
            let RegistryAuth { username, password, auth, server_address, identity_token, registry_token } =
                &candidate.auth;
            seen.insert((
                username.as_str(),
                password.expose(),
                auth.expose(),
                server_address.as_str(),
                identity_token.expose(),
                registry_token.expose(),
            ))
        })
        .collect();
    let mut first = first.into_iter();
    candidates.retain(|_| first.next().unwrap_or(true));
}

#[cfg(test)]
#[path = "keyring_tests.rs"]
mod tests;
