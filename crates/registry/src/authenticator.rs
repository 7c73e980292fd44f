//! [`Authenticator`]: the credential of one pull at one host, and the headers made of it. Answers challenges, keeps the
//! headers for the rest of the pull, renews a token before it ends, and lets one request at a time do so.
//!
//! A registry may ask for `Basic` at one part of its API and for `Bearer` at another, or change from one to the other. One
//! header of each scheme is kept, with the scheme that each part was last asked by. A request answers each scheme once.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderValue, Method};
use oci::{RegistryAuth, Secret};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::challenge::Challenge;
use crate::error::Cause;
use crate::redact::{self, Secrets};
use crate::token::{self, ChallengeOrigin, TokenRequest};
use crate::transport::Transport;

/// The credential of one pull at one host, and the headers that it was turned into.
pub(crate) struct Authenticator {
    credential: Option<RegistryAuth>,
    /// The host that the pull's credential is for, where that is not this one.
    withheld_for: Option<String>,
    /// The repository; `None` where nothing of a repository is asked for.
    path: Option<String>,
    state: Mutex<AuthState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AuthScheme {
    Basic,
    Bearer,
}

#[derive(Default)]
struct AuthState {
    /// `Basic`, once the registry has asked for it.
    basic: Option<HeaderValue>,
    /// `Bearer`: the registry token, or the latest token of a token service.
    bearer: Option<HeaderValue>,
    /// The request that the latest token answers, and when it is renewed.
    token: Option<(TokenRequest, Instant)>,
    /// The scheme by which each part of the API was last asked.
    by_part: BTreeMap<&'static str, AuthScheme>,
    /// The scheme by which any part was last asked.
    latest: Option<AuthScheme>,
}

impl AuthState {
    fn scheme(&self, part: &str) -> Option<AuthScheme> {
        self.by_part.get(part).copied().or(self.latest)
    }

    fn header(&self, part: &str) -> Option<&HeaderValue> {
        match self.scheme(part)? {
            AuthScheme::Basic => self.basic.as_ref(),
            AuthScheme::Bearer => self.bearer.as_ref(),
        }
    }

    fn ask_by(&mut self, scheme: AuthScheme, part: &'static str) {
        self.by_part.insert(part, scheme);
        self.latest = Some(scheme);
    }
}

/// The part of the authentication that belongs to one request.
pub(crate) struct AuthRound {
    /// The part of the API: `manifests`, `blobs` and so on.
    part: &'static str,
    /// The actions that the request needs a token for.
    actions: &'static str,
    /// The header that was sent last.
    sent: Option<HeaderValue>,
    /// True if `Basic` was sent.
    sent_basic: bool,
    /// Scopes of the token that was made for this very request.
    fresh: Option<BTreeSet<String>>,
    /// True if no token could be had for this request.
    has_no_token: bool,
}

impl AuthRound {
    /// A round for a request to a part of the API.
    pub(crate) fn new(part: &'static str, method: &Method) -> Self {
        let actions = if matches!(*method, Method::GET | Method::HEAD) { "pull" } else { "pull,push" };
        Self { part, actions, sent: None, sent_basic: false, fresh: None, has_no_token: false }
    }
}

impl Authenticator {
    pub(crate) fn new(
        credential: Option<RegistryAuth>,
        withheld_for: Option<String>,
        path: Option<&str>,
    ) -> Result<Self, Cause> {
        let mut state = AuthState::default();
        if let Some(credential) = credential.as_ref().filter(|c| !c.registry_token.is_empty()) {
            state.bearer = Some(token::bearer(&credential.registry_token)?);
            state.latest = Some(AuthScheme::Bearer);
        }
        Ok(Self { credential, withheld_for, path: path.map(str::to_owned), state: Mutex::new(state) })
    }

