//! `imagelet pin`, `unpin` and `pins`: images that a user protects from collection.

use agent::api::gc::Pin;
use image_manager::gc::Pattern;
use serde::Serialize;

use crate::app::App;
use crate::args::{PinArgs, UnpinArgs};
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table, units};

#[derive(Serialize)]
struct PinReport {
    pins: Vec<Pin>,
}

impl Report for PinReport {
    fn table(&self, wide: bool, whole: bool) -> Table {
        let mut table = Table::new(&["PIN", "IMAGES", if wide { "NAMES" } else { "NAME" }]);
        for pin in &self.pins {
            let names = pin
                .images
                .iter()
                .map(|image| image.names.first().cloned().unwrap_or_else(|| units::id(&image.id, whole)));
            let mut names: Vec<String> = names.collect();
            if let (false, [_, _, ..]) = (wide, names.as_slice()) {
                names = vec![format!("{} …", names[0])];
            }
            table.row([pin.pattern.clone(), pin.images.len().to_string(), names.join(" ")]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.pins.iter().map(|pin| pin.pattern.clone()).collect()
    }

    fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.pins.iter().flat_map(|pin| &pin.images).map(|image| image.id.clone()).collect();
        ids.sort();
        ids.dedup();
        ids
    }
}

pub(super) async fn list(app: &App) -> Outcome {
    let pins = app.collector().await?.pins().await?;
    app.printer.report(&PinReport { pins })
}

pub(super) async fn pin(app: &App, args: &PinArgs) -> Outcome {
    let patterns = patterns(&args.patterns)?;
    let pins = app.collector().await?.pin(&patterns).await?;
    for pin in &pins {
        let pattern = &pin.pattern;
        if pin.images.is_empty() {
            tracing::warn!(pattern, "pinned, and no image here fits it: it holds images that will come");
        } else if !pin.changed {
            tracing::info!(pattern, "pinned already");
        }
    }
    app.printer.report(&PinReport { pins })
}

pub(super) async fn unpin(app: &App, args: &UnpinArgs) -> Outcome {
    let patterns = patterns(&args.patterns)?;
    let pins = app.collector().await?.unpin(&patterns).await?;
    let (removed, missing): (Vec<Pin>, Vec<Pin>) = pins.into_iter().partition(|pin| pin.changed);
    if !removed.is_empty() {
        app.printer.report(&PinReport { pins: removed })?;
    }
    let failure = |pin: Pin| Failure::failed(format!("no such pin: {}; `imagelet pins` lists them", pin.pattern));
    Failure::all(missing.into_iter().map(failure).collect()).map_or(Ok(()), Err)
}

/// Parses patterns. Nothing is pinned if one of them is invalid.
fn patterns(texts: &[String]) -> Outcome<Vec<Pattern>> {
    texts.iter().map(|text| Pattern::parse(text).map_err(|error| Failure::usage(error.to_string()))).collect()
}
