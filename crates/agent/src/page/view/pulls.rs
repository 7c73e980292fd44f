//! Pulls that run, layer by layer, and pulls that ended. Pure; called by [`super`].

use cri_api::LayerState;
use image_manager::{EndedPull, LayerInFlight, PullInFlight, PullOutcome, PullStep, WantedBy};
use maud::{Markup, html};

use super::words::{bytes, duration, image_name, plural, short, time, whole_duration};
use crate::page::attention::{Subject, Trouble, cause_words};
use crate::page::history;
use crate::page::report::Report;

/// Number of listed layers of a pull.
const LAYERS: usize = 12;
/// Number of listed ended pulls.
const ENDED: usize = 20;

pub(super) fn running(report: &Report) -> Markup {
    html! {
        section #pulls aria-labelledby="pulls-title" {
            h2 #pulls-title { "Pulls" }
            @if report.pulls.is_empty() {
                p.empty { "No pull is running." }
            } @else {
                ul.pulls { @for of in &report.pulls { li.pull data-key=(format!("pull-{}", of.id)) { (pull(of)) } } }
            }
        }
    }
}

fn pull(pull: &PullInFlight) -> Markup {
    html! {
        h3 { (image_name(&pull.image)) }
        @if let Some(total) = pull.total_bytes.filter(|total| *total > 0) {
            progress max=(total) value=(pull.received_bytes.min(total)) aria-label=(format!("Received of {}", pull.image)) {}
        }
        p.note {
            span.step { (step(pull)) }
            @match pull.total_bytes {
                Some(0) => { ", all layers are present" }
                Some(total) => { ", " span.figure { (bytes(pull.received_bytes)) " of " (bytes(total)) } }
                None if pull.received_bytes > 0 => { ", " span.figure { (bytes(pull.received_bytes)) } }
                None => {}
            }
            @if let Some(rate) = pull.bytes_per_second { ", " span.figure { (bytes(rate)) "/s" } }
            @if let Some(left) = remaining_milliseconds(pull) { ", about " span.figure { (whole_duration(left)) } " left" }
            ", for " (duration(pull.elapsed_milliseconds / 100 * 100))
            @if !pull.wanted_by.is_empty() { ", wanted by " bdi { (wanted_by(&pull.wanted_by)) } }
            @if pull.waiters > pull.wanted_by.len() { " (" (plural(pull.waiters, "request")) ")" }
        }
        @match &pull.layers {
            Some(layers) if !layers.is_empty() => (self::layers(layers)),
            None if pull.step == PullStep::Pulling => p.note { "The runtime pulls by itself and does not report its layers." },
            _ => {}
        }
    }
}

/// Returns the time that the rest of a pull takes at its current rate, in whole seconds; `None` while that is not known.
fn remaining_milliseconds(pull: &PullInFlight) -> Option<u64> {
    let rest = pull.total_bytes?.checked_sub(pull.received_bytes).filter(|rest| *rest > 0)?;
    let rate = pull.bytes_per_second.filter(|rate| *rate > 0)?;
    Some(rest.div_ceil(rate).saturating_mul(1000))
}

fn step(pull: &PullInFlight) -> String {
    match pull.step {
        PullStep::Queued => match pull.queue_position {
            Some(position) => format!("queued, number {position}"),
            None => "queued".to_owned(),
        },
        PullStep::Pulling => "pulling".to_owned(),
        PullStep::Resolving => "resolving the name".to_owned(),
        PullStep::Fetching => "fetching".to_owned(),
        PullStep::Committing => "committing".to_owned(),
    }
}

fn wanted_by(wanted_by: &[WantedBy]) -> String {
    let first = wanted_by.iter().take(2).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match wanted_by.len() {
        0..=2 => first,
        more => format!("{first} and {} more", more - 2),
    }
}

