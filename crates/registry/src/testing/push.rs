//! Pushes a built image to a real registry over HTTP, to fill it for a test.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode};
use oci::Digest;
use rustls::RootCertStore;
use url::Url;

use super::image::{BuiltImage, BuiltIndex};
use super::tokens;
use crate::http_client::{HttpClient, HttpResponse, whole};
use crate::namespace::{DIAL_TIMEOUT, TlsConfig};
use crate::resolve::{HostNetwork, Resolver, system_lookup};

/// User and password of a push.
#[derive(Clone, Copy, Debug)]
pub struct PushAuth<'a> {
    /// User name.
    pub user: &'a str,
    /// Password.
    pub password: &'a str,
}

impl BuiltImage {
    /// Pushes to `base` (`http://127.0.0.1:5000`), into this repository and under this tag.
    ///
    /// # Errors
    /// A text that says which request failed.
    pub async fn push_http(&self, base: &str, repository: &str, tag: &str) -> Result<(), String> {
        self.push_http_as(base, repository, tag, None).await
    }

    /// The same with Basic authentication.
    ///
    /// # Errors
    /// A text that says which request failed.
    pub async fn push_http_as(
        &self,
        base: &str,
        repository: &str,
        tag: &str,
        auth: Option<PushAuth<'_>>,
    ) -> Result<(), String> {
        let push = Push::new(base, repository, auth)?;
        push.image(self).await?;
        push.manifest(tag, &self.descriptor.media_type, self.manifest.clone()).await
    }
}

impl BuiltIndex {
    /// Pushes the index and its images to `base`, the index under this tag.
    ///
    /// # Errors
    /// A text that says which request failed.
    pub async fn push_http(&self, base: &str, repository: &str, tag: &str) -> Result<(), String> {
        let push = Push::new(base, repository, None)?;
        for image in &self.images {
            push.image(image).await?;
        }
        push.manifest(tag, &self.descriptor.media_type, self.bytes.clone()).await
    }
}

/// The body of a request, with its type.
#[derive(Default)]
struct Content<'a> {
    media_type: &'a str,
    bytes: Bytes,
}

struct Push<'a> {
    client: HttpClient,
    root: Url,
    auth: Option<PushAuth<'a>>,
}

impl<'a> Push<'a> {
    fn new(base: &str, repository: &str, auth: Option<PushAuth<'a>>) -> Result<Self, String> {
        let root =
            Url::parse(&format!("{}/v2/{repository}/", base.trim_end_matches('/'))).map_err(|e| e.to_string())?;
        let insecure = TlsConfig { skip_verify: true, ..TlsConfig::default() };
        let tls = crate::tls::client_config(&insecure, &RootCertStore::empty(), false, &crate::system_clock())?;
        let network = HostNetwork::new(root.clone(), system_lookup(), Arc::default(), Vec::new());
        let client = HttpClient::new(Resolver::new(Arc::new(network), true), tls, "imagelet-test", DIAL_TIMEOUT)
            .map_err(|e| e.to_string())?;
        Ok(Self { client, root, auth })
    }

    async fn send(&self, what: &str, method: Method, url: &Url, content: Content<'_>) -> Result<HttpResponse, String> {
        let mut headers = HeaderMap::new();
        if let Some(PushAuth { user, password }) = self.auth {
            headers.insert(AUTHORIZATION, tokens::basic(user, password).try_into().expect("a header value"));
        }
        let Content { media_type, bytes } = content;
        if !media_type.is_empty() {
            headers.insert(CONTENT_TYPE, media_type.try_into().expect("a header value"));
        }
        let mut response =
            self.client.send(method, url, headers, whole(bytes)).await.map_err(|e| format!("{what}: {e}"))?;
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_FOUND {
            return Ok(response);
        }
        let mut body = Vec::new();
        while let Ok(Some(bytes)) = response.chunk().await {
            body.extend_from_slice(&bytes);
        }
        Err(format!("{what}: {status}: {}", String::from_utf8_lossy(&body)))
    }

    async fn image(&self, image: &BuiltImage) -> Result<(), String> {
        for (digest, bytes) in image.blobs() {
            self.blob(&digest, bytes).await?;
        }
        let name = image.descriptor.digest.to_string();
        self.manifest(&name, &image.descriptor.media_type, image.manifest.clone()).await
    }

    async fn blob(&self, digest: &Digest, bytes: Bytes) -> Result<(), String> {
        let url = |path: &str| self.root.join(path).map_err(|e| e.to_string());
        // `sha256:` would be read as a scheme.
        let head =
            self.send("look for a blob", Method::HEAD, &url(&format!("blobs/{digest}"))?, Content::default()).await?;
        if head.status().is_success() {
            return Ok(());
        }
        let start = self.send("start an upload", Method::POST, &url("blobs/uploads/")?, Content::default()).await?;
        let location = start.headers().get(LOCATION).and_then(|l| l.to_str().ok());
        let location = location.ok_or_else(|| format!("start an upload: {}: no Location", start.status()))?;
        let mut target = self.root.join(location).map_err(|e| e.to_string())?;
        target.query_pairs_mut().append_pair("digest", &digest.to_string());
        let content = Content { media_type: "application/octet-stream", bytes };
        let done = self.send("upload a blob", Method::PUT, &target, content).await?;
        if done.status().is_success() { Ok(()) } else { Err(format!("upload a blob: {}", done.status())) }
    }

    async fn manifest(&self, name: &str, media_type: &str, bytes: Bytes) -> Result<(), String> {
        let url = self.root.join(&format!("manifests/{name}")).map_err(|e| e.to_string())?;
        let done = self.send("push a manifest", Method::PUT, &url, Content { media_type, bytes }).await?;
        if done.status().is_success() { Ok(()) } else { Err(format!("push a manifest: {}", done.status())) }
    }
}
