//! `imagelet explain`: what `ensure` would do and why. Asks the image service what is there, and nothing else.

use std::sync::Arc;

use image_manager::{EnsureImageRequest, Explanation, LogRecorder, PullPolicy};
use serde::Serialize;

use super::pods;
use crate::app::App;
use crate::args::Explain;
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table};
use crate::wiring::Mode;

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
    /// Of a pull: where the credentials come from that it would try, in this order.
    credentials: Vec<String>,
    /// Of a pull: helpers and providers that would be asked for more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    would_ask: Vec<String>,
    /// What would be left out, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// Pull secrets that the pod names and nobody has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_secrets: Vec<String>,
}

impl Row {
    /// Where credentials would come from, in one cell. Nothing where nothing would be pulled.
    fn credentials(&self) -> String {
        if self.decision != "pull" && self.decision != "back-off" {
            return String::new();
        }
        let asked = self.would_ask.iter().map(|who| format!("ask {who}"));
        let parts: Vec<String> = self.credentials.iter().cloned().chain(asked).collect();
        if parts.is_empty() { "none: anonymous".to_owned() } else { parts.join(", ") }
    }
}

#[derive(Serialize)]
struct Decisions {
    decisions: Vec<Row>,
}

impl Report for Decisions {
    fn table(&self, _: bool, _: bool) -> Table {
        let with_pods = self.decisions.iter().any(|row| !row.pod.is_empty());
        let mut table = if with_pods {
            Table::new(&["POD", "CONTAINER", "IMAGE", "POLICY", "DECISION", "WHY", "CREDENTIALS"])
        } else {
            Table::new(&["IMAGE", "POLICY", "DECISION", "WHY", "CREDENTIALS"])
        };
        for row in &self.decisions {
            let mut cells = Vec::new();
            if with_pods {
                cells.extend([row.pod.clone(), row.container.clone()]);
            }
            cells.extend([row.image.clone(), row.policy.to_owned(), row.decision.to_owned(), row.why.clone()]);
            cells.push(row.credentials());
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
    let managed = app.managed(Arc::new(LogRecorder), Mode::OneShot).await?;
    let mut decisions = Vec::with_capacity(asked.len());
    for (pod, container, request) in asked {
        let explanation = managed.manager.explain(&request).await;
        let row = row(pod, container, explanation, request.missing_secrets);
        for note in &row.notes {
            tracing::warn!("{}: {note}", row.image);
        }
        for name in &row.missing_secrets {
            tracing::warn!(
                "{}: pull secret {name} is not known: no manifest has it, nor the secrets directory",
                row.pod
            );
        }
        decisions.push(row);
    }
    app.printer.report(&Decisions { decisions })
}

fn row(pod: String, container: String, explanation: Explanation, missing_secrets: Vec<String>) -> Row {
    Row {
        pod,
        container,
        policy: explanation.policy.as_str(),
        decision: explanation.word(),
        why: explanation.why(),
        credentials: explanation.candidates.iter().map(ToString::to_string).collect(),
        image: explanation.image,
        would_ask: explanation.would_ask,
        notes: explanation.notes,
        missing_secrets,
    }
}
