//! [`RegistryError`]: the request, and the failure of every host that was tried, in one line without a secret. Callers
//! act on [`ErrorKind`] alone.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use url::Url;

use crate::redact;

/// The kinds of errors that a caller treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The registry has no such repository, tag, manifest or blob.
    NotFound,
    /// A credential is missing or was refused.
    Unauthenticated,
    /// The credential is good and does not suffice.
    PermissionDenied,
    /// Too many requests.
    RateLimited,
    /// Network, TLS or server trouble; later it may work.
    Unavailable,
    /// The content is not the requested one: digest, size, type, HTML.
    InvalidContent,
    /// The registry calls the name itself invalid.
    InvalidReference,
    /// The configuration of the registry's hosts cannot be used.
    Config,
}

/// A failed request to a registry, with the failure of every host that was asked.
#[derive(Clone, Debug)]
pub struct RegistryError {
    asked: String,
    failures: Vec<HostFailure>,
}

#[derive(Clone, Debug)]
pub(crate) struct HostFailure {
    pub(crate) host: String,
    /// True for the registry itself, whose word counts more than a mirror's.
    pub(crate) upstream: bool,
    pub(crate) attempts: u32,
    pub(crate) cause: Cause,
}

/// The cause of a failure at one host. Its texts have been through [`redact`].
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// An answer with a status that is no success.
    #[error("{}{}{}", status_text(*.status), detail(.message), waiting(.retry_after))]
    Status { status: StatusCode, message: String, retry_after: Option<Duration>, name_invalid: bool },
    /// No credential, or one that was refused.
    #[error("{0}")]
    Unauthenticated(String),
    /// The connection could not be made.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The TLS handshake failed: certificate or protocol.
    #[error("TLS: {0}")]
    Tls(String),
    /// The connection broke, or the answer was not HTTP.
    #[error("transfer interrupted: {0}")]
    Transport(String),
    /// No byte was received within the idle timeout.
    #[error("no answer within {} s ({what})", .after.as_secs_f64())]
    Idle { after: Duration, what: &'static str },
    /// The body ended before its size was reached.
    #[error("transfer ended after {got} of {size} bytes")]
    Truncated { got: u64, size: u64 },
    /// The answer to a range is not that range.
    #[error("{0}")]
    Range(String),
    /// A redirect that is not followed.
    #[error("redirect refused: {0}")]
    Redirect(String),
    /// The content is not what was asked for.
    #[error("{0}")]
    Content(String),
    /// The token service is not one that a secret may be sent to, or the challenge makes no sense.
    #[error("{0}")]
    Challenge(String),
    /// Configuration that cannot be used.
    #[error("{0}")]
    Config(String),
}

/// The wait for the head of an answer, as [`Cause::Idle`] names it.
pub(crate) const NO_ANSWER: &str = "waiting for the answer";

