//! `imagelet ensure`: the images of pods, all at the same time, one row each.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent::ensure::{EnsuredRow, ImageNeed};
use agent::node::events::DebugRecorder;
use image_manager::{EnsureImageError, EnsureImageRequest, EventRecorder, EventRef, LogRecorder};
use serde::Serialize;

use super::pods;
use super::wait::{self, End};
use crate::app::App;
use crate::args::Ensure;
use crate::exit::{Code, Failure, Outcome, code_of};
use crate::manager::Mode;
use crate::output::{Report, Table, units};

/// Reasons of the events of images that are not ensured.
const FAILURES: [&str; 4] = ["Failed", "BackOff", "ErrImageNeverPull", "InspectFailed"];

/// Writes events to the log. Failures are details there: the command reports each one as its error.
struct OneAttemptRecorder;

impl EventRecorder for OneAttemptRecorder {
    fn record(&self, event: EventRef<'_>) {
        if FAILURES.contains(&event.reason) { DebugRecorder.record(event) } else { LogRecorder.record(event) }
    }
}

#[derive(Serialize)]
struct Ensured {
    containers: Vec<EnsuredRow>,
}

impl Report for Ensured {
    fn table(&self, wide: bool, whole: bool) -> Table {
        let titles = ["+NAMESPACE", "POD", "CONTAINER", "+TYPE", "IMAGE", "POLICY", "RESULT", "IMAGE ID", "+TIME"];
        let mut table = Table::with_wide(wide, &titles);
        for row in &self.containers {
            let (pod, container) = (row.pod.clone(), row.title.clone());
            let (image, policy, result) = (row.image.clone(), row.policy.to_owned(), row.result.to_owned());
            let id = units::id(&row.image_ref, whole);
            let time = row.pull_milliseconds;
            let time = time.map(|ms| units::seconds(std::time::Duration::from_millis(ms))).unwrap_or_default();
            let role = format!("{:?}", row.role).to_lowercase();
            table.row([row.namespace.clone(), pod, container, role, image, policy, result, id, time]);
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
    let needs = pods::read(app, &args.manifests.files, args.manifests.below.recursive).await?;
    let images = app.images().await?;
    app.note_unprivileged().await?;
    // With `--wait`, each change of state is one line, so events are logged as details.
    let events: Arc<dyn EventRecorder> = if args.wait { Arc::new(DebugRecorder) } else { Arc::new(OneAttemptRecorder) };
    let managed = app.managed(events, Mode::OneShot).await?;
    managed.recover(&app.config, &*images.service()).await?;
    let mut shown = BTreeSet::new();
    let request = |need: &ImageNeed| {
        let mut request = need.request();
        // Containers with the same image share one pull, which is displayed once.
        if shown.insert(need.image.image.clone()) {
            request.progress = app.progress.sink(&need.image.image);
        }
        request
    };
    let requests: Vec<EnsureImageRequest> = needs.iter().map(request).collect();
    // These pods need all of the images: a pull on a full disk must not remove any of them, including those already present.
    let _holds = app.hold(needs.iter().map(|need| need.image.image.as_str())).await;
    let ends: Vec<End> = if args.wait {
        wait::all(app, managed, &needs, &requests, args.timeout).await?
    } else {
        let ensures = requests.iter().map(|request| managed.manager.ensure_image_exists(request));
        futures::future::join_all(ensures).await.into_iter().map(Some).collect()
    };
    app.progress.finish();
    let pulled = ends.iter().flatten().flatten().filter(|ensured| ensured.pulled);
    let pulled: BTreeSet<&str> = pulled.map(|ensured| ensured.image_ref.as_str()).collect();
    app.protect(pulled).await;

    let mut failures = Vec::new();
    let mut rows = Vec::with_capacity(needs.len());
    for (need, end) in needs.iter().zip(ends) {
        match &end {
            Some(Ok(_)) => {}
            Some(Err(error)) => failures.push(failure(need, error)),
            None => failures.push(Failure::failed(format!("{}: {}: not finished", need.pod, need.image.title()))),
        }
        rows.push(EnsuredRow::new(need, end));
    }
    app.printer.report(&Ensured { containers: rows })?;
    let Some(failure) = Failure::all(failures) else { return Ok(()) };
    // If a user or a service manager ended the command, the exit code shows it, and the lines name the missing images.
    Err(if app.stop.is_cancelled() { failure.with_code(app.signals.code()) } else { failure })
}

fn failure(need: &ImageNeed, error: &EnsureImageError) -> Failure {
    // As for a pull: temporary failures and missing permissions have exit codes of their own, so that scripts can distinguish them;
    // everything else is a failure.
    let code = match error.kind().map(code_of) {
        Some(code @ (Code::Unreachable | Code::NotPermitted)) => code,
        _ => Code::Failed,
    };
    let (pod, container) = (&need.pod, need.image.title());
    let failure = Failure::new(code, format!("{pod}: {container}: {}: {}", error.reason(), error.message()));
    match error {
        EnsureImageError::Pull { source, .. } => match source.attempts().last() {
            Some(attempt) => failure.with_space_hint(&attempt.error),
            None => failure,
        },
        _ => failure,
    }
}
