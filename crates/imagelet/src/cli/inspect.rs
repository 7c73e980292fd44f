//! `imagelet inspect`: all facts about images, as JSON or YAML.

use cri_api::engine::ImageUsage;
use cri_api::{Image, ImageSpec};
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::args::Inspect;
use crate::exit::{Failure, Outcome};
use crate::images::Images;
use crate::output::Format;

/// The description of an image.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inspected {
    image: Image,
    #[serde(skip_serializing_if = "Option::is_none")]
    chain_id: Option<Value>,
    /// The image config as the registry returned it, if the service reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ImageUsage>,
}

pub(super) async fn run(app: &App, args: &Inspect) -> Outcome {
    let images = app.images().await?;
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for text in &args.images {
        match inspect(images, text).await {
            Ok(inspected) => found.push(inspected),
            Err(failure) => failures.push(failure),
        }
    }
    if app.printer.quiet {
        app.printer.lines(found.iter().map(|i| &i.image.id))?;
    } else if matches!(app.printer.format, Some(Format::Name)) {
        app.printer.lines(found.iter().map(|i| super::images::name_of(&i.image)))?;
    } else {
        app.printer.document(Format::Json, &found)?;
    }
    Failure::all(failures).map_or(Ok(()), Err)
}

async fn inspect(images: &Images, text: &str) -> Outcome<Inspected> {
    let failed = |error: cri_api::Error| Failure::call(format!("inspect {text}"), &error);
    let mut status = images.inspect(&ImageSpec::new(text)).await.map_err(failed)?;
    if status.image.is_none() {
        let listed = super::images::find_only(&*images.service(), "inspect", text).await?;
        status = images.inspect(&ImageSpec::new(&listed.id)).await.map_err(failed)?;
        if status.image.is_none() {
            let why = "it is listed, but cannot be used: a layer is damaged, or the signature policy refuses it";
            return Err(Failure::failed(format!("inspect {text}: {why}")));
        }
    }
    let Some(image) = status.image else { return Err(Failure::failed(format!("no such image: {text}"))) };
    let usage = images.usage(&ImageSpec::new(&image.id)).await.map_err(failed)?;
    // The content of `info` is up to the runtime; ours and containerd's have these two keys.
    let info = status.info.get("info").and_then(|text| serde_json::from_str::<Value>(text).ok());
    let take = |key: &str| info.as_ref().and_then(|info| info.get(key)).cloned();
    Ok(Inspected { image, chain_id: take("chainID"), config: take("imageSpec"), usage })
}
