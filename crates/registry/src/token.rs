//! Requests bearer tokens from a token service (distribution specification, "Token Authentication"): OAuth2 by POST
//! where there is a secret, with a fall-back to GET and Basic for services that know no OAuth2 or redirect the POST; GET
//! without a secret.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use oci::{RegistryAuth, Secret};
use url::Url;
use url::form_urlencoded::Serializer;

use tokio::time::Instant;

use crate::challenge::Challenge;
use crate::error::Cause;
use crate::redact::{self, Secrets};
use crate::transport::{RegistryAnswer, RegistryRequest, Transport};

const CLIENT_ID: &str = "imagelet";
/// Lifetime of a token whose answer names none (same specification).
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60);

/// The request for a token: the service's URL, and the scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRequest {
    pub(crate) realm: Url,
    pub(crate) service: Option<String>,
    pub(crate) scopes: BTreeSet<String>,
    /// The registry that names the service.
    pub(crate) named_by: ChallengeOrigin,
}

/// The registry that sent a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChallengeOrigin {
    /// The host that was asked.
    Host,
    /// A registry to which the host redirected. Requests on its behalf carry nothing that belongs to the host.
    RedirectTarget,
}

impl TokenRequest {
    /// Makes the request that answers a `Bearer` challenge. `scope` is the one that the request needs, for challenges that name
    /// the scope of no repository.
    ///
    /// # Errors
    /// [`Cause::Challenge`], when the challenge names no token service, or one that may not be asked.
    pub(crate) fn answering(
        bearer: &Challenge,
        scope: Option<String>,
        named_by: ChallengeOrigin,
        transport: &Transport,
    ) -> Result<Self, Cause> {
        let mut scopes: BTreeSet<String> =
            bearer.get("scope").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        // A repository of another name is right where a prefix is configured.
        if !scopes.iter().any(|scope| scope.starts_with("repository:")) {
            scopes.extend(scope);
        }
        let realm =
            bearer.get("realm").ok_or_else(|| Cause::Challenge("the challenge names no token service".into()))?;
        let realm = Url::parse(realm).map(redact::without_user).map_err(|_| {
            Cause::Challenge(format!("the challenge's token service is not a URL ({})", redact::text(realm, 100)))
        })?;
        transport.check_realm(&realm).map_err(|why| Cause::Challenge(format!("{why} ({})", redact::url(&realm))))?;
        Ok(Self { realm, service: bearer.get("service").map(str::to_owned), scopes, named_by })
    }
}

pub(crate) struct BearerToken {
    pub(crate) value: Secret,
    lifetime: Duration,
}

impl BearerToken {
    /// Returns the time at which the token is to be renewed: a little before its end, so that it does not end on the way.
    pub(crate) fn renewal(&self) -> Instant {
        // A far end is as good as none.
        Instant::now() + self.lifetime.min(Duration::from_secs(24 * 3600)).mul_f32(0.9)
    }
}

/// `Basic` and the two texts, as a header value.
pub(crate) fn basic(user: &str, password: &Secret) -> Result<HeaderValue, Cause> {
    header("Basic", redact::basic(user, password.expose()).expose())
}

/// `Bearer` and a token, as a header value.
pub(crate) fn bearer(token: &Secret) -> Result<HeaderValue, Cause> {
    header("Bearer", token.expose())
}

