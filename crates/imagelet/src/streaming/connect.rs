//! Opens a connection with streams from the address that a runtime returns: one HTTP request with a protocol upgrade. Called by the
//! commands once per address, since runtimes accept each address only once.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HOST, UPGRADE};
use axum::http::{Method, Request, StatusCode};
use cluster::kubelet_api::StreamAddress;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::session::Session;
use crate::exit::{Code, Failure, Outcome};

/// Timeout of connecting.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any refusal of a runtime.
const MAX_REFUSAL: usize = 64 << 10;
/// Header that names the protocol of the streams.
const PROTOCOL: &str = "X-Stream-Protocol-Version";

/// Connects, and requests streams of one of `protocols`.
pub(crate) async fn connect(address: &StreamAddress, protocols: &[&str]) -> Outcome<Session> {
    match tokio::time::timeout(PATIENCE, upgraded(address, protocols)).await {
        Ok(session) => session,
        Err(_) => {
            let StreamAddress { host, port, .. } = address;
            Err(Failure::new(Code::Unreachable, format!("the runtime's streams on {host}:{port}: no answer")))
        }
    }
}

async fn upgraded(address: &StreamAddress, protocols: &[&str]) -> Outcome<Session> {
    let StreamAddress { host, port, target } = address;
    let failed = |error: &(dyn std::error::Error + 'static)| {
        Failure::caused(Code::Unreachable, format!("connect to the runtime's streams on {host}:{port}"), error)
    };
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| failed(&error))?;
    // Keystrokes must be sent at once.
    stream.set_nodelay(true).map_err(|error| failed(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    // The task ends with its connection: when the session, which holds the other end, is dropped.
    TaskTracker::new().spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "streams of the runtime ended");
        }
    });
    let mut request =
        Request::builder().method(Method::POST).uri(target.as_str()).header(HOST, format!("{host}:{port}"));
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