    /// Returns the header to send now, renewed where its token is about to end.
    pub(crate) async fn current(
        &self,
        transport: &Transport,
        secrets: &Secrets,
        round: &mut AuthRound,
    ) -> Result<Option<HeaderValue>, Cause> {
        let mut state = self.state.lock().await;
        let scheme = state.scheme(round.part);
        if scheme == Some(AuthScheme::Bearer)
            && let Some((wanted, until)) = &state.token
            && Instant::now() >= *until
        {
            let wanted = wanted.clone();
            self.renew(&mut state, wanted, transport, secrets).await?;
        }
        round.sent_basic |= scheme == Some(AuthScheme::Basic);
        round.sent = state.header(round.part).cloned();
        Ok(round.sent.clone())
    }

    /// Handles the challenges of a 401, after which the request may be repeated. An error means that a repetition would
    /// fail as well.
    pub(crate) async fn challenged(
        &self,
        challenges: &[Challenge],
        transport: &Transport,
        secrets: &Secrets,
        round: &mut AuthRound,
    ) -> Result<(), Cause> {
        let mut state = self.state.lock().await;
        if state.header(round.part) != round.sent.as_ref() {
            // Another request has answered meanwhile.
            return Ok(());
        }
        if self.credential.as_ref().is_some_and(|c| !c.registry_token.is_empty()) {
            return Err(self.refused("the registry token was refused", challenges));
        }
        let find = |scheme: &str| challenges.iter().find(|c| c.scheme == scheme);
        let basic = find("basic").map(|_| self.basic(challenges, round));
        let Some(bearer) = find("bearer").filter(|_| basic.is_none() || !round.has_no_token) else {
            let unknown = "the registry asks for no kind of authentication that is known here";
            let (user, password) = basic.unwrap_or_else(|| Err(self.refused(unknown, challenges)))?;
            return answer_basic(&mut state, &user, &password, round);
        };
        match (self.bearer(bearer, challenges, &mut state, transport, secrets, round).await, basic) {
            (Err(cause), Some(Ok((user, password)))) if !cause.is_transient() => {
                tracing::debug!(host = transport.name, error = %cause, "no token, trying the other challenge");
                round.has_no_token = true;
                answer_basic(&mut state, &user, &password, round)
            }
            (answered, _) => answered,
        }
    }

    /// Returns the user name and password for a `Basic` challenge.
    ///
    /// # Errors
    /// [`Cause::Unauthenticated`], when there are none, or when this request was made with them already.
    fn basic(&self, challenges: &[Challenge], round: &AuthRound) -> Result<(String, Secret), Cause> {
        if round.sent_basic {
            return Err(self.refused("the credential was refused", challenges));
        }
        let Some((user, password)) = self.credential.as_ref().and_then(RegistryAuth::user_and_password) else {
            return Err(self.refused("the registry wants a user name and a password and there are none", challenges));
        };
        if user.is_empty() || password.is_empty() {
            return Err(self.refused("the registry wants a user name and a password and one is empty", challenges));
        }
        Ok((user, password))
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
        let scope = self.path.as_ref().map(|path| format!("repository:{path}:{}", round.actions));
        let wanted = TokenRequest::answering(bearer, scope, ChallengeOrigin::Host, transport);
        if let (Ok(wanted), Some(before)) = (&wanted, &round.fresh)
            && wanted.scopes.is_subset(before)
        {
            let what = if self.is_anonymous() { "the anonymous token was refused" } else { "the token was refused" };
            return Err(self.refused(what, all));
        }
        let wanted = wanted?;
        let scopes = wanted.scopes.clone();
        self.renew(state, wanted, transport, secrets).await?;
        state.ask_by(AuthScheme::Bearer, round.part);
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
        let token = token::fetch(transport, &wanted, self.credential.as_ref(), secrets).await?;
        state.bearer = Some(token::bearer(&token.value)?);
        state.token = Some((wanted, token.renewal()));
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

fn answer_basic(state: &mut AuthState, user: &str, password: &Secret, round: &AuthRound) -> Result<(), Cause> {
    state.basic = Some(token::basic(user, password)?);
    state.ask_by(AuthScheme::Basic, round.part);
    Ok(())
}
