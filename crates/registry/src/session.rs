//! [`PullSession`]: the hosts of one pull, with the credential for each, and the way of a request: the order of hosts, the
//! answers to their challenges, and the record of failures. `repository`, `document` and `blob` ask through it.

use base::lock::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{WARNING, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use oci::{Descriptor, Reference, RegistryAuth};
use tokio::sync::OnceCell;
use url::Url;

use crate::authenticator::{AuthRound, Authenticator};
use crate::bandwidth::BandwidthShare;
use crate::challenge::{self, Challenge};
use crate::client::Client;
use crate::credential_origin::{is_for, server_host};
use crate::error::{Cause, NO_ANSWER, RegistryError};
use crate::ranges::HostRanges;
use crate::redact::{self, Secrets};
use crate::redirect_token::{RedirectRound, RedirectTokens};
use crate::retry::{HostAttempts, HostLabel, RetryStep};
use crate::traffic::HostBytes;
use crate::transport::{RegistryAnswer, RegistryRequest, Transport};
use crate::upload_body::Upload;

/// How often a request may be challenged before it is given up.
const MAX_CHALLENGES: usize = 4;
/// Warnings of a registry that are shown in one pull.
const MAX_WARNINGS: usize = 8;

/// The hosts of one pull, with the credential for each.
pub(crate) struct PullSession {
    pub(crate) client: Client,
    pub(crate) reference: Reference,
    pub(crate) hosts: Vec<SessionHost>,
    secrets: Secrets,
    /// This pull's part of the bandwidth.
    pub(crate) share: BandwidthShare,
    /// Warnings that were shown already.
    warnings: Mutex<BTreeSet<String>>,
}

/// A host within a session.
pub(crate) struct SessionHost {
    pub(crate) likelier: Arc<Transport>,
    /// The way to the same host in the scheme that it turned out to speak.
    pub(crate) other: OnceLock<Arc<Transport>>,
    /// True once it has answered in the scheme in which it is asked.
    pub(crate) scheme_known: AtomicBool,
    authenticator: Authenticator,
    /// The tokens for registries to which it redirects.
    redirect_tokens: RedirectTokens,
    /// The challenges at the root of its API.
    root_challenges: OnceCell<Vec<Challenge>>,
    /// The first host of the session that is the same endpoint: itself, or one that leaves nothing for it to add.
    same_as: usize,
    /// True if it failed in this session, so that it is asked last.
    failed: AtomicBool,
    /// Milliseconds that its answers "not found" took in this session.
    lost: AtomicU64,
    /// Bytes of content that it sent in this session.
    received: AtomicU64,
}

impl SessionHost {
    fn transport(&self) -> &Arc<Transport> {
        self.other.get().unwrap_or(&self.likelier)
    }
}

/// A request to a host: all but the authorization.
pub(crate) struct HostRequest<'a> {
    pub(crate) method: Method,
    /// The part of the API: that of an [`ApiPath`], `uploads`, or nothing for the root.
    pub(crate) part: &'static str,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) upload: Option<&'a Upload>,
}

/// The part of a request's path behind the repository, and the method.
#[derive(Clone, Debug)]
pub(crate) struct ApiPath<'a> {
    pub(crate) method: Method,
    /// `manifests`, `blobs` or `referrers`.
    pub(crate) what: &'static str,
    /// Tag or digest.
    pub(crate) name: &'a str,
}

