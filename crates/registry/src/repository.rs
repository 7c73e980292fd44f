//! [`Repository`]: one pull's session with the repository of a reference. Resolves the name, fetches manifests and
//! small blobs whole and verified, and opens streams of large ones. Holds the tokens, and remembers which hosts failed,
//! so that they are asked last.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue};
use oci::{Algorithm, Descriptor, Digest, Reference, RegistryAuth, Verifier, media_type};
use url::Url;

use crate::attempts::{Attempts, Step, Who};
use crate::authenticator::{Authenticator, Round};
use crate::blob::BlobStream;
use crate::challenge::{self, Challenge};
use crate::client::Client;
use crate::error::{Cause, RegistryError};
use crate::redact::{self, Secrets};
use crate::transport::{Answer, Ask, Transport};

const DIGEST_HEADER: HeaderName = HeaderName::from_static("docker-content-digest");
/// How often a request may be challenged before it is given up.
const MAX_CHALLENGES: usize = 4;
/// Larger texts are hashed on a thread that may block.
const HASH_HERE: usize = 128 << 10;

/// A manifest or index as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The very bytes.
    pub bytes: Bytes,
    /// `Content-Type` without parameters; empty when the registry gave none.
    pub media_type: String,
    /// The digest of the bytes.
    pub digest: Digest,
}

/// One pull's session. Clones share it.
#[derive(Clone)]
pub struct Repository {
    session: Arc<Session>,
}

pub(crate) struct Session {
    client: Client,
    reference: Reference,
    hosts: Vec<Host>,
    secrets: Secrets,
}

/// One host within a session.
struct Host {
    transport: Arc<Transport>,
    authenticator: Authenticator,
    /// It failed in this session: it is asked last.
    failed: AtomicBool,
}

impl Host {
    fn who(&self) -> Who<'_> {
        Who { name: self.transport.name(), upstream: self.transport.config().upstream }
    }
}

impl Repository {
    pub(crate) fn new(
        client: Client,
        reference: &Reference,
        auth: Option<RegistryAuth>,
    ) -> Result<Self, RegistryError> {
        let asked = || format!("find the hosts of {}", reference.domain());
        let fail = |message: String| RegistryError::config(asked(), message);
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
        let mut hosts = Vec::new();
        for config in namespace.hosts {
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
            let limit = options.limits.token;
            let idle = options.retry.idle_timeout;
            let authenticator = Authenticator::new(credential, withheld_for, reference.path(), limit, idle)
                .map_err(|cause| fail(cause.to_string()))?;
            let transport = client.transport(config).map_err(|cause| fail(cause.to_string()))?;
            hosts.push(Host { transport, authenticator, failed: AtomicBool::new(false) });
        }
        let session = Session { client, reference: reference.clone().with_default_tag(), hosts, secrets };
        Ok(Self { session: Arc::new(session) })
    }

    /// The reference, with its default tag.
    #[must_use]
    pub fn reference(&self) -> &Reference {
        &self.session.reference
    }

    /// Resolves the reference: the index or manifest that its digest, or else its tag, stands for. By digest the bytes
    /// are verified; by tag they must agree with the registry's own digest.
    ///
    /// # Errors
    /// [`RegistryError`], with a part for every host that was asked.
    pub async fn resolve(&self) -> Result<Fetched, RegistryError> {
        let reference = &self.session.reference;
        let asked = format!("resolve {reference}");
        match (reference.digest(), reference.tag()) {
            (Some(digest), _) => {
                let want = Want { name: digest.to_string(), digest: Some(digest), size: None, by_tag: false };
                self.session.document(&asked, &want).await
            }
            (None, tag) => {
                let name = tag.unwrap_or("latest").to_owned();
                self.session.document(&asked, &Want { name, digest: None, size: None, by_tag: true }).await
            }
        }
    }

