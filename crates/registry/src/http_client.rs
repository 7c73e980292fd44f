//! [`HttpClient`]: HTTP/1.1 requests over kept connections, for one registry host or for the origins that it redirects to. One
//! request, one answer: no redirect is followed and nothing is tried again, but for a kept connection that had ended. The
//! `transport` has two of them for each host.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use url::Url;

use crate::client_error;
use crate::connector::{PeerAddress, RegistryConnector, proxy_for};
use crate::error::Cause;
use crate::resolve::{HostNetwork, Resolver};
use crate::sockets::{Sockets, TRANSFER, Transfer};

/// Idle connections that are kept per origin, and for how long.
const POOL_IDLE: usize = 16;
const POOL_IDLE_FOR: Duration = Duration::from_secs(30);
/// The most bytes that a connection reads at once: this is most of the memory that ten pulls hold outside their budget.
const READ_BUFFER: usize = 256 << 10;

/// The body of a request.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// A body that is at hand.
pub(crate) fn whole(bytes: Bytes) -> RequestBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// An HTTP/1.1 client with a connection pool, for one host or for the origins that it redirects to.
pub(crate) struct HttpClient {
    client: Client<RegistryConnector, RequestBody>,
    sockets: Sockets,
    network: Arc<HostNetwork>,
    user_agent: HeaderValue,
    dial_timeout: Duration,
}

/// An answer; its transfer counts until the end of its body, or until it is dropped.
pub(crate) struct HttpResponse {
    inner: http::Response<Incoming>,
    transfer: Option<Arc<Transfer>>,
}

impl HttpClient {
    /// # Errors
    /// [`Cause::Config`], when the user agent is no header value.
    pub(crate) fn new(
        resolver: Resolver,
        tls: ClientConfig,
        user_agent: &str,
        dial_timeout: Duration,
    ) -> Result<Self, Cause> {
        let user_agent = HeaderValue::try_from(user_agent)
            .map_err(|_| Cause::Config("HTTP client: the user agent is no header value".into()))?;
        let (network, sockets) = (resolver.network(), Sockets::default());
        let connector = RegistryConnector::new(resolver, tls, user_agent.clone(), dial_timeout, sockets.clone());
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(POOL_IDLE)
            .pool_idle_timeout(POOL_IDLE_FOR)
            .http1_max_buf_size(READ_BUFFER)
            .build(connector);
        Ok(Self { client, sockets, network, user_agent, dial_timeout })
    }

    /// Sends a request and returns the answer when its head is here.
    ///
    /// # Errors
    /// [`Cause`], without the URL in its text.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: RequestBody,
    ) -> Result<HttpResponse, Cause> {
        let bad = || Cause::Transport("the URL cannot be requested".into());
        let uri: Uri = url[..url::Position::AfterQuery].parse().map_err(|_| bad())?;
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        headers.entry(USER_AGENT).or_insert_with(|| self.user_agent.clone());
        // To a proxy that tunnels or speaks SOCKS the connector shows it.
        if url.scheme() == "http"
            && let Some(proxy) = proxy_for(&self.network, &uri)
            && let Some(auth) = proxy.basic_auth()
        {
            headers.insert(PROXY_AUTHORIZATION, auth.clone());
        }
        let mut request = http::Request::new(body);
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
        let transfer = self.sockets.transfer(&url.origin().ascii_serialization());
        match TRANSFER.scope(Arc::downgrade(&transfer), self.client.request(request)).await {
            Ok(inner) => Ok(HttpResponse { inner, transfer: Some(transfer) }),
            Err(error) if error.is_connect() && client_error::is_timeout(&error) => {
                Err(Cause::Connect(format!("no connection within {} s", self.dial_timeout.as_secs_f64())))
            }
            Err(error) => Err(client_error::cause(&error, error.is_connect())),
        }
    }
}

impl HttpResponse {
    pub(crate) fn status(&self) -> StatusCode {
        self.inner.status()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// The address that answered, which may be a proxy's.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.inner.extensions().get::<PeerAddress>().and_then(|peer| peer.0)
    }

    /// The length of the body, where its head gives one.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.inner.body().size_hint().exact()
    }

    /// The next piece of the body.
    ///
    /// # Errors
    /// [`Cause`], when the connection broke.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Cause> {
        while let Some(frame) = self.inner.body_mut().frame().await {
            let frame = frame.map_err(|error| client_error::cause(&error, false))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        self.transfer = None;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use http::header::RANGE;

    use super::*;
    use crate::namespace::{DIAL_TIMEOUT, TlsConfig};
    use crate::resolve::system_lookup;
    use crate::testing::TestRegistry;

    /// Tasks that ask one after the other, each as soon as it has the last byte of its answer before.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn sockets_are_no_more_than_the_transfers_at_once() {
        const TASKS: usize = 4;
        const SIZE: usize = 1 << 20;
        let registry = TestRegistry::open().await;
        let blob = registry.push_blob("app", vec![7; SIZE]);
        let base = Url::parse(&registry.url()).expect("a URL");
        let network = HostNetwork::new(base.clone(), system_lookup(), Arc::default(), Vec::new());
        let tls = crate::tls::client_config(
            &TlsConfig::default(),
            &rustls::RootCertStore::empty(),
            true,
            &crate::system_clock(),
        );
        let resolver = Resolver::new(Arc::new(network), true);
        let client = Arc::new(HttpClient::new(resolver, tls.expect("valid"), "test", DIAL_TIMEOUT).expect("valid"));
        let url = base.join(&format!("/v2/app/blobs/{}", blob.digest)).expect("a URL");
        let get = async |client: &HttpClient, url: &Url, range: &'static str| {
            let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static(range))]);
            client.send(Method::GET, url, headers, whole(Bytes::new())).await.expect("answers")
        };
        let read = async |mut response: HttpResponse, length: usize| {
            let mut got = 0;
            while got < length {
                got += response.chunk().await.expect("comes").expect("not all").len();
            }
        };
        // Answers that are not read yet keep their sockets.
        let mut open = Vec::new();
        for _ in 0..TASKS {
            open.push(get(&client, &url, "bytes=0-").await);
        }
        for response in open {
            read(response, SIZE).await;
        }
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..TASKS {
            let (client, url) = (Arc::clone(&client), url.clone());
            tasks.spawn(async move {
                for _ in 0..100 {
                    read(get(&client, &url, "bytes=1000-1999").await, 1000).await;
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(registry.connections(), TASKS);
        // An answer that is dropped before its end ends its socket, which is closed before the next is opened.
        for _ in 0..10 {
            let sent = client.send(Method::GET, &url, HeaderMap::new(), whole(Bytes::new()));
            drop(sent.await.expect("answers"));
        }
        assert!(registry.connections() <= TASKS + 10, "{} connections", registry.connections());
        assert_eq!(registry.requests().len(), TASKS * 101 + 10);
    }
}
