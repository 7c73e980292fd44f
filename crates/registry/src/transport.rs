//! [`Transport`]: requests to one host, redirects included, with the secrets that [`crate::credential_origin`] allows.
//! Answers no challenge and does not retry.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::trace_context;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use rustls::RootCertStore;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tracing::{Instrument as _, field};
use url::Url;

use crate::address::same_origin;
use crate::bandwidth::BandwidthShare;
use crate::credential_origin::{RedirectChain, RedirectToken, redirect_target};
use crate::error::{Cause, NO_ANSWER, body_message};
use crate::http_client::{self, HttpClient, HttpResponse};
use crate::namespace::HostConfig;
use crate::options::Options;
use crate::proxy::HostProxies;
use crate::ranges::HostRanges;
use crate::resolve::{HostNetwork, Resolver};
use crate::target::TargetSource;
use crate::upload_body::{self, Upload};
use crate::{redact, retry, tls};

const MAX_REDIRECTS: usize = 10;

/// The settings that all hosts of a client share.
pub(crate) struct TransportSettings {
    pub(crate) options: Options,
    /// The proxies, or the reason why they cannot be used.
    proxies: Result<Arc<HostProxies>, Cause>,
    roots: OnceCell<Arc<RootCertStore>>,
}

impl TransportSettings {
    pub(crate) fn new(options: Options) -> Self {
        let proxies = HostProxies::new(&options.proxy).map(Arc::new);
        Self { options, proxies, roots: OnceCell::new() }
    }

    async fn roots(&self) -> Arc<RootCertStore> {
        let load = || async {
            // The system's certificates are files.
            match tokio::task::spawn_blocking(base::tls::system_roots).await {
                Ok(roots) => Arc::new(roots),
                Err(error) => {
                    tracing::error!(%error, "cannot load system certificates");
                    Arc::new(RootCertStore::empty())
                }
            }
        };
        Arc::clone(self.roots.get_or_init(load).await)
    }
}

/// The connections to one host.
pub(crate) struct Transport {
    pub(crate) config: HostConfig,
    pub(crate) name: String,
    headers: HeaderMap,
    shared: Arc<TransportSettings>,
    pub(crate) ranges: HostRanges,
    network: Arc<HostNetwork>,
    own: OnceCell<HttpClient>,
    foreign: OnceCell<HttpClient>,
}

pub(crate) struct RegistryRequest<'a> {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// For the origin of `url` alone.
    pub(crate) authorization: Option<&'a HeaderValue>,
    /// A form to post, which has secrets in it.
    pub(crate) form: Option<String>,
    /// Content to upload.
    pub(crate) upload: Option<&'a Upload>,
    /// True for a request to a token service: every hop must be one that may see a secret.
    pub(crate) is_token: bool,
    /// Anonymous tokens for registries to which this host redirects.
    pub(crate) redirect_tokens: &'a [RedirectToken],
}

/// An answer whose body has not been read.
pub(crate) struct RegistryAnswer {
    pub(crate) response: HttpResponse,
    /// True if it was sent by another origin than the one that was asked.
    pub(crate) left_origin: bool,
    /// The URL that answered: the last one of the redirects.
    pub(crate) url: Url,
    /// The targets of redirects. Their queries may be signatures.
    pub(crate) places: Vec<Url>,
    /// The time at which its head arrived, by this machine's clock.
    received: SystemTime,
    /// Bytes that are read of the body of an error.
    error_body: usize,
}

