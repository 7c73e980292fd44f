//! The scheme of a host that probably speaks one of HTTP and HTTPS, and may speak the other: a registry on loopback
//! speaks plain HTTP, and some speak TLS; where certificates do not matter, it is the other way round. The first answer
//! shows which, and a request without any secret confirms it. Called by [`crate::session`].

use std::sync::atomic::Ordering;

use http::StatusCode;

use crate::error::Cause;
use crate::session::PullSession;
use crate::transport::RegistryAnswer;

/// A header that registries send with every answer.
const API_VERSION: &str = "docker-distribution-api-version";

impl PullSession {
    /// Asks a host whose scheme is not known yet, without a secret. Returns true if it changed.
    ///
    /// # Errors
    /// Those of [`PullSession::is_in_other_scheme`].
    pub(crate) async fn find_scheme(&self, host: usize) -> Result<bool, Cause> {
        if self.hosts[host].scheme_known.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let sent = self.hosts[host].likelier.ping().await;
        let is_other = self.is_in_other_scheme(host, &sent).await?;
        match sent {
            // As long as nothing is known, nothing more is sent.
            Err(cause) if !is_other => Err(cause),
            _ => Ok(is_other),
        }
    }

    /// Takes in the first answer of a host. Returns true if the host is asked in the other scheme from now on.
    ///
    /// # Errors
    /// [`Cause::Tls`], where the host speaks TLS, and its certificate is not one to trust.
    pub(crate) async fn is_in_other_scheme(
        &self,
        host: usize,
        sent: &Result<RegistryAnswer, Cause>,
    ) -> Result<bool, Cause> {
        let host = &self.hosts[host];
        if host.scheme_known.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let base = &host.likelier.config.base;
        if is_of_scheme(base.scheme(), sent) {
            // A failure leaves the scheme unknown.
            host.scheme_known.store(sent.is_ok(), Ordering::Relaxed);
            return Ok(false);
        }
        let Some(config) = host.likelier.config.in_other_scheme() else { return Ok(false) };
        let transport = self.client.transport(config)?;
        match transport.ping().await {
            Ok(_) => {
                tracing::debug!(
                    host = transport.name,
                    scheme = transport.config.base.scheme(),
                    "learned the scheme of the host"
                );
                self.client.note_other_scheme(base);
                // Another request may have found the same.
                let _ = host.other.set(transport);
                host.scheme_known.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Err(Cause::Tls(words)) if !is_of_plain_server(&words) => Err(Cause::Tls(words)),
            Err(_) => {
                host.scheme_known.store(sent.is_ok(), Ordering::Relaxed);
                Ok(false)
            }
        }
    }
}

/// Returns false for the answers of a server of the other scheme: to plain HTTP, a 400 that is not from a registry, or
/// bytes that are not HTTP; to TLS, bytes that are not TLS, or no listener.
fn is_of_scheme(scheme: &str, sent: &Result<RegistryAnswer, Cause>) -> bool {
    match (scheme, sent) {
        ("http", Ok(answer)) => {
            let by_registry = answer.response.headers().contains_key(API_VERSION);
            answer.status() != StatusCode::BAD_REQUEST || by_registry || answer.content_type().contains("json")
        }
        ("http", Err(Cause::Transport(words))) => !words.contains("invalid HTTP"),
        (_, Err(Cause::Tls(words))) => !is_of_plain_server(words),
        ("https", Err(Cause::Connect(_))) => false,
        _ => true,
    }
}

fn is_of_plain_server(words: &str) -> bool {
    words.contains("InvalidContentType")
}
