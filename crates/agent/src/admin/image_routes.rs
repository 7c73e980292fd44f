//! The routes of images: lists, pulls and removals. Pulls use the image manager where this process has one, and its image service
//! otherwise. No rules of their own. Called by axum.

use axum::body::Bytes;
use axum::extract::{ConnectInfo, RawQuery};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use cri_api::{ImageFilter, ImageSpec, Kind, ProgressSink, PullEvent, PullImageRequest};
use image_manager::{EnsureImageError, EnsureImageRequest, PullPolicy};
use oci::RegistryAuth;

use super::access::Caller;
use super::images::{ImageList, PullBody, PulledImage, RemovalResult, RemovedImages};
use super::pull_stream::{answer, pull_sink};
use super::state::{Admin, Answer, Refusal, SharedState, bad_request, json, read_body};
use super::table::{Content, Parameter, Route, SchemaOf, schema};
use crate::api::wire::ApiError;

const PULL_EVENTS: &[(&str, SchemaOf)] =
    &[("progress", schema::<PullEvent>), ("pulled", schema::<PulledImage>), ("error", schema::<ApiError>)];

/// The routes.
pub(super) const ROUTES: &[Route] = &[
    Route::get("/images", "The images", Content::Json(schema::<ImageList>), || get(images))
        .with(&[Parameter::query("image", "only the image with this name or id")]),
    Route::change(
        "/images/pull",
        "Pulls an image. With `Accept: text/event-stream`, the response is the progress and ends with an event `pulled` or `error`; \
         otherwise it is sent when the pull has finished. A pull is cancelled when its last caller disconnects",
        Content::JsonOrEvents(schema::<PulledImage>, PULL_EVENTS),
        || post(pull),
    )
    .with_body(Content::Json(schema::<PullBody>)),
    Route::change(
        "/images/remove",
        "Removes images, each with its result",
        Content::Json(schema::<RemovedImages>),
        || post(remove),
    )
    .with(&[Parameter::query("image", "a name or an id").required().repeated()]),
];

async fn images(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let mut filter = None;
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*key {
            "image" if !value.is_empty() => filter = Some(ImageFilter { image: Some(ImageSpec::new(value)) }),
            _ => return Err(bad_request(format!("unknown parameter {key:?}; known: image"))),
        }
    }
    json(&ImageList { images: state.service()?.list_images(filter.as_ref()).await? })
}

async fn remove(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let query = query.unwrap_or_default();
    let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).collect();
    if pairs.is_empty() || pairs.iter().any(|(key, value)| key != "image" || value.is_empty()) {
        return Err(bad_request("image is needed, once or several times, and nothing else"));
    }
    let (service, mut results) = (state.service()?, Vec::with_capacity(pairs.len()));
    for (_, image) in pairs {
        state.log_change("an image is removed on request", &image);
        let removed = service.remove_image(&ImageSpec::new(&*image)).await;
        let error = removed.err().map(|error| ApiError::from(&error));
        results.push(RemovalResult { image: image.into_owned(), error });
    }
    json(&RemovedImages { results })
}

async fn pull(state: SharedState, ConnectInfo(caller): ConnectInfo<Caller>, headers: HeaderMap, body: Bytes) -> Answer {
    let body: PullBody = read_body(&body)?;
    if body.image.is_empty() {
        return Err(bad_request("image: it is empty"));
    }
    let policy = body.policy.as_deref().unwrap_or("Always").parse::<PullPolicy>();
    let policy = policy.map_err(|error| bad_request(format!("policy: {error}")))?;
    state.service()?;
    let (image, auth) = (body.image, body.auth.map(RegistryAuth::from));
    state.log_change("an image is pulled on request", &image);
    answer(&state, caller, &headers, "pulled", move |state, progress| async move {
        pull_image(&state, image, policy, auth, pull_sink(progress)).await
    })
    .await
}

async fn pull_image(
    state: &Admin,
    image: String,
    policy: PullPolicy,
    auth: Option<RegistryAuth>,
    progress: ProgressSink,
) -> Result<PulledImage, Refusal> {
    if let (Some(manager), None) = (&state.manager, &auth) {
        let request = EnsureImageRequest { policy, progress, ..EnsureImageRequest::new(&image) };
        let ensured = manager.ensure_image_exists(request).await.map_err(|error| refusal(&error))?;
        return Ok(PulledImage { image, image_ref: ensured.image_ref, pulled: ensured.pulled });
    }
    let service = state.service()?;
    if policy != PullPolicy::Always {
        let present = service.image_status(&ImageSpec::new(&image), false).await?.image;
        match (present, policy) {
            (Some(present), _) => return Ok(PulledImage { image, image_ref: present.id, pulled: false }),
            (None, PullPolicy::Never) => {
                return Err(Refusal::new(Kind::NotFound, format!("{image} is not here, and the policy is Never")));
            }
            (None, _) => {}
        }
    }
    let request = PullImageRequest { auth, progress, ..PullImageRequest::new(&image) };
    Ok(PulledImage { image_ref: service.pull_image(request).await?, image, pulled: true })
}

fn refusal(error: &EnsureImageError) -> Refusal {
    let kind = error.kind().unwrap_or(Kind::FailedPrecondition);
    let mut refusal = Refusal::new(kind, error.message());
    refusal.error.reason = Some(error.reason().to_owned());
    refusal
}