fn header(scheme: &str, value: &str) -> Result<HeaderValue, Cause> {
    let mut value = HeaderValue::try_from(format!("{scheme} {value}"))
        .map_err(|_| Cause::Unauthenticated("the token has characters that no header can carry".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

pub(crate) async fn fetch(
    transport: &Transport,
    wanted: &TokenRequest,
    credential: Option<&RegistryAuth>,
    secrets: &Secrets,
) -> Result<BearerToken, Cause> {
    let user_and_password = credential.and_then(RegistryAuth::user_and_password);
    let identity = match (credential, &user_and_password) {
        (Some(c), _) if !c.identity_token.is_empty() => Some(c.identity_token.clone()),
        // A secret without a user is a refresh token, as containerd has it.
        (_, Some((user, secret))) if user.is_empty() => Some(secret.clone()),
        _ => None,
    };
    let with_user = user_and_password.filter(|(user, password)| !user.is_empty() && !password.is_empty());

    if identity.is_some() || with_user.is_some() {
        let form = form(wanted, identity.as_ref(), with_user.as_ref());
        let answer = send(transport, wanted, wanted.realm.clone(), None, Some(form)).await?;
        if !is_without_oauth(answer.status()) {
            return take(answer, transport, secrets).await;
        }
        tracing::debug!(
            realm = redact::url(&wanted.realm),
            status = answer.status().as_u16(),
            "token service does not support OAuth2, requesting by GET"
        );
    }
    let authorization = match (&with_user, &identity) {
        (Some((user, password)), _) => Some(basic(user, password)?),
        // A secret without a user, as containerd sends it.
        (None, Some(secret)) => Some(basic("", secret)?),
        (None, None) => None,
    };
    let answer = send(transport, wanted, get_url(wanted), authorization, None).await?;
    take(answer, transport, secrets).await
}

/// Returns true if an answer to a POST indicates that the service may support only GET: by its status, or by a redirect within its
/// origin that turns a POST into a GET, and so would lose the form.
fn is_without_oauth(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 400 | 401 | 404 | 405)
}

/// The realm with service and scopes in its query.
fn get_url(wanted: &TokenRequest) -> Url {
    let mut url = wanted.realm.clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = &wanted.service {
            query.append_pair("service", service);
        }
        for scope in &wanted.scopes {
            query.append_pair("scope", scope);
        }
    }
    url
}

fn form(wanted: &TokenRequest, identity: Option<&Secret>, with_user: Option<&(String, Secret)>) -> String {
    let mut form = Serializer::new(String::new());
    if let Some(secret) = identity {
        form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", secret.expose());
    } else if let Some((user, password)) = with_user {
        form.append_pair("grant_type", "password")
            .append_pair("username", user)
            .append_pair("password", password.expose());
    }
    form.append_pair("client_id", CLIENT_ID);
    if let Some(service) = &wanted.service {
        form.append_pair("service", service);
    }
    let scopes: Vec<&str> = wanted.scopes.iter().map(String::as_str).collect();
    form.append_pair("scope", &scopes.join(" "));
    form.finish()
}

async fn send(
    transport: &Transport,
    wanted: &TokenRequest,
    url: Url,
    authorization: Option<HeaderValue>,
    form: Option<String>,
) -> Result<RegistryAnswer, Cause> {
    let host = redact::host(&url);
    let method = if form.is_some() { Method::POST } else { Method::GET };
    let ask = RegistryRequest {
        method,
        url,
        headers: HeaderMap::new(),
        authorization: authorization.as_ref(),
        form,
        upload: None,
        is_token: true,
        redirect_tokens: &[],
    };
    let sent = match wanted.named_by {
        ChallengeOrigin::Host => transport.send(ask).await,
        ChallengeOrigin::RedirectTarget => transport.send_elsewhere(ask).await,
    };
    sent.map_err(|mut cause| {
        if let Cause::Connect(words) | Cause::Tls(words) | Cause::Transport(words) | Cause::Redirect(words) = &mut cause
        {
            words.insert_str(0, &format!("token service {host}: "));
        }
        cause
    })
}

async fn take(answer: RegistryAnswer, transport: &Transport, secrets: &Secrets) -> Result<BearerToken, Cause> {
    // The host is named in any case.
    let (host, mut answer) = (answer.host(), answer);
    answer.left_origin = false;
    if !answer.status().is_success() {
        return Err(refusal(&host, answer.into_cause().await));
    }
    let content_type = answer.content_type();
    let body = answer.body(transport.options().limits.token, transport.options().retry.idle_timeout, None).await?;
    let (value, lifetime) = parse(&body).map_err(|why| {
        Cause::Challenge(format!("token service {host}: {why} (content type {})", redact::content_type(&content_type)))
    })?;
    secrets.add(value.expose());
    Ok(BearerToken { value, lifetime })
}

/// Classifies a failure of a token service: a refusal concerns the credential, and other failures are not those of the repository.
fn refusal(host: &str, cause: Cause) -> Cause {
    match cause {
        Cause::Status { status, message, retry_after, .. } => {
            let detail = if message.is_empty() { String::new() } else { format!(": {message}") };
            let words = format!("token service {host} answered {}{detail}", status.as_u16());
            match status.as_u16() {
                400 | 401 => Cause::Unauthenticated(words),
                403 | 408 | 429 | 500.. => Cause::Status { status, message: words, retry_after, name_invalid: false },
                _ => Cause::Challenge(words),
            }
        }
        other => other,
    }
}

pub(crate) fn parse(body: &[u8]) -> Result<(Secret, Duration), &'static str> {
    let value: serde_json::Value = serde_json::from_slice(body).map_err(|_| "its answer is not JSON")?;
    let text = |key: &str| value.get(key).and_then(|v| v.as_str()).filter(|t| !t.is_empty());
    let token = text("token").or_else(|| text("access_token")).ok_or("its answer has no token")?;
    let lifetime = value
        .get("expires_in")
        .and_then(|v| v.as_f64().or_else(|| v.as_str().and_then(|t| t.parse().ok())))
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|lifetime| !lifetime.is_zero())
        .unwrap_or(DEFAULT_LIFETIME);
    Ok((Secret::new(token), lifetime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let cases = [
            (r#"{"token":"a"}"#, Ok(("a", 60))),
            (r#"{"access_token":"b","expires_in":300}"#, Ok(("b", 300))),
            (r#"{"token":"a","access_token":"b","expires_in":"90"}"#, Ok(("a", 90))),
            (r#"{"token":"","access_token":"b","expires_in":-1}"#, Ok(("b", 60))),
            (r#"{"token":"a","expires_in":1e300}"#, Ok(("a", 60))),
            (r#"{"token":"a","expires_in":1e-300}"#, Ok(("a", 60))),
            (r#"{"token":7}"#, Err("its answer has no token")),
            ("{}", Err("its answer has no token")),
            ("[]", Err("its answer has no token")),
            ("<html>", Err("its answer is not JSON")),
        ];
        for (body, want) in cases {
            let got = parse(body.as_bytes());
            let got = got.as_ref().map(|(t, d)| (t.expose(), d.as_secs())).map_err(|e| *e);
            assert_eq!(got, want, "{body}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn never_panics_on_near_misses(
            text in r#"\{("(token|access_token|expires_in)"|[:,{}\[\]"]|-?[0-9]{1,400}|1e999|null|é){0,12}\}"#
        ) {
            if let Ok((token, lifetime)) = parse(text.as_bytes()) {
                proptest::prop_assert!(!token.is_empty() && !lifetime.is_zero());
            }
        }
    }

    #[test]
    fn requests() {
        let wanted = TokenRequest {
            realm: Url::parse("https://a.example/token?x=1").expect("parses"),
            service: Some("r.example".into()),
            scopes: ["repository:b:pull".to_owned(), "repository:a:pull".to_owned()].into(),
            named_by: ChallengeOrigin::Host,
        };
        assert_eq!(
            get_url(&wanted).as_str(),
            "https://a.example/token?x=1&service=r.example&scope=repository%3Aa%3Apull&scope=repository%3Ab%3Apull"
        );
        let user = ("ada".to_owned(), Secret::new("p&w"));
        assert_eq!(
            form(&wanted, None, Some(&user)),
            "grant_type=password&username=ada&password=p%26w&client_id=imagelet&service=r.example&scope=repository%3Aa%3Apull+repository%3Ab%3Apull"
        );
        assert!(
            form(&wanted, Some(&Secret::new("t")), Some(&user))
                .starts_with("grant_type=refresh_token&refresh_token=t&")
        );
    }
}
