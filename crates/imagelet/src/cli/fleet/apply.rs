//! `imagelet fleet apply`: server-side apply of ImageSets and the Fleet.

use fleet::console::RequestError;
use serde::Serialize;

use super::connection;
use super::manifests::{self, FleetObject};
use crate::app::App;
use crate::args::FleetApply;
use crate::exit::{Failure, Outcome};

/// The result of one object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedObject {
    kind: &'static str,
    name: String,
    result: &'static str,
}

pub(super) async fn run(app: &App, args: &FleetApply) -> Outcome {
    let objects = manifests::read(app, &args.files).await?;
    let requests = connection::requests(app).await?;
    let (mut applied, mut failures) = (Vec::new(), Vec::new());
    for object in objects {
        match requests.apply(&object.value, args.force_conflicts, args.dry_run).await {
            Ok(result) => applied.push(AppliedObject { kind: object.kind, name: object.name, result: result.word() }),
            Err(error) => failures.push(refused(&object, &error)),
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
