//! `imagelet ensure`: the images of pods, all at the same time, one row each.

use std::collections::BTreeSet;
use std::sync::Arc;

use image_manager::{EnsureImageError, EnsuredImage, ImageManager, LogRecorder, Options, PullerOptions};
use serde::Serialize;

use super::pods::{self, Need};
use crate::app::App;
use crate::args::Ensure;
use crate::exit::{Code, Failure, Outcome, code_of};
use crate::manifest::Role;
use crate::output::{Report, Table, units};

/// What became of one need.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    pod: String,
    namespace: String,
    container: String,
    /// What the image is for.
    #[serde(rename = "type")]
    role: Role,
    image: String,
    policy: &'static str,
    /// `present`, `pulled`, or the reason of the failure.
    result: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    image_ref: String,
    /// Of a pull: how long it took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pull_milliseconds: Option<u128>,
    /// Of a failure: what happened.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip)]
    title: String,
}

#[derive(Serialize)]
struct Ensured {
    containers: Vec<Row>,
}

impl Report for Ensured {
    fn table(&self, wide: bool, whole: bool) -> Table {
        let titles: &[&str] = if wide {
            &["NAMESPACE", "POD", "CONTAINER", "TYPE", "IMAGE", "POLICY", "RESULT", "IMAGE ID", "TIME"]
        } else {
            &["POD", "CONTAINER", "IMAGE", "POLICY", "RESULT", "IMAGE ID"]
        };
        let mut table = Table::new(titles);
        for row in &self.containers {
            let (pod, container) = (row.pod.clone(), row.title.clone());
            let (image, policy, result) = (row.image.clone(), row.policy.to_owned(), row.result.to_owned());
            let id = units::id(&row.image_ref, whole);
            if wide {
                let time = row.pull_milliseconds.and_then(|ms| u64::try_from(ms).ok());
                let time = time.map(|ms| units::seconds(std::time::Duration::from_millis(ms))).unwrap_or_default();
                let role = format!("{:?}", row.role).to_lowercase();
                table.row([row.namespace.clone(), pod, container, role, image, policy, result, id, time]);
            } else {
                table.row([pod, container, image, policy, result, id]);
            }
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.containers.iter().map(|row| row.image.clone()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.containers.iter().map(|row| row.image_ref.clone()).filter(|id| !id.is_empty()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Ensure) -> Outcome {
    let needs = pods::read(app, &args.manifests.files, args.manifests.skip_other_kinds).await?;
    let backend = app.backend().await?;
    app.note_unprivileged(backend);
    let manager = manager(app, backend.service());
    let mut shown = BTreeSet::new();
    let ensures = needs.iter().map(|need| {
        let mut request = need.request();
        // Containers with the same image share one pull, which is shown once.
        if shown.insert(&need.image.image) {
            request.progress = app.progress.sink(&need.image.image);
        }
        manager.ensure_image_exists(request)
    });
    let results = futures::future::join_all(ensures).await;
    app.progress.finish();

    let mut failures = Vec::new();
    let mut rows = Vec::with_capacity(needs.len());
    for (need, result) in needs.iter().zip(results) {
        if let Err(error) = &result {
            failures.push(failure(need, error));
        }
        rows.push(row(need, result));
    }
    app.printer.report(&Ensured { containers: rows })?;
    Failure::all(failures).map_or(Ok(()), Err)
}

/// A manager for one command. Pulls go side by side unless the configuration says that they must not: nobody else
/// waits for the disk of a command that a person started.
pub(super) fn manager(app: &App, service: Arc<dyn cri_api::ImageService>) -> ImageManager {
    let puller = PullerOptions {
        serialize: app.config.pulls.serialize.unwrap_or(false),
        max_parallel: app.config.pulls.max_parallel.and_then(|n| usize::try_from(n).ok()),
        ..PullerOptions::default()
    };
    ImageManager::new(service, Arc::new(LogRecorder), Options { puller, ..Options::default() })
}

fn failure(need: &Need, error: &EnsureImageError) -> Failure {
    // What may pass when it is tried again has its own code, so that scripts can tell; everything else is a failure.
    let code = match error.kind().map(code_of) {
        Some(Code::Unreachable) => Code::Unreachable,
        _ => Code::Failed,
    };
    let (pod, container) = (&need.pod, need.image.title());
    Failure::new(code, format!("{pod}: {container}: {}: {}", error.reason(), error.message()))
}

fn row(need: &Need, result: Result<EnsuredImage, EnsureImageError>) -> Row {
    let row = Row {
        pod: need.pod.clone(),
        namespace: need.namespace.clone(),
        container: need.image.name.clone(),
        role: need.image.role,
        image: need.image.image.clone(),
        policy: need.image.policy.as_str(),
        result: "present",
        image_ref: String::new(),
        pull_milliseconds: None,
        message: String::new(),
        title: need.image.title(),
    };
    match result {
        Ok(ensured) => Row {
            result: if ensured.pulled { "pulled" } else { "present" },
            image_ref: ensured.image_ref,
            pull_milliseconds: ensured.timing.map(|timing| timing.with_waiting.as_millis()),
            ..row
        },
        Err(error) => Row { result: error.reason(), message: error.message(), ..row },
    }
}
