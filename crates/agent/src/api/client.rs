//! A request to an admin endpoint, over its unix socket. Called by [`RemoteCollection`](crate::collection::RemoteCollection),
//! [`RemoteStore`](crate::admin::remote_store::RemoteStore) and the commands that ask a long-running process.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{ACCEPT, HOST};
use axum::http::{HeaderValue, Request, StatusCode};
use cri_api::Kind;
use futures::StreamExt as _;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

use super::socket_path::reachable;
use super::wire::{API_VERSION, ApiError, VERSION_HEADER};

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
    /// No connection to a socket that exists: permissions, for example.
    #[error("connect to {}", socket.display())]
    Connect {
        /// Path of the agent's socket.
        socket: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// No answer within `PATIENCE`.
    #[error("{} does not answer", .0.display())]
    Late(PathBuf),
    /// The connection ended before the answer did.
    #[error("ask {}", socket.display())]
    Broken {
        /// Path of the agent's socket.
        socket: PathBuf,
        /// Error of the HTTP connection, or an answer of more than 64 MiB.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The agent refuses, with this error. Its kind is `Unknown` where the answer is no error of the API.
    #[error("{0}")]
    Refused(cri_api::Error),
    /// The agent does not know the API, or lacks a part of it.
    #[error(
        "the agent on {} is older than this command, which needs version {API_VERSION} of its API: restart it with this version",
        .0.display()
    )]
    OlderAgent(PathBuf),
    /// The answer is not the expected JSON, or a line of a stream is longer than 64 MiB.
    #[error("understand the answer of {}", socket.display())]
    NotUnderstood {
        /// Path of the agent's socket.
        socket: PathBuf,
        /// Error of the JSON parser, or the limit that the answer exceeds.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl AskError {
    /// The kind that a call over CRI would fail with.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Connect { source, .. } if source.kind() == ErrorKind::PermissionDenied => Kind::PermissionDenied,
            Self::NotListening(_) | Self::Connect { .. } | Self::Late(_) | Self::Broken { .. } => Kind::Unavailable,
            Self::Refused(error) => error.kind(),
            Self::OlderAgent(_) => Kind::Unimplemented,
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

/// Asks for health or metrics, which have no version; answers with the text of the answer.
pub async fn ask(socket: &Path, method: Method, target: &str) -> Result<String, AskError> {
    let answer = in_time(socket, exchange(socket, method, target, Body::empty())).await?;
    if answer.status == StatusCode::OK {
        return Ok(answer.text);
    }
    let text = answer.text.trim_end();
    let because = if text.is_empty() { String::new() } else { format!(": {text}") };
    let line = format!("{} refuses {target}: {}{because}", socket.display(), answer.status);
    Err(AskError::Refused(cri_api::Error::new(Kind::Unknown, line)))
}

/// Asks the API, whose paths begin with `/v1`, and reads the answer as JSON.
pub async fn ask_json<T: DeserializeOwned>(socket: &Path, method: Method, target: &str) -> Result<T, AskError> {
    in_time(socket, ask_at_length(socket, method, target)).await
}

/// Asks the API for something that takes as long as it takes. A refusal has the agent's own words.
pub async fn ask_at_length<T: DeserializeOwned>(socket: &Path, method: Method, target: &str) -> Result<T, AskError> {
    send(socket, method, target, Body::empty()).await
}

/// The same with a body.
pub async fn send<T: DeserializeOwned>(
    socket: &Path,
    method: Method,
    target: &str,
    body: impl Into<Body>,
) -> Result<T, AskError> {
    let answer = exchange(socket, method, target, body.into()).await?;
    if answer.status == StatusCode::OK {
        return understood(socket, answer.text.trim_end());
    }
    Err(answer.refusal(socket, target))
}

/// Asks the API for bytes, such as an archive.
pub async fn bytes(socket: &Path, method: Method, target: &str) -> Result<Vec<u8>, AskError> {
    let mut lines = lines(socket, method, target, Body::empty()).await?;
    let mut bytes = Vec::new();
    while let Some(data) = lines.body.next().await {
        bytes.extend_from_slice(&data.map_err(|error| AskError::broken(socket, error))?);
    }
    Ok(bytes)
}

async fn in_time<T>(socket: &Path, answer: impl Future<Output = Result<T, AskError>>) -> Result<T, AskError> {
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(AskError::Late(socket.to_owned())))
}

/// A whole answer.
struct WholeAnswer {
    status: StatusCode,
    /// True if the answer is from an agent that knows the API.
    has_version: bool,
    text: String,
}

impl WholeAnswer {
    async fn read(socket: &Path, response: hyper::Response<impl Into<Body>>) -> Result<Self, AskError> {
        let (status, has_version) = (response.status(), response.headers().contains_key(VERSION_HEADER));
        let body = to_bytes(response.into_body().into(), MAX_ANSWER).await;
        let body = body.map_err(|error| AskError::broken(socket, error))?;
        Ok(Self { status, has_version, text: String::from_utf8_lossy(&body).into_owned() })
    }

