//! [`Cache`]: answers of a credential provider until they expire, and their keys. It reads no clock and runs nothing. Each
//! provider has one.

use base::lock::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// How often expired answers are purged.
const PURGE_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// The most answers that are kept: more than the images that a node pulls within the lifetime of an answer.
const MAX_ANSWERS: usize = 10_000;
/// Longest lifetime of a cached answer.
const FAR_AWAY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The key of answers that are for every image.
pub(super) const GLOBAL: &str = "<global>";

/// A key: texts with their lengths before them, so that no two lists of texts make the same key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key(Vec<u8>);

/// A text that is longer than a key can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a text of {0} bytes is longer than a cache key can hold")]
pub(super) struct KeyTooLong(usize);

impl Key {
    fn add(mut self, text: &[u8]) -> Result<Self, KeyTooLong> {
        let length = u16::try_from(text.len()).map_err(|_| KeyTooLong(text.len()))?;
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(text);
        Ok(self)
    }

    fn add_all(mut self, annotations: &BTreeMap<String, String>) -> Result<Self, KeyTooLong> {
        let count = u32::try_from(annotations.len()).map_err(|_| KeyTooLong(annotations.len()))?;
        self.0.extend_from_slice(&count.to_be_bytes());
        for (name, value) in annotations {
            self = self.add(name.as_bytes())?.add(value.as_bytes())?;
        }
        Ok(self)
    }

    /// The bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The part of a service account that belongs to the key of an answer.
pub(super) struct AccountKey<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) annotations: &'a BTreeMap<String, String>,
    /// The hash of the token, where every token has answers of its own.
    pub(super) token_hash: Option<&'a str>,
}

/// The key of a service account.
pub(super) fn account_key(account: &AccountKey<'_>) -> Result<Key, KeyTooLong> {
    let mut key = Key::default()
        .add(account.namespace.as_bytes())?
        .add(account.name.as_bytes())?
        .add(account.uid.as_bytes())?
        .add_all(account.annotations)?;
    if let Some(hash) = account.token_hash {
        key = key.add(b"token")?.add(hash.as_bytes())?;
    }
    Ok(key)
}

/// The key of an answer: an image, a registry or [`GLOBAL`], and a service account (or an empty key).
pub(super) fn answer_key(base: &str, account: &Key) -> Result<Key, KeyTooLong> {
    Key::default().add(base.as_bytes())?.add(&account.0)
}

/// The key under which a run is shared by all that want the same at once. (The kubelet's has the annotations instead of
/// the account's key, which holds them.)
pub(super) fn flight_key(image: &str, token_hash: &str, account: &Key) -> Result<Key, KeyTooLong> {
    Key::default().add(image.as_bytes())?.add(token_hash.as_bytes())?.add(&account.0)
}

/// The hash of a token; empty where there is none.
pub(super) fn token_hash(token: &str) -> String {
    if token.is_empty() { String::new() } else { format!("sha256:{}", hex::encode(Sha256::digest(token))) }
}

/// Returns the registry of an image: the part before the first slash.
pub(super) fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or(image)
}

/// Answers until they expire.
#[derive(Debug)]
pub(super) struct Cache<T> {
    /// Guards the answers and when they were last cleared.
    state: Mutex<AnswerTable<T>>,
}

#[derive(Debug)]
struct AnswerTable<T> {
    answers: HashMap<Key, (T, Instant)>,
    purged: Instant,
}

impl<T: Clone> Cache<T> {
    pub(super) fn new(now: Instant) -> Self {
        Self { state: Mutex::new(AnswerTable { answers: HashMap::new(), purged: now }) }
    }

    /// The answer for an image: one for just this image first, then one for its registry, then one for all.
    pub(super) fn get(&self, image: &str, account: &Key, now: Instant) -> Result<Option<T>, KeyTooLong> {
        let keys = [image, registry(image), GLOBAL].map(|base| answer_key(base, account));
        let mut state = self.state();
        if now.saturating_duration_since(state.purged) > PURGE_INTERVAL {
            state.purge(now);
        }
        for key in keys {
            let key = key?;
            match state.answers.get(&key) {
                Some((answer, expires)) if now <= *expires => return Ok(Some(answer.clone())),
                Some(_) => drop(state.answers.remove(&key)),
                None => {}
            }
        }
        Ok(None)
    }

    /// Keeps an answer for as long as `lasting`; not at all where that is nothing.
    pub(super) fn put(&self, key: Key, answer: T, lasting: Duration, now: Instant) {
        if lasting.is_zero() {
            return;
        }
        let expires = now + lasting.min(FAR_AWAY);
        let mut state = self.state();
        if state.answers.len() >= MAX_ANSWERS && !state.answers.contains_key(&key) {
            state.purge(now);
            if state.answers.len() >= MAX_ANSWERS {
                let next = state.answers.iter().min_by_key(|(_, (_, expires))| *expires).map(|(key, _)| key.clone());
                next.map(|key| state.answers.remove(&key));
            }
        }
        state.answers.insert(key, (answer, expires));
    }

    fn state(&self) -> base::lock::MutexGuard<'_, AnswerTable<T>> {
        // Nothing of what is done under the lock leaves it half done.
        self.state.lock()
    }

    /// Every key, those of expired answers included.
    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<Key> {
        self.state().answers.keys().cloned().collect()
    }
}

impl<T> AnswerTable<T> {
    fn purge(&mut self, now: Instant) {
        self.answers.retain(|_, (_, expires)| now <= *expires);
        self.purged = now;
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
