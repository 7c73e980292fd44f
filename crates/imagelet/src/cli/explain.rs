//! `imagelet explain`: what `ensure` would do and why. Asks the image service which images are present and, if an agent with this root
//! answers, that agent which pods are in back-off. Creates and writes nothing, not even a missing root.

use std::sync::Arc;
use std::time::Duration;

use agent::admin::backoff::{BackoffList, WaitingImage};
use agent::api::client::{self, Method};
use image_manager::{
    BackoffExplanation, Cause, Decision, EnsureImageRequest, Explanation, LogRecorder, PodRef, PullPolicy,
};
use serde::Serialize;

use super::{explain_credentials, pods};
use crate::app::App;
use crate::args::Explain;
use crate::endpoint::admin_socket;
use crate::exit::{Failure, Outcome};
use crate::manager::{self, Mode};
use crate::output::{Report, Table};

/// The decision about one image.
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
    /// For a pull: the sources of the credentials that it would try, in this order.
    credentials: Vec<String>,
    /// For a pull: helpers and providers that would be asked for more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    would_ask: Vec<String>,
    /// Credentials that the registry refuses, each with the reason; only if the registry was asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<String>,
    /// Notes on sources that would be left out, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// Pull secrets that the pod names and that do not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_secrets: Vec<String>,
}

impl Row {
    /// Returns the sources of credentials, in one cell. Empty if nothing would be pulled.
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
        let titles = ["+POD", "+CONTAINER", "IMAGE", "POLICY", "DECISION", "WHY", "CREDENTIALS"];
        let mut table = Table::with_wide(with_pods, &titles);
        for row in &self.decisions {
            let (pod, container, image) = (row.pod.clone(), row.container.clone(), row.image.clone());
            let (policy, decision) = (row.policy.to_owned(), row.decision.to_owned());
            table.row([pod, container, image, policy, decision, row.why.clone(), row.credentials()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.decisions.iter().map(|row| row.image.clone()).collect()
    }

    /// Returns the decisions, which scripts want from `-q`.
    fn ids(&self) -> Vec<String> {
        self.decisions.iter().map(|row| row.decision.to_owned()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Explain) -> Outcome {
    let mut asked: Vec<(String, String, EnsureImageRequest)> = Vec::new();
    if !args.files.is_empty() {
        for need in pods::read(app, &args.files, args.below.recursive).await? {
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
    let images = app.images().await?;
    if images.are_served() {
        tracing::info!(
            root = %app.config.root.display(),
            "`imagelet serve` has these images where no container runtime sees them: a kubelet in front of it cannot start \
             containers"
        );
    }
    let managed = app.new_manager(images.service(), Arc::new(LogRecorder), Mode::Explain).await?;
    let waiting = waiting(app).await;
    let keyring = match args.check_credentials {
        true => Some(manager::user_keyring(&app.config, &app.environment).await?),
        false => None,
    };
    let mut decisions = Vec::with_capacity(asked.len());
    for (pod, container, request) in asked {
        let mut explanation = managed.manager.explain(&request).await;
        if matches!(explanation.decision, Ok(Decision::Pull(_))) && explanation.backoff.is_none() {
            explanation.backoff = held(&waiting, &request.pod, &request.image);
        }
        let checked = match (&explanation.decision, &keyring) {
            (Ok(Decision::Pull(_)), Some(keyring)) => {
                Some(explain_credentials::check(app, keyring, &request.image, &request.requester()).await?)
            }
            _ => None,
        };
        let mut row = row(pod, container, explanation, request.missing_secrets);
        if let Some(checked) = checked {
            for line in &checked.refused {
                tracing::warn!("{}: {line}", row.image);
            }
            (row.credentials, row.refused) = (checked.credentials, checked.refused);
            row.would_ask.clear();
        }
        for note in &row.notes {
            tracing::warn!(image = row.image, error = %note, "credentials are left out");
        }
        for name in &row.missing_secrets {
            tracing::warn!(
                pod = row.pod,
                secret = name,
                "pull secret is not known: no manifest has it, nor the secrets directory"
            );
        }
        decisions.push(row);
    }
    app.printer.report(&Decisions { decisions })
}

/// Returns the back-off of an agent with this root; empty if no agent answers.
async fn waiting(app: &App) -> Vec<WaitingImage> {
    match client::ask_json::<BackoffList>(&admin_socket(&app.config), Method::GET, "/v1/backoff").await {
        Ok(list) => list.entries,
        Err(failure) => {
            tracing::debug!(error = %failure, "no back-off is known");
            Vec::new()
        }
    }
}

/// Returns why the agent would not pull an image for a pod yet.
fn held(waiting: &[WaitingImage], pod: &PodRef, image: &str) -> Option<BackoffExplanation> {
    let entry = waiting.iter().find(|entry| entry.uid == pod.uid && entry.image == image)?;
    (entry.remaining_milliseconds > 0).then(|| BackoffExplanation {
        cause: Cause::of_word(&entry.cause).unwrap_or(Cause::Other),
        message: entry.message.clone(),
        remaining: Duration::from_millis(entry.remaining_milliseconds),
    })
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
        refused: Vec::new(),
        notes: explanation.notes,
        missing_secrets,
    }
}