    /// The answer as an error.
    fn refusal(&self, socket: &Path, target: &str) -> AskError {
        let error = match serde_json::from_str::<ApiError>(&self.text) {
            Ok(error) => error.into(),
            Err(_) => {
                let line = format!("{} refuses {target}: {}", socket.display(), self.status);
                cri_api::Error::new(Kind::Unknown, line)
            }
        };
        let lacks_route = self.status == StatusCode::NOT_FOUND && error.kind() == Kind::Unimplemented;
        if target.starts_with("/v1/") && (lacks_route || !self.has_version) {
            return AskError::OlderAgent(socket.to_owned());
        }
        AskError::Refused(error)
    }
}

fn understood<T: DeserializeOwned>(socket: &Path, text: &str) -> Result<T, AskError> {
    serde_json::from_str(text).map_err(|error| AskError::not_understood(socket, error))
}

/// The server-sent events of an answer.
pub struct Events {
    lines: Lines,
}

impl Events {
    /// The name and the data of the next event; `None` where the agent ended the stream.
    pub async fn next(&mut self) -> Result<Option<(String, String)>, AskError> {
        let (mut name, mut data) = (String::new(), String::new());
        loop {
            let Some(line) = self.lines.next().await? else { return Ok(None) };
            match line.trim_end_matches('\r').split_once(": ") {
                Some(("event", word)) => name = word.to_owned(),
                Some(("data", text)) => data.push_str(text),
                None if line.is_empty() && !name.is_empty() => return Ok(Some((name, data))),
                _ => {}
            }
        }
    }

    /// The data of the last event, which has this name. Calls `report` with the data of each `progress` before it.
    ///
    /// # Errors
    /// The agent reports an error, or its answer ends before the last event.
    pub(crate) async fn last<P: DeserializeOwned, T: DeserializeOwned>(
        &mut self,
        wanted: &str,
        report: impl Fn(P),
    ) -> Result<T, AskError> {
        let socket = self.lines.socket.clone();
        while let Some((name, data)) = self.next().await? {
            match name.as_str() {
                "progress" => report(understood(&socket, &data)?),
                "error" => return Err(AskError::Refused(understood::<ApiError>(&socket, &data)?.into())),
                name if name == wanted => return understood(&socket, &data),
                _ => {}
            }
        }
        Err(AskError::broken(&socket, "the answer ended too early"))
    }

    /// The data of the next event of this name.
    pub async fn next_of<T: DeserializeOwned>(&mut self, wanted: &str) -> Result<Option<T>, AskError> {
        while let Some((name, data)) = self.next().await? {
            if name == wanted {
                return understood(&self.lines.socket, &data).map(Some);
            }
        }
        Ok(None)
    }
}

/// Asks the API for a stream of events.
pub async fn events(socket: &Path, method: Method, target: &str, body: impl Into<Body>) -> Result<Events, AskError> {
    Ok(Events { lines: lines(socket, method, target, body.into()).await? })
}

/// The lines of an answer, until this is dropped or the answer is read to its end.
struct Lines {
    socket: PathBuf,
    body: axum::body::BodyDataStream,
    /// Bytes that were read beyond the last line.
    read: Vec<u8>,
    _connection: tokio_util::task::AbortOnDropHandle<()>,
}

impl Lines {
    /// The next line, without its end; `None` at the end of the answer.
    async fn next(&mut self) -> Result<Option<String>, AskError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.drain(..=end).collect::<Vec<_>>();
                return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            if self.read.len() > MAX_ANSWER {
                return Err(AskError::not_understood(&self.socket, "a line of the answer is too long"));
            }
            match self.body.next().await {
                Some(Ok(data)) => self.read.extend_from_slice(&data),
                Some(Err(error)) => return Err(AskError::broken(&self.socket, error)),
                None => return Ok(None),
            }
        }
    }
}

/// Asks for something that is answered in lines. A refusal has the agent's own words.
async fn lines(socket: &Path, method: Method, target: &str, body: impl Into<Body>) -> Result<Lines, AskError> {
    let (mut sender, connection) = connect(socket).await?;
    let connection = tokio_util::task::AbortOnDropHandle::new(TaskTracker::new().spawn(async move {
        // The answer reports its fault.
        let _ = connection.await;
    }));
    let response = sender.send_request(request(socket, method, target, body.into())?).await;
    let response = response.map_err(|error| AskError::broken(socket, error))?.map(Body::new);
    if response.status() != StatusCode::OK {
        return Err(WholeAnswer::read(socket, response).await?.refusal(socket, target));
    }
    let body = response.into_body().into_data_stream();
    Ok(Lines { socket: socket.to_owned(), body, read: Vec::new(), _connection: connection })
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
    let request = Request::builder().method(method).uri(target).header(HOST, "imagelet");
    let request = request.header(VERSION_HEADER, API_VERSION).header(ACCEPT, "application/json, text/event-stream");
    request.body(body).map_err(|error| AskError::broken(socket, error))
}

async fn exchange(socket: &Path, method: Method, target: &str, body: Body) -> Result<WholeAnswer, AskError> {
    let mut request = request(socket, method, target, body)?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("*/*"));
    let (mut sender, connection) = connect(socket).await?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| AskError::broken(socket, error))?;
        WholeAnswer::read(socket, response.map(Body::new)).await
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        // The connection ends after the answer, or with a fault that the answer has as well.
        Err(error) = connection => Err(AskError::broken(socket, error)),
    }
}
