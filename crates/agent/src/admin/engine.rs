//! The store's socket. The process that owns a root answers other processes on it, so that the root stays reachable for them.
//! `POST /engine` carries the calls of [`ImageEngine`] and [`ImageService`]. The body is one call as JSON; the answer is lines of
//! JSON: progress events, if the call reports any, then the result or the error. A call ends when its caller disconnects, and so
//! does a lease. When the process ends, the answers end without a last line, and the caller has to ask the next owner. Decides
//! nothing. Made by the binary; [`RemoteStore`](super::remote_store::RemoteStore) is the client.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use axum::{Router, extract};
use base::lock::Mutex;
use cri_api::engine::{CheckSink, ImageEngine, ImportOptions, LayerLease};
use cri_api::{Error, ImageFilter, ImageService, Kind, ProgressSink, PullImageRequest, Result};
use futures::StreamExt as _;
use oci::Reference;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::engine_wire::{Call, Line, Progress, WireError};
use super::state::{Answer, Refusal, bad_request, json};
use crate::api::socket_path::{reachable, store_socket};

/// Lines of progress that wait for a slow reader; more are left out.
const WAITING_LINES: usize = 1024;

/// Answers for the store of this process. Dropping it ends that.
pub struct StoreServer {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    path: PathBuf,
}

struct Shared {
    /// Guards who answers the calls of CRI.
    service: Mutex<Arc<dyn ImageService>>,
    engine: Arc<dyn ImageEngine>,
    /// Cancelled when the process is about to end.
    stop: CancellationToken,
}

impl StoreServer {
    /// Answers on the socket of `root`, which this process owns: an existing socket there is left over from a process that has ended.
    ///
    /// # Errors
    /// The socket could not be made.
    pub fn start(root: &Path, service: Arc<dyn ImageService>, engine: Arc<dyn ImageEngine>) -> io::Result<Self> {
        let path = store_socket(root);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The directory is its owner's alone.
        let (short, _directory) = reachable(&path)?;
        let listener = tokio::net::UnixListener::bind(&short)?;
        fs::set_permissions(&short, fs::Permissions::from_mode(0o600))?;
        let shared = Arc::new(Shared { service: Mutex::new(service), engine, stop: CancellationToken::new() });
        let tasks = TaskTracker::new();
        let router = Router::new().route("/engine", post(answer_call)).route("/holder", get(holder));
        let router = router.with_state(Arc::clone(&shared));
        let stop = shared.stop.clone();
        tasks.spawn(async move {
            let serve = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
            tokio::select! {
                served = serve => if let Err(error) = served {
                    tracing::warn!(%error, "the store's socket answers no more");
                },
                () = stop.cancelled() => {}
            }
        });
        tasks.close();
        Ok(Self { shared, tasks, path })
    }

    /// Makes `service`, which does more than the store itself, answer the calls of CRI from now on.
    pub fn answer_with(&self, service: Arc<dyn ImageService>) {
        *self.shared.service.lock() = service;
    }

    /// Cancels the calls that run, and returns when all of them have ended.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        // Its path is left to the next process otherwise, which removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// The id of this process, as long as it answers calls.
async fn holder(extract::State(shared): extract::State<Arc<Shared>>) -> Answer {
    if shared.stop.is_cancelled() {
        return Err(Refusal::new(Kind::Unavailable, "about to end"));
    }
    json(&std::process::id())
}

async fn answer_call(extract::State(shared): extract::State<Arc<Shared>>, body: Bytes) -> Answer {
    let call = serde_json::from_slice(&body).map_err(|error| bad_request(format!("a call cannot be read: {error}")))?;
    if shared.stop.is_cancelled() {
        return Err(Refusal::new(Kind::Unavailable, "about to end"));
    }
    let (tell, told) = mpsc::channel(WAITING_LINES);
    let stop = shared.stop.clone();
    let end = async move {
        let answered = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return None,
            answered = answer(&shared, call, tell) => answered,
        };
        // An end of the process is no error of the call.
        if answered.is_err() && shared.stop.is_cancelled() {
            return None;
        }
        let (line, lease) = match answered {
            Ok((value, lease)) => (Line::Answer(value), lease),
            Err(error) => (Line::Error(WireError::from(&error)), None),
        };
        let rest = futures::stream::iter(lease).then(move |lease| {
            let stop = stop.clone();
            async move {
                stop.cancelled().await;
                drop(lease);
                Bytes::new()
            }
        });
        Some(futures::stream::once(std::future::ready(bytes(&line))).chain(rest))
    };
    let progress = futures::stream::unfold(told, async |mut told| Some((bytes(&told.recv().await?), told)));
    let end = futures::stream::once(end).filter_map(std::future::ready).flatten();
    let lines = futures::stream::select(progress, end);
    let headers = [(CONTENT_TYPE, "application/jsonl"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(lines.map(Ok::<_, Infallible>))).into_response())
}

