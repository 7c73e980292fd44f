//! `imagelet fleet apply` and `imagelet fleet install`: server-side apply of ImageSets and the Fleet, or of the objects that run a fleet.

use cluster::client::Failure as Cause;
use fleet::console::{FleetRequests, RequestError};
use fleet::manifests::{Installation, install_on};
use serde::Serialize;

use super::connection;
use super::manifests::{self, FleetObject};
use crate::app::App;
use crate::args::{FleetApply, FleetInstall};
use crate::exit::{Failure, Outcome};

/// The result of one object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedObject {
    kind: String,
    name: String,
    result: &'static str,
}

pub(super) async fn run(app: &App, args: &FleetApply) -> Outcome {
    let objects = manifests::read(app, &args.files).await?;
    let requests = connection::requests(app).await?;
    apply(app, &requests, objects, args).await
}

pub(super) async fn install(app: &App, args: &FleetInstall) -> Outcome {
    let requests = connection::requests(app).await?;
    let minor = requests.server_minor().await.map_err(|error| connection::failed(&error))?;
    let Installation { objects, left_out } = install_on(minor, &args.image);
    for sentence in left_out {
        tracing::warn!("the server is Kubernetes 1.{minor}: {sentence}");
    }
    let objects = objects.into_iter().map(FleetObject::of).collect();
    let options = FleetApply { files: Vec::new(), dry_run: false, force_conflicts: args.force_conflicts };
    apply(app, &requests, objects, &options).await
}

/// Applies the objects one after the other. A failure of one does not keep the others from being applied, but the first refused
/// permission is the last request.
async fn apply(app: &App, requests: &FleetRequests, objects: Vec<FleetObject>, args: &FleetApply) -> Outcome {
    let (mut applied, mut failures) = (Vec::new(), Vec::new());
    for object in objects {
        match requests.apply(&object.value, args.force_conflicts, args.dry_run).await {
            Ok(result) => applied.push(AppliedObject { kind: object.kind, name: object.name, result: result.word() }),
            Err(error) => {
                failures.push(refused(&object, &error));
                if matches!(error.failure(), Cause::Forbidden | Cause::Unauthorized) {
                    break;
                }
            }
        }
    }
    if app.printer.format.is_some_and(crate::output::Format::is_document) {
        app.printer.document(crate::output::Format::Json, &applied)?;
    } else {
        let end = if args.dry_run { " (server dry run)" } else { "" };
        app.printer.lines(
            applied
                .iter()
                .map(|object| format!("{}/{} {}{end}", object.kind.to_lowercase(), object.name, object.result)),
        )?;
    }
    Failure::all(failures).map_or(Ok(()), Err)
}

/// Words the failure of one object: a conflict names fields and managers.
fn refused(object: &FleetObject, error: &RequestError) -> Failure {
    let conflicts = error.conflicts();
    if conflicts.is_empty() {
        return connection::failed(error);
    }
    let owned = conflicts.iter().map(|conflict| format!("{} is managed by {:?}", conflict.field, conflict.manager));
    Failure::failed(format!(
        "apply {} {}: {} (--force-conflicts takes them over)",
        object.kind,
        object.name,
        owned.collect::<Vec<_>>().join("; ")
    ))
}