fn status_text(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

fn waiting(after: &Option<Duration>) -> String {
    after.map(|d| format!(", retry after {} s", d.as_secs())).unwrap_or_default()
}

impl Cause {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Status { name_invalid: true, .. } => ErrorKind::InvalidReference,
            Self::Status { status, .. } => match status.as_u16() {
                401 => ErrorKind::Unauthenticated,
                403 => ErrorKind::PermissionDenied,
                404 => ErrorKind::NotFound,
                429 => ErrorKind::RateLimited,
                _ => ErrorKind::Unavailable,
            },
            Self::Unauthenticated(_) => ErrorKind::Unauthenticated,
            Self::Connect(_)
            | Self::Tls(_)
            | Self::Transport(_)
            | Self::Idle { .. }
            | Self::Truncated { .. }
            | Self::Range(_)
            | Self::Challenge(_)
            | Self::Redirect(_) => ErrorKind::Unavailable,
            Self::Content(_) => ErrorKind::InvalidContent,
            Self::Config(_) => ErrorKind::Config,
        }
    }

    /// Returns the same cause, with every text from outside the program changed by `f`.
    pub(crate) fn map_text(mut self, f: impl Fn(&str) -> String) -> Self {
        match &mut self {
            Self::Status { message: text, .. }
            | Self::Unauthenticated(text)
            | Self::Connect(text)
            | Self::Tls(text)
            | Self::Transport(text)
            | Self::Range(text)
            | Self::Redirect(text)
            | Self::Content(text)
            | Self::Challenge(text)
            | Self::Config(text) => *text = f(text),
            Self::Idle { .. } | Self::Truncated { .. } => {}
        }
        self
    }

    /// Names the registry to which a host redirected, and which asked for a token that could not be had.
    pub(crate) fn at_redirect_target(self, at: &Url) -> Self {
        self.map_text(|text| format!("redirected to {}: {text}", redact::host(at)))
    }

    /// The wait that the host asked for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl RegistryError {
    pub(crate) fn new(asked: impl Into<String>, failures: Vec<HostFailure>) -> Self {
        Self { asked: asked.into(), failures }
    }

    /// A request that failed before any host was asked, or because of no host in particular.
    pub(crate) fn without_host(asked: impl Into<String>, cause: Cause) -> Self {
        Self::new(asked, vec![HostFailure { host: String::new(), upstream: true, attempts: 1, cause }])
    }

    /// The kind of the error. Where several hosts failed the registry itself decides, or else the last one.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.decisive().map_or(ErrorKind::Config, |f| f.cause.kind())
    }

    fn decisive(&self) -> Option<&HostFailure> {
        self.failures.iter().rev().find(|f| f.upstream).or(self.failures.last())
    }

    /// The HTTP status of the deciding host's answer, where it was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self.decisive().map(|f| &f.cause) {
            Some(Cause::Status { status, .. }) => Some(status.as_u16()),
            _ => None,
        }
    }

    /// The wait that the registry asked for, where it did.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.decisive().and_then(|f| f.cause.retry_after())
    }

    /// The hosts that were tried, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.failures.iter().map(|f| f.host.as_str())
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.asked)?;
        for (i, failure) in self.failures.iter().enumerate() {
            f.write_str(if i == 0 { ": " } else { "; " })?;
            if !failure.host.is_empty() {
                write!(f, "{}: ", failure.host)?;
            }
            write!(f, "{}", failure.cause)?;
            if failure.attempts > 1 {
                write!(f, " (after {} attempts)", failure.attempts)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for RegistryError {}

/// Code and message of a registry's JSON error body, or the start of the body if it is something else. The second part
/// is true if the registry calls the name itself invalid.
pub(crate) fn body_message(body: &[u8]) -> (String, bool) {
    const MAX: usize = 300;
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) {
        if let Some(errors) = value.get("errors").and_then(|e| e.as_array()) {
            let text =
                |e: &serde_json::Value, key: &str| e.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
            let parts: Vec<String> = errors
                .iter()
                .take(3)
                .map(|e| match (text(e, "code"), text(e, "message")) {
                    (code, message) if message.is_empty() => code,
                    (code, message) if code.is_empty() => message,
                    (code, message) => format!("{code}: {message}"),
                })
                .filter(|p| !p.is_empty())
                .collect();
            let invalid = errors
                .first()
                .is_some_and(|e| matches!(text(e, "code").as_str(), "NAME_INVALID" | "TAG_INVALID" | "DIGEST_INVALID"));
            return (redact::text(&parts.join(", "), MAX), invalid);
        }
        // Token services and proxies have their own shapes.
        for key in ["error_description", "details", "message", "error"] {
            if let Some(message) = value.get(key).and_then(|v| v.as_str()) {
                return (redact::text(message, MAX), false);
            }
        }
        return (String::new(), false);
    }
    (redact::text(&String::from_utf8_lossy(&body[..body.len().min(1024)]), 100), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        let cases: [(&str, &str, bool); 8] = [
            (
                r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such\nmanifest"}]}"#,
                "MANIFEST_UNKNOWN: no such manifest",
                false,
            ),
            (r#"{"errors":[{"code":"A"},{"message":"b"},{}]}"#, "A, b", false),
            (r#"{"errors":[{"code":"NAME_INVALID","message":"x"}]}"#, "NAME_INVALID: x", true),
            (r#"{"error":"invalid_grant","error_description":"bad password"}"#, "bad password", false),
            (r#"{"details":"incorrect username or password"}"#, "incorrect username or password", false),
            ("<html><body>502</body></html>", "<html><body>502</body></html>", false),
            ("{}", "", false),
            ("", "", false),
        ];
        for (body, want, invalid) in cases {
            assert_eq!(body_message(body.as_bytes()), (want.to_owned(), invalid), "{body}");
        }
    }

    proptest::proptest! {
        #[test]
        fn error_body_is_summarised_in_one_line(
            text in r#"(\{|\}|\[|\]|"(errors|code|message|error|details)"|[:,"\n\x00\x1b\x9b\u202e\u2066\u061c]|[a-zé ]{1,300}){0,20}"#
        ) {
            let (told, _) = body_message(text.as_bytes());
            proptest::prop_assert!(told.chars().count() <= 301 && told.chars().all(oci::text::is_printable));
        }
    }

    #[test]
    fn one_line_with_every_host() {
        let status = |code: u16, message: &str| Cause::Status {
            status: StatusCode::from_u16(code).expect("valid"),
            message: message.into(),
            retry_after: None,
            name_invalid: false,
        };
        let error = RegistryError::new(
            "resolve r.example/app:1",
            vec![
                HostFailure {
                    host: "mirror".into(),
                    upstream: false,
                    attempts: 2,
                    cause: Cause::Connect("refused".into()),
                },
                HostFailure {
                    host: "r.example".into(),
                    upstream: true,
                    attempts: 1,
                    cause: status(404, "MANIFEST_UNKNOWN: gone"),
                },
            ],
        );
        assert_eq!(
            error.to_string(),
            "resolve r.example/app:1: mirror: cannot connect: refused (after 2 attempts); r.example: 404 Not Found (MANIFEST_UNKNOWN: gone)"
        );
        assert_eq!((error.kind(), error.status()), (ErrorKind::NotFound, Some(404)));
    }
}
