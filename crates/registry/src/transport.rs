//! [`Transport`]: requests to one host, redirects included. It decides what travels with a request: credentials, client
//! certificates and configured headers to the origin that they are for, and nothing of them after the first redirect to
//! another one. It knows no challenge and does not try again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Proxy, redirect};
use rustls::RootCertStore;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use url::Url;

use crate::address::same_origin;
use crate::bandwidth::Share;
use crate::client_error::transport_cause;
use crate::error::{Cause, NO_ANSWER, body_message};
use crate::namespace::HostConfig;
use crate::options::Options;
use crate::proxy::Proxies;
use crate::ranges::HostRanges;
use crate::resolve::{AtHome, Elsewhere, Home, Lookup};
use crate::target::{AllowedTarget, Why};
use crate::tls::WallClock;
use crate::{redact, retry, tls};

const MAX_REDIRECTS: usize = 10;
/// Idle connections that are kept per host, and for how long.
const POOL_IDLE: usize = 16;
const POOL_IDLE_FOR: Duration = Duration::from_secs(30);

/// What all hosts of a client have in common.
pub(crate) struct Shared {
    user_agent: String,
    /// Or why they cannot be used.
    proxies: Result<Arc<Proxies>, Cause>,
    idle_timeout: Duration,
    error_body: usize,
    range_connections: u32,
    lookup: Lookup,
    allowed: Arc<[AllowedTarget]>,
    wall_clock: WallClock,
    roots: OnceCell<Arc<RootCertStore>>,
}

impl Shared {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            user_agent: options.user_agent.clone(),
            proxies: Proxies::new(&options.proxy).map(Arc::new),
            idle_timeout: options.retry.idle_timeout,
            error_body: options.limits.error_body,
            range_connections: options.ranges.per_host,
            lookup: Arc::clone(&options.lookup),
            allowed: options.allowed_targets.clone().into(),
            wall_clock: Arc::clone(&options.wall_clock),
            roots: OnceCell::new(),
        }
    }

    async fn roots(&self) -> Arc<RootCertStore> {
        let load = || async {
            // The system's certificates are files.
            match tokio::task::spawn_blocking(tls::system_roots).await {
                Ok(roots) => Arc::new(roots),
                Err(error) => {
                    tracing::error!(%error, "system certificates could not be loaded");
                    Arc::new(RootCertStore::empty())
                }
            }
        };
        Arc::clone(self.roots.get_or_init(load).await)
    }
}

/// One host's connections.
pub(crate) struct Transport {
    config: HostConfig,
    name: String,
    headers: HeaderMap,
    shared: Arc<Shared>,
    ranges: HostRanges,
    home: Arc<Home>,
    own: OnceCell<reqwest::Client>,
    foreign: OnceCell<reqwest::Client>,
}

/// How something is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
}

/// A request.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// For the origin of `url` alone.
    pub(crate) authorization: Option<&'a HeaderValue>,
    /// A form to post, which has secrets in it.
    pub(crate) form: Option<String>,
    /// Whether this goes to a token service, so that every hop must be one that may see a secret.
    pub(crate) is_token: bool,
}

/// An answer whose body has not been read.
pub(crate) struct Answer {
    pub(crate) response: reqwest::Response,
    /// Whether it came from another origin than the one that was asked.
    pub(crate) left_origin: bool,
    /// The host that answered.
    pub(crate) host: String,
    /// Where it was redirected to. The queries may be signatures.
    pub(crate) places: Vec<Url>,
}

impl Transport {
    pub(crate) fn new(config: HostConfig, shared: Arc<Shared>) -> Result<Self, Cause> {
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let bad = || Cause::Config(format!("header {:?} cannot be sent", redact::text(name, 100)));
            let name = HeaderName::try_from(name).map_err(|_| bad())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let name = config.name();
        let ranges = HostRanges::new(shared.range_connections);
        let proxies = match &config.proxy {
            Some(proxy) => Arc::new(Proxies::own(proxy.clone())),
            None => shared.proxies.clone()?,
        };
        let home = Home::new(config.base.clone(), Arc::clone(&shared.lookup), proxies, Arc::clone(&shared.allowed));
        let home = Arc::new(home);
        Ok(Self { config, name, headers, shared, ranges, home, own: OnceCell::new(), foreign: OnceCell::new() })
    }

