//! [`RegistryConnector`]: opens the sockets of one HTTP client, directly or by a proxy, with TLS for `https`. Addresses of names
//! are those of `resolve`, [`Sockets`] permits each socket, and a socket counts until it is closed.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Uri, header};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tower::Service;
use url::Url;

use crate::resolve::{BoxError, HostNetwork, Resolver};
use crate::sockets::{Socket, Sockets, TRANSFER};

const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
/// How long sent data may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// No connection was made within the dial timeout.
#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
pub(crate) struct DialTimeout;

/// A byte stream to a server or a proxy.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

type BoxByteStream = Box<dyn ByteStream>;

/// Opens the sockets of one HTTP client.
#[derive(Clone)]
pub(crate) struct RegistryConnector {
    tcp: HttpConnector<Resolver>,
    tls: Arc<ClientConfig>,
    /// For proxies at `https` addresses.
    proxy_tls: Arc<ClientConfig>,
    network: Arc<HostNetwork>,
    user_agent: HeaderValue,
    dial_timeout: Duration,
    sockets: Sockets,
}

impl RegistryConnector {
    pub(crate) fn new(
        resolver: Resolver,
        tls: ClientConfig,
        user_agent: HeaderValue,
        dial_timeout: Duration,
        sockets: Sockets,
    ) -> Self {
        let network = resolver.network();
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        let mut proxy_tls = tls.clone();
        proxy_tls.alpn_protocols.clear();
        Self { tcp, tls: Arc::new(tls), proxy_tls: Arc::new(proxy_tls), network, user_agent, dial_timeout, sockets }
    }

    async fn connect(self, to: Uri, socket: Socket) -> Result<CountedStream, BoxError> {
        let proxy = proxy_for(&self.network, &to);
        let is_https = to.scheme_str() == Some("https");
        let (stream, peer, is_proxied) = match proxy {
            None => {
                let (stream, peer) = self.dial(&to, &self.tls).await?;
                (stream, peer, false)
            }
            Some(proxy) if proxy.uri().scheme_str().is_some_and(|scheme| scheme.starts_with("socks5")) => {
                let mut socks = SocksV5::new(proxy.uri().clone(), self.tcp.clone()).local_dns(false);
                if let Some((user, password)) = proxy.raw_auth() {
                    socks = socks.with_auth(user.to_owned(), password.to_owned());
                }
                let tcp = socks.call(with_port(&to)?).await?.into_inner();
                let peer = tcp.peer_addr().ok();
                let stream = if is_https { secure(tcp, &to, &self.tls).await? } else { Box::new(tcp) as BoxByteStream };
                (stream, peer, false)
            }
            Some(proxy) if is_https => {
                let dialer = self.clone();
                let to_proxy = tower::service_fn(move |uri: Uri| {
                    let dialer = dialer.clone();
                    async move {
                        let (stream, _) = dialer.dial(&uri, &dialer.proxy_tls).await?;
                        Ok::<_, BoxError>(TokioIo::new(stream))
                    }
                });
                let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                tunnel = tunnel.with_headers(HeaderMap::from_iter([(header::USER_AGENT, self.user_agent.clone())]));
                let stream = tunnel.call(to.clone()).await?.into_inner();
                (secure(stream, &to, &self.tls).await?, None, false)
            }
            Some(proxy) => {
                let (stream, peer) = self.dial(proxy.uri(), &self.tls).await?;
                (stream, peer, true)
            }
        };
        Ok(CountedStream { stream: TokioIo::new(stream), peer, is_proxied, _socket: socket })
    }

    /// A connection to the host of a URI itself.
    async fn dial(&self, uri: &Uri, tls: &Arc<ClientConfig>) -> Result<(BoxByteStream, Option<SocketAddr>), BoxError> {
        let tcp = self.tcp.clone().call(uri.clone()).await?.into_inner();
        let peer = tcp.peer_addr().ok();
        match uri.scheme_str() {
            Some("https") => Ok((secure(tcp, uri, tls).await?, peer)),
            _ => Ok((Box::new(tcp), peer)),
        }
    }
}

impl Service<Uri> for RegistryConnector {
    type Response = CountedStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<CountedStream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connector = self.clone();
        let transfer = TRANSFER.try_with(Clone::clone).unwrap_or_default();
        Box::pin(async move {
            let socket = connector.sockets.admit(&transfer).await?;
            let dial_timeout = connector.dial_timeout;
            match tokio::time::timeout(dial_timeout, connector.connect(to, socket)).await {
                Ok(connected) => connected,
                Err(_) => Err(DialTimeout.into()),
            }
        })
    }
}

/// The proxy for a URI, with its credential, by the settings of the host.
pub(crate) fn proxy_for(network: &HostNetwork, to: &Uri) -> Option<Intercept> {
    let url = Url::parse(&to.to_string()).ok()?;
    Matcher::builder().all(network.proxy_of(&url)?.as_str()).build().intercept(to)
}

/// The URI with its port: SOCKS knows no schemes.
fn with_port(uri: &Uri) -> Result<Uri, BoxError> {
    let (https, host) = (uri.scheme_str() == Some("https"), uri.host().unwrap_or_default());
    let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
    Ok(format!("{}://{host}:{port}", if https { "https" } else { "http" }).parse()?)
}

/// A TLS handshake over a stream.
async fn secure(
    stream: impl ByteStream + 'static,
    uri: &Uri,
    tls: &Arc<ClientConfig>,
) -> Result<BoxByteStream, BoxError> {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host)?;
    Ok(Box::new(TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?))
}

/// A connection; its socket counts until it is dropped.
pub(crate) struct CountedStream {
    stream: TokioIo<BoxByteStream>,
    peer: Option<SocketAddr>,
    /// A proxy reads the requests, and wants whole URLs in them.
    is_proxied: bool,
    _socket: Socket,
}

/// The address at the other end of the connection over which an answer arrived; unknown behind a tunnel.
#[derive(Clone, Copy)]
pub(crate) struct PeerAddress(pub(crate) Option<SocketAddr>);

impl Connection for CountedStream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_proxied).extra(PeerAddress(self.peer))
    }
}

impl hyper::rt::Read for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl hyper::rt::Write for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