impl PullSession {
    pub(crate) fn new(
        client: Client,
        reference: &Reference,
        auth: Option<RegistryAuth>,
        path: Option<&str>,
    ) -> Result<Self, RegistryError> {
        let asked = || format!("find the hosts of {}", reference.domain());
        let fail = |message: String| RegistryError::without_host(asked(), Cause::Config(message));
        let options = client.options();
        let namespace =
            (options.namespaces)(reference.domain()).map_err(|e| fail(redact::text(&e.to_string(), 500)))?;
        if namespace.hosts.is_empty() {
            return Err(fail("there are none".into()));
        }
        let secrets = Secrets::default();
        let auth = auth.filter(|a| !a.is_anonymous());
        if let Some(auth) = &auth {
            secrets.add_credential(auth);
        }
        let mut hosts: Vec<SessionHost> = Vec::new();
        for config in namespace.hosts {
            let mut config = client.in_known_scheme(config);
            // A credential that is for HTTPS alone does not go along into plain HTTP.
            config.either_scheme &= match (&auth, config.in_other_scheme()) {
                (Some(auth), Some(other)) => {
                    is_for(auth, other.upstream, &other.base) || !is_for(auth, config.upstream, &config.base)
                }
                _ => true,
            };
            let (credential, withheld_for) = match &auth {
                Some(auth) if is_for(auth, config.upstream, &config.base) => (Some(auth.clone()), None),
                Some(auth) if auth.server_address.is_empty() => (None, Some(reference.domain().to_owned())),
                Some(auth) => (None, Some(redact::text(&server_host(&auth.server_address), 200))),
                None => (None, None),
            };
            for (_, value) in &config.headers {
                secrets.add(value);
                secrets.add(value.split_once(' ').map_or(value, |(_, rest)| rest));
            }
            let authenticator =
                Authenticator::new(credential, withheld_for, path).map_err(|cause| fail(cause.to_string()))?;
            let transport = client.transport(config).map_err(|cause| fail(cause.to_string()))?;
            transport.proxy_secrets().for_each(|secret| secrets.add(&secret));
            let is_same = |host: &SessionHost| transport.config.adds_nothing_to(&host.likelier.config);
            let same_as = hosts.iter().position(is_same).unwrap_or(hosts.len());
            hosts.push(SessionHost {
                scheme_known: AtomicBool::new(!transport.config.either_scheme),
                likelier: transport,
                other: OnceLock::new(),
                authenticator,
                redirect_tokens: RedirectTokens::new(path),
                root_challenges: OnceCell::new(),
                same_as,
                failed: AtomicBool::new(false),
                lost: AtomicU64::new(0),
                received: AtomicU64::new(0),
            });
        }
        let reference = reference.clone().with_default_tag();
        let share = client.share();
        Ok(Self { client, reference, hosts, secrets, share, warnings: Mutex::default() })
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        self.client.options().retry.idle_timeout
    }

    pub(crate) fn blob_request_name(&self, descriptor: &Descriptor) -> String {
        format!("fetch blob {} of {}", descriptor.digest, self.reference.repository())
    }