    pub(crate) fn config(&self) -> &HostConfig {
        &self.config
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What is known of this host's ranges.
    pub(crate) fn ranges(&self) -> &HostRanges {
        &self.ranges
    }

    pub(crate) fn error_body(&self) -> usize {
        self.shared.error_body
    }

    /// What is secret in the addresses of the proxies that stand before this host.
    pub(crate) fn proxy_secrets(&self) -> impl Iterator<Item = String> {
        self.home.proxies().all().flat_map(redact::user_secrets)
    }

    /// Whether a token service that this registry names may be asked, which sees a secret.
    ///
    /// # Errors
    /// The reason, as a text.
    pub(crate) fn check_realm(&self, realm: &Url) -> Result<(), String> {
        self.home.check(realm, Why::Realm)
    }

    /// Sends, follows redirects, and gives back the first answer that is none.
    pub(crate) async fn send(&self, ask: Ask<'_>) -> Result<Answer, Cause> {
        self.follow(ask, false).await
    }

    /// The same for a URL at another origin, to which this host redirected before: as if it had done so just now.
    pub(crate) async fn send_elsewhere(&self, url: Url, headers: HeaderMap) -> Result<Answer, Cause> {
        let ask = Ask { method: Method::Get, url, headers, authorization: None, form: None, is_token: false };
        self.follow(ask, true).await
    }

    async fn follow(&self, ask: Ask<'_>, mut left_origin: bool) -> Result<Answer, Cause> {
        let first = ask.url.clone();
        let mut url = ask.url;
        let mut places = if left_origin { vec![first.clone()] } else { Vec::new() };
        for _ in 0..=MAX_REDIRECTS {
            let at_home = !left_origin && same_origin(&url, &self.config.base);
            let client = self.client(at_home).await?;
            let mut headers = ask.headers.clone();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if at_home {
                for (name, value) in &self.headers {
                    headers.append(name.clone(), value.clone());
                }
            }
            if let Some(authorization) = ask.authorization
                && !left_origin
            {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            let mut request = match ask.method {
                Method::Get => client.get(url.clone()),
                Method::Head => client.head(url.clone()),
                Method::Post => client.post(url.clone()),
            };
            if let Some(form) = &ask.form {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
                request = request.body(form.clone());
            }
            let wait = self.shared.idle_timeout + self.config.dial_timeout;
            let response = match tokio::time::timeout(wait, request.headers(headers).send()).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) if error.is_connect() && error.is_timeout() => {
                    let words = format!("no connection within {} s", self.config.dial_timeout.as_secs_f64());
                    return Err(self.failed(Cause::Connect(words), &url, ask.is_token));
                }
                Ok(Err(error)) => return Err(self.failed(transport_cause(error), &url, ask.is_token)),
                Err(_) => return Err(Cause::Idle { after: wait, what: NO_ANSWER }),
            };
            if at_home {
                self.home.answered(response.remote_addr());
            }
            // Where a redirect leads, the path may be a signature.
            let path = if url == first && !left_origin { url.path() } else { "…" };
            tracing::debug!(host = redact::host(&url), path, status = response.status().as_u16(), "answer");
            let Some(next) = redirect_target(&response, &url)? else {
                return Ok(Answer { response, left_origin, host: redact::host(&url), places });
            };
            let why = if ask.is_token { Why::Realm } else { Why::Redirect };
            let checked = self.home.check(&next, why);
            checked.map_err(|why| Cause::Redirect(format!("{why} ({})", redact::origin(&next))))?;
            left_origin |= !same_origin(&first, &next);
            let keeps_method = matches!(response.status().as_u16(), 307 | 308);
            if ask.form.is_some() && (left_origin || !keeps_method) {
                return Err(Cause::Redirect(format!("the credential was not sent on to {}", redact::origin(&next))));
            }
            places.push(next.clone());
            url = next;
        }
        Err(Cause::Redirect(format!("more than {MAX_REDIRECTS} redirects in a row")))
    }

    /// Words for a request that brought no answer.
    fn failed(&self, cause: Cause, url: &Url, is_token: bool) -> Cause {
        // The registry is the one that is named; a token service is named by who asks it.
        let elsewhere = !is_token && !same_origin(url, &self.config.base);
        let there = if elsewhere { format!("redirected to {}: ", redact::host(url)) } else { String::new() };
        let by = self.home.proxy_of(url).map(|proxy| format!(" (by the proxy {})", redact::host(proxy)));
        match cause {
            Cause::Redirect(words) if is_token => {
                Cause::Challenge(format!("the token service is not asked: {words} ({})", redact::url(url)))
            }
            Cause::Redirect(words) => Cause::Redirect(format!("{words} ({})", redact::origin(url))),
            Cause::Connect(words) => Cause::Connect(there + &words + by.as_deref().unwrap_or_default()),
            Cause::Tls(words) => Cause::Tls(there + &words),
            Cause::Transport(words) => Cause::Transport(there + &words),
            other => other,
        }
    }

