//! A request to an admin endpoint, over its unix socket. Called by the commands that ask a long-running process.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::HOST;
use axum::http::{Method, Request, StatusCode};
use futures::StreamExt as _;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

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

/// The lines of an answer, which goes on until this is dropped or the answer is read to its end.
pub(crate) struct Lines {
    socket: PathBuf,
    body: axum::body::BodyDataStream,
    /// Bytes that were read beyond the last line.
    read: Vec<u8>,
    _connection: tokio_util::task::AbortOnDropHandle<()>,
}

impl Lines {
    /// The next line, without its end.
    pub(crate) async fn next(&mut self) -> Outcome<String> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.drain(..=end).collect::<Vec<_>>();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let shown = self.socket.display();
            if self.read.len() > MAX_ANSWER {
                return Err(Failure::failed(format!("ask {shown}: a line of the answer is too long")));
            }
            match self.body.next().await {
                Some(Ok(data)) => self.read.extend_from_slice(&data),
                Some(Err(error)) => return Err(Failure::caused(Code::Unreachable, format!("ask {shown}"), &error)),
                None => {
                    return Err(Failure::new(Code::Unreachable, format!("ask {shown}: the answer ended too early")));
                }
            }
        }
    }
}

/// Asks for something that is answered in lines. A refusal is told in the agent's own words.
pub(crate) async fn lines(socket: &Path, method: Method, target: &str, body: Vec<u8>) -> Outcome<Lines> {
    let (mut sender, connection) = connect(socket).await?;
    let connection = tokio_util::task::AbortOnDropHandle::new(TaskTracker::new().spawn(async move {
        // Its fault is told by what is asked over it.
        let _ = connection.await;
    }));
    let response = sender.send_request(request(socket, method, target, body.into())?).await;
    let response =
        response.map_err(|error| Failure::caused(Code::Unreachable, format!("ask {}", socket.display()), &error))?;
    let status = response.status();
    let body = Body::new(response.into_body());
    if status != StatusCode::OK {
        let text = to_bytes(body, MAX_ANSWER).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&text).trim_end().to_owned();
        let told = if text.is_empty() { format!("{} refuses {target}: {status}", socket.display()) } else { text };
        return Err(Failure::failed(told));
    }
    Ok(Lines { socket: socket.to_owned(), body: body.into_data_stream(), read: Vec::new(), _connection: connection })
}

type Connection = hyper::client::conn::http1::Connection<TokioIo<UnixStream>, Body>;

async fn connect(socket: &Path) -> Outcome<(hyper::client::conn::http1::SendRequest<Body>, Connection)> {
    let stream = UnixStream::connect(socket).await.map_err(|error| unreachable(socket, &error))?;
    hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Failure::caused(Code::Unreachable, format!("ask {}", socket.display()), &error))
}

fn request(socket: &Path, method: Method, target: &str, body: Body) -> Outcome<Request<Body>> {
    let request = Request::builder().method(method).uri(target).header(HOST, "imagelet").body(body);
    request.map_err(|error| Failure::caused(Code::Unreachable, format!("ask {}", socket.display()), &error))
}

async fn exchange(socket: &Path, method: Method, target: &str) -> Outcome<(StatusCode, String)> {
    let failed = |error: &(dyn std::error::Error + 'static)| {
        Failure::caused(Code::Unreachable, format!("ask {}", socket.display()), error)
    };
    let request = request(socket, method, target, Body::empty())?;
    let (mut sender, connection) = connect(socket).await?;
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
