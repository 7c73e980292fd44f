//! `imagelet gc --interrupted`: removes data that interrupted pulls left for later ones. Removes no image.

use cri_api::engine::UnfinishedPulls;
use serde::Serialize;

use crate::app::App;
use crate::exit::{Failure, Outcome};
use crate::output::{Format, units};

/// The report: data of interrupted pulls, and the bytes freed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Interrupted {
    unfinished_pulls: UnfinishedPulls,
    /// Absent for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_bytes: Option<u64>,
}

pub(super) async fn run(app: &App, dry_run: bool) -> Outcome {
    let engine = app.engine("gc --interrupted").await?;
    let left = engine.unfinished_pulls().await.map_err(|e| Failure::call("ask for unfinished pulls", &e))?;
    let freed_bytes = if dry_run {
        None
    } else {
        let dropped = engine.drop_unfinished_pulls(true).await;
        Some(dropped.map_err(|e| Failure::call("remove what interrupted pulls left", &e))?)
    };
    if matches!(app.printer.format, Some(Format::Json | Format::Yaml)) && !app.printer.quiet {
        return app.printer.document(Format::Json, &Interrupted { unfinished_pulls: left, freed_bytes });
    }
    if !app.printer.is_table() {
        // The other formats list images, and none is removed.
        return Ok(());
    }
    let line = match freed_bytes {
        _ if left == UnfinishedPulls::default() => "Interrupted pulls left nothing.".to_owned(),
        None => format!("Removing {left} of interrupted pulls would free {}.", units::bytes(left.bytes)),
        Some(freed) => format!("Removing {left} of interrupted pulls freed {}.", units::bytes(freed)),
    };
    app.printer.lines([line])
}

/// Returns the line of a plan about data of interrupted pulls, if there is any. `is_removed` is true if the plan also removes it.
pub(super) fn lines(left: Option<UnfinishedPulls>, is_removed: bool) -> Option<String> {
    let left = left.filter(|left| *left != UnfinishedPulls::default())?;
    let bytes = units::bytes(left.bytes);
    Some(if is_removed {
        format!("With them goes what interrupted pulls left: {left} ({bytes}).")
    } else {
        format!("Interrupted pulls left {left} ({bytes}): `imagelet gc --interrupted` removes that.")
    })
}
