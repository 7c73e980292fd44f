//! `imagelet run -f`: runs pods in the foreground, until all of them have ended or a signal arrives. Prints each change as one line on
//! stdout, and leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::admin::Admin;
use agent::node::board;
use agent::node::lock::PodsLock;
use agent::node::{Node, Reading};
use kuberuntime::Phase;
use kuberuntime::sources::{Once, Source};
use kuberuntime::workers::PodView;
use manifest::ManifestError;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::manifest_files::{ManifestFile, expand};
use crate::app::App;
use crate::args::Run;
use crate::endpoint::admin_address;
use crate::exit::{Code, Failure, Outcome, chain};
use crate::pods::columns::columns;
use crate::pods::shape::{ContainerStatus, Pod};
use crate::wiring;

pub(super) async fn run(app: &App, args: &Run) -> Outcome {
    let reading = wiring::node::reading(&app.config, false);
    let sources = sources(app, args, &reading).await?;
    let _lock = PodsLock::take(&app.config.root).await?;
    let node = wiring::node::open(app, reading, sources, None).await?;
    // The node keeps running while pods are ended, even after a signal.
    let stop = CancellationToken::new();
    let register = |registry: &mut Registry| {
        node.register(registry);
        app.network.register(registry);
        app.traces.iter().for_each(|traces| traces.register(registry));
    };
    let mut admin = Admin::new(register, app.service().await?);
    app.open_to_requests(&mut admin).await?;
    admin.pods = Some(node.board());
    let admin = admin.start(&admin_address(&app.config), &stop).await?;
    let mut printed = PrintedStates::default();
    let work = async {
        let outcome = foreground(app, &node, &mut printed).await;
        stop.cancel();
        outcome
    };
    let (outcome, ()) = tokio::join!(work, node.keep(&stop));
    admin.stop().await;
    outcome
}

/// Returns the sources of the files, each read once, and the documents of the node.
pub(super) async fn sources(app: &App, args: &Run, reading: &Reading) -> Outcome<Vec<Source>> {
    let (given, recursive) = (args.files.clone(), args.below.recursive);
    let files = tokio::task::spawn_blocking(move || expand(&given, recursive)).await;
    let files = files.map_err(|_| Failure::failed("read manifests: the reader panicked"))??;
    let mut manifests = Vec::with_capacity(files.len());
    for file in &files {
        let read = match file {
            ManifestFile::Stdin => Once::stdin(tokio::io::stdin(), &reading.options).await,
            ManifestFile::Path(path) => Once::file(path, &reading.options).await,
            ManifestFile::Url(url) => Once::url(url, &reading.options).await,
        };
        manifests.push(read.map_err(|error| Failure::failed(chain(&error)))?);
    }
    if manifests.iter().all(|once| once.pods() == 0) {
        return Err(no_pod(&manifests));
    }
    let documents = app.config.pods.documents.iter().cloned().map(Source::Documents);
    Ok(manifests.into_iter().map(Source::Once).chain(documents).collect())
}

/// Returns why nothing can be run: the objects that the files contain instead of pods.
fn no_pod(manifests: &[Once]) -> Failure {
    let passed_over = |once: &Once| {
        let line = |line| Failure::failed(format!("{}: {line}", once.origin()));
        once.passed_over().map(line).collect::<Vec<_>>()
    };
    Failure::all(manifests.iter().flat_map(passed_over).collect()).unwrap_or_else(|| {
        let file = if let [one] = manifests { Some(one.origin().to_owned()) } else { None };
        let passed_by = manifests.iter().flat_map(Once::others).map(str::to_owned).collect();
        Failure::failed(ManifestError::NoPod { file, passed_by }.to_string())
    })
}

