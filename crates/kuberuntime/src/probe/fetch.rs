//! [`fetch`]: one document from a URL, with the server's certificate checked by the system's authorities. Redirects are
//! followed, never from TLS to plain text; headers and credentials go to the origin that they were given for and to no
//! other. The URL is shown without user, password and query, because people put secrets there.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rustls::ClientConfig;
use url::Url;

use super::exchange::Exchange;
use super::http_get::{host_header, is_redirect, relative};
use super::{percent_decoded, shown, tls};

const MAX_REDIRECTS: usize = 10;

/// Failure to fetch a document, with the URL without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FetchError(String);

impl FetchError {
    fn url(url: &str, reason: impl fmt::Display) -> Self {
        Self(format!("url {url:?}: {reason}"))
    }

    fn get(url: &Url, reason: impl fmt::Display) -> Self {
        Self(format!("get {}: {reason}", public(url)))
    }
}

/// Fetches what `url` names: at most `limit` bytes, within `timeout`.
///
/// # Errors
/// The document cannot be fetched as a whole.
pub async fn fetch(
    url: &str,
    headers: &[(&str, &str)],
    limit: usize,
    timeout: Duration,
) -> Result<Vec<u8>, FetchError> {
    let config = if url.starts_with("http:") { tls::unchecked() } else { tls::checked().await };
    fetch_trusting(config, url, headers, limit, timeout).await
}

/// Fetches a URL like [`fetch`], and trusts only the given authorities.
pub(crate) async fn fetch_trusting(
    config: Arc<ClientConfig>,
    url: &str,
    headers: &[(&str, &str)],
    limit: usize,
    timeout: Duration,
) -> Result<Vec<u8>, FetchError> {
    let parsed = Url::parse(url).map_err(|error| FetchError::url(&before_query(url), error))?;
    let bad = |reason: String| FetchError::url(&public(&parsed), reason);
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(bad(format!("scheme {:?} is neither http nor https", parsed.scheme())));
    }
    let headers = request_headers(&parsed, headers).map_err(bad)?;
    let followed = follow(config, parsed.clone(), &headers, limit);
    tokio::time::timeout(timeout, followed).await.unwrap_or_else(|_| {
        let reason = format!("no whole answer within {}", shown(timeout));
        Err(FetchError::get(&parsed, reason))
    })
}

async fn follow(
    config: Arc<ClientConfig>,
    first: Url,
    headers: &HeaderMap,
    limit: usize,
) -> Result<Vec<u8>, FetchError> {
    let mut url = first.clone();
    for _ in 0..=MAX_REDIRECTS {
        let failed = |reason: String| FetchError::get(&url, reason);
        let mut sent = if url.origin() == first.origin() { headers.clone() } else { plain_headers() };
        if !sent.contains_key(HOST) {
            sent.insert(HOST, host_header(&url).map_err(|fault| failed(fault.text))?);
        }
        let target = url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        let head_seen = AtomicBool::new(false);
        // Without a check only where there is nothing to check.
        let tls =
            if first.scheme() == "http" && url.scheme() == "https" { tls::checked().await } else { config.clone() };
        let exchange = Exchange { url: &url, target: &target, headers: sent, tls, limit, head_seen: &head_seen };
        let reply = exchange.run().await.map_err(|fault| failed(fault.text))?;
        let Some(location) = reply.location.filter(|_| is_redirect(reply.status)) else {
            return match reply.status {
                StatusCode::OK if reply.cut => Err(failed(format!("more than {limit} bytes"))),
                StatusCode::OK => Ok(reply.body),
                status => Err(failed(format!("status {}", status.as_u16()))),
            };
        };
        let (next, _) = relative(&url, &location).map_err(|fault| failed(fault.text))?;
        if url.scheme() == "https" && next.scheme() == "http" {
            return Err(failed(format!("it leads to {}, which is not encrypted", public(&next))));
        }
        url = next;
    }
    Err(FetchError::get(&first, format!("more than {MAX_REDIRECTS} redirects")))
}

/// Headers that are sent to the origin of `url` alone.
fn request_headers(url: &Url, given: &[(&str, &str)]) -> Result<HeaderMap, String> {
    let mut headers = plain_headers();
    let mut own = HeaderMap::new();
    for (name, value) in given {
        let header = HeaderName::try_from(*name).map_err(|_| format!("header name {name:?} cannot be sent"))?;
        if [CONTENT_LENGTH, TRANSFER_ENCODING].contains(&header) {
            return Err(format!("header {name:?} is not for the caller to say"));
        }
        let mut value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| format!("the value of header {name:?} cannot be sent"))?;
        value.set_sensitive(true);
        own.append(header, value);
    }
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_user && !own.contains_key(AUTHORIZATION) {
        let password = percent_decoded(url.password().unwrap_or_default().as_bytes());
        let pair = [percent_decoded(url.username().as_bytes()), b":".to_vec(), password].concat();
        let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))
            .map_err(|_| "its user cannot be sent".to_owned())?;
        value.set_sensitive(true);
        own.insert(AUTHORIZATION, value);
    }
    for name in own.keys() {
        headers.remove(name);
    }
    for (name, value) in &own {
        headers.append(name, value.clone());
    }
    Ok(headers)
}

fn plain_headers() -> HeaderMap {
    let agent = HeaderValue::from_static(concat!("imagelet/", env!("CARGO_PKG_VERSION")));
    HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("*/*")), (USER_AGENT, agent)])
}

/// Returns the URL without user, password, query and fragment.
fn public(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// Returns the part of an invalid URL that can be shown.
fn before_query(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match text.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => text.to_owned(),
    }
}
