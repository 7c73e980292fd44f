//! `imagelet describe`: a pod in the form of `kubectl describe`, with its events and the actions of its last sync.

use std::fmt::Write as _;

use agent::node::board::{RefusedPod, SyncState};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::events::{self, Event};
use super::pod_list::{agent, ask, choose};
use crate::app::App;
use crate::args::Describe;
use crate::exit::{Code, Failure, Outcome};
use crate::output::Format;
use crate::output::units;
use crate::pods::columns::columns;
use crate::pods::shape::{Container, ContainerStatus, Pod, State};

/// The answer of the agent.
#[derive(Deserialize)]
struct Detail {
    pod: Value,
    sync: SyncState,
}

pub(super) async fn run(app: &App, args: &Describe) -> Outcome {
    let (all, refused) = ask(app).await?;
    let (mut pods, mut refusals) = (Vec::new(), Vec::new());
    for name in &args.pods {
        match choose(all.clone(), std::slice::from_ref(name), args.namespace.as_deref()) {
            Ok(found) => pods.extend(found),
            Err(failure) => match refused_as(&refused, name, args.namespace.as_deref()) {
                named if named.is_empty() => return Err(failure),
                named => refusals.push(named),
            },
        }
    }
    let list = events::since(app, 0, None).await?;
    let happened: Vec<Event> = list.items.iter().map(Event::of).collect::<Outcome<_>>()?;
    let now = Timestamp::now();
    for (index, listed) in pods.iter().enumerate() {
        let known = listed.known();
        let detail: Detail = agent(app, &format!("/v1/pods/{}/{}", known.namespace, known.name)).await?;
        match app.printer.format {
            Some(format) if format.is_document() => app.printer.document(Format::Json, &detail.pod)?,
            _ => {
                let pod = Pod::of(&detail.pod)
                    .map_err(|e| Failure::caused(Code::Failed, "understand a pod of the agent", &e))?;
                let own: Vec<&Event> = happened.iter().filter(|event| event.is_of(&known.uid)).collect();
                let text = described(&pod, &detail.pod, &detail.sync, &own, now);
                let gap = if index == 0 { "" } else { "\n" };
                app.printer.lines([format!("{gap}{}", text.trim_end())])?;
            }
        }
    }
    for (index, named) in refusals.iter().enumerate() {
        match app.printer.format {
            Some(format) if format.is_document() => app.printer.document(Format::Json, named)?,
            _ => {
                let gap = if index == 0 && pods.is_empty() { "" } else { "\n" };
                app.printer.lines([format!("{gap}{}", describe_refusal(named).trim_end())])?;
            }
        }
    }
    Ok(())
}

/// Returns the refusals of a manifest by its path, its file name, or the name of its pod.
fn refused_as<'a>(refused: &'a [RefusedPod], text: &str, namespace: Option<&str>) -> Vec<&'a RefusedPod> {
    let is_named = |refused: &&RefusedPod| {
        let file = refused.origin.rsplit('/').next();
        let is_pod = refused.pod.as_deref().is_some_and(|title| {
            let (of, name) = title.split_once('/').unwrap_or(("", title));
            title == text || name == text && namespace.is_none_or(|namespace| namespace == of)
        });
        is_pod || refused.origin == text || file == Some(text)
    };
    refused.iter().filter(is_named).collect()
}

/// Describes manifests of which nothing runs.
fn describe_refusal(refused: &[&RefusedPod]) -> String {
    let mut text = Text(String::new());
    for RefusedPod { origin, pod, reason, skipped } in refused {
        text.some(0, "Pod", pod.as_deref().unwrap_or_default());
        text.line(0, "Manifest", origin);
        text.line(0, "Status", if *skipped { "Skipped" } else { "Refused" });
        text.line(0, "Reason", reason);
    }
    text.0
}

/// A text of lines, each indented by two blanks more than the line above if it is a part of it.
struct Text(String);

impl Text {
    fn line(&mut self, depth: usize, name: &str, value: impl std::fmt::Display) {
        let value = clean(&value.to_string());
        let _ = match value.is_empty() {
            true => writeln!(self.0, "{:indent$}{name}:", "", indent = depth * 2),
            false => {
                let width = 20_usize.saturating_sub(depth * 2);
                writeln!(self.0, "{:indent$}{:width$} {value}", "", format!("{name}:"), indent = depth * 2)
            }
        };
    }

    /// Adds a line if the value is not empty.
    fn some(&mut self, depth: usize, name: &str, value: &str) {
        if !value.is_empty() {
            self.line(depth, name, value);
        }
    }

    /// Adds several values under one name, one per line.
    fn list(&mut self, depth: usize, name: &str, values: impl IntoIterator<Item = String>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return;
        }
        self.line(depth, name, "");
        for value in values {
            let _ = writeln!(self.0, "{:indent$}{}", "", clean(&value), indent = (depth + 1) * 2);
        }
    }
}

/// Returns text of runtimes and programs with its control characters made harmless for the terminal.
fn clean(text: &str) -> String {
    oci::text::printable(&text.trim_end().replace('\n', " "), '?', &['\t']).into_owned()
}

