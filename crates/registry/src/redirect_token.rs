//! [`RedirectTokens`]: the anonymous tokens of one pull for registries to which one host redirects, such as a name in front of
//! another registry. Such a registry never sees the credential, nor anything else that belongs to the host; the token that it
//! requires is sent to its origin alone. Called by `session`.

use std::collections::BTreeSet;

use http::HeaderValue;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use crate::address::same_origin;
use crate::challenge::Challenge;
use crate::credential_origin::{RedirectToken, token_for};
use crate::error::Cause;
use crate::redact::{self, Secrets};
use crate::token::{self, ChallengeOrigin, TokenRequest};
use crate::transport::Transport;

/// The most origins of one host for which tokens are kept.
const MAX_ORIGINS: usize = 8;

/// The anonymous tokens for the redirect targets of one host.
pub(crate) struct RedirectTokens {
    /// The scope that a token needs, where the challenge names none.
    scope: Option<String>,
    kept: Mutex<Vec<KeptToken>>,
}

struct KeptToken {
    token: RedirectToken,
    until: Instant,
}

/// The part of it that belongs to one request.
#[derive(Default)]
pub(crate) struct RedirectRound {
    /// The tokens that were sent along.
    pub(crate) sent: Vec<RedirectToken>,
    /// The origins and scopes for which this request has had a token made.
    answered: BTreeSet<(String, BTreeSet<String>)>,
}

impl RedirectTokens {
    pub(crate) fn new(path: Option<&str>) -> Self {
        Self { scope: path.map(|path| format!("repository:{path}:pull")), kept: Mutex::default() }
    }

    /// Returns the tokens that have not ended.
    pub(crate) async fn current(&self) -> Vec<RedirectToken> {
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        kept.retain(|kept| now < kept.until);
        kept.iter().map(|kept| kept.token.clone()).collect()
    }

    /// Processes the challenges of a 401 from `at`, to which the host redirected. Returns true if the request may be
    /// sent again.
    ///
    /// # Errors
    /// [`Cause`], when the token service that `at` names may not be asked, or gives no token.
    pub(crate) async fn challenged(
        &self,
        at: &Url,
        challenges: &[Challenge],
        transport: &Transport,
        secrets: &Secrets,
        round: &mut RedirectRound,
    ) -> Result<bool, Cause> {
        // Some storages send a challenge that names no token service; theirs is an answer like any other.
        let is_answerable = |challenge: &&Challenge| challenge.scheme == "bearer" && challenge.get("realm").is_some();
        let Some(bearer) = challenges.iter().find(is_answerable) else { return Ok(false) };
        let mut kept = self.kept.lock().await;
        let present = kept.iter().find(|kept| same_origin(&kept.token.at, at)).map(|kept| &kept.token.header);
        if present.is_some() && present != token_for(&round.sent, at) {
            // Another request has had it made meanwhile.
            return Ok(true);
        }
        let wanted = TokenRequest::answering(bearer, self.scope.clone(), ChallengeOrigin::RedirectTarget, transport)?;
        if !round.answered.insert((redact::origin(at), wanted.scopes.clone())) {
            return Ok(false);
        }
        let token = token::fetch(transport, &wanted, None, secrets).await?;
        let header: HeaderValue = token::bearer(&token.value)?;
        kept.retain(|kept| !same_origin(&kept.token.at, at));
        if kept.len() >= MAX_ORIGINS {
            kept.remove(0);
        }
        kept.push(KeptToken { token: RedirectToken { at: at.clone(), header }, until: token.renewal() });
        Ok(true)
    }
}
