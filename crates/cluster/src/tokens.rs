//! [`TokenManager`]: tokens of service accounts, requested from the API server for one pod each and kept in memory only. A token
//! is renewed after four fifths of its lifetime or after a day, as the kubelet does. A token that is still valid remains usable
//! while the server is unreachable. Called when volumes of pods are made, and by credential providers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use jiff::{SignedDuration, Timestamp};
use oci::Secret;
use serde_json::{Value, json};

use crate::client::{ClusterClient, request, text, within};
use crate::retry::{Backoff, Random};

/// A token is not kept for longer.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);
/// Jitter of the renewals of tokens.
const JITTER: Duration = Duration::from_secs(10);

/// Some parts of the API server learn late that a pod was bound to this node: a forbidden request is retried this many
/// times, after waits that double from the first one.
const FORBIDDEN_RETRIES: usize = 3;
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// The life of a token for which a request names none, in seconds: the API server's default.
const DEFAULT_LIFE: i64 = 3600;

/// A token for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRequest {
    /// Namespace of the pod and the service account.
    pub namespace: String,
    /// Service account.
    pub account: String,
    /// Uid of the account that is meant; empty: of whichever has the name.
    pub account_uid: String,
    /// Name of the pod that the token is bound to.
    pub pod: String,
    /// Uid of that pod: the API server rejects the token once the pod is deleted.
    pub pod_uid: String,
    /// The intended audience; empty: the API server.
    pub audience: String,
    /// Requested validity in seconds; `None` for that of the API server.
    pub expiration: Option<i64>,
}

/// A service account as the API server has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Uid of the account; an account that is deleted and created again has another one.
    pub uid: String,
    /// Annotations by key, of which credential providers get those that they ask for.
    pub annotations: BTreeMap<String, String>,
}

/// Tokens in memory.
pub struct TokenManager {
    client: ClusterClient,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    random: Random,
    /// Guards the tokens.
    tokens: Mutex<HashMap<TokenRequest, Token>>,
}

#[derive(Clone)]
struct Token {
    token: Secret,
    renew_at: Timestamp,
    expires_at: Timestamp,
}

/// The reason why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(String);

impl fmt::Debug for TokenManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenManager").finish_non_exhaustive()
    }
}

impl TokenManager {
    /// Holds no tokens yet. Tokens expire by `clock`; `random` spreads renewals over 10 seconds.
    #[must_use]
    pub fn new(client: ClusterClient, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>, random: Random) -> Self {
        Self { client, clock, random, tokens: Mutex::default() }
    }

    /// Returns a valid token.
    pub async fn token(&self, request: &TokenRequest) -> Result<Secret, TokenError> {
        let known = self.tokens.lock().get(request).cloned();
        let now = (self.clock)();
        if let Some(token) = known.as_ref().filter(|token| now < token.renew_at) {
            return Ok(token.token.clone());
        }
        match self.ask(request).await {
            Ok(token) => {
                let secret = token.token.clone();
                self.tokens.lock().insert(request.clone(), token);
                Ok(secret)
            }
            Err(error) => match known.filter(|token| now < token.expires_at) {
                Some(token) => {
                    tracing::warn!(pod = request.pod, namespace = request.namespace, %error, "cannot renew a token");
                    Ok(token.token)
                }
                None => Err(error),
            },
        }
    }

    /// Forgets the tokens of all pods but these.
    pub fn keep(&self, uids: &BTreeSet<String>) {
        self.tokens.lock().retain(|request, _| uids.contains(&request.pod_uid));
    }

    /// Reads a service account from the server, as the kubelet does: its current annotations count.
    pub async fn account(&self, namespace: &str, name: &str) -> Result<Account, TokenError> {
        let asked = request::get(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}"));
        let object: Value =
            within(self.client.current().request(asked)).await.map_err(|error| TokenError(text(&error)))?;
        let metadata = &object["metadata"];
        let annotations = metadata["annotations"].as_object().into_iter().flatten();
        Ok(Account {
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            annotations: annotations
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
        })
    }

    async fn ask(&self, wanted: &TokenRequest) -> Result<Token, TokenError> {
        let TokenRequest { namespace, account, account_uid, pod, pod_uid, audience, expiration } = wanted;
        let audiences: Vec<&String> = (!audience.is_empty()).then_some(audience).into_iter().collect();
        let mut body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": audiences,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_uid},
            },
        });
        if let Some(expiration) = expiration {
            body["spec"]["expirationSeconds"] = json!(expiration);
        }
        if !account_uid.is_empty() {
            body["metadata"] = json!({"uid": account_uid});
        }
        let uri = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let mut waits = Backoff::new(FIRST_WAIT, FIRST_WAIT * 8);
        let mut retries = FORBIDDEN_RETRIES;
        let answer: Value = loop {
            match self.client.current().request(request::post(&uri, &body)).await {
                Ok(answer) => break answer,
                Err(kube::Error::Api(status)) if status.code == 403 && retries > 0 => {
                    tracing::debug!(pod, namespace, message = status.message, "no token yet, will retry");
                    retries -= 1;
                    tokio::time::sleep(waits.next(&self.random)).await;
                }
                Err(error) => return Err(TokenError(text(&error))),
            }
        };
        let token = answer["status"]["token"].as_str().filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| TokenError("the server answered without a token".to_owned()))?;
        let now = (self.clock)();
        // A server may give more or less than was asked for. By the node's own clock: the server's may be another hour.
        let life = answer["spec"]["expirationSeconds"].as_i64().or(*expiration).unwrap_or(DEFAULT_LIFE);
        let life = SignedDuration::from_secs(life.max(0));
        let expires_at = now.checked_add(life).unwrap_or(now);
        let before = |at: Timestamp, by: SignedDuration| at.checked_sub(by).unwrap_or(at);
        let early = SignedDuration::try_from(JITTER.mul_f64((self.random)())).unwrap_or_default();
        let day = now.checked_add(LONGEST).unwrap_or(expires_at);
        let renew_at = before(before(expires_at, life / 5).min(day), early);
        Ok(Token { token: Secret::new(token), renew_at, expires_at })
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