fn bytes(line: &Line) -> Bytes {
    let mut text =
        serde_json::to_vec(line).unwrap_or_else(|_| br#"{"error":{"kind":"Internal","message":""}}"#.to_vec());
    text.push(b'\n');
    text.into()
}

/// Returns the answer to a call, and the lease that is held for the caller.
async fn answer(shared: &Shared, call: Call, tell: mpsc::Sender<Line>) -> Result<(Value, Option<LayerLease>)> {
    let engine = &*shared.engine;
    let service = Arc::clone(&shared.service.lock());
    let value = match call {
        Call::ListImages { image } => {
            let filter = image.map(|image| ImageFilter { image: Some(image) });
            value(service.list_images(filter.as_ref()).await?)?
        }
        Call::ImageStatus { image, verbose } => value(service.image_status(&image, verbose).await?)?,
        Call::PullImage { image, auth } => {
            let progress = ProgressSink::new(move |event| drop(tell.try_send(Line::Progress(Progress::Pull(event)))));
            let auth = auth.map(Into::into);
            value(service.pull_image(PullImageRequest { image, auth, progress, ..PullImageRequest::default() }).await?)?
        }
        Call::RemoveImage { image } => value(service.remove_image(&image).await?)?,
        Call::ImageFsInfo => value(service.image_fs_info().await?)?,
        Call::InspectImage { image } => value(engine.inspect_image(&image).await?)?,
        Call::ImageUsage { image } => value(engine.image_usage(&image).await?)?,
        Call::ImageLayers => value(engine.image_layers().await?)?,
        Call::RemoveImages { images } => {
            let results = engine.remove_images(&images).await;
            value(results.iter().map(|result| result.as_ref().err().map(WireError::from)).collect::<Vec<_>>())?
        }
        Call::PinImage { image, pinned } => value(engine.pin_image(&image, pinned).await?)?,
        Call::TagImage { image, name } => value(engine.tag_image(&image, &name).await?)?,
        Call::UntagImage { image, names } => value(engine.untag_image(&image, &names).await?)?,
        Call::ImageDocuments { image } => value(engine.image_documents(&image).await?)?,
        Call::CheckImages { request } => {
            // A line that does not fit into a slow reader's queue is dropped: later lines follow.
            let sink = CheckSink::new(move |progress| drop(tell.try_send(Line::Progress(Progress::Check(progress)))));
            value(engine.check_images(&request, &sink).await?)?
        }
        Call::ConvertImages { request } => value(engine.convert_images(&request).await?)?,
        Call::UnfinishedPulls => value(engine.unfinished_pulls().await?)?,
        Call::DropUnfinishedPulls { all } => value(engine.drop_unfinished_pulls(all).await?)?,
        Call::MountImage { request } => value(engine.mount_image(&request).await?)?,
        Call::Mounts => value(engine.mounts().await?)?,
        Call::PodmanStore { request } => value(engine.podman_store(&request).await?)?,
        Call::LeaseLayers { text } => {
            let lease = engine.lease_layers(&text).await?;
            return Ok((lease.stack().clone(), Some(lease)));
        }
        Call::ImportImages { path, name, images, platforms } => {
            let parse = |text: String| {
                Reference::parse(&text).map_err(|error| Error::new(Kind::InvalidArgument, format!("{text:?}: {error}")))
            };
            let progress = ProgressSink::new(move |event| drop(tell.try_send(Line::Progress(Progress::Pull(event)))));
            let options = ImportOptions { name: name.map(parse).transpose()?, images, platforms, progress };
            value(engine.import_images(&path, options).await?)?
        }
        Call::ExportImages { images, path, options } => value(engine.export_images(&images, &path, options).await?)?,
    };
    Ok((value, None))
}

fn value(answer: impl Serialize) -> Result<Value> {
    serde_json::to_value(answer).map_err(|error| Error::new(Kind::Internal, format!("write an answer: {error}")))
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