impl Transport {
    pub(crate) fn new(config: HostConfig, shared: Arc<TransportSettings>) -> Result<Self, Cause> {
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let bad = || Cause::Config(format!("header {:?} cannot be sent", redact::text(name, 100)));
            let name = HeaderName::try_from(name).map_err(|_| bad())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let name = config.name();
        let ranges = HostRanges::new(shared.options.ranges.per_host);
        let proxies = match &config.proxy {
            Some(proxy) => Arc::new(HostProxies::own(proxy.clone())),
            None => shared.proxies.clone()?,
        };
        let (lookup, allowed) = (Arc::clone(&shared.options.lookup), shared.options.allowed_targets.clone());
        let network = Arc::new(HostNetwork::new(config.base.clone(), lookup, proxies, allowed));
        Ok(Self { config, name, headers, shared, ranges, network, own: OnceCell::new(), foreign: OnceCell::new() })
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Returns the secrets in the addresses of the proxies before this host.
    pub(crate) fn proxy_secrets(&self) -> impl Iterator<Item = String> {
        self.network.proxies().all().flat_map(redact::user_secrets)
    }

    /// Decides whether a token service that this registry names, which sees a secret, may be asked.
    ///
    /// # Errors
    /// The reason, as a text.
    pub(crate) fn check_realm(&self, realm: &Url) -> Result<(), String> {
        self.network.check(realm, TargetSource::Realm)
    }

    /// Sends, follows redirects, and returns the first answer that is none, or whose redirect would lose the request's form.
    pub(crate) async fn send(&self, ask: RegistryRequest<'_>) -> Result<RegistryAnswer, Cause> {
        self.follow(ask, false).await
    }

    /// Asks the root of the API, without a secret.
    pub(crate) async fn ping(&self) -> Result<RegistryAnswer, Cause> {
        let mut url = self.config.base.clone();
        url.set_path(&format!("{}/", self.config.api_root()));
        let ask = RegistryRequest {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            authorization: None,
            form: None,
            upload: None,
            is_token: false,
            redirect_tokens: &[],
        };
        self.send(ask).await
    }

    /// Sends to a URL at another origin, to which this host redirected before: as if it had done so just now.
    pub(crate) async fn send_elsewhere(&self, ask: RegistryRequest<'_>) -> Result<RegistryAnswer, Cause> {
        self.follow(ask, true).await
    }

    /// Sends to a URL at another origin that an answer of this host names, as if it had redirected there.
    ///
    /// # Errors
    /// [`Cause::Redirect`] for a target that a registry may not name; or those of the request.
    pub(crate) async fn send_to_named(&self, ask: RegistryRequest<'_>) -> Result<RegistryAnswer, Cause> {
        let checked = self.network.check(&ask.url, TargetSource::Redirect);
        checked.map_err(|why| Cause::Redirect(format!("{why} ({})", redact::origin(&ask.url))))?;
        self.follow(ask, true).await
    }

    async fn follow(&self, ask: RegistryRequest<'_>, left_origin: bool) -> Result<RegistryAnswer, Cause> {
        let first = ask.url.clone();
        let mut url = ask.url;
        let mut places = if left_origin { vec![first.clone()] } else { Vec::new() };
        let mut chain = RedirectChain::new(&self.config.base, first.clone(), left_origin);
        for _ in 0..=MAX_REDIRECTS {
            let secrets = chain.secrets(&url);
            let mut headers = ask.headers.clone();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if secrets.of_host {
                for (name, value) in &self.headers {
                    headers.append(name.clone(), value.clone());
                }
            }
            let authorization = match ask.authorization {
                Some(authorization) if secrets.authorization => Some(authorization),
                _ => chain.redirect_token(&url, ask.redirect_tokens),
            };
            if let Some(authorization) = authorization {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            if ask.form.is_some() {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            }
            // The client certificate is in the client for the host's own origin.
            let client = self.client(secrets.of_host).await?;
            let wait = self.options().retry.idle_timeout + self.config.dial_timeout;
            let body = match ask.upload {
                Some(upload) => {
                    headers.insert(CONTENT_TYPE, upload.media_type.clone());
                    upload.body()
                }
                None => http_client::whole(ask.form.clone().unwrap_or_default().into()),
            };
            let span = tracing::trace_span!(
                "registry_request",
                otel.name = ask.method.as_str(),
                otel.kind = "client",
                otel.status_code = field::Empty,
                http.request.method = ask.method.as_str(),
                http.response.status_code = field::Empty,
                server.address = redact::host(&url),
                // Where a redirect leads, the path may be a signature.
                url.path = if secrets.of_host { url.path() } else { "…" },
            );
            // The trace ID is sent to the registry, and not to the hosts that it redirects to.
            if secrets.of_host {
                trace_context::inject(&span, &mut headers);
            }
            let sent = client.send(ask.method.clone(), &url, headers, body).instrument(span.clone());
            let response = match upload_body::watched(sent, ask.upload, wait).await {
                Some(sent) => sent.map_err(|cause| self.failed(cause, &url, ask.is_token))?,
                None => return Err(Cause::Idle { after: wait, what: NO_ANSWER }),
            };
            if secrets.of_host {
                self.network.answered(response.peer());
            }
            span.record("http.response.status_code", response.status().as_u16());
            if response.status().is_client_error() || response.status().is_server_error() {
                span.record("otel.status_code", "ERROR");
            }
            // Where a redirect leads, the path may be a signature.
            let path = if url == first && !chain.left_origin() { url.path() } else { "…" };
            tracing::debug!(host = redact::host(&url), path, status = response.status().as_u16(), "received an answer");
            let next = redirect_target(response.status(), response.headers(), &url)?;
            if let Some(next) = &next {
                let why = if ask.is_token { TargetSource::Realm } else { TargetSource::Redirect };
                let checked = self.network.check(next, why);
                checked.map_err(|why| Cause::Redirect(format!("{why} ({})", redact::origin(next))))?;
            }
            match next {
                Some(next) if chain.follow(response.status(), &next, ask.form.is_some())? => {
                    places.push(next.clone());
                    url = next;
                }
                _ => {
                    let (left_origin, options) = (chain.left_origin(), self.options());
                    let received = (options.wall_clock)();
                    let error_body = options.limits.error_body;
                    return Ok(RegistryAnswer { response, left_origin, url, places, received, error_body });
                }
            }
        }
        Err(Cause::Redirect(format!("more than {MAX_REDIRECTS} redirects in a row")))
    }

    /// Returns the error for a request that got no answer.
    fn failed(&self, cause: Cause, url: &Url, is_token: bool) -> Cause {
        // The named host is the registry. A token service is named by the caller that asks it.
        let elsewhere = !is_token && !same_origin(url, &self.config.base);
        let there = if elsewhere { format!("redirected to {}: ", redact::host(url)) } else { String::new() };
        let by = self.network.proxy_of(url).map(|proxy| format!(" (by the proxy {})", redact::host(proxy)));
        match cause {
            Cause::Redirect(words) if is_token => {
                Cause::Challenge(format!("the token service is not contacted: {words} ({})", redact::url(url)))
            }
            Cause::Redirect(words) => Cause::Redirect(format!("{words} ({})", redact::origin(url))),
            Cause::Connect(words) => Cause::Connect(there + &words + by.as_deref().unwrap_or_default()),
            Cause::Tls(words) => Cause::Tls(there + &words),
            Cause::Transport(words) => Cause::Transport(there + &words),
            other => other,
        }
    }

    async fn client(&self, own_origin: bool) -> Result<&HttpClient, Cause> {
        let cell = if own_origin { &self.own } else { &self.foreign };
        cell.get_or_try_init(|| self.build(own_origin)).await
    }

    async fn build(&self, own_origin: bool) -> Result<HttpClient, Cause> {
        // A host in plain HTTP needs no certificates as long as it does not send us elsewhere.
        let base = &self.config.base;
        let is_secure = |url: &Url| url.scheme() == "https";
        let roots = if own_origin && !is_secure(base) && !self.network.proxy_of(base).is_some_and(is_secure) {
            Arc::new(RootCertStore::empty())
        } else {
            self.shared.roots().await
        };
        let bad = |message: String| Cause::Config(format!("TLS settings of {}: {message}", self.name));
        let tls = tls::client_config(&self.config.tls, &roots, own_origin, &self.options().wall_clock).map_err(bad)?;
        let resolver = Resolver::new(Arc::clone(&self.network), own_origin);
        HttpClient::new(resolver, tls, &self.options().user_agent, self.config.dial_timeout)
    }
}

impl RegistryAnswer {
    /// `Content-Type`, or nothing.
    pub(crate) fn content_type(&self) -> String {
        let value = self.response.headers().get(CONTENT_TYPE);
        value.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The host that answered.
    pub(crate) fn host(&self) -> String {
        redact::host(&self.url)
    }

    /// The whole body, or an error when it is larger than `limit`.
    pub(crate) async fn body(
        mut self,
        limit: u64,
        idle: Duration,
        share: Option<&BandwidthShare>,
    ) -> Result<Bytes, Cause> {
        let too_large = || Cause::Content(format!("the answer is larger than the {limit} bytes that are allowed"));
        let announced = self.response.content_length();
        if announced.is_some_and(|n| n > limit) {
            return Err(too_large());
        }
        let mut out = BytesMut::new();
        // A body that drips is given up as well, although some bytes arrive now and then.
        let all = idle.saturating_mul(4);
        let mut left = all;
        loop {
            let asked = Instant::now();
            let chunk = match tokio::time::timeout(left, next_chunk(&mut self.response, idle)).await {
                Ok(chunk) => chunk?,
                Err(_) => return Err(Cause::Idle { after: all, what: "reading the answer" }),
            };
            left = left.saturating_sub(asked.elapsed());
            let Some(chunk) = chunk else { return Ok(out.freeze()) };
            if (out.len() + chunk.len()) as u64 > limit {
                return Err(too_large());
            }
            out.extend_from_slice(&chunk);
            if let Some(share) = share {
                share.take(chunk.len() as u64).await;
            }
        }
    }

    /// The start of the body of an error, whatever it is worth.
    async fn error_start(mut self) -> Bytes {
        let mut out = BytesMut::new();
        let read = async {
            while let Ok(Some(chunk)) = self.response.chunk().await {
                let room = self.error_body - out.len();
                out.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if out.len() >= self.error_body {
                    break;
                }
            }
        };
        // An error body that does not arrive is not worth a wait.
        let _ = tokio::time::timeout(Duration::from_secs(5), read).await;
        out.freeze()
    }

    /// The error that an answer without success stands for.
    /// Returns the time at which the head arrived, by this machine's clock.
    pub(crate) fn received(&self) -> SystemTime {
        self.received
    }

    pub(crate) async fn into_cause(self) -> Cause {
        let status = self.status();
        let retry_after = retry::retry_after(self.response.headers(), self.received);
        let elsewhere = self.left_origin.then(|| self.host());
        let (message, name_invalid) = body_message(&self.error_start().await);
        let message = match elsewhere {
            Some(host) if message.is_empty() => format!("from {host}"),
            Some(host) => format!("from {host}: {message}"),
            None => message,
        };
        Cause::Status { status, message, retry_after, name_invalid }
    }
}

/// Returns the next piece of a body, which must arrive within `idle`.
pub(crate) async fn next_chunk(response: &mut HttpResponse, idle: Duration) -> Result<Option<Bytes>, Cause> {
    match tokio::time::timeout(idle, response.chunk()).await {
        Ok(chunk) => chunk,
        Err(_) => Err(Cause::Idle { after: idle, what: "in the middle of the transfer" }),
    }
}