    /// The manifest or index that a descriptor stands for, verified.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn manifest(&self, descriptor: &Descriptor) -> Result<Fetched, RegistryError> {
        let digest = &descriptor.digest;
        let asked = format!("fetch manifest {digest} of {}", self.session.reference.repository());
        let limit = self.session.client.options().limits.manifest;
        if descriptor.size > limit {
            return Err(too_large(asked, descriptor.size, limit));
        }
        let want = Want { name: digest.to_string(), digest: Some(digest), size: Some(descriptor.size), by_tag: false };
        self.session.document(&asked, &want).await
    }

    /// A small blob, whole and verified. Where a host's bytes are wrong the next one is asked.
    ///
    /// # Errors
    /// [`RegistryError`]; of kind `InvalidContent` when the descriptor gives more than `limit` bytes.
    pub async fn blob_bytes(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes, RegistryError> {
        if descriptor.size > limit {
            return Err(too_large(self.session.asked_blob(descriptor), descriptor.size, limit));
        }
        let mut stream = self.blob(descriptor).await?;
        loop {
            let mut out = BytesMut::new();
            while let Some(chunk) = stream.next().await? {
                out.extend_from_slice(&chunk);
            }
            let bytes = out.freeze();
            match verify(&descriptor.digest, Some(descriptor.size), bytes.clone()).await {
                Ok(()) => return Ok(bytes),
                Err(why) => stream.start_over(&why)?,
            }
        }
    }

    /// Opens a blob. The answer's head is here when this returns, the rest comes by [`BlobStream::next`].
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn blob(&self, descriptor: &Descriptor) -> Result<BlobStream, RegistryError> {
        let asked = self.session.asked_blob(descriptor);
        BlobStream::open(Arc::clone(&self.session), descriptor, asked).await
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository").field("reference", &self.session.reference.to_string()).finish_non_exhaustive()
    }
}

fn too_large(asked: String, size: u64, limit: u64) -> RegistryError {
    let cause = Cause::Content(format!("its descriptor gives {size} bytes, {limit} are allowed"));
    let failure = crate::error::Failure { host: String::new(), upstream: true, attempts: 1, cause };
    RegistryError::new(asked, vec![failure])
}

/// Whether a credential is for a host: the one of its server address, or else the registry itself.
fn is_for(auth: &RegistryAuth, upstream: bool, base: &Url) -> bool {
    if auth.server_address.is_empty() {
        return upstream;
    }
    let canonical = |host: &str| match host {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        other => other.to_ascii_lowercase(),
    };
    let server = server_host(&auth.server_address);
    // `host:443` and `host` are the same over HTTPS, `host:80` and `host` over HTTP.
    let Ok(server) = Url::parse(&format!("{}://{server}/", base.scheme())) else { return false };
    let (Some(theirs), Some(own)) = (server.host_str(), base.host_str()) else { return false };
    canonical(theirs) == canonical(own) && server.port_or_known_default() == base.port_or_known_default()
}

/// `host[:port]` of a server address, which may be a URL.
fn server_host(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned()
}

/// Checks size and digest; says what is wrong.
async fn verify(digest: &Digest, size: Option<u64>, bytes: Bytes) -> Result<(), String> {
    let digest = digest.clone();
    let check = move || {
        let mut verifier = Verifier::new(digest, size.unwrap_or(bytes.len() as u64));
        verifier.update(&bytes)?;
        verifier.finish().map(|_| ())
    };
    hashing(if size.unwrap_or(u64::MAX) <= HASH_HERE as u64 { HASH_HERE } else { usize::MAX }, check)
        .await?
        .map_err(|e| e.to_string())
}

/// Runs a hash of `len` bytes, on a thread that may block where that takes long.
async fn hashing<T: Send + 'static>(len: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    if len <= HASH_HERE {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|e| e.to_string())
}

/// A manifest or index that is wanted.
struct Want<'a> {
    /// Tag or digest, as it stands in the path.
    name: String,
    digest: Option<&'a Digest>,
    size: Option<u64>,
    by_tag: bool,
}

impl Session {
    fn asked_blob(&self, descriptor: &Descriptor) -> String {
        format!("fetch blob {} of {}", descriptor.digest, self.reference.repository())
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn who(&self, host: usize) -> Who<'_> {
        self.hosts[host].who()
    }

    pub(crate) fn host_name(&self, host: usize) -> &str {
        self.hosts[host].transport.name()
    }