    async fn client(&self, at_home: bool) -> Result<&reqwest::Client, Cause> {
        let cell = if at_home { &self.own } else { &self.foreign };
        cell.get_or_try_init(|| self.build(at_home)).await
    }

    async fn build(&self, at_home: bool) -> Result<reqwest::Client, Cause> {
        // A host in plain HTTP needs no certificates as long as it does not send us elsewhere.
        let base = &self.config.base;
        let is_secure = |url: &Url| url.scheme() == "https";
        let roots = if at_home && !is_secure(base) && !self.home.proxy_of(base).is_some_and(is_secure) {
            Arc::new(RootCertStore::empty())
        } else {
            self.shared.roots().await
        };
        let bad = |message: String| Cause::Config(format!("TLS settings of {}: {message}", self.name));
        let tls = tls::client_config(&self.config.tls, &roots, at_home, &self.shared.wall_clock).map_err(bad)?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .user_agent(&self.shared.user_agent)
            .connect_timeout(self.config.dial_timeout)
            .pool_max_idle_per_host(POOL_IDLE)
            .pool_idle_timeout(POOL_IDLE_FOR)
            .tcp_keepalive(Duration::from_secs(30));
        builder = if at_home {
            builder.dns_resolver(Arc::new(AtHome(Arc::clone(&self.home))))
        } else {
            builder.dns_resolver(Arc::new(Elsewhere(Arc::clone(&self.home))))
        };
        if self.home.has_proxies() {
            let home = Arc::clone(&self.home);
            builder = builder.proxy(Proxy::custom(move |url| home.proxy_of(url).cloned()));
        }
        builder.build().map_err(|e| Cause::Config(format!("HTTP client: {}", transport_cause(e))))
    }
}

/// Where a redirect leads, without the user information that would become a credential.
fn redirect_target(response: &reqwest::Response, at: &Url) -> Result<Option<Url>, Cause> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(LOCATION).map(|l| String::from_utf8_lossy(l.as_bytes()).into_owned());
    let Some(location) = location else {
        return Err(Cause::Redirect(format!("{} without a Location", response.status().as_u16())));
    };
    let mut next = at
        .join(&location)
        .map_err(|_| Cause::Redirect(format!("Location is no URL ({})", redact::text(&location, 100))))?;
    let _ = next.set_username("");
    let _ = next.set_password(None);
    next.set_fragment(None);
    Ok(Some(next))
}

impl Answer {
    /// Media type as the answer says it.
    pub(crate) fn content_type(&self) -> String {
        let value = self.response.headers().get(CONTENT_TYPE);
        value.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The whole body, or an error when it is larger than `limit`.
    pub(crate) async fn body(mut self, limit: u64, idle: Duration, share: Option<&Share>) -> Result<Bytes, Cause> {
        let too_large = || Cause::Content(format!("the answer is larger than the {limit} bytes that are allowed"));
        let announced = self.response.content_length();
        if announced.is_some_and(|n| n > limit) {
            return Err(too_large());
        }
        let mut out = BytesMut::new();
        // A body that drips is given up as well, though something comes every now and then.
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
    async fn error_start(mut self, limit: usize) -> Bytes {
        let mut out = BytesMut::new();
        let read = async {
            while let Ok(Some(chunk)) = self.response.chunk().await {
                let room = limit - out.len();
                out.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if out.len() >= limit {
                    break;
                }
            }
        };
        // An error body that does not come is not worth a wait.
        let _ = tokio::time::timeout(Duration::from_secs(5), read).await;
        out.freeze()
    }

    /// The error that an answer without success stands for.
    pub(crate) async fn into_cause(self, error_body: usize) -> Cause {
        let status = self.status();
        let retry_after = retry::retry_after(self.response.headers());
        let elsewhere = self.left_origin.then(|| self.host.clone());
        let (message, name_invalid) = body_message(&self.error_start(error_body).await);
        let message = match elsewhere {
            Some(host) if message.is_empty() => format!("from {host}"),
            Some(host) => format!("from {host}: {message}"),
            None => message,
        };
        Cause::Status { status, message, retry_after, name_invalid }
    }
}

/// The next piece of a body, which must come within `idle`.
pub(crate) async fn next_chunk(response: &mut reqwest::Response, idle: Duration) -> Result<Option<Bytes>, Cause> {
    match tokio::time::timeout(idle, response.chunk()).await {
        Ok(chunk) => chunk.map_err(transport_cause),
        Err(_) => Err(Cause::Idle { after: idle, what: "in the middle of the transfer" }),
    }
}
