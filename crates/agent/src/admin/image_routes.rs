//! The routes of images: lists, pulls, removals, archives as streams, and the images of a pod's manifest. Pulls use the image
//! manager where this process has one, and its image service otherwise. No rules of their own. Called by axum.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, RawQuery};
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::routing::{get, post};
use cri_api::{ImageFilter, ImageService, ImageSpec, Kind, ProgressSink, PullEvent, PullImageRequest};
use image_manager::{EnsureImageError, EnsureImageRequest, PullPolicy};
use manifest::SecretStore;
use oci::RegistryAuth;
use schemars::JsonSchema;
use serde::Serialize;

use super::access::Caller;
use super::images::{ImageList, PullBody, PulledImage, RemovalResult, RemovedImages};
use super::pull_stream::with_progress;
use super::state::{Admin, Answer, Refusal, SharedState, bad_request, json};
use super::table::{Content, Parameter, Route, SchemaOf};
use crate::api::wire::ApiError;
use crate::ensure::{EnsuredRow, ImageNeed, image_needs};

/// Response of `POST /v1/ensure`, as written by `imagelet ensure -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct EnsuredImages {
    pub(super) containers: Vec<EnsuredRow>,
}

const PULL_EVENTS: &[(&str, SchemaOf)] = &[
    ("progress", |g| g.subschema_for::<PullEvent>()),
    ("pulled", |g| g.subschema_for::<PulledImage>()),
    ("error", |g| g.subschema_for::<ApiError>()),
];

/// The routes.
pub(super) const ROUTES: &[Route] = &[
    Route::get("/images", "The images", Content::Json(|g| g.subschema_for::<ImageList>()), || get(images))
        .with(&[Parameter::query("image", "only the image with this name or id")]),
    Route::change(
        "/images/pull",
        "Pulls an image. With `Accept: text/event-stream`, the response is the progress and ends with an event `pulled` or `error`; \
         otherwise it is sent when the pull has finished. A pull is cancelled when its last caller disconnects",
        Content::JsonOrEvents(|g| g.subschema_for::<PulledImage>(), PULL_EVENTS),
        || post(pull),
    )
    .with_body(Content::Json(|g| g.subschema_for::<PullBody>())),
    Route::change(
        "/images/remove",
        "Removes images, each with its result",
        Content::Json(|g| g.subschema_for::<RemovedImages>()),
        || post(remove),
    )
    .with(&[Parameter::query("image", "a name or an id").required().repeated()]),
    Route::change(
        "/ensure",
        "Ensures that the images of pods are present, as `imagelet ensure` does. The body is a manifest in YAML or JSON with pods and \
         their secrets. The status is 200 even if an image failed: see `result`",
        Content::Json(|g| g.subschema_for::<EnsuredImages>()),
        || post(ensure),
    )
    .with_body(Content::Bytes("application/yaml")),
];

pub(super) fn service(state: &Admin) -> Result<&Arc<dyn ImageService>, Refusal> {
    let none = || Refusal::new(Kind::NotFound, "this process does nothing with images for others");
    state.images.as_ref().ok_or_else(none)
}

async fn images(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let mut filter = None;
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*key {
            "image" if !value.is_empty() => filter = Some(ImageFilter { image: Some(ImageSpec::new(value)) }),
            _ => return Err(bad_request(format!("unknown parameter {key:?}; known: image"))),
        }
    }
    json(&ImageList { images: service(&state)?.list_images(filter.as_ref()).await? })
}

async fn remove(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let query = query.unwrap_or_default();
    let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).collect();
    if pairs.is_empty() || pairs.iter().any(|(key, value)| key != "image" || value.is_empty()) {
        return Err(bad_request("image is needed, once or several times, and nothing else"));
    }
    let (service, mut results) = (service(&state)?, Vec::with_capacity(pairs.len()));
    for (_, image) in pairs {
        tracing::info!(%image, "an image is removed on request");
        let removed = service.remove_image(&ImageSpec::new(&*image)).await;
        let error = removed.err().map(|error| Refusal::from(error).into_error());
        results.push(RemovalResult { image: image.into_owned(), error });
    }
    json(&RemovedImages { results })
}

