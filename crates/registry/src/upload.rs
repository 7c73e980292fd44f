//! Uploads (distribution specification, "Pushing"): blobs in one piece or mounted from another repository, manifests by tag
//! or digest. The caller opens the bytes for each attempt. Only hosts with the capability to push are asked, and an
//! upload that a registry sends to another origin carries no secret.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use oci::{Descriptor, Digest};
use url::Url;

use crate::address::same_origin;
use crate::error::{Cause, RegistryError};
use crate::redact;
use crate::repository::Repository;
use crate::retry::HostAttempts;
use crate::session::{HostRequest, PullSession};
use crate::transport::{RegistryAnswer, RegistryRequest};
use crate::upload_body::{BlobUpload, Upload};

const DIGEST_HEADER: HeaderName = HeaderName::from_static("docker-content-digest");

impl Repository {
    /// Has the repository take a blob over from another one of the same registry. Returns false where the registry does not.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn mount_blob(&self, digest: &Digest, from: &str) -> Result<bool, RegistryError> {
        let asked = format!("mount blob {digest} of {from} in {}", self.reference().repository());
        self.pushed(&asked, async |session, host| {
            let mut url = session.url_at(host, "blobs", "uploads/");
            url.query_pairs_mut().append_pair("mount", &digest.to_string()).append_pair("from", from);
            let answer = match post(session, host, url).await {
                // The other repository may be one that this credential may not read. The upload will show what it may do here.
                Err(Cause::Unauthenticated(_)) => return Ok(false),
                answer => answer?,
            };
            match answer.status() {
                StatusCode::CREATED => Ok(true),
                // The registry has begun an upload instead, which it drops after a while.
                status if status.is_success() => Ok(false),
                status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => Ok(false),
                _ => Err(answer.into_cause().await),
            }
        })
        .await
    }

    /// Uploads a blob in one piece.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn upload_blob(&self, blob: &BlobUpload) -> Result<(), RegistryError> {
        let Descriptor { digest, .. } = &blob.descriptor;
        let asked = format!("upload blob {digest} to {}", self.reference().repository());
        let upload = Upload::of_blob(blob);
        self.pushed(&asked, async |session, host| {
            let url = session.url_at(host, "blobs", "uploads/");
            let answer = post(session, host, url).await?;
            // 202 by the specification; some registries answer otherwise.
            if !matches!(answer.status().as_u16(), 200 | 201 | 202 | 204) {
                return Err(no_success(answer).await);
            }
            let mut target = location(&answer)?;
            target.query_pairs_mut().append_pair("digest", &digest.to_string());
            let answer = put(session, host, "uploads", target, &upload).await?;
            // 201 by the specification. 202 would be an upload that continues.
            if matches!(answer.status().as_u16(), 200 | 201 | 204) { Ok(()) } else { Err(no_success(answer).await) }
        })
        .await
    }

    /// Uploads a manifest or an index under a tag or a digest. Returns its digest.
    ///
    /// # Errors
    /// [`RegistryError`]; of kind `InvalidContent` when the registry got something else.
    pub async fn put_manifest(&self, name: &str, media_type: &str, bytes: Bytes) -> Result<Digest, RegistryError> {
        let asked = format!("push manifest {name} to {}", self.reference().repository());
        let digest = Digest::sha256(&bytes);
        let media_type = HeaderValue::try_from(media_type).map_err(|_| {
            RegistryError::without_host(&asked, Cause::Content("its media type is no header value".into()))
        })?;
        let upload = Upload::of_document(media_type, bytes);
        self.pushed(&asked, async |session, host| {
            let answer = put(session, host, "manifests", session.url_at(host, "manifests", name), &upload).await?;
            if !answer.status().is_success() {
                return Err(answer.into_cause().await);
            }
            match answer.response.headers().get(DIGEST_HEADER).map(|value| String::from_utf8_lossy(value.as_bytes())) {
                Some(got) if got.starts_with("sha256:") && got != digest.to_string() => {
                    let got = redact::text(&got, 100);
                    Err(Cause::Content(format!("the registry has {got} instead of {digest}")))
                }
                _ => Ok(digest.clone()),
            }
        })
        .await
    }

    /// Asks the root of the API, which answers whether the registry accepts the credential.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn check_access(&self) -> Result<(), RegistryError> {
        let asked = format!("log in to {}", self.reference().domain());
        self.pushed(&asked, async |session, host| {
            let transport = session.transport(host);
            let mut url = transport.config.base.clone();
            url.set_path(&format!("{}/", transport.config.api_root()));
            let request = HostRequest { method: Method::GET, part: "", url, headers: HeaderMap::new(), upload: None };
            let answer = session.exchange(host, request).await?;
            if answer.status().is_success() { Ok(()) } else { Err(answer.into_cause().await) }
        })
        .await
    }

    /// Does something at the first host that takes uploads, and tries it again if it may then succeed.
    async fn pushed<T>(
        &self,
        asked: &str,
        work: impl AsyncFn(&PullSession, usize) -> Result<T, Cause>,
    ) -> Result<T, RegistryError> {
        let session = self.session();
        let hosts = session.push_hosts();
        if hosts.is_empty() {
            let words = format!("no host of {} has the capability push", self.reference().domain());
            return Err(RegistryError::without_host(asked, Cause::Config(words)));
        }
        let mut attempts = HostAttempts::new(hosts);
        loop {
            match work(session, attempts.host()).await {
                Ok(done) => return Ok(done),
                Err(cause) => session.failed(&mut attempts, cause, asked).await?,
            }
        }
    }
}

