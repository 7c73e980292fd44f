//! [`Port`]: an address at which HTTP/1.1 is answered, over TLS or in clear text: a limited number of connections, and none that waits for ever for
//! its client. Knows no path and nobody's rights. Called by the kubelet's port, and by the status page of the agent.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::tls::{Tls, TlsFiles};

/// How long a client may take to say who it is, and to ask.
const PATIENCE: Duration = Duration::from_secs(15);
/// Connections at the same time; more wait.
const CONNECTIONS: usize = 512;

/// The certificate of a client that TLS has verified.
pub type ClientCertificate = CertificateDer<'static>;

/// An address, which listens.
pub struct Port {
    /// For the log.
    name: &'static str,
    listener: TcpListener,
    /// `None`: in clear text.
    tls: Option<Arc<Tls>>,
}

impl Port {
    /// Listens at the first of `addresses` at which that is possible.
    ///
    /// # Errors
    /// None of the addresses is free, or a certificate cannot be read or made.
    pub async fn listen(name: &'static str, addresses: &[SocketAddr], tls: Option<TlsFiles>) -> io::Result<Self> {
        let tls = match tls {
            None => None,
            Some(files) => {
                let read = base::blocking(move || Tls::read(name, files)).await;
                Some(Arc::new(read.unwrap_or_else(|| Err(io::Error::other("the program ends")))?))
            }
        };
        let listener = TcpListener::bind(addresses).await?;
        Ok(Self { name, listener, tls })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` with the service that `service` makes for each connection, by the client's certificate. Connections end with it.
    pub async fn run<S, B>(
        self,
        stop: &CancellationToken,
        service: impl Fn(Option<ClientCertificate>) -> S + Send + Sync + 'static,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send,
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let Self { name, listener, tls } = self;
        let (seats, service) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(service));
        let (tasks, ending) = (TaskTracker::new(), stop.child_token());
        while let Some(accepted) = stop.run_until_cancelled(accept(&listener, &seats)).await {
            let (stream, seat) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, which others give back.
                    tracing::warn!(%error, "cannot accept a connection on {name}");
                    let _ = stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(100))).await;
                    continue;
                }
            };
            let (tls, service, ending) = (tls.clone(), Arc::clone(&service), ending.clone());
            tasks.spawn(async move {
                let answered = async {
                    let _ = stream.set_nodelay(true);
                    match tls {
                        None => serve(name, stream, service(None)).await,
                        Some(tls) => {
                            let Some(stream) = shake_hands(name, stream, &tls).await else { return };
                            let certificates = stream.get_ref().1.peer_certificates();
                            let client = certificates.and_then(|chain| chain.first()).cloned();
                            serve(name, stream, service(client.map(CertificateDer::into_owned))).await;
                        }
                    }
                };
                ending.run_until_cancelled(answered).await;
                drop(seat);
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

async fn accept(listener: &TcpListener, seats: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let seat = Arc::clone(seats).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, seat))
}

/// The TLS session of a connection; `None` where the client does not come to one in time.
async fn shake_hands(name: &'static str, stream: TcpStream, tls: &Arc<Tls>) -> Option<TlsStream<TcpStream>> {
    let config = match tls.fresh() {
        Some(config) => config,
        None => {
            let tls = Arc::clone(tls);
            base::blocking(move || tls.again()).await?
        }
    };
    let shaken = tokio::time::timeout(PATIENCE, TlsAcceptor::from(config).accept(stream)).await.ok()?;
    shaken.inspect_err(|error| tracing::debug!(%error, "a client of {name} did not come to TLS")).ok()
}

/// Answers the requests of one connection.
async fn serve<S, B>(name: &'static str, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let served = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to {name} ended");
    }
}
