//! `POST /engine`: the calls of [`ImageEngine`] for another process of the same user, while this one holds the root. The body is
//! one call as JSON; the answer is lines of JSON: progress, where the call tells any, then the answer or the error. A call ends
//! when its caller goes away; so does a lease. Called by axum; [`AgentEngine`](super::engine_client::AgentEngine) asks.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse as _;
use axum::routing::post;
use cri_api::{Error, Kind, ProgressSink, Result};
use engine_api::{CheckSink, ImageEngine, ImportOptions, LayerLease};
use futures::StreamExt as _;
use oci::Reference;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::engine_wire::{Call, Line, Progress, WireError};
use super::state::{Admin, Answer, Refusal, SharedState, bad_request};

/// Lines of progress that wait for a slow reader; more are left out.
const WAITING_LINES: usize = 1024;

/// Adds the route.
pub(super) fn add(router: Router<Arc<Admin>>) -> Router<Arc<Admin>> {
    router.route("/engine", post(engine))
}

async fn engine(state: SharedState, body: Bytes) -> Answer {
    let call = serde_json::from_slice(&body).map_err(|error| bad_request(format!("a call cannot be read: {error}")))?;
    let Some(engine) = state.engine.clone() else {
        let line = "the images of this process are not in a store of its own";
        return Err(Refusal(StatusCode::NOT_FOUND, line.to_owned()));
    };
    let (tell, told) = mpsc::channel(WAITING_LINES);
    let stop = state.stop.clone();
    let end = async move {
        let (line, lease) = match answer(&*engine, call, tell).await {
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
        futures::stream::once(std::future::ready(bytes(&line))).chain(rest)
    };
    let progress = futures::stream::unfold(told, async |mut told| Some((bytes(&told.recv().await?), told)));
    let lines = futures::stream::select(progress, futures::stream::once(end).flatten());
    let headers = [(CONTENT_TYPE, "application/jsonl"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(lines.map(Ok::<_, Infallible>))).into_response())
}

fn bytes(line: &Line) -> Bytes {
    let mut text =
        serde_json::to_vec(line).unwrap_or_else(|_| br#"{"error":{"kind":"Internal","message":""}}"#.to_vec());
    text.push(b'\n');
    text.into()
}

/// The answer to a call, and what is held for the caller.
async fn answer(engine: &dyn ImageEngine, call: Call, tell: mpsc::Sender<Line>) -> Result<(Value, Option<LayerLease>)> {
    let value = match call {
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
            // A line that a slow reader has no room for is followed by others.
            let sink = CheckSink::new(move |progress| drop(tell.try_send(Line::Progress(Progress::Check(progress)))));
            value(engine.check_images(&request, &sink).await?)?
        }
        Call::ConvertImages { request } => value(engine.convert_images(&request).await?)?,
        Call::UnfinishedPulls => value(engine.unfinished_pulls().await?)?,
        Call::DropUnfinishedPulls { all } => value(engine.drop_unfinished_pulls(all).await?)?,
        Call::MountImage { request } => value(engine.mount_image(&request).await?)?,
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
