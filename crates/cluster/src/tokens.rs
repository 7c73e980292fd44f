//! [`TokenManager`]: tokens of service accounts, asked of the API server for one pod each, kept in memory alone, and asked for anew
//! when four fifths of their time are over or a day is, as the kubelet does it. A token that is still good outlives a server that
//! is away. Called when volumes of pods are made, and by credential providers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use jiff::{SignedDuration, Timestamp};
use oci::Secret;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client::{ClusterClient, text};
use crate::retry::Random;
use crate::status::set_uri;

/// A token is not kept for longer.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);
/// By so much the renewals of tokens differ.
const JITTER: Duration = Duration::from_secs(10);

/// A token for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRequest {
    pub namespace: String,
    /// Service account.
    pub account: String,
    pub pod: String,
    pub pod_uid: String,
    /// Whom it is for; empty: the API server.
    pub audience: String,
    /// How long it is to be good, in seconds.
    pub expiration: i64,
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

/// Why there is no token, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenError(String);

impl TokenManager {
    #[must_use]
    pub fn new(client: ClusterClient, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>, random: Random) -> Self {
        Self { client, clock, random, tokens: Mutex::default() }
    }

    /// A token that is good.
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

    async fn ask(&self, request: &TokenRequest) -> Result<Token, TokenError> {
        let TokenRequest { namespace, account, pod, pod_uid, audience, expiration } = request;
        let audiences: Vec<&String> = (!audience.is_empty()).then_some(audience).into_iter().collect();
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": audiences, "expirationSeconds": expiration,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_uid},
            },
        });
        let mut asked = Request::new(body.to_string().into_bytes());
        *asked.method_mut() = http::Method::POST;
        set_uri(&mut asked, &format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"));
        let kind = http::HeaderValue::from_static("application/json");
        asked.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        let answer: Value = match self.client.current().request(asked).await {
            Ok(answer) => answer,
            Err(error) => return Err(TokenError(text(&error))),
        };
        let token = answer["status"]["token"].as_str().filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| TokenError("the server answered without a token".to_owned()))?;
        let now = (self.clock)();
        // A server may give more or less than was asked for. By the node's own clock: the server's may be another hour.
        let life =
            SignedDuration::from_secs(answer["spec"]["expirationSeconds"].as_i64().unwrap_or(*expiration).max(0));
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