fn described(pod: &Pod, value: &Value, sync: &SyncState, events: &[&Event], now: Timestamp) -> String {
    let (metadata, spec, status) = (&pod.metadata, &pod.spec, &pod.status);
    let mut text = Text(String::new());
    text.line(0, "Name", &metadata.name);
    text.line(0, "Namespace", &metadata.namespace);
    text.line(0, "UID", &metadata.uid);
    if let Some(priority) = spec.priority {
        text.line(0, "Priority", priority);
    }
    text.some(0, "Priority Class", &spec.priority_class_name);
    text.some(0, "Service Account", &spec.service_account_name);
    text.some(0, "Runtime Class", &spec.runtime_class_name);
    text.line(0, "Node", format!("{}/{}", spec.node_name, status.host_ip));
    text.line(0, "Start Time", units::time(status.start_time));
    let pairs = |map: &std::collections::BTreeMap<String, String>| -> Vec<String> {
        map.iter().map(|(key, value)| format!("{key}={value}")).collect()
    };
    text.list(0, "Labels", pairs(&metadata.labels));
    text.list(0, "Annotations", metadata.annotations.iter().map(|(key, value)| format!("{key}: {value}")));
    text.line(0, "Status", columns(pod).status);
    if let Some(since) = metadata.deletion_timestamp {
        let grace = metadata.deletion_grace_period_seconds.map(|s| format!(", {s}s of grace")).unwrap_or_default();
        text.line(0, "Deleted", format!("{}{grace}", units::time(Some(since))));
    }
    text.line(0, "Phase", &status.phase);
    text.some(0, "Reason", &status.reason);
    text.some(0, "Message", &status.message);
    text.line(0, "IP", if status.pod_ip.is_empty() { "<none>" } else { &status.pod_ip });
    text.list(0, "IPs", status.pod_ips.iter().skip(1).map(|ip| ip.ip.clone()));
    let kinds = [
        ("Init Containers", &spec.init_containers, &status.init_container_statuses),
        ("Containers", &spec.containers, &status.container_statuses),
        ("Ephemeral Containers", &spec.ephemeral_containers, &status.ephemeral_container_statuses),
    ];
    for (title, containers, statuses) in kinds {
        if containers.is_empty() {
            continue;
        }
        text.line(0, title, "");
        for container in containers {
            let status = statuses.iter().find(|status| status.name == container.name);
            describe_container(&mut text, container, status);
        }
    }
    text.list(
        0,
        "Conditions",
        status.conditions.iter().map(|condition| {
            let why = [condition.reason.as_str(), condition.message.as_str()].join(" ");
            format!("{:28} {:6} {}", condition.kind, condition.status, why.trim())
        }),
    );
    text.list(0, "Volumes", spec.volumes.iter().map(volume));
    text.some(0, "QoS Class", &status.qos_class);
    if let Some(selector) = value["spec"]["terminationGracePeriodSeconds"].as_i64() {
        text.line(0, "Grace Period", format!("{selector}s"));
    }
    text.line(0, "Sync", &sync.state);
    text.some(1, "Last Wanted", &sync.actions);
    text.some(1, "Error", sync.error.as_deref().unwrap_or_default());
    if events.is_empty() {
        text.line(0, "Events", "<none>");
    } else {
        let mut table = crate::output::Table::new(&["  TYPE", "REASON", "AGE", "MESSAGE"]);
        for event in events {
            let kind = format!("  {}", event.kind);
            table.row([kind, event.reason.clone(), event.age(now), event.text()]);
        }
        text.line(0, "Events", "");
        text.0.push_str(&table.render());
    }
    text.0
}

fn describe_container(text: &mut Text, container: &Container, status: Option<&ContainerStatus>) {
    text.line(1, &container.name, "");
    if let Some(status) = status {
        text.some(2, "Container ID", &status.container_id);
    }
    text.line(2, "Image", &container.image);
    if let Some(status) = status {
        text.some(2, "Image ID", &status.image_id);
    }
    let ports = container.ports.iter().map(|port| {
        let name = if port.name.is_empty() { String::new() } else { format!(" ({})", port.name) };
        let host = if port.host_port == 0 { String::new() } else { format!(", on the node {}", port.host_port) };
        format!("{}/{}{host}{name}", port.container_port, port.protocol)
    });
    text.some(2, "Ports", &ports.collect::<Vec<_>>().join("; "));
    text.some(2, "Restart Policy", &container.restart_policy);
    text.list(2, "Command", container.command.clone());
    text.list(2, "Args", container.args.clone());
    if let Some(status) = status {
        state(text, "State", &status.state);
        if status.last_state.terminated.is_some() {
            state(text, "Last State", &status.last_state);
        }
        text.line(2, "Ready", if status.ready { "True" } else { "False" });
        text.line(2, "Restart Count", status.restart_count);
    }
    let amounts = |map: &std::collections::BTreeMap<String, String>| -> Vec<String> {
        map.iter().map(|(name, amount)| format!("{name}: {amount}")).collect()
    };
    text.list(2, "Limits", amounts(&container.resources.limits));
    text.list(2, "Requests", amounts(&container.resources.requests));
    for (name, probe) in [
        ("Liveness", &container.liveness_probe),
        ("Readiness", &container.readiness_probe),
        ("Startup", &container.startup_probe),
    ] {
        text.some(2, name, &probe.as_ref().map(probe_text).unwrap_or_default());
    }
    text.list(2, "Environment From", container.env_from.iter().map(env_from));
    text.list(2, "Environment", container.env.iter().map(variable));
    text.list(
        2,
        "Mounts",
        container.volume_mounts.iter().map(|mount| {
            let part = if mount.sub_path.is_empty() { String::new() } else { format!(", path={:?}", mount.sub_path) };
            format!("{} from {} ({}{part})", mount.mount_path, mount.name, if mount.read_only { "ro" } else { "rw" })
        }),
    );
}

