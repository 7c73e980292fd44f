//! Manifests and indexes: requested by name, taken whole, checked for digest, size and being JSON. `oci` reads them.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT, AGE, DATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use oci::{Algorithm, Digest, Verifier, media_type};

use crate::error::{Cause, RegistryError};
use crate::redact;
use crate::retry::HostAttempts;
use crate::session::{ApiPath, PullSession, patiently};
use crate::transport::RegistryAnswer;

const DIGEST_HEADER: HeaderName = HeaderName::from_static("docker-content-digest");
/// Larger texts are hashed on a thread that may block.
const HASH_HERE: usize = 128 << 10;

/// A manifest or index as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The very bytes.
    pub bytes: Bytes,
    /// `Content-Type` without parameters; empty when the registry gave none.
    pub media_type: String,
    /// The digest of the bytes.
    pub digest: Digest,
}

/// The head of the answer to a request for a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestHead {
    /// Name of the host that answered: the registry, or a mirror of it.
    pub host: String,
    /// Seconds by which this machine's clock is ahead of that host's, below zero if it is behind; `None` if the host sent no time.
    pub clock_ahead: Option<i64>,
}

/// A manifest or index that is wanted.
pub(crate) struct DocumentRequest<'a> {
    /// `manifests`, or `referrers` for the index of what refers to a manifest.
    pub(crate) what: &'static str,
    /// Tag or digest, as it stands in the path.
    pub(crate) name: String,
    pub(crate) digest: Option<&'a Digest>,
    pub(crate) size: Option<u64>,
    pub(crate) by_tag: bool,
}

impl PullSession {
    pub(crate) async fn document(&self, asked: &str, want: &DocumentRequest<'_>) -> Result<Fetched, RegistryError> {
        let order = self.order(want.by_tag);
        if order.is_empty() {
            return Err(self.no_capable_host(asked, want.by_tag));
        }
        let mut attempts = HostAttempts::new(order);
        loop {
            match self.document_at(attempts.host(), want, self.patience(&attempts)).await {
                Ok(fetched) => return Ok(fetched),
                Err(cause) => self.failed(&mut attempts, cause, asked).await?,
            }
        }
    }

    /// The digest that a tag stands for at the first host that is to be asked, by HEAD; `None` where the host does not say.
    pub(crate) async fn probe(&self, tag: &str) -> Option<Digest> {
        let attempts = HostAttempts::new(self.order(true));
        let host = attempts.first()?;
        let path = ApiPath { method: Method::HEAD, what: "manifests", name: tag };
        let headers = HeaderMap::from_iter([(ACCEPT, manifest_accept())]);
        let asked = patiently(self.patience(&attempts), self.request(host, &path, headers)).await;
        let answer = asked.inspect_err(|cause| self.note_silence(host, cause)).ok()?;
        if answer.status().is_success() { announced(&answer).ok()? } else { None }
    }

    /// Asks for a manifest by HEAD, as far as the host that has it.
    pub(crate) async fn head(&self, asked: &str, name: &str, by_tag: bool) -> Result<ManifestHead, RegistryError> {
        let order = self.order(by_tag);
        if order.is_empty() {
            return Err(self.no_capable_host(asked, by_tag));
        }
        let path = ApiPath { method: Method::HEAD, what: "manifests", name };
        let mut attempts = HostAttempts::new(order);
        loop {
            let host = attempts.host();
            let headers = HeaderMap::from_iter([(ACCEPT, manifest_accept())]);
            let cause = match patiently(self.patience(&attempts), self.request(host, &path, headers)).await {
                Ok(answer) if answer.status().is_success() => {
                    let clock_ahead = clock_ahead(answer.response.headers(), answer.received());
                    return Ok(ManifestHead { host: self.host_label(host).name.to_owned(), clock_ahead });
                }
                Ok(answer) => answer.into_cause().await,
                Err(cause) => cause,
            };
            self.failed(&mut attempts, cause, asked).await?;
        }
    }

    async fn document_at(
        &self,
        host: usize,
        want: &DocumentRequest<'_>,
        patience: Option<Duration>,
    ) -> Result<Fetched, Cause> {
        let options = self.client.options();
        let headers = HeaderMap::from_iter([(ACCEPT, manifest_accept())]);
        let path = ApiPath { method: Method::GET, what: want.what, name: &want.name };
        let answer = patiently(patience, self.request(host, &path, headers)).await?;
        if !answer.status().is_success() {
            return Err(answer.into_cause().await);
        }
        let content_type = answer.content_type();
        let announced = announced(&answer)?;
        let idle = patience.unwrap_or(options.retry.idle_timeout);
        let bytes = answer.body(options.limits.manifest, idle, self.share.limited()).await?;
        self.count(host, bytes.len() as u64);
        check_is_json(&content_type, &bytes)?;
        let digest = match want.digest {
            Some(digest) => {
                verify(digest, want.size, bytes.clone()).await.map_err(Cause::Content)?;
                digest.clone()
            }
            None => computed(announced, bytes.clone()).await?,
        };
        Ok(Fetched { bytes, media_type: media_type::essence(&content_type), digest })
    }
}

