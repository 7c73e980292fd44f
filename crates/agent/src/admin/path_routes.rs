//! The routes of the socket of a store alone, to which only the user of its owner can connect: they use paths of the client, or hand over
//! files of the store. Imports and exports by path, mounts, podman's view, leases of layers, and the owner. Called by axum.

use std::future::ready;

use axum::body::Bytes;
use axum::extract::ConnectInfo;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use cri_api::PullEvent;
use cri_api::engine::{ImportOptions, ImportReport, MountRequest, MountedImage, PodmanStoreReport, PodmanStoreRequest};
use futures::StreamExt as _;
use futures::stream::once;
use oci::Reference;

use super::access::Caller;
use super::images::{FileExport, FileImport, LeaseBody, LeasedLayers, Mounts, StoreOwner};
use super::pull_routes::{event, event_stream};
use super::pull_stream::{answer, pull_sink};
use super::state::{Answer, SharedState, bad_request, json, read_body};
use super::table::{Content, Route, SchemaOf, schema};
use crate::api::wire::{ApiError, Done};

const IMPORT_EVENTS: &[(&str, SchemaOf)] =
    &[("progress", schema::<PullEvent>), ("imported", schema::<ImportReport>), ("error", schema::<ApiError>)];
const LEASE_EVENTS: &[(&str, SchemaOf)] = &[("lease", schema::<LeasedLayers>)];

/// The routes.
pub(super) const ROUTES: &[Route] = &[
    Route::private(
        "/owner",
        "The process that owns the store; 503 if it is about to end",
        Content::Json(schema::<StoreOwner>),
        || get(owner),
    ),
    Route::change(
        "/files/import",
        "Imports the images of an archive or directory. With `Accept: text/event-stream`, the response is the progress and ends with an \
         event `imported` or `error`",
        Content::JsonOrEvents(schema::<ImportReport>, IMPORT_EVENTS),
        || post(import),
    )
    .with_body(Content::Json(schema::<FileImport>)),
    Route::change(
        "/files/export",
        "Exports images to a file or directory, which appears when it is complete",
        Content::Json(schema::<Done>),
        || post(export),
    )
    .with_body(Content::Json(schema::<FileExport>)),
    Route::private("/mounts", "The mounts of images", Content::Json(schema::<Mounts>), || get(mounts)),
    Route::change(
        "/mounts",
        "Mounts the file system of an image on a directory",
        Content::Json(schema::<MountedImage>),
        || post(mount),
    )
    .with_body(Content::Json(schema::<MountRequest>)),
    Route::change(
        "/podman-store",
        "Makes or removes the view of the store that podman and CRI-O read",
        Content::Json(schema::<PodmanStoreReport>),
        || post(podman_store),
    )
    .with_body(Content::Json(schema::<PodmanStoreRequest>)),
    Route::change(
        "/leases",
        "Leases the layers of an image for a process that reads them in the store. The response is an event `lease`, and the lease \
         lasts until the connection closes",
        Content::Events(LEASE_EVENTS),
        || post(lease),
    )
    .with_body(Content::Json(schema::<LeaseBody>)),
];

async fn owner() -> Answer {
    json(&StoreOwner { pid: std::process::id(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

async fn import(
    state: SharedState,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let FileImport { path, name, images, platforms } = read_body(&body)?;
    let parse = |text: String| Reference::parse(&text).map_err(|error| bad_request(format!("name: {text:?}: {error}")));
    let name = name.map(parse).transpose()?;
    let engine = state.engine("import")?;
    answer(&state, caller, &headers, "imported", move |_, progress| async move {
        let options = ImportOptions { name, images, platforms, progress: pull_sink(progress) };
        Ok(engine.import_images(&path, options).await?)
    })
    .await
}

async fn export(state: SharedState, body: Bytes) -> Answer {
    let FileExport { path, images, options } = read_body(&body)?;
    state.engine("export")?.export_images(&images, &path, options).await?;
    json(&Done::default())
}

async fn mounts(state: SharedState) -> Answer {
    json(&Mounts { mounts: state.engine("mounts")?.mounts().await? })
}

async fn mount(state: SharedState, body: Bytes) -> Answer {
    let request: MountRequest = read_body(&body)?;
    json(&state.engine("mount")?.mount_image(&request).await?)
}

async fn podman_store(state: SharedState, body: Bytes) -> Answer {
    let request: PodmanStoreRequest = read_body(&body)?;
    json(&state.engine("podman-store")?.podman_store(&request).await?)
}

async fn lease(state: SharedState, body: Bytes) -> Answer {
    let LeaseBody { image } = read_body(&body)?;
    let lease = state.engine("lease")?.lease_layers(&image).await?;
    let first = event("lease", None, &LeasedLayers { stack: lease.stack().clone() });
    // Without a keep-alive: the client reads no more as long as it has the lease.
    let stop = state.stop.clone();
    let rest = once(async move {
        stop.cancelled().await;
        drop(lease);
        Bytes::new()
    });
    Ok(event_stream(once(ready(first)).chain(rest)))
}