    /// The hosts in the order in which they are asked: as configured, but those that failed in this session, or could
    /// not be reached a moment ago, come last.
    pub(crate) fn order(&self, by_tag: bool) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.hosts.len())
            .filter(|i| {
                let can = self.hosts[*i].transport.config().capabilities;
                can.pull && (can.resolve || !by_tag)
            })
            .collect();
        order.sort_by_key(|i| {
            let host = &self.hosts[*i];
            host.failed.load(Ordering::Relaxed) || self.client.is_unreachable(host.transport.name())
        });
        order
    }

    /// No host has the capability that is needed.
    pub(crate) fn nobody(&self, asked: &str, by_tag: bool) -> RegistryError {
        let needed = if by_tag { "pull and resolve" } else { "pull" };
        RegistryError::config(asked, format!("no host of {} has the capability {needed}", self.reference.domain()))
    }

    /// Takes note of a failure, and waits where the same host is to be asked again.
    ///
    /// # Errors
    /// The whole error, when nobody is left.
    pub(crate) async fn failed(&self, attempts: &mut Attempts, cause: Cause, asked: &str) -> Result<(), RegistryError> {
        let cause = cause.map_text(|text| self.secrets.scrub(text));
        let at = attempts.host();
        let host = &self.hosts[at];
        if cause.is_unreachable() {
            self.client.note_unreachable(host.transport.name());
        }
        tracing::debug!(host = host.transport.name(), %cause, asked, "request failed");
        match attempts.failed(&self.client.options().retry, host.who(), cause) {
            Step::Again(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Step::Next => {
                host.failed.store(true, Ordering::Relaxed);
                Ok(())
            }
            Step::End => {
                host.failed.store(true, Ordering::Relaxed);
                Err(attempts.error(asked))
            }
        }
    }

    /// The caller found a host's bytes to be wrong: the next host is asked.
    ///
    /// # Errors
    /// The whole error, when nobody is left.
    pub(crate) fn reject(&self, attempts: &mut Attempts, cause: Cause, asked: &str) -> Result<(), RegistryError> {
        let cause = cause.map_text(|text| self.secrets.scrub(text));
        let host = &self.hosts[attempts.host()];
        host.failed.store(true, Ordering::Relaxed);
        match attempts.failed(&self.client.options().retry, host.who(), cause) {
            Step::End => Err(attempts.error(asked)),
            Step::Again(_) | Step::Next => Ok(()),
        }
    }

    async fn document(&self, asked: &str, want: &Want<'_>) -> Result<Fetched, RegistryError> {
        let order = self.order(want.by_tag);
        if order.is_empty() {
            return Err(self.nobody(asked, want.by_tag));
        }
        let mut attempts = Attempts::new(order);
        loop {
            match self.document_at(attempts.host(), want).await {
                Ok(fetched) => return Ok(fetched),
                Err(cause) => self.failed(&mut attempts, cause, asked).await?,
            }
        }
    }

    async fn document_at(&self, host: usize, want: &Want<'_>) -> Result<Fetched, Cause> {
        let options = self.client.options();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, manifest_accept());
        let answer = self.get(host, "manifests", &want.name, headers).await?;
        if !answer.status().is_success() {
            return Err(answer.into_cause(options.limits.error_body).await);
        }
        let content_type = answer.content_type();
        let announced = answer.response.headers().get(DIGEST_HEADER).cloned();
        let bytes = answer.body(options.limits.manifest, options.retry.idle_timeout).await?;
        check_is_json(&content_type, &bytes)?;
        let digest = match want.digest {
            Some(digest) => {
                verify(digest, want.size, bytes.clone()).await.map_err(Cause::Content)?;
                digest.clone()
            }
            None => computed(announced.as_ref(), bytes.clone()).await?,
        };
        Ok(Fetched { bytes, media_type: media_type::essence(&content_type), digest })
    }

    /// A request to a host, with its challenges answered. The answer may be one without success.
    pub(crate) async fn get(&self, host: usize, what: &str, name: &str, headers: HeaderMap) -> Result<Answer, Cause> {
        let Host { transport, authenticator, .. } = &self.hosts[host];
        let url = self.url(transport, what, name);
        let mut round = Round::default();
        let mut challenges_seen = 0;
        loop {
            let authorization = authenticator.current(transport, &self.secrets, &mut round).await?;
            let ask = Ask {
                url: url.clone(),
                headers: headers.clone(),
                authorization: authorization.as_ref(),
                form: None,
                is_token: false,
            };
            let answer = transport.send(ask).await?;
            self.client.note_reached(transport.name());
            let challenges = if answer.left_origin { Vec::new() } else { challenges(&answer) };
            let is_challenge = match answer.status().as_u16() {
                401 => !answer.left_origin,
                403 => challenges.iter().any(|c| c.get("error") == Some("insufficient_scope")),
                _ => false,
            };
            if !is_challenge {
                return Ok(answer);
            }
            challenges_seen += 1;
            if challenges_seen > MAX_CHALLENGES {
                return Err(answer.into_cause(transport.error_body()).await);
            }
            let refused = answer.into_cause(transport.error_body()).await;
            authenticator
                .challenged(&challenges, transport, &self.secrets, &mut round)
                .await
                .map_err(|cause| with_message(cause, refused))?;
        }
    }

    fn url(&self, transport: &Transport, what: &str, name: &str) -> Url {
        let config = transport.config();
        let mut url = config.base.clone();
        url.set_path(&format!("{}/{}/{what}/{name}", config.api_root(), self.reference.path()));
        if !config.upstream {
            url.query_pairs_mut().append_pair("ns", self.reference.domain());
        }
        url
    }
}

