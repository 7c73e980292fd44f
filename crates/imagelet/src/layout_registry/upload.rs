//! The push side of the distribution specification over a [`Writer`]: uploads of blobs in one piece or in chunks, mounts, manifests, and
//! the removal of names. Requests of web pages are refused, since a browser could send them without the user's knowledge. Called by
//! [`crate::layout_registry`].

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, ORIGIN, RANGE};
use axum::http::request::Parts;
use axum::http::{HeaderName, Method, StatusCode};
use bytes::BytesMut;
use futures::StreamExt as _;
use oci::{Digest, Reference};

use super::answer::{Answer, CONTENT_DIGEST, Refusal, respond};
use super::layout::MAX_DOCUMENT;
use super::writer::{PutError, Upload, WriteError, Writer};

const UPLOAD_ID: HeaderName = HeaderName::from_static("docker-upload-uuid");
/// Number of bytes that are buffered before they are written and hashed.
const GATHERED: usize = 1 << 20;

/// Returns true for requests of the push side.
pub(super) fn is_for(request: &Parts) -> bool {
    !matches!(request.method, Method::GET | Method::HEAD) || request.uri.path().contains("/blobs/uploads/")
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        if let WriteError::Content(why) = error {
            return Self::new(StatusCode::BAD_REQUEST, "DIGEST_INVALID", why);
        }
        tracing::error!(error = crate::exit::chain(&error), "the layout cannot be written");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", "the layout cannot be written")
    }
}

impl From<PutError> for Refusal {
    fn from(error: PutError) -> Self {
        let (code, why) = match error {
            PutError::Write(error) => return error.into(),
            PutError::Invalid(why) => ("MANIFEST_INVALID", why),
            PutError::Digest(why) => ("DIGEST_INVALID", why),
            PutError::Name(why) => ("NAME_INVALID", why),
            PutError::Unknown(why) => ("MANIFEST_BLOB_UNKNOWN", why),
        };
        Self::new(StatusCode::BAD_REQUEST, code, why)
    }
}

/// Answers a request of the push side.
pub(super) async fn route(writer: &Arc<Writer>, request: &Parts, body: Body) -> Answer {
    if request.headers.contains_key(ORIGIN) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "DENIED", "web pages do not write here"));
    }
    let path = request.uri.path().replace("%3A", ":").replace("%3a", ":");
    let unknown = || Refusal::not_found("NAME_UNKNOWN", format!("there is nothing at {path}"));
    let rest = path.strip_prefix("/v2/").ok_or_else(unknown)?;
    if let Some((name, id)) = rest.rsplit_once("/blobs/uploads/") {
        check_name(name)?;
        return match (&request.method, id) {
            (&Method::POST, "") => begin(writer, name, request, body).await,
            (_, "") => Err(unsupported()),
            (&Method::GET | &Method::HEAD, id) => {
                let size = writer.size(id).ok_or_else(no_upload)?;
                accepted(StatusCode::NO_CONTENT, name, id, size)
            }
            (&Method::PATCH, id) => patch(writer, name, id, request, body).await,
            (&Method::PUT, id) => finish(writer, name, id, request, body).await,
            (&Method::DELETE, id) => {
                let upload = writer.take(id).ok_or_else(no_upload)?;
                blocking(move || drop(upload)).await?;
                respond(StatusCode::NO_CONTENT, &[], Body::empty())
            }
            _ => Err(unsupported()),
        };
    }
    if let Some(name) = rest.strip_suffix("/blobs/uploads").filter(|_| request.method == Method::POST) {
        check_name(name)?;
        return begin(writer, name, request, body).await;
    }
    if let Some((name, reference)) = rest.rsplit_once("/manifests/") {
        check_name(name)?;
        return match request.method {
            Method::PUT => put_manifest(writer, name, reference, request, body).await,
            Method::DELETE => delete_manifest(writer, name, reference).await,
            _ => Err(unsupported()),
        };
    }
    Err(unsupported())
}

fn unsupported() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", "this registry does not do that")
}

fn no_upload() -> Refusal {
    Refusal::not_found("BLOB_UPLOAD_UNKNOWN", "there is no such upload, or another request goes on with it")
}

/// Refuses an invalid repository name before anything is written for it.
fn check_name(name: &str) -> Result<(), Refusal> {
    let is_name = Reference::parse(&format!("h.example/{name}")).is_ok_and(|r| r.path() == name && r.tag().is_none());
    let refusal = || Refusal::new(StatusCode::BAD_REQUEST, "NAME_INVALID", format!("{name:?} is no repository"));
    is_name.then_some(()).ok_or_else(refusal)
}

/// Returns a parameter of the query.
fn parameter(request: &Parts, wanted: &str) -> Option<String> {
    let query = request.uri.query().unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == wanted).map(|(_, value)| value.into_owned())
}

fn digest_of(text: &str) -> Result<Digest, Refusal> {
    text.parse().map_err(|error: oci::DigestError| {
        Refusal::new(StatusCode::BAD_REQUEST, "DIGEST_INVALID", format!("{text}: {error}"))
    })
}

async fn begin(writer: &Arc<Writer>, name: &str, request: &Parts, body: Body) -> Answer {
    if let Some(digest) = parameter(request, "mount") {
        let digest = digest_of(&digest)?;
        let (reader, wanted) = (Arc::clone(writer), digest.clone());
        // All repositories of a layout share its blobs.
        if blocking(move || reader.has(&wanted)).await?? {
            return created(name, "blobs", &digest);
        }
    }
    let starter = Arc::clone(writer);
    let (id, upload) = blocking(move || starter.begin()).await??;
    if let Some(digest) = parameter(request, "digest") {
        let upload = append(upload, body).await.map_err(|(_, refusal)| refusal)?;
        return commit(writer, name, upload, digest_of(&digest)?).await;
    }
    writer.give_back(&id, upload);
    accepted(StatusCode::ACCEPTED, name, &id, 0)
}

