//! Pulls that run, layer by layer, and pulls that ended. Pure; called by [`super`].

use cri_api::LayerState;
use image_manager::{EndedPull, LayerInFlight, PullInFlight, PullOutcome, PullStep, WantedBy};
use maud::{Markup, html};

use super::words::{bytes, duration, image_name, plural, short, time};
use crate::page::report::Report;

/// Number of listed layers of a pull.
const LAYERS: usize = 12;
/// Number of listed ended pulls.
const ENDED: usize = 20;

pub(super) fn running(report: &Report) -> Markup {
    html! {
        section #pulls aria-labelledby="pulls-title" {
            h2 #pulls-title { "Pulls in flight" }
            @if report.pulls.is_empty() {
                p.empty { "No pull runs." }
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
                Some(0) => { ", nothing has to come" }
                Some(total) => { ", " span.figure { (bytes(pull.received_bytes)) " of " (bytes(total)) } }
                None if pull.received_bytes > 0 => { ", " span.figure { (bytes(pull.received_bytes)) } }
                None => {}
            }
            @if let Some(rate) = pull.bytes_per_second { ", " span.figure { (bytes(rate)) "/s" } }
            ", for " (duration(pull.elapsed_milliseconds / 100 * 100))
            @if !pull.wanted_by.is_empty() { ", wanted by " bdi { (wanted_by(&pull.wanted_by)) } }
            @if pull.waiters > pull.wanted_by.len() { " (" (pull.waiters) " wait)" }
        }
        @match &pull.layers {
            Some(layers) if !layers.is_empty() => (self::layers(layers)),
            None if pull.step == PullStep::Pulling => p.note { "The runtime pulls by itself and does not report its layers." },
            _ => {}
        }
    }
}

fn step(pull: &PullInFlight) -> String {
    match pull.step {
        PullStep::Queued => match pull.queue_position {
            Some(position) => format!("waits, number {position} in the queue"),
            None => "waits for its turn".to_owned(),
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
    let is_here = |layer: &&LayerInFlight| matches!(layer.state, LayerState::Present | LayerState::Done);
    let here = layers.iter().filter(is_here).count();
    let coming: Vec<&LayerInFlight> = layers.iter().filter(|layer| !is_here(layer)).collect();
    html! {
        ul.layers {
            @for layer in coming.iter().take(LAYERS) {
                li data-key=(layer.digest) {
                    code { (short(&layer.digest)) }
                    progress max=(layer.size_bytes.max(1)) value=(layer.received_bytes.min(layer.size_bytes))
                        aria-label=(format!("Received of layer {}", short(&layer.digest))) {}
                    span.figure { (bytes(layer.received_bytes)) " of " (bytes(layer.size_bytes)) }
                    span.state { (state(layer.state)) }
                }
            }
        }
        p.note {
            (here) " of " (plural(layers.len(), "layer")) " here"
            @if coming.len() > LAYERS { ", " (coming.len() - LAYERS) " more to come" }
        }
    }
}

fn state(state: LayerState) -> &'static str {
    match state {
        LayerState::Waiting => "waits",
        LayerState::Fetching => "fetching",
        LayerState::Unpacking => "unpacking",
        LayerState::WaitingForOther => "comes with another pull",
        LayerState::Present => "here",
        LayerState::Done => "done",
    }
}

pub(super) fn ended(report: &Report) -> Markup {
    html! {
        section #ended aria-labelledby="ended-title" {
            h2 #ended-title { "Pulls that ended" }
            @if report.ended.is_empty() {
                p.empty { "No pull has ended since the start." }
            } @else {
                div.scroll { table {
                    thead { tr {
                        th scope="col" { "Image" }
                        th scope="col" { "Result" }
                        th.number scope="col" { "Received" }
                        th.number scope="col" { "Took" }
                        th.number scope="col" { "Per second" }
                        th.number scope="col" { "Ended" }
                    } }
                    tbody { @for pull in report.ended.iter().rev().take(ENDED) { (ended_row(report, pull)) } }
                } }
            }
        }
    }
}

fn ended_row(report: &Report, pull: &EndedPull) -> Markup {
    let running = pull.duration_milliseconds.saturating_sub(pull.queued_milliseconds);
    let rate = (pull.received_bytes > 0 && running > 0).then(|| pull.received_bytes.saturating_mul(1000) / running);
    html! {
        tr data-key=(format!("ended-{}", pull.number)) {
            th scope="row" data-label="Image" { (image_name(&pull.image)) }
            td data-label="Result" {
                span class=[(pull.outcome == PullOutcome::Failed).then_some("bad")] { (outcome(pull)) }
                @if let Some(message) = &pull.message { " " bdi.message { (message) } }
            }
            td.number data-label="Received" { (bytes(pull.received_bytes)) }
            td.number data-label="Took" {
                (duration(pull.duration_milliseconds))
                @if pull.queued_milliseconds >= 1000 { span.path { " (" (duration(pull.queued_milliseconds)) " queued)" } }
            }
            td.number data-label="Per second" { @match rate { Some(rate) => { (bytes(rate)) "/s" } None => span.none { "–" } } }
            td.number data-label="Ended" { (time(Some(pull.ended), report.now)) " ago" }
        }
    }
}

fn outcome(pull: &EndedPull) -> &'static str {
    match pull.outcome {
        PullOutcome::Pulled => "pulled",
        PullOutcome::Present => "was here",
        PullOutcome::Failed => "failed",
        PullOutcome::Cancelled => "given up",
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
