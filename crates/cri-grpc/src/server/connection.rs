//! Connections: accepted with patience when the process has too many files open, and ended in order: no new connection, no new
//! calls on the existing ones, no connection. Every task belongs to a tracker, so that the server knows when the last one
//! has ended.
//!
//! The transport's own server is not used: it detaches its tasks, and answers `Canceled` to a client whose deadline
//! passes, where every other server says `DeadlineExceeded`. Connections are read through [`Filtered`], because the transport
//! refuses authorities that gRPC's libraries send.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::codegen::http::Request;

use super::Listener;
use super::authority::MAX_HEADER_LIST;
use super::filtered::Filtered;
use super::lingering::Lingering;
use super::listener::BACKLOG;
use super::served::CallRouter;

/// Calls that one connection may have open. A pull holds its stream for minutes, and a client silently queues the calls above
/// the limit; so the limit only stops a faulty client.
const MAX_STREAMS: u32 = 1024;
/// Pause after a failed accept. Too many open files does not pass by asking again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// State that all connections share.
#[derive(Clone)]
pub(super) struct Connections {
    pub(super) served: CallRouter,
    pub(super) tasks: TaskTracker,
    /// No new connections and no new calls from here on.
    pub(super) closing: CancellationToken,
    /// No connections from here on.
    pub(super) cut: CancellationToken,
}

impl Connections {
    /// Accepts until the server closes. The listener is dropped when this returns. Connections that wait in its queue are served
    /// first, unless the queue belongs to another process and the next server accepts from it.
    pub(super) async fn accept(&self, accepting: UnixListener, listener: Listener) {
        let endpoint = listener.endpoint();
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.closing.cancelled() => break,
                accepted = accepting.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    self.tasks.spawn(self.clone().serve(stream));
                }
                Err(error) => {
                    tracing::warn!(%endpoint, %error, "cannot accept a connection");
                    tokio::select! {
                        () = self.closing.cancelled() => break,
                        () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                    }
                }
            }
        }
        if listener.is_inherited() {
            return;
        }
        // Bounded by the size of the queue: a client that keeps connecting cannot delay the end.
        for stream in std::iter::from_fn(|| listener.accept_waiting()).take(BACKLOG) {
            match stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)) {
                Ok(stream) => drop(self.tasks.spawn(self.clone().serve(stream))),
                Err(error) => tracing::warn!(%endpoint, %error, "cannot serve a connection"),
            }
        }
    }

    /// Serves a connection to its end.
    async fn serve(self, stream: UnixStream) {
        let peer = stream.peer_cred().ok();
        let pid = peer.and_then(|peer| peer.pid());
        tracing::debug!(pid, uid = peer.map(|peer| peer.uid()), "connection");
        let leaving = CancellationToken::new();
        let served = CallRouter { ending: self.served.ending.of_connection(leaving.clone()), ..self.served.clone() };
        let service = service_fn(move |request: Request<Incoming>| {
            let served = served.clone();
            async move { served.call(request.map(Body::new)).await }
        });
        let connection = http2::Builder::new(Tracked(self.tasks.clone()))
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(4 * 1024 * 1024)
            .max_header_list_size(u32::from(MAX_HEADER_LIST))
            .serve_connection(TokioIo::new(Filtered::new(Lingering::new(stream), pid)), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                leaving.cancel();
                tokio::select! {
                    ended = connection => ended,
                    () = self.cut.cancelled() => return tracing::debug!("connection cut"),
                }
            }
        };
        if let Err(error) = ended {
            let error: &(dyn std::error::Error + 'static) = &error;
            tracing::debug!(error, "connection failed");
        }
    }
}

/// Runs the transport's tasks, one per call, on the tracker.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

/// The listening socket on the reactor.
pub(super) fn on_reactor(listener: &Listener) -> io::Result<UnixListener> {
    UnixListener::from_std(listener.try_clone()?)
}
