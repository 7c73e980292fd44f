//! A request to an admin endpoint, over its unix socket. Called by [`Owner`](crate::collection::owner::Owner),
//! [`RemoteStore`](super::remote_store::RemoteStore) and the commands that ask a long-running process.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::HOST;
use axum::http::{Request, StatusCode};
use cri_api::Kind;
use futures::StreamExt as _;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

use super::socket_path::reachable;

pub use axum::http::Method;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than any answer has.
const MAX_ANSWER: usize = 64 << 20;

/// Why an agent did not answer a request.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process listens on the socket.
    #[error(
        "nothing answers on {}: `imagelet run`, `imagelet serve` and `imagelet ensure --wait` do while they run; --root or \
         --admin-socket says where",
        .0.display()
    )]
    NotListening(PathBuf),
    #[error("connect to {}", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    /// No answer within `PATIENCE`.
    #[error("{} does not answer", .0.display())]
    Late(PathBuf),
    /// The connection ended before the answer did.
    #[error("ask {}", socket.display())]
    Broken { socket: PathBuf, source: Box<dyn Error + Send + Sync> },
    /// The agent refuses, with this line.
    #[error("{line}")]
    Refused { kind: Kind, line: String },
    #[error("understand the answer of {}", socket.display())]
    NotUnderstood { socket: PathBuf, source: Box<dyn Error + Send + Sync> },
}

impl AskError {
    /// The kind that a call over CRI would fail with.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Connect { source, .. } if source.kind() == ErrorKind::PermissionDenied => Kind::PermissionDenied,
            Self::NotListening(_) | Self::Connect { .. } | Self::Late(_) | Self::Broken { .. } => Kind::Unavailable,
            Self::Refused { kind, .. } => *kind,
            Self::NotUnderstood { .. } => Kind::Internal,
        }
    }

    fn broken(socket: &Path, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Broken { socket: socket.to_owned(), source: source.into() }
    }

    fn not_understood(socket: &Path, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::NotUnderstood { socket: socket.to_owned(), source: source.into() }
    }
}

/// Asks, and answers with the text of the answer.
pub async fn ask(socket: &Path, method: Method, target: &str) -> Result<String, AskError> {
    let answer = tokio::time::timeout(PATIENCE, exchange(socket, method, target)).await;
    let (status, text) = answer.unwrap_or_else(|_| Err(AskError::Late(socket.to_owned())))?;
    if status == StatusCode::OK {
        return Ok(text);
    }
    let text = text.trim_end();
    let because = if text.is_empty() { String::new() } else { format!(": {text}") };
    let line = format!("{} refuses {target}: {status}{because}", socket.display());
    Err(AskError::Refused { kind: Kind::Unknown, line })
}

/// Asks, and reads the answer as JSON.
pub async fn ask_json<T: DeserializeOwned>(socket: &Path, method: Method, target: &str) -> Result<T, AskError> {
    let text = ask(socket, method, target).await?;
    understood(socket, &text)
}

/// Asks for something that takes as long as it takes. A refusal has the agent's own words.
pub async fn ask_at_length<T: DeserializeOwned>(socket: &Path, method: Method, target: &str) -> Result<T, AskError> {
    let (status, text) = exchange(socket, method, target).await?;
    if status == StatusCode::OK {
        return understood(socket, text.trim_end());
    }
    let kind = match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => Kind::Unavailable,
        StatusCode::FORBIDDEN => Kind::PermissionDenied,
        _ => Kind::Unknown,
    };
    Err(refusal(socket, target, status, kind, &text))
}

fn refusal(socket: &Path, target: &str, status: StatusCode, kind: Kind, text: &str) -> AskError {
    let line = match text.trim_end() {
        "" => format!("{} refuses {target}: {status}", socket.display()),
        text => text.to_owned(),
    };
    AskError::Refused { kind, line }
}

fn understood<T: DeserializeOwned>(socket: &Path, text: &str) -> Result<T, AskError> {
    serde_json::from_str(text).map_err(|error| AskError::not_understood(socket, error))
}

/// The lines of an answer, which goes on until this is dropped or the answer is read to its end.
pub(super) struct Lines {
    socket: PathBuf,
    body: axum::body::BodyDataStream,
    /// Bytes that were read beyond the last line.
    read: Vec<u8>,
    _connection: tokio_util::task::AbortOnDropHandle<()>,
}

impl Lines {
    /// The next line, without its end.
    pub(super) async fn next(&mut self) -> Result<String, AskError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.drain(..=end).collect::<Vec<_>>();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.read.len() > MAX_ANSWER {
                return Err(AskError::not_understood(&self.socket, "a line of the answer is too long"));
            }
            match self.body.next().await {
                Some(Ok(data)) => self.read.extend_from_slice(&data),
                Some(Err(error)) => return Err(AskError::broken(&self.socket, error)),
                None => return Err(AskError::broken(&self.socket, "the answer ended too early")),
            }
        }
    }
}

/// Asks for something that is answered in lines. A refusal has the agent's own words.
pub(super) async fn lines(socket: &Path, method: Method, target: &str, body: Vec<u8>) -> Result<Lines, AskError> {
    let (mut sender, connection) = connect(socket).await?;
    let connection = tokio_util::task::AbortOnDropHandle::new(TaskTracker::new().spawn(async move {
        // The answer reports its fault.
        let _ = connection.await;
    }));
    let response = sender.send_request(request(socket, method, target, body.into())?).await;
    let response = response.map_err(|error| AskError::broken(socket, error))?;
    let status = response.status();
    let body = Body::new(response.into_body());
    if status != StatusCode::OK {
        let text = to_bytes(body, MAX_ANSWER).await.unwrap_or_default();
        let kind = if status == StatusCode::SERVICE_UNAVAILABLE { Kind::Unavailable } else { Kind::Unknown };
        return Err(refusal(socket, target, status, kind, &String::from_utf8_lossy(&text)));
    }
    Ok(Lines { socket: socket.to_owned(), body: body.into_data_stream(), read: Vec::new(), _connection: connection })
}

type Connection = hyper::client::conn::http1::Connection<TokioIo<UnixStream>, Body>;

/// A connection to the process that listens on `socket`.
async fn stream(socket: &Path) -> Result<UnixStream, AskError> {
    let connect = async || {
        let (short, _directory) = reachable(socket)?;
        UnixStream::connect(short).await
    };
    connect().await.map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => AskError::NotListening(socket.to_owned()),
        _ => AskError::Connect { socket: socket.to_owned(), source },
    })
}

async fn connect(socket: &Path) -> Result<(hyper::client::conn::http1::SendRequest<Body>, Connection), AskError> {
    let stream = stream(socket).await?;
    let shake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    shake.map_err(|error| AskError::broken(socket, error))
}

fn request(socket: &Path, method: Method, target: &str, body: Body) -> Result<Request<Body>, AskError> {
    let request = Request::builder().method(method).uri(target).header(HOST, "imagelet").body(body);
    request.map_err(|error| AskError::broken(socket, error))
}

async fn exchange(socket: &Path, method: Method, target: &str) -> Result<(StatusCode, String), AskError> {
    let request = request(socket, method, target, Body::empty())?;
    let (mut sender, connection) = connect(socket).await?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| AskError::broken(socket, error))?;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), MAX_ANSWER).await;
        let body = body.map_err(|error| AskError::broken(socket, error))?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        // The connection ends after the answer, or with a fault that the answer has as well.
        Err(error) = connection => Err(AskError::broken(socket, error)),
    }
}
