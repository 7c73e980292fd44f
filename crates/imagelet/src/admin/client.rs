//! One request to an admin endpoint, over its unix socket. Called by the commands that ask a process that goes on.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::HOST;
use axum::http::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::exit::{Code, Failure, Outcome};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than any answer has.
const MAX_ANSWER: usize = 64 << 20;

/// Asks, and answers with the text of the answer.
pub(crate) async fn ask(socket: &Path, method: Method, target: &str) -> Outcome<String> {
    match tokio::time::timeout(PATIENCE, asked(socket, method, target)).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::new(Code::Unreachable, format!("{} does not answer", socket.display()))),
    }
}

/// Asks, and reads the answer as JSON.
pub(crate) async fn ask_json<T: DeserializeOwned>(socket: &Path, method: Method, target: &str) -> Outcome<T> {
    let text = ask(socket, method, target).await?;
    understood(socket, &text)
}

/// Asks for something that takes as long as it takes. A refusal is told in the agent's own words.
pub(crate) async fn ask_at_length<T: DeserializeOwned>(socket: &Path, method: Method, target: &str) -> Outcome<T> {
    let (status, text) = exchange(socket, method, target).await?;
    let text = text.trim_end();
    if status != StatusCode::OK {
        let code = match status {
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => Code::Unreachable,
            StatusCode::FORBIDDEN => Code::NotPermitted,
            _ => Code::Failed,
        };
        let line =
            if text.is_empty() { format!("{} refuses {target}: {status}", socket.display()) } else { text.into() };
        return Err(Failure::new(code, line));
    }
    understood(socket, text)
}

fn understood<T: DeserializeOwned>(socket: &Path, text: &str) -> Outcome<T> {
    serde_json::from_str(text).map_err(|error| {
        Failure::caused(Code::Failed, format!("understand the answer of {}", socket.display()), &error)
    })
}

async fn asked(socket: &Path, method: Method, target: &str) -> Outcome<String> {
    let (status, text) = exchange(socket, method, target).await?;
    if status == StatusCode::OK {
        return Ok(text);
    }
    let text = text.trim_end();
    let because = if text.is_empty() { String::new() } else { format!(": {text}") };
    Err(Failure::failed(format!("{} refuses {target}: {status}{because}", socket.display())))
}

async fn exchange(socket: &Path, method: Method, target: &str) -> Outcome<(StatusCode, String)> {
    let stream = UnixStream::connect(socket).await.map_err(|error| unreachable(socket, &error))?;
    let failed = |error: &(dyn std::error::Error + 'static)| {
        Failure::caused(Code::Unreachable, format!("ask {}", socket.display()), error)
    };
    let request = Request::builder().method(method).uri(target).header(HOST, "imagelet").body(Body::empty());
    let request = request.map_err(|error| failed(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), MAX_ANSWER).await.map_err(|error| failed(&error))?;
        Ok::<_, Failure>((status, String::from_utf8_lossy(&body).into_owned()))
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        // It ends after the answer, or with a fault that the answer tells as well.
        Err(error) = connection => Err(failed(&error)),
    }
}

/// A socket on which nobody answers, or not for us.
fn unreachable(socket: &Path, error: &std::io::Error) -> Failure {
    let shown = socket.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::new(
            Code::Unreachable,
            format!(
                "nothing answers on {shown}: `imagelet run`, `imagelet serve` and `imagelet ensure --wait` do while they run; \
                 --root or --admin-socket says where"
            ),
        ),
        ErrorKind::PermissionDenied => Failure::caused(Code::NotPermitted, format!("connect to {shown}"), error),
        _ => Failure::caused(Code::Unreachable, format!("connect to {shown}"), error),
    }
}
