//! How the channel gets its connections: unix socket, connect timeout, back-off, and the wait for the peer's first
//! word.
//!
//! During a pause of the back-off an attempt fails at once with the last error, so that no caller waits for a runtime
//! that is away. A peer that takes the connection and says nothing counts as away too.

use base::lock::Mutex;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::ClientOptions;
use crate::Endpoint;

/// Why there is no connection. Found again in the source chain of the call's status.
#[derive(Clone, Debug)]
pub(super) struct ConnectFailure {
    endpoint: Endpoint,
    why: Arc<str>,
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connect to {}: {}", self.endpoint, self.why)
    }
}

impl std::error::Error for ConnectFailure {}

/// Makes connections. One per client.
pub(super) struct Connector {
    pub(super) endpoint: Endpoint,
    pub(super) options: ClientOptions,
    /// Guards the outcome of the last attempts.
    past: Mutex<ConnectAttempts>,
}

#[derive(Default)]
struct ConnectAttempts {
    failures: u32,
    /// The last failure, and when the next attempt may be made.
    last: Option<(ConnectFailure, Instant)>,
}

impl Connector {
    pub(super) fn new(endpoint: &Endpoint, options: ClientOptions) -> Arc<Self> {
        Arc::new(Self { endpoint: endpoint.clone(), options, past: Mutex::default() })
    }

    /// Returns the last failure, unless a connection has succeeded since.
    pub(super) fn last_failure(&self) -> Option<ConnectFailure> {
        self.past.lock().last.as_ref().map(|(failure, _)| failure.clone())
    }

    /// When it makes sense to try again.
    pub(super) fn next_attempt(&self) -> Instant {
        let soon = Instant::now() + self.options.backoff.base;
        // Never at once: a peer that answers "not now" by itself leaves no pause behind.
        self.past.lock().last.as_ref().map_or(soon, |(_, next)| (*next).max(Instant::now() + Duration::from_millis(10)))
    }

    /// Makes a connection, or answers why there is none.
    pub(super) async fn connect(self: Arc<Self>) -> Result<TokioIo<PeerConnection>, ConnectFailure> {
        if let Some((failure, next)) = &self.past.lock().last
            && Instant::now() < *next
        {
            return Err(failure.clone());
        }
        let limit = self.options.connect_timeout;
        let stream = match timeout(limit, self.open()).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) => return Err(self.failed(e.to_string())),
            Err(_) => return Err(self.failed(format!("not accepted within {limit:?}"))),
        };
        Ok(TokioIo::new(PeerConnection { stream, silence: Some(Box::pin(sleep(limit))), connector: self }))
    }

    /// A full queue of connections at the peer is waited out; there is no event for its end.
    async fn open(&self) -> io::Result<UnixStream> {
        loop {
            match UnixStream::connect(self.endpoint.path()).await {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => sleep(Duration::from_millis(20)).await,
                other => return other,
            }
        }
    }

    fn failed(&self, why: String) -> ConnectFailure {
        let failure = ConnectFailure { endpoint: self.endpoint.clone(), why: why.into() };
        let mut past = self.past.lock();
        past.failures = past.failures.saturating_add(1);
        let pause = self.options.backoff.pause(past.failures, random());
        past.last = Some((failure.clone(), Instant::now() + pause));
        failure
    }

    fn succeeded(&self) {
        *self.past.lock() = ConnectAttempts::default();
    }
}

/// A number from 0 to 1, good enough to spread attempts.
fn random() -> f64 {
    let bits = RandomState::new().hash_one(0u8);
    f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// A connection whose peer must say something soon: every HTTP/2 server opens with its settings.
pub(super) struct PeerConnection {
    stream: UnixStream,
    /// Runs until the first byte arrives.
    silence: Option<Pin<Box<Sleep>>>,
    connector: Arc<Connector>,
}

impl AsyncRead for PeerConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let Some(silence) = &mut self.silence else {
            return read;
        };
        let why = match read {
            Poll::Ready(Ok(())) if buf.filled().len() > before => {
                self.silence = None;
                self.connector.succeeded();
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Ok(())) => "closed by the peer at once".to_owned(),
            Poll::Ready(Err(e)) => e.to_string(),
            Poll::Pending => {
                ready!(silence.as_mut().poll(cx));
                format!("no answer within {:?}", self.connector.options.connect_timeout)
            }
        };
        self.silence = None;
        let failure = self.connector.failed(why);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, failure)))
    }
}

impl AsyncWrite for PeerConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
