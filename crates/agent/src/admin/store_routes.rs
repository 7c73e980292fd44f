//! The routes of the store beyond lists, pulls and removals: inspection, names, pins, disk usage, checks, conversions and interrupted
//! pulls. They pass requests to the store or its image service, and return the results. No rules of their own. Called by axum.

use axum::body::Bytes;
use axum::extract::{ConnectInfo, RawQuery};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use cri_api::engine::{
    CheckProgress, CheckReport, CheckRequest, ConvertReport, ConvertRequest, ImageDocuments, ImageLayers, ImageUsage,
    LayerShape, UnfinishedPulls,
};
use cri_api::{FsInfo, ImageSpec, ImageStatus};

use super::access::Caller;
use super::images::{ChangedNames, FreedBytes, ImageNames, NamesBody, PinBody, RemovalResult, RemovedImages};
use super::pull_stream::{answer, check_sink};
use super::state::{Answer, Refusal, SharedState, bad_request, json, read_body};
use super::table::{Content, Parameter, Route, SchemaOf, schema};
use crate::api::wire::{ApiError, Done};

const IMAGE: Parameter = Parameter::query("image", "a name or an id").required();

const CHECK_EVENTS: &[(&str, SchemaOf)] =
    &[("progress", schema::<CheckProgress>), ("checked", schema::<CheckReport>), ("error", schema::<ApiError>)];

/// The routes.
pub(super) const ROUTES: &[Route] = &[
    Route::private(
        "/images/status",
        "The status of an image that may be used",
        Content::Json(schema::<ImageStatus>),
        || get(status),
    )
    .with(&[IMAGE, Parameter::query("verbose", "`true` or `false`: also the image config")]),
    Route::private(
        "/images/inspect",
        "The status and the config of an image, also of one that the signature policy refuses",
        Content::Json(schema::<ImageStatus>),
        || get(inspect),
    )
    .with(&[IMAGE]),
    Route::private(
        "/images/documents",
        "Config, manifest and names of an image; null if it is not present",
        Content::Json(schema::<Option<ImageDocuments>>),
        || get(documents),
    )
    .with(&[IMAGE]),
    Route::private(
        "/images/usage",
        "The bytes that an image takes on disk; null if it is not present",
        Content::Json(schema::<Option<ImageUsage>>),
        || get(usage),
    )
    .with(&[IMAGE]),
    Route::private(
        "/images/layers",
        "The layers of all images, and the bytes that each takes on disk",
        Content::Json(schema::<ImageLayers>),
        || get(layers),
    ),
    Route::private(
        "/images/filesystems",
        "The file systems of images and containers",
        Content::Json(schema::<FsInfo>),
        || get(filesystems),
    ),
    Route::change(
        "/images/remove-batch",
        "Removes images in one transaction, each with its result; an image that cannot be removed does not affect the others",
        Content::Json(schema::<RemovedImages>),
        || post(remove_batch),
    )
    .with_body(Content::Json(schema::<ImageNames>)),
    Route::change(
        "/images/pin",
        "Pins an image, or removes its pin",
        Content::Json(schema::<Done>),
        || post(pin),
    )
    .with_body(Content::Json(schema::<PinBody>)),
    Route::change(
        "/images/tag",
        "Adds names to an image; another image that has such a name loses it",
        Content::Json(schema::<ChangedNames>),
        || post(tag),
    )
    .with_body(Content::Json(schema::<NamesBody>)),
    Route::change(
        "/images/untag",
        "Removes names from an image, which stays",
        Content::Json(schema::<ChangedNames>),
        || post(untag),
    )
    .with_body(Content::Json(schema::<NamesBody>)),
    Route::change(
        "/check",
        "Checks the store. With `Accept: text/event-stream`, the response is the progress and ends with an event `checked` or `error`",
        Content::JsonOrEvents(schema::<CheckReport>, CHECK_EVENTS),
        || post(check),
    )
    .with(&[
        Parameter::query("repair", "`true` or `false`: repairs what can be repaired"),
        Parameter::query("deep", "`true` or `false`: also compares every file with its layer"),
        Parameter::query("sinceUncleanOnly", "`true` or `false`: only what was written before an unclean stop"),
    ]),
    Route::change(
        "/convert",
        "Converts the layers of images; of all images without `image`",
        Content::Json(schema::<ConvertReport>),
        || post(convert),
    )
    .with(&[
        Parameter::query("to", "`erofs` or `dir`").required(),
        Parameter::query("image", "a name or an id").repeated(),
    ]),
    Route::private(
        "/unfinished-pulls",
        "The layers and blobs that interrupted pulls left for later ones",
        Content::Json(schema::<UnfinishedPulls>),
        || get(unfinished_pulls),
    ),
    Route::change(
        "/unfinished-pulls/remove",
        "Removes the leftovers of interrupted pulls that were kept long enough",
        Content::Json(schema::<FreedBytes>),
        || post(drop_unfinished_pulls),
    )
    .with(&[Parameter::query("all", "`true` or `false`: all leftovers that no running pull uses")]),
];