/// What the registry said with its 401 belongs to the reason why that was the end.
fn with_message(cause: Cause, refused: Cause) -> Cause {
    match (cause, refused) {
        (Cause::Unauthenticated(words), Cause::Status { message, .. }) if !message.is_empty() => {
            Cause::Unauthenticated(format!("{words} ({message})"))
        }
        (cause, _) => cause,
    }
}

fn challenges(answer: &Answer) -> Vec<Challenge> {
    challenge::parse(answer.response.headers().get_all(WWW_AUTHENTICATE).iter().map(HeaderValue::as_bytes))
}

fn manifest_accept() -> HeaderValue {
    HeaderValue::try_from(media_type::MANIFEST_ACCEPT.join(", ")).expect("media types are header values")
}

/// A login page, a proxy's notice, an empty answer: named for what they are, before a digest is compared.
fn check_is_json(content_type: &str, bytes: &[u8]) -> Result<(), Cause> {
    let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
    let is_html = media_type::essence(content_type) == "text/html";
    if first == Some(&b'{') && !is_html {
        return Ok(());
    }
    let shown_type = if content_type.is_empty() { "no type".to_owned() } else { redact::text(content_type, 60) };
    if first.is_none() {
        return Err(Cause::Content(format!("an empty answer ({shown_type}) instead of a manifest")));
    }
    let start = redact::text(&String::from_utf8_lossy(&bytes[..bytes.len().min(400)]), 80);
    Err(Cause::Content(format!("{shown_type} instead of a manifest, it starts with {start:?}")))
}

/// The digest of what a tag stands for: the registry's, if the bytes have it, or SHA-256.
async fn computed(announced: Option<&HeaderValue>, bytes: Bytes) -> Result<Digest, Cause> {
    let announced = match announced.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()) {
        None => None,
        Some(text) => match text.trim().parse::<Digest>() {
            Ok(digest) => Some(digest),
            Err(e) => return Err(Cause::Content(format!("Docker-Content-Digest {:?}: {e}", redact::text(&text, 100)))),
        },
    };
    let algorithm = announced.as_ref().map_or(Algorithm::Sha256, Digest::algorithm);
    let got = hashing(bytes.len(), move || algorithm.digest(&bytes)).await.map_err(Cause::Content)?;
    match announced {
        Some(want) if want != got => {
            Err(Cause::Content(format!("the registry calls the manifest {want} and its bytes are {got}")))
        }
        _ => Ok(got),
    }
}

/// Waits that tests and callers may want to know.
impl Session {
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.client.options().retry.idle_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_for_their_host() {
        let cases = [
            ("", true, "https://r.example", true),
            ("", false, "https://mirror.example", false),
            ("r.example", true, "https://r.example", true),
            ("r.example", true, "https://other.example", false),
            ("https://r.example/v1/", true, "https://r.example", true),
            ("r.example:443", true, "https://r.example", true),
            ("r.example:5000", true, "https://r.example", false),
            ("mirror.example", false, "https://mirror.example", true),
            ("https://index.docker.io/v1/", true, "https://registry-1.docker.io", true),
            ("docker.io", true, "https://registry-1.docker.io", true),
            ("docker.io", false, "https://mirror.example", false),
            ("127.0.0.1:5000", true, "http://127.0.0.1:5000", true),
            ("R.Example", true, "https://r.example", true),
            ("user@r.example", true, "https://r.example", true),
            ("r.example", true, "https://sub.r.example", false),
            ("///", true, "https://r.example", false),
        ];
        for (server, upstream, base, want) in cases {
            let auth = RegistryAuth { server_address: server.into(), ..RegistryAuth::basic("u", "p") };
            let base = Url::parse(base).expect("parses");
            assert_eq!(is_for(&auth, upstream, &base), want, "{server:?} at {base}");
        }
    }

    #[test]
    fn what_is_no_json_is_named() {
        let cases = [
            ("application/json", "{}", None),
            ("", " \n{}", None),
            ("text/html; charset=utf-8", "{}", Some("text/html; charset=utf-8 instead of a manifest")),
            ("text/html", "<!DOCTYPE html>\n<p>Sign in", Some("starts with \"<!DOCTYPE html> <p>Sign in\"")),
            ("application/json", "<html>", Some("application/json instead of a manifest")),
            ("", "", Some("an empty answer (no type)")),
        ];
        for (content_type, body, want) in cases {
            let got = check_is_json(content_type, body.as_bytes()).map_err(|c| c.to_string());
            match want {
                None => assert_eq!(got, Ok(()), "{body}"),
                Some(want) => assert!(got.as_ref().is_err_and(|e| e.contains(want)), "{body}: {got:?}"),
            }
        }
    }
}
