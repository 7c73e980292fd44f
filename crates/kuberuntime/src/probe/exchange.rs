//! A request over HTTP/1.1 on a connection of its own, which is closed after the answer. Knows no redirects and no
//! meaning of a status. Called by the probe and by the fetch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{CONNECTION, HOST, LOCATION};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use url::Url;

use super::dial::{dial, plain};

/// A request, and how far its redirects are followed.
pub(crate) struct Exchange<'a> {
    /// Target of the request: `http` or `https`, with a host.
    pub(crate) url: &'a Url,
    /// Path and query as they are sent.
    pub(crate) target: &'a str,
    /// With a `Host`.
    pub(crate) headers: HeaderMap,
    /// For `https`.
    pub(crate) tls: Arc<ClientConfig>,
    /// Maximum number of bytes of the body that are read.
    pub(crate) limit: usize,
    /// Becomes true when the head of the answer is there.
    pub(crate) head_seen: &'a AtomicBool,
}

pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
    /// True if the body was longer than the limit.
    pub(crate) cut: bool,
}

/// Failure of a request without a response.
#[derive(Debug)]
pub(crate) struct NoReply {
    pub(crate) text: String,
    /// True if the server does not speak TLS where it should.
    pub(crate) not_tls: bool,
}

impl From<String> for NoReply {
    fn from(text: String) -> Self {
        Self { text, not_tls: false }
    }
}

/// More than the head of any answer has.
const MAX_HEAD: usize = 64 << 10;

impl Exchange<'_> {
    /// Sends the request, and reads the answer.
    pub(crate) async fn run(self) -> Result<Reply, NoReply> {
        let host = self.url.host_str().unwrap_or_default().to_owned();
        let secure = self.url.scheme() == "https";
        let port = self.url.port_or_known_default().unwrap_or(80);
        let stream = dial(&host, port).await?;
        if !secure {
            return self.over(stream).await;
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|_| format!("{host:?} is no name of a host"))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        match connector.connect(name, stream).await {
            Ok(stream) => self.over(stream).await,
            Err(error) if speaks_no_tls(&error) => {
                Err(NoReply { text: "http: server gave HTTP response to HTTPS client".to_owned(), not_tls: true })
            }
            Err(error) => Err(NoReply::from(format!("tls: {}", plain(&error)))),
        }
    }

    async fn over<S: AsyncRead + AsyncWrite + Send + Unpin>(self, stream: S) -> Result<Reply, NoReply> {
        let mut request = Request::get(self.target)
            .body(Empty::<Bytes>::new())
            .map_err(|error| format!("{:?} cannot be asked for: {error}", self.target))?;
        *request.headers_mut() = self.headers;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        debug_assert!(request.headers().contains_key(HOST), "the caller sets the Host header");
        let (mut sender, connection) = http1::Builder::new()
            .title_case_headers(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .max_buf_size(MAX_HEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error_text(&error))?;
        let (limit, head_seen) = (self.limit, self.head_seen);
        let answer = async move {
            let response = sender.send_request(request).await.map_err(|error| error_text(&error))?;
            head_seen.store(true, Ordering::Relaxed);
            let location = response.headers().get(LOCATION);
            let location = location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            let (status, mut incoming) = (response.status(), response.into_body());
            let (mut body, mut cut) = (Vec::new(), false);
            while let Some(frame) = incoming.frame().await {
                let frame = frame.map_err(|error| error_text(&error))?;
                let Some(data) = frame.data_ref() else { continue };
                let room = limit - body.len();
                body.extend_from_slice(&data[..data.len().min(room)]);
                if data.len() > room {
                    cut = true;
                    break;
                }
            }
            Ok(Reply { status, location, body, cut })
        };
        tokio::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            // Errors of the connection reach the answer as well, and data that was read already must still be
            // delivered.
            _ = connection => {}
        }
        answer.await
    }
}

/// Returns true if the server began with bytes that no TLS record begins with.
fn speaks_no_tls(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
}

/// hyper's words with those of what caused them.
fn error_text(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let words = match cause.downcast_ref::<std::io::Error>() {
            Some(io) => plain(io),
            None => cause.to_string(),
        };
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}