async fn pull(state: SharedState, ConnectInfo(caller): ConnectInfo<Caller>, headers: HeaderMap, body: Bytes) -> Answer {
    let body: PullBody =
        serde_json::from_slice(&body).map_err(|error| bad_request(format!("the body cannot be read: {error}")))?;
    if body.image.is_empty() {
        return Err(bad_request("image: it is empty"));
    }
    let policy = body.policy.as_deref().unwrap_or("Always").parse::<PullPolicy>();
    let policy = policy.map_err(|error| bad_request(format!("policy: {error}")))?;
    service(&state)?;
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",");
    let (image, auth) = (body.image, body.auth.map(RegistryAuth::from));
    tracing::info!(image, "an image is pulled on request");
    if accepts.contains("text/event-stream") {
        let place = state.streams.place(caller.user, caller.may_change)?;
        let state = Arc::clone(&state);
        return Ok(with_progress(place, move |progress| async move {
            pull_image(&state, image, policy, auth, progress).await.map_err(Refusal::into_error)
        }));
    }
    json(&pull_image(&state, image, policy, auth, ProgressSink::default()).await?)
}

async fn pull_image(
    state: &Admin,
    image: String,
    policy: PullPolicy,
    auth: Option<RegistryAuth>,
    progress: ProgressSink,
) -> Result<PulledImage, Refusal> {
    let pull = async {
        if let (Some(manager), None) = (&state.manager, &auth) {
            let request = EnsureImageRequest { policy, progress, ..EnsureImageRequest::new(&image) };
            let ensured = manager.ensure_image_exists(request).await.map_err(|error| refusal(&error))?;
            return Ok((ensured.image_ref, ensured.pulled));
        }
        let service = service(state)?;
        if policy != PullPolicy::Always {
            let present = service.image_status(&ImageSpec::new(&image), false).await?.image;
            match (present, policy) {
                (Some(present), _) => return Ok((present.id, false)),
                (None, PullPolicy::Never) => {
                    return Err(Refusal::new(Kind::NotFound, format!("{image} is not here, and the policy is Never")));
                }
                (None, _) => {}
            }
        }
        let request = PullImageRequest { auth, progress, ..PullImageRequest::new(&image) };
        Ok((service.pull_image(request).await?, true))
    };
    let (image_ref, pulled) = tokio::select! {
        pulled = pull => pulled?,
        () = state.stop.cancelled() => return Err(Refusal::new(Kind::Unavailable, "the agent ends")),
    };
    Ok(PulledImage { image, image_ref, pulled })
}

fn refusal(error: &EnsureImageError) -> Refusal {
    let kind = error.kind().unwrap_or(Kind::FailedPrecondition);
    Refusal { reason: Some(error.reason().to_owned()), ..Refusal::new(kind, error.message()) }
}

async fn ensure(state: SharedState, body: Bytes) -> Answer {
    let none = || Refusal::new(Kind::Unimplemented, "this process decides about no pods' images: `imagelet run` does");
    let manager = state.manager.as_ref().ok_or_else(none)?;
    let text = String::from_utf8(body.into()).map_err(|_| bad_request("the manifest is no UTF-8 text"))?;
    let directory = state.secrets_directory.clone();
    let read = tokio::task::spawn_blocking(move || needs(&text, directory.as_deref())).await;
    let needs = read.map_err(|_| Refusal::new(Kind::Internal, "read the manifest: the reader panicked"))??;
    let requests: Vec<_> = needs.iter().map(ImageNeed::request).collect();
    let ends = futures::future::join_all(requests.iter().map(|request| manager.ensure_image_exists(request)));
    let ends = tokio::select! {
        ends = ends => ends,
        () = state.stop.cancelled() => return Err(Refusal::new(Kind::Unavailable, "the agent ends")),
    };
    let containers = needs.iter().zip(ends).map(|(need, end)| EnsuredRow::new(need, Some(end))).collect();
    json(&EnsuredImages { containers })
}

/// The needs of a manifest. Blocks for as long as the secrets directory takes.
fn needs(text: &str, secrets: Option<&std::path::Path>) -> Result<Vec<ImageNeed>, Refusal> {
    let mut objects = manifest::parse("the manifest", text).map_err(|error| bad_request(error.to_string()))?;
    manifest::check(&objects, None).map_err(|error| bad_request(error.to_string()))?;
    let pods = std::mem::take(&mut objects.pods);
    let mut store = SecretStore::default();
    store.add(objects);
    if let Some(directory) = secrets {
        match manifest::read_directory(directory) {
            Ok(read) => store.add(read.objects),
            Err(error) => tracing::warn!(%error, "secrets are left out"),
        }
    }
    Ok(pods.into_iter().flat_map(|pod| image_needs(pod, &store)).collect())
}
