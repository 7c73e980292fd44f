//! The kubelet's port of this node: `/containerLogs`, `/exec`, `/attach`, `/portForward`, `/pods`, `/healthz`, `/metrics`, `/metrics/resource` and
//! `/stats/summary` over TLS, for clients for whom the API server vouches. Runs no pod and knows no API server: it is handed what it answers from,
//! and an [`Authority`]. Called by `imagelet run` on a node of a cluster.

mod access;
mod answer;
mod authority;
mod certificate;
mod logs;
mod machine;
mod parts;
mod pods;
mod query;
mod routes;
mod rules;
mod stream_address;
mod streams;
mod subject;
mod summary;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use authority::{Access, Authority, AuthorityError, Identity};
pub use certificate::ServerNames;
pub use parts::Parts;
pub use stream_address::{StreamAddress, StreamAddressError};
pub use tls::TlsFiles;

use access::Gate;
use routes::Routes;
use tls::Tls;

/// How long a client may take to say who it is, and to ask.
const PATIENCE: Duration = Duration::from_secs(15);
/// Connections at the same time; more wait.
const CONNECTIONS: usize = 512;

/// The port, which listens.
pub struct KubeletApi {
    listener: TcpListener,
    tls: Arc<Tls>,
    routes: Arc<Routes>,
}

impl KubeletApi {
    /// Listens at the first of `addresses` at which that is possible.
    ///
    /// # Errors
    /// None of the addresses is free, or a certificate cannot be read or made.
    pub async fn listen(addresses: &[SocketAddr], parts: Parts) -> io::Result<Self> {
        let files = parts.tls.clone();
        let read = base::blocking(move || Tls::read(files)).await;
        let tls = read.unwrap_or_else(|| Err(io::Error::other("the program ends")))?;
        let listener = TcpListener::bind(addresses).await?;
        let gate = Gate::new(Arc::clone(&parts.authority));
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        let routes = Routes { parts, gate, tracker, stop, started: Timestamp::now() };
        Ok(Self { listener, tls: Arc::new(tls), routes: Arc::new(routes) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop`. Streams end with it.
    pub async fn run(self, stop: &CancellationToken) {
        let Self { listener, tls, routes } = self;
        let seats = Arc::new(Semaphore::new(CONNECTIONS));
        while let Some(accepted) = stop.run_until_cancelled(accept(&listener, &seats)).await {
            let (stream, seat) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, which others give back.
                    tracing::warn!(%error, "cannot accept a connection on the kubelet's port");
                    let _ = stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(100))).await;
                    continue;
                }
            };
            let (tls, of) = (Arc::clone(&tls), Arc::clone(&routes));
            routes.tracker.spawn(async move {
                let ending = of.stop.clone();
                let _ = ending.run_until_cancelled(serve(stream, &tls, of)).await;
                drop(seat);
            });
        }
        routes.stop.cancel();
        routes.tracker.close();
        routes.tracker.wait().await;
    }
}

async fn accept(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let seat = Arc::clone(seats).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, seat))
}

/// Answers the requests of one connection.
async fn serve(stream: TcpStream, tls: &Arc<Tls>, routes: Arc<Routes>) {
    let _ = stream.set_nodelay(true);
    let config = match tls.fresh() {
        Some(config) => config,
        None => {
            let tls = Arc::clone(tls);
            let Some(config) = base::blocking(move || tls.again()).await else { return };
            config
        }
    };
    let shaken = tokio::time::timeout(PATIENCE, TlsAcceptor::from(config).accept(stream)).await;
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a client of the kubelet's port did not come to TLS");
            return;
        }
        Err(_) => return,
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let certified = Arc::new(certificates.and_then(|chain| chain.first()).and_then(|end| subject::identity(end)));
    let service = service_fn(move |request| {
        let (routes, certified) = (Arc::clone(&routes), Arc::clone(&certified));
        async move { Ok::<_, std::convert::Infallible>(routes.answer((*certified).as_ref(), request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let served = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the kubelet's port ended");
    }
}
