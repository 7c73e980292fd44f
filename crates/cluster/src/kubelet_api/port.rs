//! [`Port`]: an address at which HTTP/1.1 is answered, over TLS or in clear text. Unauthenticated clients have a small budget of
//! connections ([`crate::kubelet_api::admission`]), a request must name the listener ([`crate::kubelet_api::host`]), and no
//! connection waits for ever for its client. Independent of paths and permissions. Every TCP listener of the program that speaks
//! HTTP is one: the kubelet's port, the status page, metrics, `imagelet registry`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::kubelet_api::admission::{Admission, Limits, Seat, Source};
use crate::kubelet_api::host::{HostRule, MISDIRECTED};
use crate::kubelet_api::tls::{Tls, TlsFiles};
use crate::kubelet_api::unread::UnreadLimit;

/// Time that a client may take to authenticate and to send a request.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time for which an unauthenticated client may leave a response unread.
const UNREAD: Duration = Duration::from_secs(120);
/// Connections at the same time.
const LIMITS: Limits = Limits { unauthenticated: 64, per_source: 16, burst: 256, authenticated: 512 };

/// The certificate of a client that TLS has verified.
pub type ClientCertificate = CertificateDer<'static>;

/// The clients of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// They show who they are: by a certificate at the handshake, or by their first request ([`Client::authenticate`]).
    Authenticated,
    /// Every client. A connection counts as authenticated while one of its requests is answered.
    Anonymous,
}

/// The client of a connection.
#[derive(Debug)]
pub struct Client {
    certificate: Option<ClientCertificate>,
    seat: Arc<Seat>,
}

impl Client {
    /// Returns the certificate that TLS has verified.
    #[must_use]
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.as_ref()
    }

    /// Notes that the client has shown who it is: its connection is no longer evicted. Returns false where too many such
    /// connections are open.
    #[must_use]
    pub fn authenticate(&self) -> bool {
        self.seat.authenticate()
    }
}

/// An address, which listens.
pub struct Port {
    /// For the log.
    name: &'static str,
    listener: TcpListener,
    address: SocketAddr,
    /// `None`: in clear text.
    tls: Option<Arc<Tls>>,
    clients: Clients,
    /// Time that pending responses may take at the end.
    grace: Duration,
}

impl Port {
    /// Listens at the first of `addresses` at which that is possible.
    ///
    /// # Errors
    /// None of the addresses is free, or a certificate cannot be read or made.
    pub async fn listen(
        name: &'static str,
        addresses: impl ToSocketAddrs,
        tls: Option<TlsFiles>,
        clients: Clients,
    ) -> io::Result<Self> {
        let tls = match tls {
            None => None,
            Some(files) => {
                let read = base::blocking(move || Tls::read(name, files)).await;
                Some(Arc::new(read.unwrap_or_else(|| Err(io::Error::other("the program ends")))?))
            }
        };
        let listener = TcpListener::bind(addresses).await?;
        let address = listener.local_addr()?;
        Ok(Self { name, listener, address, tls, clients, grace: Duration::ZERO })
    }