/// Returns the seconds by which the time of receipt is ahead of the sender's clock. An answer from a cache was sent earlier (RFC 9110,
/// section 6.6.1; RFC 9111, section 5.1).
fn clock_ahead(headers: &HeaderMap, received: SystemTime) -> Option<i64> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let age: u32 = text(AGE).and_then(|age| age.parse().ok()).unwrap_or_default();
    let sent = httpdate::parse_http_date(text(DATE)?).ok()?.checked_add(Duration::from_secs(age.into()))?;
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Some(match received.duration_since(sent) {
        Ok(ahead) => seconds(ahead),
        Err(behind) => -seconds(behind.duration()),
    })
}

/// Checks size and digest.
///
/// # Errors
/// The fault, as a text.
pub(crate) async fn verify(digest: &Digest, size: Option<u64>, bytes: Bytes) -> Result<(), String> {
    let (digest, len) = (digest.clone(), bytes.len());
    let check = move || {
        let mut verifier = Verifier::new(digest, size.unwrap_or(bytes.len() as u64));
        verifier.update(&bytes)?;
        verifier.finish().map(|_| ())
    };
    hashing(len, check).await?.map_err(|e| e.to_string())
}

/// Runs a hash of `len` bytes, on a thread that may block where that takes long.
async fn hashing<T: Send + 'static>(len: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    if len <= HASH_HERE {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|e| e.to_string())
}

fn manifest_accept() -> HeaderValue {
    HeaderValue::try_from(media_type::MANIFEST_ACCEPT.join(", ")).expect("media types are header values")
}

/// A login page, a proxy's notice, an empty answer: named for what they are, before a digest is compared.
fn check_is_json(content_type: &str, bytes: &[u8]) -> Result<(), Cause> {
    let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
    let is_html = media_type::essence(content_type) == "text/html";
    if first == Some(&b'{') && !is_html {
        return Ok(());
    }
    let shown_type = redact::content_type(content_type);
    if first.is_none() {
        return Err(Cause::Content(format!("an empty answer ({shown_type}) instead of a manifest")));
    }
    let start = redact::text(&String::from_utf8_lossy(&bytes[..bytes.len().min(400)]), 80);
    Err(Cause::Content(format!("{shown_type} instead of a manifest, it starts with {start:?}")))
}

/// The digest that the registry names in its answer's head.
fn announced(answer: &RegistryAnswer) -> Result<Option<Digest>, Cause> {
    let Some(value) = answer.response.headers().get(DIGEST_HEADER) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let bad = |e| Cause::Content(format!("Docker-Content-Digest {:?}: {e}", redact::text(&text, 100)));
    text.trim().parse::<Digest>().map(Some).map_err(bad)
}

/// The digest of what a tag stands for: the registry's, if the bytes have it, or SHA-256.
async fn computed(announced: Option<Digest>, bytes: Bytes) -> Result<Digest, Cause> {
    let algorithm = announced.as_ref().map_or(Algorithm::Sha256, Digest::algorithm);
    let got = hashing(bytes.len(), move || algorithm.digest(&bytes)).await.map_err(Cause::Content)?;
    match announced {
        Some(want) if want != got => {
            Err(Cause::Content(format!("the registry names the manifest {want} and its bytes are {got}")))
        }
        _ => Ok(got),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_compared_with_the_time_of_the_answer() {
        let received = httpdate::parse_http_date("Wed, 21 Oct 2015 07:28:00 GMT").expect("a date");
        for (date, age, want) in [
            (Some("Wed, 21 Oct 2015 07:28:00 GMT"), None, Some(0)),
            (Some("Wed, 21 Oct 2015 07:27:00 GMT"), None, Some(60)),
            (Some("Wed, 21 Oct 2015 08:28:00 GMT"), None, Some(-3600)),
            (Some("Wed, 21 Oct 2015 06:28:00 GMT"), Some("3600"), Some(0)),
            (Some("yesterday"), None, None),
            (None, Some("3600"), None),
        ] {
            let pairs = [(DATE, date), (AGE, age)].into_iter();
            let pairs = pairs.filter_map(|(name, value)| Some((name, HeaderValue::from_static(value?))));
            assert_eq!(clock_ahead(&HeaderMap::from_iter(pairs), received), want, "{date:?} {age:?}");
        }
    }

    #[test]
    fn invalid_json_is_reported() {
        let cases = [
            ("application/json", "{}", None),
            ("", " \n{}", None),
            ("text/html; charset=utf-8", "{}", Some("text/html; charset=utf-8 instead of a manifest")),
            ("text/html", "<!DOCTYPE html>\n<p>Sign in", Some("starts with \"<!DOCTYPE html> <p>Sign in\"")),
            ("application/json", "<html>", Some("application/json instead of a manifest")),
            ("", "", Some("an empty answer (no type)")),
        ];
        for (content_type, body, want) in cases {
            let got = check_is_json(content_type, body.as_bytes()).map_err(|c| c.to_string());
            match want {
                None => assert_eq!(got, Ok(()), "{body}"),
                Some(want) => assert!(got.as_ref().is_err_and(|e| e.contains(want)), "{body}: {got:?}"),
            }
        }
    }
}
