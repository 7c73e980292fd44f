//! [`TestRegistry`]: the read side of the distribution specification on a port of its own, filled by calls, with a log
//! of what was asked and with [`Faults`].

use base::lock::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use oci::{Descriptor, Digest};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::answer::{self, AnswerBody};
use super::faults::Faults;
use super::image::{BuiltImage, BuiltIndex};
use super::line::Line;
use super::request_log::RequestLog;
use super::state::{Content, Options, RegistryState};
use super::tls::server_config;

/// A registry on loopback; it ends when it is dropped.
pub struct TestRegistry {
    state: Arc<RegistryState>,
    _stop: DropGuard,
}

impl TestRegistry {
    /// Starts a registry on a free port of 127.0.0.1.
    pub async fn start(options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let tls = server_config(options.tls).map(tokio_rustls::TlsAcceptor::from);
        let state = Arc::new(RegistryState {
            addr,
            options,
            content: Mutex::default(),
            faults: Faults::default(),
            tokens: Default::default(),
            sent: Arc::default(),
            traffic: Arc::default(),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let token = CancellationToken::new();
        let tracker = TaskTracker::new();
        let accept = accept(listener, tls, Arc::clone(&state), token.clone(), tracker.clone());
        tracker.spawn(accept);
        Self { state, _stop: token.drop_guard() }
    }

    /// A plain registry without authentication.
    pub async fn open() -> Self {
        Self::start(Options::default()).await
    }

    /// The address that it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.state.addr
    }

    /// `127.0.0.1:PORT`: the domain of its images.
    #[must_use]
    pub fn host(&self) -> String {
        self.state.addr.to_string()
    }

    /// `http://127.0.0.1:PORT`, or `https`.
    #[must_use]
    pub fn url(&self) -> String {
        self.state.url()
    }

    /// Stores an image under this tag; its manifest's digest.
    pub fn push(&self, repository: &str, tag: &str, image: &BuiltImage) -> Digest {
        self.push_untagged(repository, image);
        self.tag(repository, tag, image.digest());
        image.digest().clone()
    }

    /// Stores an image without a tag.
    pub fn push_untagged(&self, repository: &str, image: &BuiltImage) {
        for (_, bytes) in image.blobs() {
            self.push_blob(repository, bytes);
        }
        self.push_manifest(repository, &image.descriptor.media_type, image.manifest.clone());
    }

    /// Stores an index and its images, the index under this tag; the index's digest.
    pub fn push_index(&self, repository: &str, tag: &str, index: &BuiltIndex) -> Digest {
        for image in &index.images {
            self.push_untagged(repository, image);
        }
        self.push_manifest(repository, &index.descriptor.media_type, index.bytes.clone());
        self.tag(repository, tag, index.digest());
        index.digest().clone()
    }

    /// Stores a blob.
    pub fn push_blob(&self, repository: &str, bytes: impl Into<Bytes>) -> Descriptor {
        let bytes = bytes.into();
        let descriptor = Descriptor::new("application/octet-stream", Digest::sha256(&bytes), bytes.len() as u64);
        self.content().blobs.insert((repository.to_owned(), descriptor.digest.clone()), bytes);
        descriptor
    }

    /// Stores any bytes as a manifest of this media type.
    pub fn push_manifest(&self, repository: &str, media_type: &str, bytes: impl Into<Bytes>) -> Digest {
        let bytes = bytes.into();
        let digest = Digest::sha256(&bytes);
        self.content().manifests.insert((repository.to_owned(), digest.clone()), (media_type.to_owned(), bytes));
        digest
    }

    /// Moves a tag.
    pub fn tag(&self, repository: &str, tag: &str, digest: &Digest) {
        self.content().tags.insert((repository.to_owned(), tag.to_owned()), digest.clone());
    }

    /// Forgets a blob or a manifest.
    pub fn remove(&self, repository: &str, digest: &Digest) {
        let key = (repository.to_owned(), digest.clone());
        let mut content = self.content();
        content.blobs.remove(&key);
        content.manifests.remove(&key);
    }

    /// The faults that it commits on demand.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.state.faults
    }

