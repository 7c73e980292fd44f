//! From the URL that a runtime answers to a connection with streams: one HTTP request that asks for another protocol. Called
//! by the commands, once for each URL, for runtimes take each only once.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HOST, UPGRADE};
use axum::http::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;
use url::{Host, Url};

use super::session::Session;
use crate::exit::{Code, Failure, Outcome};

/// How long a connection may take to be there.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than any refusal says.
const MAX_REFUSAL: usize = 64 << 10;
/// Names what the streams of a connection are.
const PROTOCOL: &str = "X-Stream-Protocol-Version";

/// Where the streams of a runtime are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    host: String,
    port: u16,
    url: Url,
}

impl Peer {
    /// Reads what a runtime answered. One that listens everywhere is on this machine: its endpoint is a socket here.
    pub(crate) fn new(url: &str) -> Outcome<Self> {
        let failed = |why: String| Failure::failed(format!("the runtime answers the URL {url:?}: {why}"));
        let parsed = Url::parse(url).map_err(|error| failed(error.to_string()))?;
        match parsed.scheme() {
            "http" => {}
            // Its certificate is its own: nobody could tell it from another's.
            "https" => return Err(failed("streams over TLS (enable_tls_streaming) are not supported".to_owned())),
            other => return Err(failed(format!("{other} is not known"))),
        }
        let host = match parsed.host() {
            Some(Host::Ipv4(ip)) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            Some(Host::Ipv6(ip)) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            Some(host) => host.to_string(),
            None => return Err(failed("it has no host".to_owned())),
        };
        let port = parsed.port_or_known_default().ok_or_else(|| failed("it has no port".to_owned()))?;
        Ok(Self { host, port, url: parsed })
    }
}

/// Connects, and asks for streams of one of `protocols`.
pub(crate) async fn connect(peer: &Peer, protocols: &[&str]) -> Outcome<Session> {
    match tokio::time::timeout(PATIENCE, upgraded(peer, protocols)).await {
        Ok(session) => session,
        Err(_) => {
            let Peer { host, port, .. } = peer;
            Err(Failure::new(Code::Unreachable, format!("the runtime's streams on {host}:{port}: no answer")))
        }
    }
}

async fn upgraded(peer: &Peer, protocols: &[&str]) -> Outcome<Session> {
    let Peer { host, port, url } = peer;
    let failed = |error: &(dyn std::error::Error + 'static)| {
        Failure::caused(Code::Unreachable, format!("connect to the runtime's streams on {host}:{port}"), error)
    };
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| failed(&error))?;
    // What is typed is to be there at once.
    stream.set_nodelay(true).map_err(|error| failed(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    // It ends with its connection: with the session, which holds the other end of it.
    TaskTracker::new().spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "streams of the runtime ended");
        }
    });
    let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let mut request = Request::builder().method(Method::POST).uri(target).header(HOST, format!("{host}:{port}"));
    request = request.header(CONNECTION, "Upgrade").header(UPGRADE, "SPDY/3.1").header(CONTENT_LENGTH, "0");
    for protocol in protocols {
        request = request.header(PROTOCOL, *protocol);
    }
    let request = request.body(Body::empty()).map_err(|error| failed(&error))?;
    let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let body = to_bytes(Body::new(response.into_body()), MAX_REFUSAL).await.unwrap_or_default();
        let said = String::from_utf8_lossy(&body).trim().to_owned();
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        return Err(Failure::failed(format!("the runtime refuses to stream: {status}{said}")));
    }
    let agreed = response.headers().get(PROTOCOL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !protocols.contains(&agreed) {
        return Err(Failure::failed(format!("the runtime wants to stream as {agreed:?}, which is not known here")));
    }
    let io = hyper::upgrade::on(response).await.map_err(|error| failed(&error))?;
    Ok(Session::new(TokioIo::new(io)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_where_the_url_says() {
        let host = |url: &str| {
            Peer::new(url).map(|peer| format!("{} {}", peer.host, peer.port)).map_err(|f| f.lines()[0].clone())
        };
        let cases = [
            ("http://127.0.0.1:41/exec/x", Ok("127.0.0.1 41")),
            ("http://[::]:41/exec/x", Ok("127.0.0.1 41")),
            ("http://0.0.0.0:41/exec/x", Ok("127.0.0.1 41")),
            ("http://[fe80::1]:41/exec/x", Ok("fe80::1 41")),
            ("https://h/exec/x", Err("streams over TLS")),
            ("/exec/x", Err("relative URL")),
        ];
        for (url, want) in cases {
            match (host(url), want) {
                (Ok(host), Ok(want)) => assert_eq!(host, want, "{url}"),
                (Err(line), Err(want)) => assert!(line.contains(want), "{line}"),
                (other, _) => panic!("{url}: {other:?}"),
            }
        }
    }
}