fn state(text: &mut Text, name: &str, state: &State) {
    if let Some(running) = &state.running {
        text.line(2, name, "Running");
        text.line(3, "Started", units::time(running.started_at));
    } else if let Some(end) = &state.terminated {
        text.line(2, name, "Terminated");
        text.some(3, "Reason", &end.reason);
        text.some(3, "Message", &end.message);
        text.line(3, "Exit Code", end.exit_code);
        text.line(3, "Started", units::time(end.started_at));
        text.line(3, "Finished", units::time(end.finished_at));
    } else {
        text.line(2, name, "Waiting");
        if let Some(waiting) = &state.waiting {
            text.some(3, "Reason", &waiting.reason);
            text.some(3, "Message", &waiting.message);
        }
    }
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Returns a port: a number or a name.
fn port(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `http-get http://:80/ delay=0s timeout=1s period=10s #success=1 #failure=3`.
fn probe_text(probe: &Value) -> String {
    let question = if let Some(get) = probe.get("httpGet") {
        let scheme = match word(get, "scheme") {
            "" => "http".to_owned(),
            scheme => scheme.to_lowercase(),
        };
        format!("http-get {scheme}://{}:{}{}", word(get, "host"), port(&get["port"]), word(get, "path"))
    } else if let Some(socket) = probe.get("tcpSocket") {
        format!("tcp-socket {}:{}", word(socket, "host"), port(&socket["port"]))
    } else if let Some(grpc) = probe.get("grpc") {
        format!("grpc :{} {}", grpc["port"], word(grpc, "service"))
    } else {
        let command = probe["exec"]["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
        format!("exec [{}]", command.collect::<Vec<_>>().join(" "))
    };
    let number = |key: &str| probe[key].as_i64().unwrap_or_default();
    format!(
        "{} delay={}s timeout={}s period={}s #success={} #failure={}",
        question.trim_end(),
        number("initialDelaySeconds"),
        number("timeoutSeconds"),
        number("periodSeconds"),
        number("successThreshold"),
        number("failureThreshold")
    )
}

fn env_from(source: &Value) -> String {
    let of = |key: &str, kind: &str| {
        let document = source.get(key)?;
        let optional = document["optional"].as_bool().unwrap_or_default();
        Some(format!("{} {kind} Optional: {optional}", word(document, "name")))
    };
    let document = of("configMapRef", "ConfigMap").or_else(|| of("secretRef", "Secret")).unwrap_or_default();
    match word(source, "prefix") {
        "" => document,
        prefix => format!("{document} with prefix {prefix:?}"),
    }
}

/// Returns a variable; the content of a Secret is not shown.
fn variable(variable: &Value) -> String {
    let from = &variable["valueFrom"];
    let key = |source: &Value, kind: &str| {
        let optional = source["optional"].as_bool().unwrap_or_default();
        format!("<set to the key '{}' in {kind} '{}'>  Optional: {optional}", word(source, "key"), word(source, "name"))
    };
    let value = if let Some(source) = from.get("secretKeyRef") {
        key(source, "secret")
    } else if let Some(source) = from.get("configMapKeyRef") {
        key(source, "config map")
    } else if let Some(source) = from.get("fieldRef") {
        format!("({})", word(source, "fieldPath"))
    } else if let Some(source) = from.get("resourceFieldRef") {
        format!("({})", word(source, "resource"))
    } else {
        word(variable, "value").to_owned()
    };
    format!("{}: {value}", word(variable, "name"))
}

/// Returns a volume in one line: its name, its kind, and the values that identify it.
fn volume(volume: &Value) -> String {
    let source = volume.as_object().into_iter().flatten().find(|(key, _)| *key != "name");
    let Some((kind, source)) = source else { return format!("{}: EmptyDir", word(volume, "name")) };
    let fields = source.as_object().into_iter().flatten().map(|(key, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{key}={value}")
    });
    let fields = fields.collect::<Vec<_>>().join(", ");
    let gap = if fields.is_empty() { "" } else { " " };
    let mut letters = kind.chars();
    let kind: String = letters.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(letters).collect();
    format!("{}: {kind}{gap}{fields}", word(volume, "name"))
}

#[cfg(test)]
#[path = "describe_tests.rs"]
mod tests;
