//! `imagelet gc containers`: removes ended containers, sandboxes without containers, and logs of removed pods. The collector decides which
//! are removed.

use agent::api::gc::{CollectedContainers, Leftover};
use serde::Serialize;

use crate::app::App;
use crate::args::GcContainers;
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table, units};

#[derive(Serialize)]
#[serde(transparent)]
struct ContainersReport(CollectedContainers);

impl Report for ContainersReport {
    fn table(&self, wide: bool, whole: bool) -> Table {
        let titles = ["KIND", "ID", "POD", "CONTAINER", "DECISION", "WHY", "+CREATED", "+POD UID"];
        let mut table = Table::with_wide(wide, &titles);
        for left in &self.0.items {
            // Names of files are not shortened.
            let id = if matches!(left.kind.as_str(), "container" | "sandbox") {
                short(&left.id, whole)
            } else {
                left.id.clone()
            };
            let (kind, pod, name) = (left.kind.clone(), left.pod.clone(), left.name.clone());
            let (decision, why, created) = (left.decision.clone(), left.why.clone(), units::time(left.created_at));
            table.row([kind, id, pod, name, decision, why, created, left.pod_uid.clone()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.going().map(|left| format!("{}/{}", left.kind, left.id)).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.going().map(|left| left.id.clone()).collect()
    }
}

impl ContainersReport {
    fn going(&self) -> impl Iterator<Item = &Leftover> {
        self.0.items.iter().filter(|left| left.is_removed())
    }
}

/// Returns the first thirteen digits of an id, as crictl shows them.
fn short(id: &str, whole: bool) -> String {
    match id.get(..13) {
        Some(short) if !whole => short.to_owned(),
        _ => id.to_owned(),
    }
}

pub(super) async fn run(app: &App, args: &GcContainers) -> Outcome {
    let shown = ContainersReport(app.collector().await?.containers(args.dry_run).await?);
    let tables = app.printer.is_table();
    if !(tables && shown.0.items.is_empty()) {
        app.printer.report(&shown)?;
    }
    if tables {
        let count = shown.going().count();
        let things = format!("{count} thing{}", if count == 1 { "" } else { "s" });
        let line = match (count, args.dry_run) {
            (0, true) => "Nothing to remove.".to_owned(),
            (0, false) => "Nothing was removed.".to_owned(),
            (_, true) => format!("{things} would be removed."),
            (_, false) => format!("{things} removed."),
        };
        app.printer.lines([line])?;
    }
    let failures = shown.0.problems.iter().map(|problem| Failure::failed(problem.clone())).collect();
    Failure::all(failures).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_shows_its_decision() {
        let left = |kind: &str, decision: &str, why: &str| Leftover {
            kind: kind.to_owned(),
            id: "0123456789abcdef".to_owned(),
            name: if kind == "container" { "app".to_owned() } else { String::new() },
            pod: "shop/web".to_owned(),
            decision: decision.to_owned(),
            why: why.to_owned(),
            ..Leftover::default()
        };
        let items = vec![left("container", "remove", "its pod is gone"), left("sandbox", "ready", "it is ready")];
        let shown = ContainersReport(CollectedContainers { items, problems: Vec::new() });
        assert_eq!(
            shown.table(false, false).render(),
            "KIND        ID              POD        CONTAINER   DECISION   WHY\n\
             container   0123456789abc   shop/web   app         remove     its pod is gone\n\
             sandbox     0123456789abc   shop/web   -           ready      it is ready\n"
        );
        assert_eq!(shown.names(), ["container/0123456789abcdef"]);
    }
}
