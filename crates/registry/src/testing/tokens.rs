//! The token service of a test registry.

use base::lock::Mutex;

use base64::Engine as _;
use serde_json::json;

use super::request_log::RequestLog;

/// How the token service behaves.
#[derive(Clone, Debug)]
pub struct TokenAuth {
    /// User and password that get a token.
    pub user: Option<(String, String)>,
    /// Identity token that gets a token.
    pub identity_token: Option<String>,
    /// A token that the registry takes as it is.
    pub registry_token: Option<String>,
    /// True if every client gets a token.
    pub anonymous: bool,
    /// True if POST is known; 405 otherwise.
    pub oauth: bool,
    /// `expires_in` of the answers.
    pub expires_in: Option<f64>,
    /// Another realm than the registry's own.
    pub realm: Option<String>,
    /// Another scope in the challenge than the one that is needed.
    pub challenge_scope: Option<String>,
    /// True if tokens are good for anything; otherwise every token is refused.
    pub accepts_tokens: bool,
    /// The requests that may, or must, use Basic.
    pub basic: BasicOffer,
}

/// The requests that a registry with tokens asks for Basic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BasicOffer {
    /// None.
    #[default]
    Never,
    /// All: both schemes are offered, and either is accepted.
    WithBearer,
    /// Those with a token: it is answered by a challenge for Basic alone, which is what the registry accepts.
    AfterToken,
    /// Those whose path contains this text, where tokens are not accepted.
    For(&'static str),
}

impl Default for TokenAuth {
    fn default() -> Self {
        Self {
            user: None,
            identity_token: None,
            registry_token: None,
            anonymous: false,
            oauth: true,
            expires_in: Some(300.0),
            realm: None,
            challenge_scope: None,
            accepts_tokens: true,
            basic: BasicOffer::Never,
        }
    }
}

impl TokenAuth {
    /// Tokens for this user.
    #[must_use]
    pub fn user(user: &str, password: &str) -> Self {
        Self { user: Some((user.to_owned(), password.to_owned())), ..Self::default() }
    }

    /// Tokens for every client.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { anonymous: true, ..Self::default() }
    }
}

/// Tokens that were given out.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<Issued>);

#[derive(Debug, Default)]
struct Issued {
    all: Vec<(String, Vec<String>)>,
    revoked: usize,
}

impl Tokens {
    pub(super) fn revoke(&self) {
        let mut issued = self.0.lock();
        issued.revoked = issued.all.len();
    }

    pub(super) fn issued(&self) -> Vec<String> {
        self.0.lock().all.iter().map(|(token, _)| token.clone()).collect()
    }

    /// Returns true if a token is good for this scope.
    pub(super) fn is_good(&self, token: &str, scope: &str) -> bool {
        let issued = self.0.lock();
        issued.all[issued.revoked..].iter().any(|(t, scopes)| t == token && scopes.iter().any(|s| s == scope))
    }

    /// Answers a token request: status and body.
    pub(super) fn answer(&self, auth: &TokenAuth, request: &RequestLog) -> (u16, String) {
        let text = if request.method == "POST" { &request.body } else { &request.query };
        let pairs: Vec<(String, String)> = url::form_urlencoded::parse(text.as_bytes()).into_owned().collect();
        let get = |name: &str| pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).unwrap_or_default();
        let allowed = if request.method == "POST" {
            if !auth.oauth {
                return (405, String::new());
            }
            match get("grant_type") {
                "password" => auth.user.as_ref().is_some_and(|(u, p)| u == get("username") && p == get("password")),
                "refresh_token" => auth.identity_token.as_deref() == Some(get("refresh_token")),
                _ => return (400, json!({ "error": "unsupported_grant_type" }).to_string()),
            }
        } else {
            match request.authorization() {
                None => auth.anonymous,
                Some(header) => auth.user.as_ref().is_some_and(|(u, p)| header == basic(u, p)),
            }
        };
        if !allowed {
            return (401, json!({ "details": "incorrect username or password" }).to_string());
        }
        let scopes = pairs.iter().filter(|(n, _)| n == "scope").flat_map(|(_, v)| v.split(' ').map(str::to_owned));
        let mut issued = self.0.lock();
        let token = format!("test-token-{}-of-{}", issued.all.len() + 1, std::process::id());
        issued.all.push((token.clone(), scopes.collect()));
        let mut answer = json!({ "token": token });
        if let Some(seconds) = auth.expires_in {
            answer["expires_in"] = json!(seconds);
        }
        (200, answer.to_string())
    }
}

pub(super) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}
