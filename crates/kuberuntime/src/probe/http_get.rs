//! [`http_get`]: the request of a probe or a hook, and [`ask_http`]: a probe's judgement of the answer. Certificates
//! are not checked, no proxy is used, and redirects to another host are not followed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_LENGTH, HOST, TRAILER, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use url::Url;

use super::dial::join;
use super::exchange::{Exchange, NoReply, Reply};
use super::{MAX_BODY, ProbeOutcome, ProbeReply, tls};

/// Maximum number of redirects on one host.
const MAX_REDIRECTS: usize = 10;

/// A request of a probe or a hook.
#[derive(Clone, Copy, Debug)]
pub struct HttpGet<'a> {
    /// True for HTTPS.
    pub tls: bool,
    /// Name or address.
    pub host: &'a str,
    /// TCP port.
    pub port: u16,
    /// Path, with a query if there is one.
    pub path: &'a str,
    /// Headers. `Host` replaces that of `host`; an empty `Accept` or `User-Agent` is not sent at all.
    pub headers: &'a [(&'a str, &'a str)],
    /// Purpose of the request, for `User-Agent`: `probe` or `lifecycle`.
    pub purpose: &'a str,
    /// Timeout of the whole request; `None` if the caller limits it.
    pub timeout: Option<Duration>,
}

/// An answer, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// Status code of the last answer, after redirects.
    pub status: u16,
    /// The beginning of the body.
    pub body: String,
}

/// Failure of a request without a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct GetError {
    /// For people, with the URL.
    pub text: String,
    /// The server speaks plain text where TLS was wanted.
    pub not_tls: bool,
}

/// Asks as a probe does: a status from 200 to 399 is good, and a redirect to elsewhere is good with a warning.
pub async fn ask_http(get: &HttpGet<'_>) -> ProbeReply {
    let HttpReply { status, body } = match http_get(get).await {
        Ok(reply) => reply,
        Err(error) => return ProbeReply::failure(error.text),
    };
    match status {
        200..300 => ProbeReply::success(body),
        300..400 => ProbeReply {
            outcome: ProbeOutcome::Warning,
            text: format!("Probe terminated redirects, Response body: {body}"),
        },
        // The body stays out of it: events are read by more people than the server was made for.
        _ => ProbeReply::failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}

/// Sends the request, follows redirects on the host that was asked, and answers with the first reply that is none, or
/// leads elsewhere.
///
/// # Errors
/// There is no reply.
pub async fn http_get(get: &HttpGet<'_>) -> Result<HttpReply, GetError> {
    let scheme = if get.tls { "https" } else { "http" };
    let head_seen = AtomicBool::new(false);
    let address = format!("{scheme}://{}{}", join(get.host, get.port), target_of(get.path));
    let fault = |fault: NoReply| GetError { text: format!("Get {address:?}: {}", fault.text), not_tls: fault.not_tls };
    let Some(timeout) = get.timeout else { return follow(get, &address, &head_seen).await.map_err(fault) };
    match tokio::time::timeout(timeout, follow(get, &address, &head_seen)).await {
        Ok(reply) => reply.map_err(fault),
        Err(_) => {
            let what = if head_seen.load(Ordering::Relaxed) { "reading body" } else { "awaiting headers" };
            Err(fault(format!("context deadline exceeded (Client.Timeout exceeded while {what})").into()))
        }
    }
}

async fn follow(get: &HttpGet<'_>, address: &str, head_seen: &AtomicBool) -> Result<HttpReply, NoReply> {
    let mut url = Url::parse(address).map_err(|error| format!("parse {address:?}: {error}"))?;
    // As it was written: `Url` would take `..` out of it.
    let mut target = target_of(get.path);
    let mut headers = headers(get)?;
    for _ in 0..MAX_REDIRECTS {
        head_seen.store(false, Ordering::Relaxed);
        let exchange = Exchange {
            url: &url,
            target: &target,
            headers: headers.clone(),
            tls: tls::unchecked(),
            limit: MAX_BODY,
            head_seen,
        };
        let Reply { status, location, body, cut: _ } = exchange.run().await?;
        let next = location.filter(|_| is_redirect(status));
        let Some(next) = next.map(|next| relative(&url, &next)).transpose()? else { return Ok(reply(status, &body)) };
        let (next, is_relative) = next;
        if next.host_str() != url.host_str() {
            return Ok(reply(status, &body));
        }
        if !is_relative {
            headers.insert(HOST, host_header(&next)?);
        }
        target = next[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        url = next;
    }
    Err(NoReply::from(format!("stopped after {MAX_REDIRECTS} redirects")))
}

/// Returns true if an answer of this status is a redirect to its `Location`.
pub(crate) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Returns the target of a redirect, and whether it was written without a host.
pub(crate) fn relative(url: &Url, location: &str) -> Result<(Url, bool), NoReply> {
    let next = url.join(location).map_err(|error| format!("failed to parse Location header: {error}"))?;
    if !matches!(next.scheme(), "http" | "https") {
        return Err(NoReply::from(format!("unsupported protocol scheme {:?}", next.scheme())));
    }
    let is_relative =
        matches!(Url::parse(location), Err(url::ParseError::RelativeUrlWithoutBase)) && !location.starts_with("//");
    Ok((next, is_relative))
}

fn reply(status: StatusCode, body: &[u8]) -> HttpReply {
    HttpReply { status: status.as_u16(), body: String::from_utf8_lossy(body).into_owned() }
}

pub(crate) fn host_header(url: &Url) -> Result<HeaderValue, NoReply> {
    let host = match (url.host_str().unwrap_or_default(), url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    HeaderValue::try_from(host).map_err(|_| NoReply::from(format!("{url} has a host that cannot be sent")))
}

fn headers(get: &HttpGet<'_>) -> Result<HeaderMap, NoReply> {
    let mut headers = HeaderMap::new();
    for (name, value) in get.headers {
        let header = HeaderName::try_from(*name).map_err(|_| format!("invalid header field name {name:?}"))?;
        // How long the request is, is not the manifest's to say.
        if [CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER].contains(&header) {
            continue;
        }
        let value = HeaderValue::from_bytes(value.trim().as_bytes())
            .map_err(|_| format!("invalid header field value for {name:?}"))?;
        headers.append(header, value);
    }
    for (header, default) in
        [(ACCEPT, "*/*".to_owned()), (USER_AGENT, format!("imagelet-{}/{}", get.purpose, env!("CARGO_PKG_VERSION")))]
    {
        match headers.get(&header).map(HeaderValue::is_empty) {
            Some(false) => {}
            Some(true) => {
                headers.remove(&header);
            }
            None => {
                headers.insert(header, HeaderValue::try_from(default).map_err(|_| "invalid purpose".to_owned())?);
            }
        }
    }
    let named = headers.get(HOST).filter(|host| !host.is_empty()).cloned();
    let host = match named {
        Some(host) => host,
        None => HeaderValue::try_from(join(get.host, get.port))
            .map_err(|_| format!("{:?} is no name of a host", get.host))?,
    };
    headers.insert(HOST, host);
    Ok(headers)
}

/// Path and query as they can be sent: with a slash before, without a fragment, and with what cannot stand in a request
/// written as its bytes.
fn target_of(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut target = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        target.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => target.push_str(&format!("%{byte:02X}")),
            0x21..=0x7e => target.push(char::from(byte)),
            _ => target.push_str(&format!("%{byte:02X}")),
        }
    }
    target
}
