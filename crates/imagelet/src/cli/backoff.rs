//! `imagelet backoff`: the images that are not pulled for some time, and why; `imagelet backoff reset` ends that wait.

use std::time::Duration;

use agent::admin::backoff::{self, BackoffList, ResetCount, WaitingImage};
use agent::api::client::{self, Method};
use image_manager::BackoffSelector;
use serde::Serialize;

use crate::app::App;
use crate::args::{Backoff, BackoffAction, BackoffReset};
use crate::endpoint::admin_socket;
use crate::exit::{Failure, Outcome};
use crate::output::{Format, Report, Table, units};

#[derive(Serialize)]
#[serde(transparent)]
struct BackoffReport(BackoffList);

impl Report for BackoffReport {
    fn table(&self, wide: bool, _: bool) -> Table {
        let titles = ["POD", "+UID", "IMAGE", "+REGISTRY", "CAUSE", "FAILURES", "+WINDOW", "NEXT TRY", "MESSAGE"];
        let mut table = Table::with_wide(wide, &titles);
        for entry in &self.0.entries {
            let (image, cause, message) = (entry.image.clone(), entry.cause.clone(), entry.message.clone());
            let (failures, next) = (entry.failures.to_string(), next_try(entry));
            let window = units::seconds(Duration::from_millis(entry.window_milliseconds));
            let (uid, registry) = (entry.uid.clone(), entry.registry.clone());
            let pod = format!("{}/{}", entry.namespace, entry.pod);
            table.row([pod, uid, image, registry, cause, failures, window, next, message]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.0.entries.iter().map(|entry| entry.image.clone()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.0.entries.iter().map(|entry| entry.uid.clone()).collect()
    }
}

/// Returns the time until a request pulls again, in seconds, rounded up.
fn next_try(entry: &WaitingImage) -> String {
    match entry.remaining_milliseconds.div_ceil(1000) {
        0 => "now".to_owned(),
        seconds @ 1..60 => format!("in {seconds}s"),
        seconds => format!("in {}m{}s", seconds / 60, seconds % 60),
    }
}

pub(super) async fn run(app: &App, args: &Backoff) -> Outcome {
    match &args.action {
        None => list(app).await,
        Some(BackoffAction::Reset(args)) => reset(app, args).await,
    }
}

async fn list(app: &App) -> Outcome {
    let list: BackoffList = client::ask_json(&admin_socket(&app.config), Method::GET, "/v1/backoff").await?;
    note(list.note.as_deref());
    app.printer.report(&BackoffReport(list))
}

async fn reset(app: &App, args: &BackoffReset) -> Outcome {
    let selector = selector(args)?;
    let target = format!("/v1/backoff/reset?{}", backoff::query(&selector));
    let done: ResetCount = client::ask_json(&admin_socket(&app.config), Method::POST, &target).await?;
    note(done.note.as_deref());
    match app.printer.format {
        Some(format) if format.is_document() => app.printer.document(Format::Json, &done),
        _ => app.printer.lines([done.reset.to_string()]),
    }
}

fn note(note: Option<&str>) {
    if let Some(note) = note {
        tracing::info!("{note}");
    }
}

fn selector(args: &BackoffReset) -> Outcome<BackoffSelector> {
    let BackoffReset { image, pod, registry, all: _ } = args;
    match (image, pod, registry) {
        (Some(image), _, _) => Ok(BackoffSelector::Image(image.clone())),
        (_, Some(pod), _) => backoff::pod(pod).map_err(|message| Failure::usage(format!("--pod: {message}"))),
        (_, _, Some(registry)) => Ok(BackoffSelector::Registry(registry.clone())),
        // clap requires exactly one of the four.
        (None, None, None) => Ok(BackoffSelector::All),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(remaining_milliseconds: u64) -> WaitingImage {
        WaitingImage {
            namespace: "shop".into(),
            pod: "web".into(),
            uid: "u-1".into(),
            image: "r.example/web:1".into(),
            registry: "r.example".into(),
            cause: "not_found".into(),
            failures: 3,
            window_milliseconds: 40_000,
            remaining_milliseconds,
            message: "ErrImagePull: no such manifest".into(),
        }
    }

    #[test]
    fn tables() {
        let list = BackoffList { entries: vec![entry(38_200)], note: None };
        assert_eq!(
            BackoffReport(list.clone()).table(false, false).render(),
            "POD        IMAGE             CAUSE       FAILURES   NEXT TRY   MESSAGE\n\
             shop/web   r.example/web:1   not_found   3          in 39s     ErrImagePull: no such manifest\n"
        );
        assert_eq!(
            BackoffReport(list).table(true, false).render(),
            "POD        UID   IMAGE             REGISTRY    CAUSE       FAILURES   WINDOW   NEXT TRY   MESSAGE\n\
             shop/web   u-1   r.example/web:1   r.example   not_found   3          40.00s   in 39s     \
             ErrImagePull: no such manifest\n"
        );
    }

    #[test]
    fn the_next_try() {
        for (remaining, want) in
            [(0, "now"), (1, "in 1s"), (59_000, "in 59s"), (59_001, "in 1m0s"), (300_000, "in 5m0s")]
        {
            assert_eq!(next_try(&entry(remaining)), want);
        }
    }
}