async fn patch(writer: &Arc<Writer>, name: &str, id: &str, request: &Parts, body: Body) -> Answer {
    let upload = writer.take(id).ok_or_else(no_upload)?;
    if let Err(refusal) = check_range(request, &upload) {
        writer.give_back(id, upload);
        return Err(refusal);
    }
    match append(upload, body).await {
        Ok(upload) => {
            let size = upload.size;
            writer.give_back(id, upload);
            accepted(StatusCode::ACCEPTED, name, id, size)
        }
        Err((upload, refusal)) => {
            if let Some(upload) = upload {
                writer.give_back(id, upload);
            }
            Err(refusal)
        }
    }
}

async fn finish(writer: &Arc<Writer>, name: &str, id: &str, request: &Parts, body: Body) -> Answer {
    let digest = parameter(request, "digest")
        .ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "DIGEST_INVALID", "there is no digest"))?;
    let digest = digest_of(&digest)?;
    let upload = writer.take(id).ok_or_else(no_upload)?;
    if let Err(refusal) = check_range(request, &upload) {
        writer.give_back(id, upload);
        return Err(refusal);
    }
    let upload = append(upload, body).await.map_err(|(_, refusal)| refusal)?;
    commit(writer, name, upload, digest).await
}

/// Checks that a chunk begins where the previous one ended.
fn check_range(request: &Parts, upload: &Upload) -> Result<(), Refusal> {
    let Some(range) = request.headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok()) else { return Ok(()) };
    let start = range.trim_start_matches("bytes").trim_start_matches(['=', ' ']).split('-').next().unwrap_or_default();
    if start.parse() == Ok(upload.size) {
        return Ok(());
    }
    let words = format!("the upload has {} bytes, and the chunk is {range}", upload.size);
    Err(Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "BLOB_UPLOAD_INVALID", words))
}

/// Appends the bytes of a body. An error returns the partial upload if it can be resumed.
async fn append(mut upload: Upload, body: Body) -> Result<Upload, (Option<Upload>, Refusal)> {
    let mut stream = body.into_data_stream();
    let mut gathered = BytesMut::new();
    loop {
        let next = match stream.next().await {
            Some(Ok(bytes)) => Some(bytes),
            None => None,
            Some(Err(error)) => {
                let words = format!("the body broke off: {error}");
                let refusal = Refusal::new(StatusCode::BAD_REQUEST, "BLOB_UPLOAD_INVALID", words);
                return Err((Some(upload), refusal));
            }
        };
        let is_last = next.is_none();
        gathered.extend_from_slice(&next.unwrap_or_default());
        if gathered.len() >= GATHERED || (is_last && !gathered.is_empty()) {
            let bytes = gathered.split().freeze();
            let written = blocking(move || upload.append(&bytes).map(|()| upload)).await;
            upload = written.and_then(|written| written.map_err(Refusal::from)).map_err(|refusal| (None, refusal))?;
        }
        if is_last {
            return Ok(upload);
        }
    }
}

async fn commit(writer: &Arc<Writer>, name: &str, upload: Upload, digest: Digest) -> Answer {
    let (committer, wanted) = (Arc::clone(writer), digest.clone());
    blocking(move || committer.commit(upload, &wanted)).await??;
    created(name, "blobs", &digest)
}

async fn put_manifest(writer: &Arc<Writer>, name: &str, reference: &str, request: &Parts, body: Body) -> Answer {
    let limit = usize::try_from(MAX_DOCUMENT).unwrap_or(usize::MAX);
    let bytes = axum::body::to_bytes(body, limit).await.map_err(|_| {
        let words = format!("a manifest has at most {MAX_DOCUMENT} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "MANIFEST_INVALID", words)
    })?;
    let content_type = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (writer, repository) = (Arc::clone(writer), name.to_owned());
    let (reference, content_type) = (reference.to_owned(), content_type.to_owned());
    let put = move || writer.put_manifest(&repository, &reference, &content_type, &bytes);
    let digest = blocking(put).await??;
    created(name, "manifests", &digest)
}

async fn delete_manifest(writer: &Arc<Writer>, name: &str, reference: &str) -> Answer {
    let (writer, repository, wanted) = (Arc::clone(writer), name.to_owned(), reference.to_owned());
    if blocking(move || writer.delete_manifest(&repository, &wanted)).await?? {
        return respond(StatusCode::ACCEPTED, &[], Body::empty());
    }
    Err(Refusal::not_found("MANIFEST_UNKNOWN", format!("manifest {reference} is not in the layout")))
}

fn accepted(status: StatusCode, name: &str, id: &str, size: u64) -> Answer {
    let headers = [
        (LOCATION, format!("/v2/{name}/blobs/uploads/{id}")),
        (RANGE, format!("0-{}", size.saturating_sub(1))),
        (UPLOAD_ID, id.to_owned()),
        (CONTENT_LENGTH, "0".to_owned()),
    ];
    // A 204 response has no Content-Length.
    let headers = if status == StatusCode::NO_CONTENT { &headers[..3] } else { &headers[..] };
    respond(status, headers, Body::empty())
}

fn created(name: &str, what: &str, digest: &Digest) -> Answer {
    let headers = [
        (LOCATION, format!("/v2/{name}/{what}/{digest}")),
        (CONTENT_DIGEST, digest.to_string()),
        (CONTENT_LENGTH, "0".to_owned()),
    ];
    respond(StatusCode::CREATED, &headers, Body::empty())
}

/// Runs `work` on a blocking thread, since it may wait for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a writer of the layout panicked");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", "the layout cannot be written")
    })
}
