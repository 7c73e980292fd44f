//! An OCI layout served as a registry: how a site without a network provides images to a node. The pull side of the distribution
//! specification, with ranges; uploads if they are enabled; no credentials, no TLS. Called by `imagelet registry`.

mod answer;
mod layout;
mod range;
mod upload;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LINK, RANGE};
use axum::http::request::Parts;
use axum::http::{HeaderName, Method, Response, StatusCode};
use cluster::kubelet_api::{Clients, Port};
use hyper_util::service::TowerToHyperService;
use oci::Digest;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

use answer::{Answer, CONTENT_DIGEST, Refusal, respond};
use layout::Layout;
pub(crate) use layout::LayoutError;
use layout::{ManifestBytes, Tags};
use range::Wanted;
pub(crate) use writer::WriteError;
use writer::Writer;

const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");
/// Bytes that are read from a blob at once.
const CHUNK: usize = 256 << 10;

/// Serves until `stop`; active transfers may then finish.
pub(crate) async fn serve(port: Port, content: Content, stop: CancellationToken) {
    let app = Router::new().fallback(answer).with_state(Arc::new(content));
    port.run(&stop, move |_| TowerToHyperService::new(app.clone())).await;
}

/// The content that is served.
#[derive(Debug)]
pub(crate) struct Content {
    layout: Arc<Layout>,
    /// Accepts uploads; `None`: the layout is read-only.
    writer: Option<Arc<Writer>>,
}

impl Content {
    /// Opens a layout for reading. Blocks.
    pub(crate) fn open(directory: &Path, repository: Option<String>) -> Result<Self, LayoutError> {
        Ok(Self { layout: Arc::new(Layout::open(directory, repository)?), writer: None })
    }

    /// Opens a layout for reading and writing, and creates it if there is none. Blocks.
    pub(crate) fn open_writable(directory: &Path, repository: Option<String>) -> Result<Self, WriteError> {
        writer::make(directory)?;
        let layout = Layout::open(directory, repository)?;
        let writer = Some(Arc::new(Writer::open(layout.clone())?));
        Ok(Self { layout: Arc::new(layout), writer })
    }

    /// Returns the served images, for the log: `repository:tag` of everything.
    pub(crate) fn names(&self) -> Result<Vec<String>, LayoutError> {
        let mut names = Vec::new();
        for (repository, tags) in self.layout.repositories()? {
            names.extend(tags.keys().map(|tag| format!("{repository}:{tag}")));
        }
        Ok(names)
    }
}

/// Listens on `address`.
pub(crate) async fn listen(address: &str) -> std::io::Result<Port> {
    Ok(Port::listen("the registry", address, None, Clients::Anonymous).await?.with_grace(Duration::MAX))
}

async fn answer(State(content): State<Arc<Content>>, request: Request) -> Response<Body> {
    let (request, body) = request.into_parts();
    let head = request.method == Method::HEAD;
    let answered = match &content.writer {
        Some(writer) if upload::is_for(&request) => upload::route(writer, &request, body).await,
        _ => route(&content, &request).await,
    };
    let mut response = answered.unwrap_or_else(|refusal| {
        let body = serde_json::json!({"errors": [{"code": refusal.code, "message": refusal.message, "detail": null}]});
        json(refusal.status, &body)
    });
    response.headers_mut().insert(API_VERSION, axum::http::HeaderValue::from_static("registry/2.0"));
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, axum::http::HeaderValue::from_static("GET, HEAD"));
    }
    let status = response.status().as_u16();
    tracing::debug!(method = %request.method, uri = %request.uri, status, "answered");
    if head {
        // Length and type are those of a GET's body.
        *response.body_mut() = Body::empty();
    }
    response
}

async fn route(content: &Content, request: &Parts) -> Answer {
    let layout = Arc::clone(&content.layout);
    if request.method != Method::GET && request.method != Method::HEAD {
        let message = "this registry is read-only";
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", message));
    }
    // Names and digests need no escapes, but some clients escape the colon of a digest.
    let path = request.uri.path().replace("%3A", ":").replace("%3a", ":");
    let Some(rest) = path.strip_prefix("/v2").filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        return Err(Refusal::not_found("NAME_UNKNOWN", "only /v2/ is served"));
    };
    let rest = rest.trim_start_matches('/').to_owned();
    if rest.is_empty() {
        return Ok(json(StatusCode::OK, &serde_json::json!({})));
    }
    if rest == "_catalog" {
        let repositories = blocking(move || layout.repositories()).await?;
        let names: Vec<_> = repositories.keys().collect();
        return Ok(json(StatusCode::OK, &serde_json::json!({"repositories": names})));
    }
    if let Some(name) = rest.strip_suffix("/tags/list") {
        let tags = repository(&layout, name).await?;
        return Ok(tags_list(name, &tags, request.uri.query().unwrap_or_default()));
    }
    if let Some((name, reference)) = rest.rsplit_once("/manifests/") {
        let tags = repository(&layout, name).await?;
        return manifest(layout, &tags, reference).await;
    }
    if let Some((name, digest)) = rest.rsplit_once("/blobs/") {
        // A repository that is being pushed to does not exist before its first manifest.
        if content.writer.is_none() {
            repository(&layout, name).await?;
        }
        let header = request.headers.get(RANGE).and_then(|value| value.to_str().ok());
        return blob(layout, digest, header).await;
    }
    Err(Refusal::not_found("NAME_UNKNOWN", format!("there is nothing at {path}")))
}

