//! [`Gate`]: admits a client or refuses it. A client certificate that TLS has verified, or a token that the API server knows,
//! authenticates the client; a SubjectAccessReview authorizes it. Answers are cached as long as in the kubelet. If the server
//! cannot be asked, the client is refused.

use std::sync::Arc;
use std::time::Duration;

use base::lock::Mutex;
use hashlink::LruCache;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use oci::Secret;
use tokio::time::Instant;

use crate::kubelet_api::authority::{Access, Authority, AuthorityError, Identity};

/// For how long the bearer of a token is known.
const KNOWN: Duration = Duration::from_secs(120);
/// For how long an access that is allowed stays so.
const ALLOWED: Duration = Duration::from_secs(300);
/// For how long an access that is denied stays so.
const DENIED: Duration = Duration::from_secs(30);
/// Number of answers of each kind that are kept.
const KEPT: usize = 1024;
/// The group of every authenticated client.
const AUTHENTICATED: &str = "system:authenticated";

/// A refusal: its status and the message for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) String);

type Digest = [u8; ring::digest::SHA256_OUTPUT_LEN];

/// Answers of the API server with the end of their validity.
type Kept<K, V> = Mutex<LruCache<K, (V, Instant)>>;

/// The gate.
pub(crate) struct Gate {
    authority: Arc<dyn Authority>,
    /// Guards the bearers of tokens, by the digests of these.
    bearers: Kept<Digest, Option<Identity>>,
    /// Guards the permissions that were granted and denied.
    accesses: Kept<(Identity, Access), bool>,
}

impl Gate {
    pub(crate) fn new(authority: Arc<dyn Authority>) -> Self {
        Self { authority, bearers: Mutex::new(LruCache::new(KEPT)), accesses: Mutex::new(LruCache::new(KEPT)) }
    }

    /// Returns the identity of a client. `certified` is the subject of a client certificate that TLS has verified.
    pub(crate) async fn authenticate(
        &self,
        certified: Option<&Identity>,
        headers: &HeaderMap,
    ) -> Result<Identity, Refusal> {
        let identity = match certified {
            Some(identity) => Some(identity.clone()),
            None => self.bearer(headers).await,
        };
        let Some(mut identity) = identity else {
            return Err(Refusal(StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()));
        };
        if !identity.groups.iter().any(|group| group == AUTHENTICATED) {
            identity.groups.push(AUTHENTICATED.to_owned());
        }
        Ok(identity)
    }

    /// Lets a client in that has one of these accesses.
    pub(crate) async fn authorize(&self, identity: &Identity, needed: &[Access]) -> Result<(), Refusal> {
        for access in needed {
            match self.is_allowed(identity, *access).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(user = identity.name, %access, error = &*error, "cannot ask the API server about an access");
                    let Access { verb, subresource } = access;
                    let name = &identity.name;
                    let text = format!(
                        "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
                    );
                    return Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, text));
                }
            }
        }
        Err(Refusal(StatusCode::FORBIDDEN, forbidden(&identity.name, needed)))
    }

    async fn bearer(&self, headers: &HeaderMap) -> Option<Identity> {
        let token = bearer_token(headers)?;
        let mut digest = Digest::default();
        digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, token.expose().as_bytes()).as_ref());
        if let Some(kept) = find(&self.bearers, &digest) {
            return kept;
        }
        match self.authority.review_token(&token).await {
            Ok(identity) => {
                keep(&self.bearers, digest, identity.clone(), KNOWN);
                identity
            }
            Err(error) => {
                tracing::warn!(error = &*error, "cannot ask the API server about a token");
                None
            }
        }
    }

    async fn is_allowed(&self, identity: &Identity, access: Access) -> Result<bool, AuthorityError> {
        let key = (identity.clone(), access);
        if let Some(kept) = find(&self.accesses, &key) {
            return Ok(kept);
        }
        let allowed = self.authority.review_access(identity, access).await?;
        keep(&self.accesses, key, allowed, if allowed { ALLOWED } else { DENIED });
        Ok(allowed)
    }
}

/// Returns the kubelet's text for a client without permission.
fn forbidden(user: &str, needed: &[Access]) -> String {
    let verb = needed.first().map_or("get", |access| access.verb);
    let subresources: Vec<&str> = needed.iter().map(|access| access.subresource).collect();
    format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{}])\n", subresources.join(" "))
}

fn find<K: Eq + std::hash::Hash, V: Clone>(kept: &Kept<K, V>, key: &K) -> Option<V> {
    kept.lock().get(key).filter(|(_, end)| Instant::now() < *end).map(|(value, _)| value.clone())
}

fn keep<K: Eq + std::hash::Hash, V>(kept: &Kept<K, V>, key: K, value: V, validity: Duration) {
    kept.lock().insert(key, (value, Instant::now() + validity));
}

/// Returns the token of a request. A WebSocket client of a browser cannot set headers, and is not supported.
fn bearer_token(headers: &HeaderMap) -> Option<Secret> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| Secret::new(token))
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