    /// The requests, in the order in which they came.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestLog> {
        self.state.requests.lock().clone()
    }

    /// The requests whose path contains this text.
    #[must_use]
    pub fn requests_for(&self, pattern: &str) -> Vec<RequestLog> {
        self.requests().into_iter().filter(|r| r.path.contains(pattern)).collect()
    }

    /// Empties the log.
    pub fn clear_requests(&self) {
        self.state.requests.lock().clear();
    }

    /// Bytes of bodies that were sent.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.state.sent.load(Ordering::SeqCst)
    }

    /// Sets the line over which blobs are sent from now on.
    pub fn set_line(&self, line: Line) {
        self.state.traffic.set(line);
    }

    /// The most blobs, or parts of blobs, that were on their way at once.
    #[must_use]
    pub fn peak_transfers(&self) -> usize {
        self.state.traffic.peak()
    }

    /// Waits until so many blobs, or parts of blobs, are on their way.
    pub async fn until_transfers(&self, now: usize) {
        self.state.traffic.until(now).await;
    }

    /// Releases every paused answer, after the registry has noticed that no client reads any of them: not one more byte
    /// is sent.
    pub async fn release_what_was_given_up(&self) {
        self.until_transfers(0).await;
        self.faults().release();
    }

    /// Connections that were accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Tokens given out so far are good no longer.
    pub fn revoke_tokens(&self) {
        self.state.tokens.revoke();
    }

    /// Tokens given out so far.
    #[must_use]
    pub fn issued_tokens(&self) -> Vec<String> {
        self.state.tokens.issued()
    }

    /// Repositories that have something.
    #[must_use]
    pub fn repositories(&self) -> BTreeSet<String> {
        self.content().manifests.keys().map(|(repository, _)| repository.clone()).collect()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.state.content.lock()
    }
}

impl std::fmt::Debug for TestRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestRegistry").field("url", &self.url()).finish_non_exhaustive()
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<tokio_rustls::TlsAcceptor>,
    state: Arc<RegistryState>,
    stop: CancellationToken,
    tracker: TaskTracker,
) {
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
        };
        state.connections.fetch_add(1, Ordering::SeqCst);
        // Bytes that wait in the kernel are no time that a paused clock sees.
        let _ = stream.set_nodelay(true);
        let reset = Arc::new(AtomicBool::new(false));
        let io = Io { stream, reset: Arc::clone(&reset) };
        let (state, stop, tls) = (Arc::clone(&state), stop.clone(), tls.clone());
        tracker.spawn(async move {
            let served = async {
                match tls {
                    None => serve(io, state, reset).await,
                    Some(tls) => {
                        // A client that does not like the certificate goes away here.
                        if let Ok(io) = tls.accept(io).await {
                            serve(io, state, reset).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = served => {}
            }
        });
    }
}

async fn serve<I: AsyncRead + AsyncWrite + Unpin>(io: I, state: Arc<RegistryState>, reset: Arc<AtomicBool>) {
    let service = service_fn(|request| handle(request, Arc::clone(&state), Arc::clone(&reset)));
    // Broken connections are what it is for.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await;
}

async fn handle(
    request: Request<Incoming>,
    state: Arc<RegistryState>,
    reset: Arc<AtomicBool>,
) -> Result<Response<AnswerBody>, io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let headers = parts
        .headers
        .iter()
        .map(|(n, v)| (n.as_str().to_owned(), String::from_utf8_lossy(v.as_bytes()).into_owned()))
        .collect();
    let log = RequestLog {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
        status: 0,
    };
    let at = {
        let mut requests = state.requests.lock();
        requests.push(log.clone());
        requests.len() - 1
    };
    let answer = answer::answer(&state, &log, &reset).await;
    let status = answer.as_ref().map_or(0, |a| a.status().as_u16());
    // The log may have been emptied meanwhile.
    if let Some(entry) = state.requests.lock().get_mut(at) {
        entry.status = status;
    }
    answer
}

/// A connection that can be reset when it goes.
struct Io {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Io {
    fn drop(&mut self) {
        if self.reset.load(Ordering::SeqCst) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