/// The image of a query, and whether it sets the flag of this name.
fn image_and_flag(query: Option<String>, flag: Option<&str>) -> Result<(ImageSpec, bool), Refusal> {
    let (mut image, mut is_set) = (None, false);
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*key {
            "image" => image = Some(ImageSpec::new(value)),
            key if Some(key) == flag => is_set = read_flag(key, &value)?,
            _ => return Err(bad_request(format!("unknown parameter {key:?}"))),
        }
    }
    Ok((image.ok_or_else(|| bad_request("image is needed"))?, is_set))
}

fn read_flag(key: &str, value: &str) -> Result<bool, Refusal> {
    value.parse().map_err(|_| bad_request(format!("{key}: must be true or false")))
}

async fn status(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let (image, verbose) = image_and_flag(query, Some("verbose"))?;
    json(&state.service()?.image_status(&image, verbose).await?)
}

async fn inspect(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let (image, _) = image_and_flag(query, None)?;
    json(&state.engine("inspect")?.inspect_image(&image).await?)
}

async fn documents(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let (image, _) = image_and_flag(query, None)?;
    json(&state.engine("documents")?.image_documents(&image).await?)
}

async fn usage(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let (image, _) = image_and_flag(query, None)?;
    json(&state.engine("usage")?.image_usage(&image).await?)
}

async fn layers(state: SharedState) -> Answer {
    json(&state.engine("layers")?.image_layers().await?)
}

async fn filesystems(state: SharedState) -> Answer {
    json(&state.service()?.image_fs_info().await?)
}

async fn remove_batch(state: SharedState, body: Bytes) -> Answer {
    let ImageNames { images } = read_body(&body)?;
    let engine = state.engine("remove")?;
    images.iter().for_each(|image| state.log_change("an image is removed on request", image));
    let specs: Vec<ImageSpec> = images.iter().map(ImageSpec::new).collect();
    let errors = engine.remove_images(&specs).await.into_iter().map(|result| result.err().as_ref().map(ApiError::from));
    let results = images.into_iter().zip(errors).map(|(image, error)| RemovalResult { image, error }).collect();
    json(&RemovedImages { results })
}

async fn pin(state: SharedState, body: Bytes) -> Answer {
    let PinBody { image, pinned } = read_body(&body)?;
    let engine = state.engine("pin")?;
    state.log_change(if pinned { "an image is pinned on request" } else { "an image is unpinned on request" }, &image);
    engine.pin_image(&ImageSpec::new(image), pinned).await?;
    json(&Done::default())
}

async fn tag(state: SharedState, body: Bytes) -> Answer {
    let NamesBody { image, names } = read_body(&body)?;
    let engine = state.engine("tag")?;
    state.log_change("an image is tagged on request", &image);
    let (spec, mut tagged) = (ImageSpec::new(image), Vec::with_capacity(names.len()));
    for name in names {
        tagged.push(engine.tag_image(&spec, &name).await?);
    }
    json(&ChangedNames { names: tagged })
}

async fn untag(state: SharedState, body: Bytes) -> Answer {
    let NamesBody { image, names } = read_body(&body)?;
    let engine = state.engine("untag")?;
    state.log_change("an image is untagged on request", &image);
    json(&ChangedNames { names: engine.untag_image(&ImageSpec::new(image), &names).await? })
}

async fn check(
    state: SharedState,
    ConnectInfo(caller): ConnectInfo<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answer {
    let mut request = CheckRequest::default();
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let field = match &*key {
            "repair" => &mut request.repair,
            "deep" => &mut request.deep,
            "sinceUncleanOnly" => &mut request.since_unclean_only,
            _ => {
                let line = format!("unknown parameter {key:?}; known: repair, deep, sinceUncleanOnly");
                return Err(bad_request(line));
            }
        };
        *field = read_flag(&key, &value)?;
    }
    let engine = state.engine("check")?;
    answer(&state, caller, &headers, "checked", move |_, progress| async move {
        Ok(engine.check_images(&request, &check_sink(progress)).await?)
    })
    .await
}

async fn convert(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let request = conversion(&query.unwrap_or_default()).map_err(bad_request)?;
    json(&state.engine("convert")?.convert_images(&request).await?)
}

/// The conversion that a query asks for: `to` once, and any number of `image`.
fn conversion(query: &str) -> Result<ConvertRequest, String> {
    let (mut to, mut images) = (None, Vec::new());
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*key {
            "to" => to = Some(LayerShape::from_name(&value).ok_or("to: must be erofs or dir")?),
            "image" => images.push(value.into_owned()),
            _ => return Err(format!("unknown parameter {key:?}; known: to, image")),
        }
    }
    Ok(ConvertRequest { to: to.ok_or("to is needed: erofs or dir")?, images })
}

async fn unfinished_pulls(state: SharedState) -> Answer {
    json(&state.engine("unfinished pulls")?.unfinished_pulls().await?)
}

async fn drop_unfinished_pulls(state: SharedState, RawQuery(query): RawQuery) -> Answer {
    let mut all = false;
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match &*key {
            "all" => all = read_flag(&key, &value)?,
            _ => return Err(bad_request(format!("unknown parameter {key:?}; known: all"))),
        }
    }
    json(&FreedBytes { freed_bytes: state.engine("unfinished pulls")?.drop_unfinished_pulls(all).await? })
}
