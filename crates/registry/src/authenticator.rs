//! [`Authenticator`]: the credential of one pull at one host, and the token made of it. Answers challenges, keeps the
//! token for the rest of the pull, renews it before it ends, and lets one request at a time do so.

use std::collections::BTreeSet;
use std::time::Duration;

use http::HeaderValue;
use oci::RegistryAuth;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use crate::challenge::Challenge;
use crate::error::Cause;
use crate::redact::{self, Secrets};
use crate::token::{self, TokenRequest};
use crate::transport::Transport;

/// The credential of one pull at one host, and the header that it was turned into.
pub(crate) struct Authenticator {
    credential: Option<RegistryAuth>,
    /// The host that the pull's credential is for, where that is not this one.
    withheld_for: Option<String>,
    /// The scope that a token needs, where the challenge names none; `None` where nothing of a repository is asked for.
    scope: Option<String>,
    state: Mutex<AuthState>,
}

#[derive(Default)]
struct AuthState {
    /// Counts the headers that were made, so that a request can tell whether another one has renewed it meanwhile.
    generation: u64,
    header: Option<HeaderValue>,
    token: Option<(TokenRequest, Instant)>,
}

/// The part of the authentication that belongs to one request.
#[derive(Default)]
pub(crate) struct AuthRound {
    generation: u64,
    /// Scopes of the token that was made for this very request.
    fresh: Option<BTreeSet<String>>,
}

impl Authenticator {
    pub(crate) fn new(
        credential: Option<RegistryAuth>,
        withheld_for: Option<String>,
        path: Option<&str>,
    ) -> Result<Self, Cause> {
        let mut state = AuthState::default();
        if let Some(credential) = credential.as_ref().filter(|c| !c.registry_token.is_empty()) {
            state.header = Some(token::bearer(&credential.registry_token)?);
        }
        let scope = path.map(|path| format!("repository:{path}:pull"));
        Ok(Self { credential, withheld_for, scope, state: Mutex::new(state) })
    }

    /// Returns the header to send now, renewed where its token is about to end.
    pub(crate) async fn current(
        &self,
        transport: &Transport,
        secrets: &Secrets,
        round: &mut AuthRound,
    ) -> Result<Option<HeaderValue>, Cause> {
        let mut state = self.state.lock().await;
        if let Some((wanted, until)) = &state.token
            && Instant::now() >= *until
        {
            let wanted = wanted.clone();
            self.renew(&mut state, wanted, transport, secrets).await?;
        }
        round.generation = state.generation;
        Ok(state.header.clone())
    }

    /// Takes in the challenges of a 401. Afterwards the request may be made again; an error says that this would be
    /// of no use.
    pub(crate) async fn challenged(
        &self,
        challenges: &[Challenge],
        transport: &Transport,
        secrets: &Secrets,
        round: &mut AuthRound,
    ) -> Result<(), Cause> {
        let mut state = self.state.lock().await;
        if state.generation != round.generation {
            return Ok(());
        }
        let find = |scheme: &str| challenges.iter().find(|c| c.scheme == scheme);
        if self.credential.as_ref().is_some_and(|c| !c.registry_token.is_empty()) {
            return Err(self.refused("the registry token was refused", challenges));
        }
        if let Some(bearer) = find("bearer") {
            return self.bearer(bearer, challenges, &mut state, transport, secrets, round).await;
        }
        if find("basic").is_none() {
            return Err(self.refused("the registry asks for no kind of authentication that is known here", challenges));
        }
        if state.header.is_some() {
            return Err(self.refused("the credential was refused", challenges));
        }
        let Some((user, password)) = self.credential.as_ref().and_then(RegistryAuth::user_and_password) else {
            return Err(self.refused("the registry wants a user name and a password and there are none", challenges));
        };
        if user.is_empty() || password.is_empty() {
            return Err(self.refused("the registry wants a user name and a password and one is empty", challenges));
        }
        state.header = Some(token::basic(&user, &password)?);
        state.generation += 1;
        Ok(())
    }

    async fn bearer(
        &self,
        bearer: &Challenge,
        all: &[Challenge],
        state: &mut AuthState,
        transport: &Transport,
        secrets: &Secrets,
        round: &mut AuthRound,
    ) -> Result<(), Cause> {
        let mut scopes: BTreeSet<String> =
            bearer.get("scope").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        // Some registries name the scope of no repository. One of another name is right, where a prefix is configured.
        if !scopes.iter().any(|s| s.starts_with("repository:")) {
            scopes.extend(self.scope.clone());
        }
        if let Some(before) = &round.fresh
            && scopes.is_subset(before)
        {
            let what = if self.is_anonymous() { "the anonymous token was refused" } else { "the token was refused" };
            return Err(self.refused(what, all));
        }
        let realm =
            bearer.get("realm").ok_or_else(|| Cause::Challenge("the challenge names no token service".into()))?;
        let realm = Url::parse(realm).map(redact::without_user).map_err(|_| {
            Cause::Challenge(format!("the challenge's token service is no URL ({})", redact::text(realm, 100)))
        })?;
        transport.check_realm(&realm).map_err(|why| Cause::Challenge(format!("{why} ({})", redact::url(&realm))))?;
        let wanted = TokenRequest { realm, service: bearer.get("service").map(str::to_owned), scopes: scopes.clone() };
        self.renew(state, wanted, transport, secrets).await?;
        round.fresh = Some(scopes);
        Ok(())
    }

    async fn renew(
        &self,
        state: &mut AuthState,
        wanted: TokenRequest,
        transport: &Transport,
        secrets: &Secrets,
    ) -> Result<(), Cause> {
        let credential = self.credential.as_ref();
        let token = token::fetch(transport, &wanted, credential, secrets).await?;
        state.header = Some(token::bearer(&token.value)?);
        // Renewed a little early, so that it does not end on the way. A far end is as good as none.
        let lifetime = token.lifetime.min(Duration::from_secs(24 * 3600)).mul_f32(0.9);
        state.token = Some((wanted, Instant::now() + lifetime));
        state.generation += 1;
        Ok(())
    }

    fn is_anonymous(&self) -> bool {
        self.credential.as_ref().is_none_or(RegistryAuth::is_anonymous)
    }

    fn refused(&self, what: &str, challenges: &[Challenge]) -> Cause {
        let mut words = format!("401 Unauthorized, {what}");
        let said = challenges.iter().find_map(|c| c.get("error_description").or_else(|| c.get("error")));
        if let Some(said) = said {
            words.push_str(&format!(" ({})", redact::text(said, 100)));
        }
        if let Some(host) = &self.withheld_for {
            words.push_str(&format!("; the credential at hand is for {host} and was not sent"));
        }
        Cause::Unauthenticated(words)
    }
}
