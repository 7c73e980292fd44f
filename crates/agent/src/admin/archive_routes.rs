//! The routes of archives: an archive is the body of a request or of an answer, and is streamed through a pipe without being
//! stored. The store reads and writes its content. Called by axum.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;

use axum::body::{Body, Bytes};
use axum::extract::RawQuery;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse as _;
use axum::routing::post;
use cri_api::engine::{ExportOptions, Format, ImportOptions, ImportReport};
use cri_api::{Error, Kind};
use futures::StreamExt as _;
use oci::Reference;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;

use super::state::{Answer, Refusal, SharedState, bad_request, json};
use super::table::{Content, Parameter, Route, schema};

/// How much of an archive is read at a time.
const CHUNK: usize = 128 << 10;

/// The routes.
pub(super) const ROUTES: &[Route] = &[
    Route::change(
        "/images/import",
        "Imports the images of an archive: the body is an OCI archive or a docker archive, also compressed",
        Content::Json(schema::<ImportReport>),
        || post(import),
    )
    .with(&[
        Parameter::query("name", "name for the image, instead of those in the archive"),
        Parameter::query("image", "an image of the archive; by default all of them").repeated(),
    ])
    .with_body(Content::Bytes("application/x-tar")),
    Route::change(
        "/images/export",
        "Exports images as an archive in the response body. If the connection closes early, the export failed",
        Content::Bytes("application/x-tar"),
        || post(export),
    )
    .with(&[
        Parameter::query("image", "a name or an id").required().repeated(),
        Parameter::query("format", "`oci-archive` (default) or `docker-archive`"),
    ]),
];

/// The path of an end of a pipe of this process, which other processes of its user find as well.
fn path_of(end: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), end.as_raw_fd()))
}

fn broken(error: std::io::Error) -> Refusal {
    Refusal::new(Kind::Internal, format!("make a pipe: {error}"))
}

async fn import(state: SharedState, RawQuery(query): RawQuery, body: Body) -> Answer {
    let engine = state.engine("import")?;
    let mut options = ImportOptions::default();
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*key {
            "name" => {
                let name =
                    Reference::parse(&value).map_err(|error| bad_request(format!("name: {value:?}: {error}")))?;
                options.name = Some(name);
            }
            "image" => options.images.push(value.into_owned()),
            _ => return Err(bad_request(format!("unknown parameter {key:?}; known: name, image"))),
        }
    }
    if state.logs_changes {
        tracing::info!("images are imported on request");
    }
    let (mut sender, receiver) = pipe::pipe().map_err(broken)?;
    let end = receiver.into_blocking_fd().map_err(broken)?;
    let path = path_of(&end);
    let feed = async move {
        let mut body = body.into_data_stream();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|error| Refusal::new(Kind::Cancelled, format!("read the archive: {error}")))?;
            if sender.write_all(&chunk).await.is_err() {
                // The store reads no further; it says why.
                break;
            }
        }
        // The end of the archive.
        drop(sender);
        std::future::pending::<Result<ImportReport, Refusal>>().await
    };
    let report = tokio::select! {
        biased;
        report = engine.import_images(&path, options) => report?,
        broken = feed => broken?,
    };
    drop(end);
    json(&report)
}

/// An export that runs, and the end of the pipe at which it is read.
struct Export {
    receiver: pipe::Receiver,
    /// `None` once the store has written everything.
    export: Option<Pin<Box<dyn Future<Output = cri_api::Result<()>> + Send>>>,
    over: bool,
}

impl Export {
    /// The next bytes of the archive; `None` at its end.
    async fn next(&mut self) -> Option<cri_api::Result<Bytes>> {
        if self.over {
            return None;
        }
        let mut bytes = Vec::with_capacity(CHUNK);
        loop {
            let read = match &mut self.export {
                None => self.receiver.read_buf(&mut bytes).await,
                Some(export) => tokio::select! {
                    biased;
                    exported = export => {
                        self.export = None;
                        if let Err(error) = exported {
                            self.over = true;
                            return Some(Err(error));
                        }
                        continue;
                    }
                    read = self.receiver.read_buf(&mut bytes) => read,
                },
            };
            self.over = !matches!(read, Ok(read) if read > 0);
            return match read {
                Ok(0) => None,
                Ok(_) => Some(Ok(bytes.into())),
                Err(error) => Some(Err(Error::new(Kind::Internal, format!("read the archive: {error}")))),
            };
        }
    }
}

async fn export(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let engine = state.engine("export")?;
    let (mut images, mut format) = (Vec::new(), Format::OciArchive);
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match (&*key, &*value) {
            ("image", image) if !image.is_empty() => images.push(image.to_owned()),
            ("format", "oci-archive") => format = Format::OciArchive,
            ("format", "docker-archive") => format = Format::DockerArchive,
            ("format", _) => return Err(bad_request("format: must be oci-archive or docker-archive")),
            _ => return Err(bad_request(format!("unknown parameter {key:?}; known: image, format"))),
        }
    }
    if images.is_empty() {
        return Err(bad_request("image is needed"));
    }
    let (sender, receiver) = pipe::pipe().map_err(broken)?;
    let end = sender.into_blocking_fd().map_err(broken)?;
    let path = path_of(&end);
    let work = async move {
        let exported = engine.export_images(&images, &path, ExportOptions::from(format)).await;
        // Without this end the reader sees the end of the archive.
        drop(end);
        exported
    };
    let mut export = Export { receiver, export: Some(Box::pin(work)), over: false };
    // An error before the first part is answered as an ordinary error response.
    let first = export.next().await.transpose()?;
    let rest = futures::stream::unfold(export, async |mut export| Some((export.next().await?, export)));
    let stream = futures::stream::iter(first.map(Ok)).chain(rest);
    Ok(([(CONTENT_TYPE, "application/x-tar"), (CACHE_CONTROL, "no-store")], Body::from_stream(stream)).into_response())
}
