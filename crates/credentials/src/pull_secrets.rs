//! [`PullSecrets`]: from a pod's pull secrets to indexed credentials. Parsed content is cached as long as a secret's
//! content stays the same, so that a lookup parses no JSON.
//!
//! Only the two types that kubelets take are taken; any other is noted, never guessed at. Helpers that a secret names are
//! never run: only the node's own files may name programs. The keyring calls this.

use base::lock::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use oci::Secret;

use crate::docker_config::{DockerConfig, DockerConfigError, Entry};
use crate::{Index, Note, PathMatch, PullSecret, SecretCoordinates};

const MAX_SECRETS: usize = 1024;
const MAX_BYTES: usize = 16 << 20;

/// The types of secrets that hold credentials of registries, with the key that each has them under.
const DOCKER_CONFIG_JSON: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
const DOCKER_CFG: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

/// The credentials of one secret.
pub(crate) struct Parsed {
    pub(crate) index: Index<Entry>,
    pub(crate) notes: Vec<Note>,
}

/// The parsed pull secrets of the last while.
pub(crate) struct PullSecrets {
    mode: PathMatch,
    hasher: RandomState,
    kept: Mutex<SecretCache>,
}

#[derive(Default)]
struct SecretCache {
    by_coordinates: HashMap<u64, KeptSecret>,
    bytes: usize,
    uses: u64,
}

struct KeptSecret {
    coordinates: SecretCoordinates,
    json: bool,
    payload: Secret,
    parsed: Arc<Parsed>,
    used: u64,
}

impl PullSecrets {
    pub(crate) fn new(mode: PathMatch) -> Self {
        Self { mode, hasher: RandomState::new(), kept: Mutex::default() }
    }

    /// Returns the credentials of `secret`, or a note with the reason why it can have none.
    pub(crate) fn parse(&self, secret: &PullSecret) -> Result<Result<Arc<Parsed>, Note>, DockerConfigError> {
        let (json, payload) = match payload(secret) {
            Ok(payload) => payload,
            Err(note) => return Ok(Err(note)),
        };
        let key = self.hasher.hash_one((&secret.namespace, &secret.name, &secret.uid));
        {
            let mut kept = self.kept();
            kept.uses += 1;
            let now = kept.uses;
            if let Some(known) = kept.by_coordinates.get_mut(&key)
                && known.is(secret, json, payload)
            {
                known.used = now;
                return Ok(Ok(known.parsed.clone()));
            }
        }
        let parsed = Arc::new(parse(secret, json, payload, self.mode)?);
        self.kept().keep(key, secret, json, payload, &parsed);
        Ok(Ok(parsed))
    }

    /// Guards what is kept; never held while a secret is parsed.
    fn kept(&self) -> MutexGuard<'_, SecretCache> {
        self.kept.lock()
    }
}

impl KeptSecret {
    fn is(&self, secret: &PullSecret, json: bool, payload: &Secret) -> bool {
        let SecretCoordinates { namespace, name, uid, origin } = &self.coordinates;
        self.json == json
            && *namespace == secret.namespace
            && *name == secret.name
            && *uid == secret.uid
            && *origin == secret.origin
            && self.payload == *payload
    }
}

impl SecretCache {
    fn keep(&mut self, key: u64, secret: &PullSecret, json: bool, payload: &Secret, parsed: &Arc<Parsed>) {
        let bytes = payload.expose().len();
        if bytes > MAX_BYTES / 4 {
            return;
        }
        let kept = KeptSecret {
            coordinates: secret.coordinates(),
            json,
            payload: payload.clone(),
            parsed: parsed.clone(),
            used: self.uses,
        };
        self.bytes += bytes;
        if let Some(old) = self.by_coordinates.insert(key, kept) {
            self.bytes -= old.payload.expose().len();
        }
        while self.by_coordinates.len() > MAX_SECRETS || self.bytes > MAX_BYTES {
            let oldest = self.by_coordinates.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key);
            let Some(old) = oldest.and_then(|key| self.by_coordinates.remove(&key)) else { return };
            self.bytes -= old.payload.expose().len();
        }
    }
}

/// Returns the `config.json` of the secret, if it has one. Type and key must both be right, as in the kubelet.
fn payload(secret: &PullSecret) -> Result<(bool, &Secret), Note> {
    let (kind, key) = match secret.kind.as_str() {
        kind if kind == DOCKER_CONFIG_JSON.0 => DOCKER_CONFIG_JSON,
        kind if kind == DOCKER_CFG.0 => DOCKER_CFG,
        other => {
            let other = if other.is_empty() { "Opaque" } else { other };
            return Err(Note::new(format!(
                "secret {}/{} is of type {other} and cannot be a pull secret; it must be of type {} or {}",
                secret.namespace, secret.name, DOCKER_CONFIG_JSON.0, DOCKER_CFG.0
            )));
        }
    };
    match secret.data.get(key) {
        Some(payload) if !payload.is_empty() => Ok((key == DOCKER_CONFIG_JSON.1, payload)),
        found => Err(Note::new(format!(
            "secret {}/{} is of type {kind}, but its key {key} is {}",
            secret.namespace,
            secret.name,
            if found.is_some() { "empty" } else { "missing" }
        ))),
    }
}

fn parse(secret: &PullSecret, json: bool, payload: &Secret, mode: PathMatch) -> Result<Parsed, DockerConfigError> {
    let text = payload.expose().as_bytes();
    let config = if json { DockerConfig::parse(text)? } else { DockerConfig::parse_legacy(text)? };
    let name = format!("secret {}/{}", secret.namespace, secret.name);
    let mut parsed = Parsed { index: Index::new(mode), notes: Vec::new() };
    if config.store.is_some() || !config.helpers.is_empty() {
        let text = format!("{name} names credential helpers, which are only run for the node's own files");
        parsed.notes.push(Note::new(text));
    }
    for (at, (location, entry)) in config.auths.into_iter().enumerate() {
        if entry.auth.is_anonymous() {
            parsed.notes.push(Note::new(format!("entry {} of {name} is ignored: it has no credential", at + 1)));
        } else if let Err(error) = parsed.index.insert(&location, entry) {
            parsed.notes.push(Note::new(format!("entry {} of {name} is ignored: {error}", at + 1)));
        }
    }
    Ok(parsed)
}

#[cfg(test)]
#[path = "pull_secrets_tests.rs"]
mod tests;
