//! Pods, the pulls that wait after failures, and events. Of a pod what `kubectl get pods` shows: no environment, no command. Pure; called by
//! [`super`].

use image_manager::EventType;
use maud::{Markup, html};

use super::words::{image_name, plural, time, whole_duration};
use crate::page::report::{PodReport, Report};
use crate::pods::columns::columns;
use crate::pods::shape::Pod;

/// Number of listed events.
const EVENTS: usize = 40;

/// Pods of which every container is ready, and all that are not over.
pub(super) fn ready(of: &PodReport) -> (usize, usize) {
    let going = of.pods.iter().filter(|pod| !pod.is_over());
    let is_ready = |pod: &&Pod| {
        let (ready, all) = columns(pod).ready;
        ready == all
    };
    (going.clone().filter(is_ready).count(), going.count())
}

pub(super) fn pods(report: &Report) -> Markup {
    html! {
        section #pods aria-labelledby="pods-title" {
            h2 #pods-title { "Pods" }
            @match &report.pods {
                None => p.empty { "This process runs no pods." },
                Some(of) => {
                    @if of.pods.is_empty() { p.empty { "There are no pods." } } @else { (pod_table(report, of)) }
                    @for refused in &of.refused {
                        p.problem { "Refused: " bdi { (refused.pod.as_deref().unwrap_or(&refused.origin)) } ": " bdi { (refused.reason) } }
                    }
                }
            }
        }
    }
}

fn pod_table(report: &Report, of: &PodReport) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th scope="col" { "Pod" }
                th scope="col" { "Status" }
                th.number scope="col" { "Ready" }
                th.number scope="col" { "Restarts" }
                th.number scope="col" { "Age" }
            } }
            tbody {
                @for pod in &of.pods {
                    @let columns = columns(pod);
                    @let is_well = ["Running", "Completed", "Succeeded"].contains(&columns.status.as_str());
                    tr data-key=(pod.metadata.uid) {
                        th scope="row" data-label="Pod" {
                            bdi { span.path { (pod.metadata.namespace) "/" } (pod.metadata.name) }
                        }
                        td data-label="Status" { bdi class=[(!is_well).then_some("warn")] { (columns.status) } }
                        td.number data-label="Ready" { (columns.ready()) }
                        td.number data-label="Restarts" { (columns.restarts(report.now)) }
                        td.number data-label="Age" { (time(pod.metadata.creation_timestamp, report.now)) }
                    }
                }
            }
        } }
    }
}

pub(super) fn backoff(report: &Report) -> Markup {
    html! {
        section #backoff aria-labelledby="backoff-title" {
            h2 #backoff-title { "Back-off" }
            @match &report.backoff {
                None => p.empty { "No back-off is kept here: the clients of this service decide when they ask again." },
                Some(waiting) if waiting.is_empty() => p.empty { "No pull waits after a failure." },
                Some(waiting) => div.scroll { table {
                    thead { tr {
                        th scope="col" { "Image" }
                        th scope="col" { "Pod" }
                        th scope="col" { "Cause" }
                        th.number scope="col" { "Next try" }
                    } }
                    tbody {
                        @for image in waiting {
                            tr data-key=(format!("{} {}", image.uid, image.image)) {
                                th scope="row" data-label="Image" { (image_name(&image.image)) }
                                td data-label="Pod" { bdi { (image.namespace) "/" (image.pod) } }
                                td data-label="Cause" {
                                    span.bad { (image.cause) } " after " (plural(image.failures as usize, "failure"))
                                    " " bdi.message { (image.message) }
                                }
                                td.number data-label="Next try" {
                                    @if image.remaining_milliseconds == 0 { "now" }
                                    @else { "in " (whole_duration(image.remaining_milliseconds.div_ceil(1000).saturating_mul(1000))) }
                                }
                            }
                        }
                    }
                } },
            }
        }
    }
}

pub(super) fn events(report: &Report) -> Markup {
    let Some(of) = &report.pods else { return html! { section #events hidden {} } };
    html! {
        section #events aria-labelledby="events-title" {
            h2 #events-title { "Events" }
            @if of.events.is_empty() { p.empty { "Nothing has happened since the start." } }
            @else {
                ol.events {
                    @for entry in of.events.iter().take(EVENTS) {
                        @let event = &entry.event;
                        @let warning = event.kind == EventType::Warning;
                        li data-key=(format!("event-{}", entry.id)) {
                            span.when { (time(Some(entry.last), report.now)) @if entry.count > 1 { " ×" (entry.count) } }
                            span.reason.warn[warning] { (event.reason) }
                            span.what {
                                @if !event.object.name.is_empty() {
                                    bdi.path { (event.object.namespace) "/" (event.object.name)
                                        @if let Some(container) = event.object.container_name() { " " (container) } } " "
                                }
                                bdi { (event.message) }
                            }
                        }
                    }
                }
            }
        }
    }
}