    /// Sets the time that pending responses may take at the end.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Returns the address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` with the service that `service` makes for each connection. Connections end with it, after the time of grace.
    pub async fn run<S, B>(self, stop: &CancellationToken, service: impl Fn(Arc<Client>) -> S + Send + Sync + 'static)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + Sync + 'static,
        S::Future: Send,
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let hosts = HostRule::of(self.address.ip(), self.tls.is_some());
        let Self { name, listener, tls, clients, grace, .. } = self;
        let (tasks, service, admission) = (TaskTracker::new(), Arc::new(service), Admission::new(LIMITS));
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors: wait until other connections free some.
                    tracing::warn!(%error, "cannot accept a connection on {name}");
                    let _ = stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(100))).await;
                    continue;
                }
            };
            let seat = Arc::new(admission.admit(Source::host(address.ip())));
            let connection = Connection { name, clients, hosts, grace, seat: Arc::clone(&seat), stop: stop.clone() };
            let (tls, service) = (tls.clone(), Arc::clone(&service));
            tasks.spawn(async move {
                let served = connection.serve(stream, tls, &*service);
                seat.eviction().run_until_cancelled(served).await;
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

/// A connection, and the rules for its requests.
struct Connection {
    name: &'static str,
    clients: Clients,
    hosts: HostRule,
    grace: Duration,
    seat: Arc<Seat>,
    stop: CancellationToken,
}

impl Connection {
    /// Serves the connection to its end.
    async fn serve<S, B>(self, stream: TcpStream, tls: Option<Arc<Tls>>, service: &impl Fn(Arc<Client>) -> S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Sync,
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let _ = stream.set_nodelay(true);
        let seat = Arc::clone(&self.seat);
        let Some(tls) = tls else {
            let client = Client { certificate: None, seat };
            return self.requests(stream, service(Arc::new(client))).await;
        };
        let shaken = self.stop.run_until_cancelled(handshake(self.name, stream, &tls)).await;
        let Some(stream) = shaken.flatten() else { return };
        let certificates = stream.get_ref().1.peer_certificates();
        let certificate = certificates.and_then(|chain| chain.first()).cloned().map(CertificateDer::into_owned);
        if certificate.is_some() && !seat.authenticate() {
            tracing::warn!("{} has too many connections", self.name);
        }
        self.requests(stream, service(Arc::new(Client { certificate, seat }))).await;
    }

    /// Answers the requests of the connection.
    async fn requests<S, B>(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Sync,
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let unread = match self.clients {
            // A log or a stream may wait for a person.
            Clients::Authenticated => Duration::MAX,
            Clients::Anonymous => UNREAD,
        };
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
        let answer = service_fn(|request| async { Ok::<_, Infallible>(self.answer(&service, request).await) });
        let stream = TokioIo::new(UnreadLimit::new(stream, unread));
        let mut served = pin!(http.serve_connection(stream, answer).with_upgrades());
        let ended = tokio::select! {
            biased;
            ended = served.as_mut() => ended,
            () = self.stop.cancelled() => {
                served.as_mut().graceful_shutdown();
                let Ok(ended) = tokio::time::timeout(self.grace, served).await else { return };
                ended
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to {} ended", self.name);
        }
    }

    /// Answers a request. The connection ends after the answer where the client has not shown who it is, or may not do this.
    async fn answer<S, B>(
        &self,
        service: &S,
        request: Request<Incoming>,
    ) -> Response<Either<AnswerBody<B>, Full<Bytes>>>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    {
        let (refusal, held) = if !self.hosts.allows(&request) {
            (Some((StatusCode::MISDIRECTED_REQUEST, MISDIRECTED)), None)
        } else if self.clients == Clients::Authenticated {
            (None, None)
        } else if self.seat.authenticate() {
            (None, Some(InUse(Arc::clone(&self.seat))))
        } else {
            (Some((StatusCode::SERVICE_UNAVAILABLE, "too many requests are being answered\n")), None)
        };
        let mut response = match refusal {
            None => {
                let Ok(response) = service.call(request).await;
                response.map(|body| Either::Left(AnswerBody { body, _held: held }))
            }
            Some((status, text)) => {
                let mut response = Response::new(Either::Right(Full::from(text)));
                *response.status_mut() = status;
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
                headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
        };
        let refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if refused || !self.seat.is_authenticated() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Marks the connection of an anonymous client as authenticated while a request is answered.
struct InUse(Arc<Seat>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.forget();
    }
}

/// The body of an answer, which holds the mark of its connection.
struct AnswerBody<B> {
    body: B,
    _held: Option<InUse>,
}

impl<B: Body + Unpin> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the TLS session of a connection; `None` if the client does not complete the handshake in time.
async fn handshake(name: &'static str, stream: TcpStream, tls: &Arc<Tls>) -> Option<TlsStream<TcpStream>> {
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

#[cfg(test)]
#[path = "port_tests.rs"]
mod tests;