/// Prints changes until the end, and removes all pods.
async fn foreground(app: &App, node: &Node, printed: &mut PrintedStates) -> Outcome {
    let mut changes = node.agent.changes();
    let finished = node.agent.finished();
    tokio::pin!(finished);
    let views = loop {
        printed.print_changes(app, node)?;
        tokio::select! {
            views = &mut finished => break Some(views),
            () = app.stop.cancelled() => break None,
            changed = changes.changed() => if changed.is_err() { break None },
        }
    };
    printed.print_changes(app, node)?;
    let failed: Vec<String> =
        views.iter().flatten().filter(|view| view.status.phase == Phase::Failed).map(title).collect();
    if views.is_none() {
        tracing::info!("ending the pods; a second signal leaves them as they are");
    }
    let ended = node.agent.end_all(None);
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => break,
            changed = changes.changed() => if changed.is_err() { break },
        }
        if views.is_none() {
            printed.print_changes(app, node)?;
        }
    }
    match (views, failed.as_slice()) {
        (None, _) => Err(Failure::new(app.signals.code(), "ended by a signal")),
        (Some(_), []) => Ok(()),
        (Some(_), failed) => Err(Failure::new(Code::Failed, format!("failed: {}", failed.join(", ")))),
    }
}

fn title(view: &Arc<PodView>) -> String {
    format!("{}/{}", view.pod.metadata.namespace, view.pod.metadata.name)
}

/// The last printed state of each pod, by uid.
#[derive(Default)]
struct PrintedStates(BTreeMap<String, String>);

impl PrintedStates {
    /// Prints a line for each pod that changed.
    fn print_changes(&mut self, app: &App, node: &Node) -> Outcome {
        let desired = node.desired.borrow().clone();
        let mut lines = Vec::new();
        for view in node.agent.pods() {
            // The runtime may also have pods that another process left.
            if !desired.pods.contains_key(&view.pod.metadata.uid) {
                continue;
            }
            let Ok(pod) = Pod::of(&board::pod(&view, &desired)) else { continue };
            let text = state(&pod);
            let last = self.0.insert(view.pod.metadata.uid.clone(), text.clone());
            if last.as_ref() != Some(&text) {
                lines.push(format!("{}: {text}", title(&view)));
            }
        }
        if app.printer.quiet { Ok(()) } else { app.printer.lines(lines) }
    }
}

/// Returns a pod's state in one line: `ImagePullBackOff (0/1): web: Back-off pulling image …`.
fn state(pod: &Pod) -> String {
    let columns = columns(pod);
    let mut text = format!("{} ({})", columns.status, columns.ready());
    let all = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    for why in all.filter_map(why) {
        text.push_str(": ");
        text.push_str(&why);
    }
    if !pod.status.message.is_empty() {
        text.push_str(": ");
        text.push_str(&pod.status.message);
    }
    crate::output::table::clean(&text)
}

/// Returns why a container does not run, or how it failed.
fn why(container: &ContainerStatus) -> Option<String> {
    let name = &container.name;
    if let Some(waiting) = container.state.waiting.as_ref().filter(|waiting| !waiting.message.is_empty()) {
        return Some(format!("{name}: {}", waiting.message));
    }
    let end = container.state.terminated.as_ref().filter(|end| end.exit_code != 0)?;
    let message = if end.message.is_empty() { String::new() } else { format!(", {}", end.message.trim_end()) };
    Some(format!("{name}: exit code {}{message}", end.exit_code))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_in_one_line() {
        let line = |statuses: serde_json::Value| {
            let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}, "status": {"phase": "Running",
                "containerStatuses": statuses}});
            state(&Pod::of(&pod).expect("a pod"))
        };
        let run = json!({"name": "a", "ready": true, "state": {"running": {"startedAt": null}}});
        assert_eq!(line(json!([run])), "Running (1/2)");
        let pull =
            json!({"name": "b", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such manifest"}}});
        assert_eq!(line(json!([run, pull])), "ErrImagePull (1/2): b: no such manifest");
        let end = json!({"name": "b", "state": {"terminated": {"exitCode": 3, "reason": "Error", "message": "no\u{7} disk\n"}}});
        assert_eq!(line(json!([run, end])), "Error (1/2): b: exit code 3, no? disk");
    }
}
