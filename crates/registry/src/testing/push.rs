//! Pushes a built image to a real registry over HTTP, to fill it for a test.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, LOCATION};
use oci::Digest;
use rustls::RootCertStore;
use url::Url;

use super::image::{BuiltImage, BuiltIndex};
use crate::namespace::TlsConfig;

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

struct Push<'a> {
    client: reqwest::Client,
    root: Url,
    auth: Option<PushAuth<'a>>,
}

impl<'a> Push<'a> {
    fn new(base: &str, repository: &str, auth: Option<PushAuth<'a>>) -> Result<Self, String> {
        let root =
            Url::parse(&format!("{}/v2/{repository}/", base.trim_end_matches('/'))).map_err(|e| e.to_string())?;
        let insecure = TlsConfig { skip_verify: true, ..TlsConfig::default() };
        let tls = crate::tls::client_config(&insecure, &RootCertStore::empty(), false, &crate::system_clock())?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .build()
            .map_err(|e| format!("HTTP client: {e}"))?;
        Ok(Self { client, root, auth })
    }

    async fn send(&self, what: &str, request: reqwest::RequestBuilder) -> Result<reqwest::Response, String> {
        let request = match self.auth {
            Some(PushAuth { user, password }) => request.basic_auth(user, Some(password)),
            None => request,
        };
        let response = request.send().await.map_err(|e| format!("{what}: {e}"))?;
        if response.status().is_success() || response.status() == StatusCode::NOT_FOUND {
            return Ok(response);
        }
        let status = response.status();
        Err(format!("{what}: {status}: {}", response.text().await.unwrap_or_default()))
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
        let head = self.send("look for a blob", self.client.head(url(&format!("blobs/{digest}"))?)).await?;
        if head.status().is_success() {
            return Ok(());
        }
        let start = self.send("start an upload", self.client.post(url("blobs/uploads/")?)).await?;
        let location = start.headers().get(LOCATION).and_then(|l| l.to_str().ok());
        let location = location.ok_or_else(|| format!("start an upload: {}: no Location", start.status()))?;
        let mut target = self.root.join(location).map_err(|e| e.to_string())?;
        target.query_pairs_mut().append_pair("digest", &digest.to_string());
        let put = self.client.put(target).header(CONTENT_TYPE, "application/octet-stream").body(bytes);
        let done = self.send("upload a blob", put).await?;
        if done.status().is_success() { Ok(()) } else { Err(format!("upload a blob: {}", done.status())) }
    }

    async fn manifest(&self, name: &str, media_type: &str, bytes: Bytes) -> Result<(), String> {
        let url = self.root.join(&format!("manifests/{name}")).map_err(|e| e.to_string())?;
        let put = self.client.put(url).header(CONTENT_TYPE, media_type).body(bytes);
        let done = self.send("push a manifest", put).await?;
        if done.status().is_success() { Ok(()) } else { Err(format!("push a manifest: {}", done.status())) }
    }
}
