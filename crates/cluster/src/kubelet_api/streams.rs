//! Upgraded connections: `/exec`, `/attach` and `/portForward`. The bytes go to the runtime's streaming address and back as they
//! are, whichever protocol client and runtime agree on. No credential of the client is sent there.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::kubelet_api::access::Refusal;
use crate::kubelet_api::answer::{self, Answer};
use crate::kubelet_api::carry::carry;
use crate::kubelet_api::stream_address::StreamAddress;

/// Timeout of the runtime.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum size of a refusal.
const MAX_REFUSAL: usize = 64 << 10;
/// Headers by which client and runtime negotiate, in addition to those whose names begin with `sec-websocket-`.
const AGREED: [HeaderName; 3] = [CONNECTION, UPGRADE, HeaderName::from_static("x-stream-protocol-version")];

/// Refuses a request that asks for no other protocol.
pub(crate) fn must_upgrade(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asks = connection.any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade")));
    if asks && headers.contains_key(UPGRADE) {
        return Ok(());
    }
    Err(Refusal(StatusCode::BAD_REQUEST, "Upgrade request required".to_owned()))
}

fn is_agreed(name: &HeaderName) -> bool {
    AGREED.contains(name) || name.as_str().starts_with("sec-websocket-")
}

/// Connects a client with the streams at this URL.
pub(crate) async fn connect(
    mut request: Request<Incoming>,
    url: &str,
    (tracker, stop): (&TaskTracker, CancellationToken),
) -> Result<Answer, Refusal> {
    let client = hyper::upgrade::on(&mut request);
    let asked = tokio::time::timeout(PATIENCE, ask(&request, url, tracker, &stop)).await;
    let answered = asked.unwrap_or_else(|_| {
        Err(Refusal(StatusCode::GATEWAY_TIMEOUT, "the runtime's streaming address does not answer".to_owned()))
    })?;
    if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answered.status();
        let body = Limited::new(answered.into_body(), MAX_REFUSAL).collect().await;
        let text = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        return Ok(answer::text(status, "text/plain; charset=utf-8", text));
    }
    let mut response = answer::text(StatusCode::SWITCHING_PROTOCOLS, "text/plain", Bytes::new());
    response.headers_mut().clear();
    for (name, value) in answered.headers().iter().filter(|(name, _)| is_agreed(name)) {
        response.headers_mut().append(name.clone(), value.clone());
    }
    let runtime = hyper::upgrade::on(answered);
    tracker.spawn(async move {
        let _ = stop.run_until_cancelled(join(client, runtime)).await;
    });
    Ok(response)
}

async fn ask(
    request: &Request<Incoming>,
    url: &str,
    tracker: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Response<Incoming>, Refusal> {
    let address = StreamAddress::parse(url);
    let address = address.map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let StreamAddress { host, port, target } = address;
    let failed = |error: &dyn std::fmt::Display| {
        let text = format!("connect to the runtime's streams on {host}:{port}: {error}");
        Refusal(StatusCode::BAD_GATEWAY, text)
    };
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|error| failed(&error))?;
    // Typed input must arrive at once.
    stream.set_nodelay(true).map_err(|error| failed(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let stop = stop.clone();
    tracker.spawn(async move {
        if let Some(Err(error)) = stop.run_until_cancelled(connection.with_upgrades()).await {
            tracing::debug!(%error, "streams of the runtime ended");
        }
    });
    let mut asked = Request::builder().method(request.method()).uri(target).header(HOST, format!("{host}:{port}"));
    if request.method() == Method::POST {
        asked = asked.header(CONTENT_LENGTH, "0");
    }
    for (name, value) in request.headers().iter().filter(|(name, _)| is_agreed(name)) {
        asked = asked.header(name, value);
    }
    let asked = asked.body(Empty::<Bytes>::new()).map_err(|error| failed(&error))?;
    sender.send_request(asked).await.map_err(|error| failed(&error))
}

/// Carries bytes both ways once both sides have changed the protocol.
async fn join(client: hyper::upgrade::OnUpgrade, runtime: hyper::upgrade::OnUpgrade) {
    let Ok((client, runtime)) = tokio::try_join!(client, runtime) else { return };
    carry(TokioIo::new(client), TokioIo::new(runtime)).await;
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_upgrades_are_carried() {
        let headers = |connection: &'static str, upgrade: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, HeaderValue::from_static(connection));
            if upgrade {
                headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
            }
            headers
        };
        for good in ["Upgrade", "keep-alive, upgrade"] {
            assert_eq!(must_upgrade(&headers(good, true)), Ok(()));
        }
        for (connection, upgrade) in [("Upgrade", false), ("keep-alive", true), ("", true)] {
            assert_eq!(must_upgrade(&headers(connection, upgrade)).expect_err(connection).0, StatusCode::BAD_REQUEST);
        }
    }

    #[test]
    fn credentials_stay_here() {
        for kept in ["authorization", "cookie", "impersonate-user", "x-forwarded-for", "host"] {
            assert!(!is_agreed(&HeaderName::from_static(kept)), "{kept}");
        }
        for sent in ["connection", "upgrade", "x-stream-protocol-version", "sec-websocket-protocol"] {
            assert!(is_agreed(&HeaderName::from_static(sent)), "{sent}");
        }
    }
}