    pub(crate) fn host_label(&self, host: usize) -> HostLabel<'_> {
        let transport = self.hosts[host].transport();
        HostLabel { name: &transport.name, upstream: transport.config.upstream }
    }

    /// Returns the hosts in the order of requests: as configured, but hosts that failed in this session, or could
    /// not be reached a moment ago, are last.
    pub(crate) fn order(&self, by_tag: bool) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.hosts.len())
            .filter(|i| {
                let can = self.hosts[*i].transport().config.capabilities;
                can.pull && (can.resolve || !by_tag)
            })
            .collect();
        self.deduplicate_endpoints(&mut order);
        order.sort_by_key(|i| self.is_failing(*i));
        order
    }

    /// Returns true if a host failed in this session, or could not be reached a moment ago.
    fn is_failing(&self, host: usize) -> bool {
        let host = &self.hosts[host];
        host.failed.load(Ordering::Relaxed) || self.client.is_unreachable(&host.transport().config.base)
    }

    /// Returns how long the present host may send nothing: a mirror has less time as long as another host remains that is not known
    /// to fail. `None` if it has the time of every request.
    pub(crate) fn patience(&self, attempts: &HostAttempts) -> Option<Duration> {
        let is_upstream = self.hosts[attempts.host()].transport().config.upstream;
        let has_other = || attempts.remaining().iter().any(|host| !self.is_failing(*host));
        (!is_upstream && has_other()).then(|| self.client.options().retry.mirror_timeout)
    }

    /// Counts bytes of content that a host sent.
    pub(crate) fn count(&self, host: usize, bytes: u64) {
        if bytes > 0 {
            let host = &self.hosts[host];
            host.received.fetch_add(bytes, Ordering::Relaxed);
            let transport = host.transport();
            self.client.options().traffic.add(&transport.name, !transport.config.upstream, bytes);
        }
    }

    /// Returns the bytes of content that each host sent, for hosts that sent some.
    pub(crate) fn received(&self) -> Vec<HostBytes> {
        let of_host = |host: &SessionHost| {
            let transport = host.transport();
            let (name, mirror) = (transport.name.clone(), !transport.config.upstream);
            HostBytes { host: name, mirror, bytes: host.received.load(Ordering::Relaxed) }
        };
        self.hosts.iter().map(of_host).filter(|host| host.bytes > 0).collect()
    }

    /// Records that a host sent nothing in time, so that other requests do not wait for it.
    pub(crate) fn note_silence(&self, host: usize, cause: &Cause) {
        if cause.is_dead() {
            let host = &self.hosts[host];
            self.client.note_unreachable(&host.transport().config.base);
            host.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Records a mirror's answer that it does not have some content. Peers that share content often lack a part of an image, which
    /// is no failure. But a mirror that takes too long for such answers is asked last.
    fn note_absent(&self, host: usize, took: Duration) {
        let host = &self.hosts[host];
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let lost = host.lost.fetch_add(took, Ordering::Relaxed).saturating_add(took);
        if u128::from(lost) >= self.client.options().retry.mirror_timeout.as_millis() {
            host.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Keeps the first of the hosts that share an endpoint, so that no endpoint is requested twice.
    fn deduplicate_endpoints(&self, order: &mut Vec<usize>) {
        let mut seen = BTreeSet::new();
        order.retain(|host| seen.insert(self.hosts[*host].same_as));
    }

    /// Returns the error of a reference for which no host has the necessary capability.
    pub(crate) fn no_capable_host(&self, asked: &str, by_tag: bool) -> RegistryError {
        let needed = if by_tag { "pull and resolve" } else { "pull" };
        let words = format!("no host of {} has the capability {needed}", self.reference.domain());
        RegistryError::without_host(asked, Cause::Config(words))
    }

    /// Records a failure, and waits where the same host is to be asked again.
    ///
    /// # Errors
    /// The whole error, when no host is left.
    pub(crate) async fn failed(
        &self,
        attempts: &mut HostAttempts,
        cause: Cause,
        asked: &str,
    ) -> Result<(), RegistryError> {
        if let Some(wait) = self.failure(attempts, cause, asked)? {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// Records a failure. Returns the wait after which the same host is to be asked again, or `None` for another one.
    ///
    /// # Errors
    /// The whole error, when no host is left.
    pub(crate) fn failure(
        &self,
        attempts: &mut HostAttempts,
        cause: Cause,
        asked: &str,
    ) -> Result<Option<Duration>, RegistryError> {
        let cause = cause.map_text(|text| self.secrets.scrub(text));
        let host = &self.hosts[attempts.host()];
        if cause.is_dead() {
            self.client.note_unreachable(&host.transport().config.base);
        }
        note_failure(host, &cause, asked);
        let (at, took) = (attempts.host(), attempts.elapsed());
        let is_absent = !host.transport().config.upstream && cause.is_not_found();
        match attempts.failed(&self.client.options().retry, self.host_label(attempts.host()), cause) {
            RetryStep::Again(wait) => Ok(Some(wait)),
            step => {
                if is_absent {
                    self.note_absent(at, took);
                } else {
                    host.failed.store(true, Ordering::Relaxed);
                }
                if step == RetryStep::Next { Ok(None) } else { Err(attempts.error(asked)) }
            }
        }
    }

    /// A request to a host, with its challenges answered. The answer may be one without success.
    pub(crate) async fn request(
        &self,
        host: usize,
        path: &ApiPath<'_>,
        headers: HeaderMap,
    ) -> Result<RegistryAnswer, Cause> {
        let url = self.url(self.hosts[host].transport(), path);
        let method = path.method.clone();
        self.exchange(host, HostRequest { method, part: path.what, url, headers, upload: None }).await
    }

    /// A request to a URL of a host, with its challenges answered. The answer may be one without success.
    pub(crate) async fn exchange(&self, host: usize, request: HostRequest<'_>) -> Result<RegistryAnswer, Cause> {
        let HostRequest { method, part, mut url, headers, upload } = request;
        let SessionHost { authenticator, redirect_tokens, .. } = &self.hosts[host];
        let mut round = AuthRound::new(part, &method);
        let mut redirect_round = RedirectRound::default();
        let is_read = matches!(method, Method::GET | Method::HEAD);
        let mut challenges_seen = 0;
        loop {
            let transport = self.hosts[host].transport();
            let authorization = authenticator.current(transport, &self.secrets, &mut round).await?;
            // A secret waits until it is known in which scheme the server listens.
            if authorization.is_some() && self.find_scheme(host).await? {
                follow_scheme(&mut url, &self.hosts[host].transport().config.base);
                continue;
            }
            redirect_round.sent = redirect_tokens.current().await;
            let ask = RegistryRequest {
                method: method.clone(),
                url: url.clone(),
                headers: headers.clone(),
                authorization: authorization.as_ref(),
                form: None,
                upload,
                is_token: false,
                redirect_tokens: &redirect_round.sent,
            };
            let sent = transport.send(ask).await;
            if self.is_in_other_scheme(host, &sent).await? {
                follow_scheme(&mut url, &self.hosts[host].transport().config.base);
                continue;
            }
            let answer = sent?;
            self.client.note_reached(&transport.config.base);
            self.note_places(&answer);
            self.show_warnings(&answer);
            let mut challenges = challenges(&answer);
            let is_challenge = match answer.status().as_u16() {
                401 => true,
                403 => challenges.iter().any(|c| c.get("error") == Some("insufficient_scope")),
                _ => false,
            };
            if !is_challenge {
                return Ok(answer);
            }
            challenges_seen += 1;
            if answer.left_origin {
                // Another registry, which may want an anonymous token. It is given nothing else.
                let mut again = is_read && challenges_seen <= MAX_CHALLENGES;
                if again {
                    let at = answer.url.clone();
                    let challenged =
                        redirect_tokens.challenged(&at, &challenges, transport, &self.secrets, &mut redirect_round);
                    again = challenged.await.map_err(|cause| cause.at_redirect_target(&at))?;
                }
                if again {
                    continue;
                }
                return Ok(answer);
            }
            let refused = answer.into_cause().await;
            if challenges_seen > MAX_CHALLENGES {
                return Err(refused);
            }
            if !challenges.iter().any(Challenge::is_known) {
                challenges.extend_from_slice(self.root_challenges(host).await);
            }
            authenticator
                .challenged(&challenges, transport, &self.secrets, &mut round)
                .await
                .map_err(|cause| with_message(cause, refused))?;
        }
    }

    /// Returns the challenges at the root of a host's API. Some registries name the scheme there alone.
    async fn root_challenges(&self, host: usize) -> &[Challenge] {
        let transport = self.hosts[host].transport();
        let asked = async || {
            let answer = transport.ping().await?;
            let is_challenge = answer.status() == StatusCode::UNAUTHORIZED && !answer.left_origin;
            Ok::<_, Cause>(if is_challenge { challenges(&answer) } else { Vec::new() })
        };
        // An error is no answer: the next request asks again.
        self.hosts[host].root_challenges.get_or_try_init(asked).await.map_or_else(
            |error| {
                tracing::debug!(host = transport.name, %error, "cannot request the challenges at the root of the API");
                &[][..]
            },
            Vec::as_slice,
        )
    }

    /// Asks for more of what a host redirected to: another origin, which gets nothing of the registry's credential, headers or
    /// client certificate. The answer may be one without success.
    pub(crate) async fn request_at(
        &self,
        host: usize,
        target: &Url,
        headers: HeaderMap,
    ) -> Result<RegistryAnswer, Cause> {
        let ask = RegistryRequest {
            method: Method::GET,
            url: target.clone(),
            headers,
            authorization: None,
            form: None,
            upload: None,
            is_token: false,
            redirect_tokens: &self.hosts[host].redirect_tokens.current().await,
        };
        let answer = self.hosts[host].transport().send_elsewhere(ask).await?;
        self.note_places(&answer);
        Ok(answer)
    }

    /// Remembers the queries of redirects as secrets: they may be signatures, which the target may repeat in an error.
    fn note_places(&self, answer: &RegistryAnswer) {
        for place in &answer.places {
            redact::signatures(place).for_each(|text| self.secrets.add(&text));
        }
    }

    /// Returns what is known of a host's ranges.
    pub(crate) fn ranges(&self, host: usize) -> &HostRanges {
        &self.hosts[host].transport().ranges
    }

    /// The distribution specification wants the registry's warnings shown, each once.
    fn show_warnings(&self, answer: &RegistryAnswer) {
        for value in answer.response.headers().get_all(WARNING) {
            let text = warn_text(&String::from_utf8_lossy(value.as_bytes()));
            let text = self.secrets.scrub(&redact::text(&text, 300));
            let mut shown = self.warnings.lock();
            if shown.len() < MAX_WARNINGS && shown.insert(text.clone()) {
                tracing::warn!(host = answer.host(), warning = %text, "warning from the registry");
            }
        }
    }

    pub(crate) fn url_at(&self, host: usize, what: &'static str, name: &str) -> Url {
        self.url(self.hosts[host].transport(), &ApiPath { method: Method::GET, what, name })
    }

    /// The hosts to which content may be uploaded, as configured.
    pub(crate) fn push_hosts(&self) -> Vec<usize> {
        let can_push = |i: &usize| self.hosts[*i].transport().config.capabilities.push;
        let mut order: Vec<usize> = (0..self.hosts.len()).filter(can_push).collect();
        self.deduplicate_endpoints(&mut order);
        order
    }

    /// The connections to a host.
    pub(crate) fn transport(&self, host: usize) -> &Arc<Transport> {
        self.hosts[host].transport()
    }

    fn url(&self, transport: &Transport, path: &ApiPath<'_>) -> Url {
        let config = &transport.config;
        let mut url = config.base.clone();
        url.set_path(&format!("{}/{}/{}/{}", config.api_root(), self.reference.path(), path.what, path.name));
        if !config.upstream {
            url.query_pairs_mut().append_pair("ns", self.reference.domain());
        }
        url
    }
}

/// Waits for the answer of a host, no longer than its patience.
pub(crate) async fn patiently<T>(
    patience: Option<Duration>,
    request: impl Future<Output = Result<T, Cause>>,
) -> Result<T, Cause> {
    let Some(after) = patience else { return request.await };
    tokio::time::timeout(after, request).await.unwrap_or(Err(Cause::Idle { after, what: NO_ANSWER }))
}

/// Has a URL of a host lead to it in another scheme. A server on another port of the same host is another one.
fn follow_scheme(url: &mut Url, base: &Url) {
    let same_port = url.port() == base.port() || url.port_or_known_default() == base.port_or_known_default();
    if url.host() == base.host() && same_port && url.set_scheme(base.scheme()).is_err() {
        tracing::debug!("URL keeps its scheme");
    }
}

/// A host that fails is expected, and the next one is asked. A host that sends other content than requested is logged
/// as a warning, even though the next one sends the right content.
fn note_failure(host: &SessionHost, cause: &Cause, asked: &str) {
    let name = &host.transport().name;
    match cause {
        Cause::Content(_) => tracing::warn!(host = name, error = %cause, request = asked, "host sent wrong content"),
        _ => tracing::debug!(host = name, error = %cause, request = asked, "request failed"),
    }
}

/// Adds the message of the registry's 401 to the reason why that was the end.
fn with_message(cause: Cause, refused: Cause) -> Cause {
    match (cause, refused) {
        (Cause::Unauthenticated(words), Cause::Status { message, .. }) if !message.is_empty() => {
            Cause::Unauthenticated(format!("{words} ({message})"))
        }
        (cause, _) => cause,
    }
}

/// Returns the text of a warning, without its quotation marks (distribution specification, "Warnings"): `299 - "text"`. A warning of
/// another form is returned as it is.
fn warn_text(header: &str) -> String {
    let quoted = header.trim().strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"'));
    let Some(quoted) = quoted else { return header.to_owned() };
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        text.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    text
}

fn challenges(answer: &RegistryAnswer) -> Vec<Challenge> {
    challenge::parse(answer.response.headers().get_all(WWW_AUTHENTICATE).iter().map(HeaderValue::as_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_follows_the_scheme_of_its_own_server_only() {
        for (url, base, want) in [
            ("https://127.0.0.1:5000/v2/", "http://127.0.0.1:5000", "http://127.0.0.1:5000/v2/"),
            ("https://r.example/v2/", "http://r.example", "http://r.example/v2/"),
            ("https://127.0.0.1:5001/v2/", "http://127.0.0.1:5000", "https://127.0.0.1:5001/v2/"),
            ("https://r.example:5000/v2/", "http://r.example", "https://r.example:5000/v2/"),
            ("https://other.example/v2/", "http://r.example", "https://other.example/v2/"),
        ] {
            let mut followed: Url = url.parse().expect("a URL");
            follow_scheme(&mut followed, &base.parse().expect("a URL"));
            assert_eq!(followed.as_str(), want, "{url} with {base}");
        }
    }

    #[test]
    fn texts_of_warnings() {
        for (header, want) in [
            (r#"299 - "use another name""#, "use another name"),
            (r#"299 - "say \"hi\" in C:\\""#, r#"say "hi" in C:\"#),
            (r#"110 host "Response is stale""#, r#"110 host "Response is stale""#),
            ("299 - bare", "299 - bare"),
            (r#"299 - ""#, r#"299 - ""#),
            ("", ""),
        ] {
            assert_eq!(warn_text(header), want, "{header}");
        }
    }
}