/// Returns the tags of a repository, which must exist.
async fn repository(layout: &Arc<Layout>, name: &str) -> Result<Tags, Refusal> {
    let reader = Arc::clone(layout);
    let mut repositories = blocking(move || reader.repositories()).await?;
    repositories
        .remove(name)
        .ok_or_else(|| Refusal::not_found("NAME_UNKNOWN", format!("repository {name} is not in the layout")))
}

fn tags_list(name: &str, tags: &Tags, query: &str) -> Response<Body> {
    let parameter = |key: &str| query.split('&').filter_map(|p| p.split_once('=')).find(|(k, _)| *k == key);
    let after = parameter("last").map(|(_, last)| last);
    let count = parameter("n").and_then(|(_, n)| n.parse::<usize>().ok());
    let rest: Vec<&String> = tags.keys().filter(|tag| after.is_none_or(|last| tag.as_str() > last)).collect();
    let page = &rest[..count.unwrap_or(rest.len()).min(rest.len())];
    let mut response = json(StatusCode::OK, &serde_json::json!({"name": name, "tags": page}));
    if let (Some(count), Some(last)) = (count, page.last())
        && page.len() < rest.len()
        && let Ok(link) = format!("</v2/{name}/tags/list?n={count}&last={last}>; rel=\"next\"").parse()
    {
        response.headers_mut().insert(LINK, link);
    }
    response
}

async fn manifest(layout: Arc<Layout>, tags: &Tags, reference: &str) -> Answer {
    let unknown = || Refusal::not_found("MANIFEST_UNKNOWN", format!("manifest {reference} is not in the layout"));
    let (digest, media_type) = if reference.contains(':') {
        let digest: Digest = reference.parse().map_err(|e: oci::DigestError| {
            Refusal::new(StatusCode::BAD_REQUEST, "DIGEST_INVALID", format!("{reference}: {e}"))
        })?;
        let media_type = tags.values().find(|d| d.digest == digest).map(|d| d.media_type.clone());
        (digest, media_type.unwrap_or_default())
    } else {
        let descriptor = tags.get(reference).ok_or_else(unknown)?;
        (descriptor.digest.clone(), descriptor.media_type.clone())
    };
    let found = blocking(move || layout.manifest(&digest, &media_type)).await?;
    let ManifestBytes { bytes, media_type, digest } = found.ok_or_else(unknown)?;
    let length = bytes.len();
    respond(
        StatusCode::OK,
        &[(CONTENT_TYPE, media_type), (CONTENT_LENGTH, length.to_string()), (CONTENT_DIGEST, digest.to_string())],
        Body::from(bytes),
    )
}

async fn blob(layout: Arc<Layout>, digest: &str, header: Option<&str>) -> Answer {
    let digest: Digest = digest.parse().map_err(|e: oci::DigestError| {
        Refusal::new(StatusCode::BAD_REQUEST, "DIGEST_INVALID", format!("{digest}: {e}"))
    })?;
    let wanted_digest = digest.clone();
    let found = blocking(move || layout.blob(&wanted_digest)).await?;
    let Some(blob) = found else {
        return Err(Refusal::not_found("BLOB_UNKNOWN", format!("blob {digest} is not in the layout")));
    };
    let (status, part) = match range::wanted(header, blob.size) {
        Wanted::Whole => (StatusCode::OK, 0..blob.size),
        Wanted::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        Wanted::Unsatisfiable => {
            let all = [(CONTENT_RANGE, format!("bytes */{}", blob.size)), (CONTENT_LENGTH, "0".to_owned())];
            return respond(StatusCode::RANGE_NOT_SATISFIABLE, &all, Body::empty());
        }
    };
    let mut headers = vec![
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, (part.end - part.start).to_string()),
        (CONTENT_DIGEST, digest.to_string()),
        (ACCEPT_RANGES, "bytes".to_owned()),
    ];
    if status == StatusCode::PARTIAL_CONTENT {
        headers.push((CONTENT_RANGE, format!("bytes {}-{}/{}", part.start, part.end - 1, blob.size)));
    }
    let mut file = tokio::fs::File::from_std(blob.file);
    file.seek(std::io::SeekFrom::Start(part.start)).await.map_err(|error| {
        tracing::error!(%digest, %error, "seek in a blob");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", "the blob cannot be read")
    })?;
    let stream = ReaderStream::with_capacity(file.take(part.end - part.start), CHUNK);
    respond(status, &headers, Body::from_stream(stream))
}

fn json(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    let text = value.to_string();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, axum::http::HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CONTENT_LENGTH, text.len().into());
    *response.body_mut() = Body::from(text);
    response
}

/// Runs `work` on a blocking thread, since it may wait for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LayoutError> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(error) => {
            tracing::error!(%error, "a reader of the layout panicked");
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", "the layout cannot be read"))
        }
    }
}

#[cfg(test)]
#[path = "layout_registry_tests.rs"]
mod tests;
