//! `imagelet explain`: what `ensure` would do and why. Asks the image service what is there, and nothing else.

use image_manager::{EnsureImageRequest, Explanation, PullPolicy};
use serde::Serialize;

use super::ensure::manager;
use super::pods;
use crate::app::App;
use crate::args::Explain;
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table};

/// One decision.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(skip_serializing_if = "String::is_empty")]
    pod: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    container: String,
    image: String,
    policy: &'static str,
    decision: &'static str,
    why: String,
}

#[derive(Serialize)]
struct Decisions {
    decisions: Vec<Row>,
}

impl Report for Decisions {
    fn table(&self, _: bool, _: bool) -> Table {
        let with_pods = self.decisions.iter().any(|row| !row.pod.is_empty());
        let mut table = if with_pods {
            Table::new(&["POD", "CONTAINER", "IMAGE", "POLICY", "DECISION", "WHY"])
        } else {
            Table::new(&["IMAGE", "POLICY", "DECISION", "WHY"])
        };
        for row in &self.decisions {
            let mut cells = Vec::new();
            if with_pods {
                cells.extend([row.pod.clone(), row.container.clone()]);
            }
            cells.extend([row.image.clone(), row.policy.to_owned(), row.decision.to_owned(), row.why.clone()]);
            table.row(cells);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.decisions.iter().map(|row| row.image.clone()).collect()
    }

    /// The words of the decisions: what a script wants of them.
    fn ids(&self) -> Vec<String> {
        self.decisions.iter().map(|row| row.decision.to_owned()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Explain) -> Outcome {
    let mut asked: Vec<(String, String, EnsureImageRequest)> = Vec::new();
    if !args.files.is_empty() {
        for need in pods::read(app, &args.files, args.skip_other_kinds).await? {
            asked.push((need.pod.clone(), need.image.title(), need.request()));
        }
    }
    let policy = match &args.policy {
        Some(text) => Some(text.parse::<PullPolicy>().map_err(|e| Failure::usage(e.to_string()))?),
        None => None,
    };
    for image in &args.images {
        let mut request = EnsureImageRequest::new(image);
        request.policy = policy.unwrap_or(request.policy);
        asked.push((String::new(), String::new(), request));
    }
    let manager = manager(app, app.service().await?);
    let mut decisions = Vec::with_capacity(asked.len());
    for (pod, container, request) in asked {
        decisions.push(row(pod, container, &manager.explain(request).await));
    }
    app.printer.report(&Decisions { decisions })
}

fn row(pod: String, container: String, explanation: &Explanation) -> Row {
    Row {
        pod,
        container,
        image: explanation.image.clone(),
        policy: explanation.policy.as_str(),
        decision: explanation.word(),
        why: explanation.why(),
    }
}
