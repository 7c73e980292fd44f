//! `imagelet run --dry-run`: the pods that would run, and the refused objects. Reads manifests as `run` does, and asks no runtime.

use std::sync::Arc;
use std::time::Duration;

use kuberuntime::pod::Pod;
use kuberuntime::sources::{DesiredPods, Sources};
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::args::Run;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Report, Table};
use crate::wiring::node;

/// Time that a source may take to report its pods.
const PATIENCE: Duration = Duration::from_secs(15);

struct DryRunReport(Vec<Arc<Pod>>);

impl Serialize for DryRunReport {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let items: Vec<_> = self.0.iter().map(|pod| pod.to_json()).collect();
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}).serialize(serializer)
    }
}

impl Report for DryRunReport {
    fn table(&self, _: bool, _: bool) -> Table {
        let mut table = Table::new(&["NAMESPACE", "NAME", "UID", "IMAGES"]);
        for pod in &self.0 {
            let metadata = &pod.metadata;
            let images: Vec<&str> = pod.images().into_iter().map(|image| image.image).collect();
            table.row([metadata.namespace.clone(), metadata.name.clone(), metadata.uid.clone(), images.join(",")]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|pod| format!("pod/{}", pod.metadata.name)).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|pod| pod.metadata.uid.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Run) -> Outcome {
    let reading = node::reading(&app.config, false);
    let sources = match args.files.as_slice() {
        [] => node::sources(&app.config, &args.manifests),
        _ => super::run_foreground::sources(app, args, &reading).await?,
    };
    let sources = Sources::new(sources, reading.options);
    let (stop, mut desired) = (CancellationToken::new(), sources.desired());
    let read = async {
        let reported = tokio::time::timeout(PATIENCE, desired.wait_for(all_reported)).await;
        let reported = reported.ok().and_then(|received| received.ok().map(|desired| desired.clone()));
        stop.cancel();
        reported
    };
    let (reported, ()) = tokio::join!(read, sources.run(&stop));
    let Some(reported) = reported else {
        return Err(Failure::new(Code::Unreachable, "not every source of pods has reported its pods"));
    };
    let mut pods: Vec<Arc<Pod>> = reported.pods.into_values().collect();
    pods.sort_by_key(|pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone()));
    app.printer.report(&DryRunReport(pods))?;
    let refused = reported.refused.into_iter().map(|refused| {
        let pod = refused.pod.map(|pod| format!("pod {pod}: ")).unwrap_or_default();
        Failure::failed(format!("{}: {pod}{}", refused.origin, refused.reason))
    });
    Failure::all(refused.collect()).map_or(Ok(()), Err)
}

/// Returns true if every source has reported its pods or its error, and a reason is known for each object that is refused.
fn all_reported(desired: &DesiredPods) -> bool {
    let why = |origin: &String| desired.refused.iter().any(|refused| refused.origin == *origin);
    desired.reported && desired.held.iter().all(why)
}