async fn post(session: &PullSession, host: usize, url: Url) -> Result<RegistryAnswer, Cause> {
    let headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("0"))]);
    session.exchange(host, HostRequest { method: Method::POST, part: "uploads", url, headers, upload: None }).await
}

async fn put(
    session: &PullSession,
    host: usize,
    part: &'static str,
    url: Url,
    upload: &Upload,
) -> Result<RegistryAnswer, Cause> {
    let transport = session.transport(host);
    if same_origin(&url, &transport.config.base) {
        let request = HostRequest { method: Method::PUT, part, url, headers: HeaderMap::new(), upload: Some(upload) };
        return session.exchange(host, request).await;
    }
    let ask = RegistryRequest {
        method: Method::PUT,
        url,
        headers: HeaderMap::new(),
        authorization: None,
        form: None,
        upload: Some(upload),
        is_token: false,
        redirect_tokens: &[],
    };
    transport.send_to_named(ask).await
}

/// Returns the URL at which an upload continues. A relative `Location` is relative to the URL that answered, which is another one
/// than the host's after a redirect (RFC 9110, section 10.2.2). A registry behind a proxy that ends TLS may not know its own
/// scheme: that of the request counts.
fn location(answer: &RegistryAnswer) -> Result<Url, Cause> {
    let at = &answer.url;
    let Some(text) = answer.response.headers().get(LOCATION) else {
        return Err(Cause::Content("the answer to the start of an upload has no Location".into()));
    };
    let text = String::from_utf8_lossy(text.as_bytes());
    let bad = |_| Cause::Content(format!("Location is no URL ({})", redact::text(&text, 100)));
    let mut url = redact::without_user(at.join(&text).map_err(bad)?);
    if at.scheme() == "https" && url.scheme() == "http" && url.host() == at.host() {
        let port = (url.port() != Some(80)).then(|| url.port()).flatten();
        if url.set_scheme("https").is_err() || (port.is_none() && url.set_port(at.port()).is_err()) {
            return Err(Cause::Content("Location cannot be asked".into()));
        }
    }
    url.set_fragment(None);
    Ok(url)
}

/// The error of an answer that is no failure by its status, and no success of an upload either.
async fn no_success(answer: RegistryAnswer) -> Cause {
    let status = answer.status();
    if status.is_success() {
        return Cause::Content(format!("the registry answered {} instead of taking the upload", status.as_u16()));
    }
    answer.into_cause().await
}
