//! Pods with their containers and events, and the events of everything else. Of a pod what `kubectl get pods` shows: no environment, no
//! command. Failures are in the card of everything that needs attention. Pure; called by [`super`].

use image_manager::EventType;
use maud::{Markup, html};

use super::words::{image_name, plural, time};
use crate::node::events::RecordedEvent;
use crate::page::report::{PodReport, Report};
use crate::pods::columns::{Columns, columns};
use crate::pods::shape::{ContainerStatus, Pod, State};

/// Number of listed events.
const EVENTS: usize = 40;
/// Number of listed events of a pod.
const EVENTS_OF_POD: usize = 10;

pub(super) fn pods(report: &Report) -> Markup {
    html! {
        section #pods aria-labelledby="pods-title" {
            h2 #pods-title { "Pods" }
            @match &report.pods {
                None => p.empty { "This process runs no pods." },
                Some(of) if of.pods.is_empty() => p.empty { "There are no pods." },
                Some(of) => (list(report, of)),
            }
        }
    }
}

/// Renders one line for each pod, those first that are not ready. It unfolds to the pod's containers and events.
fn list(report: &Report, of: &PodReport) -> Markup {
    let mut pods: Vec<(&Pod, Columns)> = of.pods.iter().map(|pod| (pod, columns(pod))).collect();
    pods.sort_by_key(|(pod, columns)| is_well(pod, columns));
    html! {
        p.podhead aria-hidden="true" {
            span { "Pod" } span { "Status" } span.number { "Ready" } span.number { "Restarts" } span.number { "Age" }
        }
        ul.pods {
            @for (pod, columns) in &pods {
                li data-key=(pod.metadata.uid) {
                    details {
                        summary {
                            bdi.name { span.path { (pod.metadata.namespace) "/" } (pod.metadata.name) }
                            " " bdi.status.warn[!is_well(pod, columns)] { (columns.status) }
                            " " span.number.ready { (columns.ready()) span.sr { " ready" } }
                            " " span.number.restarts { (columns.restarts(report.now)) span.sr { " restarts" } }
                            " " span.number.age { (time(pod.metadata.creation_timestamp, report.now)) span.sr { " old" } }
                        }
                        (containers(report, pod))
                        @let events: Vec<&RecordedEvent> = of.events.iter().filter(|entry| is_of(entry, pod)).collect();
                        @if events.is_empty() { p.empty { "No events since the start of the agent." } }
                        @else { (event_list(report, events.into_iter().take(EVENTS_OF_POD), false)) }
                    }
                }
            }
        }
    }
}

/// Returns true if nothing of the pod has to be looked at.
fn is_well(pod: &Pod, columns: &Columns) -> bool {
    let (ready, all) = columns.ready;
    pod.status.phase == "Succeeded" || (ready == all && columns.status == "Running")
}

fn is_of(entry: &RecordedEvent, pod: &Pod) -> bool {
    let object = &entry.event.object;
    object.namespace == pod.metadata.namespace && object.name == pod.metadata.name
}

fn containers(report: &Report, pod: &Pod) -> Markup {
    let status = &pod.status;
    let all = [("init ", &status.init_container_statuses), ("", &status.container_statuses)];
    html! {
        div.scroll { table {
            thead { tr {
                th scope="col" { "Container" }
                th scope="col" { "State" }
                th.number scope="col" { "Restarts" }
                th scope="col" { "Image" }
            } }
            tbody {
                @for (kind, container) in all.iter().flat_map(|(kind, all)| all.iter().map(move |one| (kind, one))) {
                    tr data-key=(format!("{kind}{}", container.name)) {
                        th scope="row" data-label="Container" { (kind) bdi { (container.name) } }
                        td data-label="State" { (state(report, container)) }
                        td.number data-label="Restarts" { (container.restart_count) }
                        td data-label="Image" { (image_name(&container.image)) }
                    }
                }
            }
        } }
    }
}

fn state(report: &Report, container: &ContainerStatus) -> Markup {
    html! {
        @match &container.state {
            State { waiting: Some(waiting), .. } => { "waiting" @if !waiting.reason.is_empty() { ": " bdi { (waiting.reason) } } }
            State { terminated: Some(ended), .. } => {
                "ended with code " (ended.exit_code)
                @if ended.finished_at.is_some() { ", " (time(ended.finished_at, report.now)) " ago" }
            }
            State { running: Some(running), .. } => {
                "running" @if !container.ready { ", not ready" }
                @if running.started_at.is_some() { ", for " (time(running.started_at, report.now)) }
            }
            _ => "unknown",
        }
    }
}

/// Renders the events that are in no line of a pod, folded.
pub(super) fn events(report: &Report) -> Markup {
    let Some(of) = &report.pods else { return html! { section #events hidden {} } };
    let is_elsewhere = |entry: &&RecordedEvent| of.pods.iter().any(|pod| is_of(entry, pod));
    let others: Vec<&RecordedEvent> = of.events.iter().filter(|entry| !is_elsewhere(entry)).collect();
    html! {
        section #events aria-labelledby="events-title" {
            h2 #events-title { "Other events" }
            @if others.is_empty() { p.empty { "No events of the node, or of pods that have ended, since the start." } }
            @else {
                details {
                    summary { (plural(others.len(), "event")) " of the node and of pods that have ended" }
                    (event_list(report, others.into_iter().take(EVENTS), true))
                }
            }
        }
    }
}

fn event_list<'a>(report: &Report, events: impl Iterator<Item = &'a RecordedEvent>, with_object: bool) -> Markup {
    html! {
        ol.events {
            @for entry in events {
                @let event = &entry.event;
                @let container = event.object.container_name();
                li data-key=(format!("event-{}", entry.id)) {
                    span.when { (time(Some(entry.last), report.now)) @if entry.count > 1 { " ×" (entry.count) } }
                    span.reason.warn[event.kind == EventType::Warning] { (event.reason) }
                    span.what {
                        @if with_object && !event.object.name.is_empty() {
                            bdi.path { (event.object.namespace) "/" (event.object.name) } " "
                        }
                        @if let Some(container) = container { bdi.path { (container) } " " }
                        bdi { (event.message) }
                    }
                }
            }
        }
    }
}