/// Renders the layers that are still to be fetched, and the number of present ones.
fn layers(layers: &[LayerInFlight]) -> Markup {
    let is_present = |layer: &&LayerInFlight| matches!(layer.state, LayerState::Present | LayerState::Done);
    let present = layers.iter().filter(is_present).count();
    let missing: Vec<&LayerInFlight> = layers.iter().filter(|layer| !is_present(layer)).collect();
    html! {
        details {
            summary { (present) " of " (plural(layers.len(), "layer")) " present" }
            ul.layers {
                @for layer in missing.iter().take(LAYERS) {
                    li data-key=(layer.digest) {
                        code { (short(&layer.digest)) }
                        progress max=(layer.size_bytes.max(1)) value=(layer.received_bytes.min(layer.size_bytes))
                            aria-label=(format!("Received of layer {}", short(&layer.digest))) {}
                        span.figure { (bytes(layer.received_bytes)) " of " (bytes(layer.size_bytes)) }
                        span.state { (layer.state.in_words()) }
                    }
                }
            }
            @if missing.len() > LAYERS { p.note { "and " (plural(missing.len() - LAYERS, "layer")) " more" } }
        }
    }
}

/// Renders the pulls that ended. The message of a failure is left out if an entry that needs attention has it.
pub(super) fn ended(report: &Report, troubles: &[Trouble]) -> Markup {
    html! {
        section #ended aria-labelledby="ended-title" {
            h2 #ended-title { "Finished pulls" }
            @if report.ended.is_empty() {
                p.empty { "No pull has finished since the start." }
            } @else {
                div.scroll { table {
                    thead { tr {
                        th scope="col" { "Image" }
                        th scope="col" { "Result" }
                        th.number scope="col" { "Received" }
                        th.number scope="col" { "Took" }
                        th.number scope="col" { "Rate" }
                        th.number scope="col" { "Ended" }
                    } }
                    tbody { @for pull in report.ended.iter().rev().take(ENDED) { (ended_row(report, pull, troubles)) } }
                } }
            }
        }
    }
}

fn ended_row(report: &Report, pull: &EndedPull, troubles: &[Trouble]) -> Markup {
    let rate = history::rate(pull);
    let is_listed = |trouble: &Trouble| matches!(&trouble.subject, Subject::Image(name, _) | Subject::SetImage(name, _) if *name == pull.image);
    let message = pull.message.as_ref().filter(|_| !troubles.iter().any(is_listed));
    html! {
        tr data-key=(format!("ended-{}", pull.number)) {
            th scope="row" data-label="Image" { (image_name(&pull.image)) }
            td data-label="Result" {
                @if pull.outcome == PullOutcome::Failed {
                    span.bad { "failed" } ", " (cause_words(pull.cause.as_deref().unwrap_or_default()))
                } @else { (outcome(pull)) }
                @if let Some(message) = message { details { summary { "Message" } bdi.message { (message) } } }
            }
            td.number data-label="Received" { (bytes(pull.received_bytes)) }
            td.number data-label="Took" {
                (duration(pull.duration_milliseconds))
                @if pull.queued_milliseconds >= 1000 { span.path { " (" (duration(pull.queued_milliseconds)) " queued)" } }
            }
            td.number data-label="Rate" { @match rate { Some(rate) => { (bytes(rate)) "/s" } None => span.none { "–" } } }
            td.number data-label="Ended" { (time(Some(pull.ended), report.now)) " ago" }
        }
    }
}

fn outcome(pull: &EndedPull) -> &'static str {
    match pull.outcome {
        PullOutcome::Pulled => "pulled",
        PullOutcome::Present => "already present",
        PullOutcome::Failed => "failed",
        PullOutcome::Cancelled => "cancelled",
    }
}

/// Renders the end of the last pull in one line, for screen readers.
pub(super) fn announcement(report: &Report) -> Markup {
    html! {
        p #announcement.sr role="status" {
            @if let Some(pull) = report.ended.last() {
                (pull.image) " " (outcome(pull)) " after " (duration(pull.duration_milliseconds))
            }
        }
    }
}
