//! The image sets that this node follows: a line and a bar of states for each set, those with failures first; failed images with the
//! reason and the next attempt, and all images, folded. The part is hidden in a process that follows no sets. Pure; called by [`super`].

use maud::{Markup, html};

use super::words::{bytes, image_name, percent, plural, time, whole_duration};
use crate::admin::image_sets::{ImageSetImage, ImageSetImagePhase, ImageSetList, ImageSetState};
use crate::page::attention::milliseconds_until;
use crate::page::report::{FollowedSets, Report};

/// Number of listed sets.
const SETS: usize = 100;
/// Number of failed images of a set that are listed without unfolding.
const FAILED: usize = 5;
/// Number of listed images of a set.
const IMAGES: usize = 100;
/// The order of states in a bar.
const BAR: [ImageSetImagePhase; 5] = [
    ImageSetImagePhase::Ready,
    ImageSetImagePhase::Pulling,
    ImageSetImagePhase::Waiting,
    ImageSetImagePhase::Gone,
    ImageSetImagePhase::Failed,
];

pub(super) fn sets(report: &Report) -> Markup {
    if matches!(report.image_sets, FollowedSets::None) {
        // The part keeps its place for a page that is live.
        return html! { section #sets hidden {} };
    }
    html! {
        section #sets aria-labelledby="sets-title" {
            h2 #sets-title { "Image sets" }
            @match &report.image_sets {
                FollowedSets::Known(list) if list.sets.is_empty() => p.empty { "No image set selects this node." },
                FollowedSets::Known(list) => (self::list(report, list)),
                _ => p.empty { "The image sets of this node are not known yet." },
            }
        }
    }
}

fn list(report: &Report, list: &ImageSetList) -> Markup {
    let mut sets: Vec<&ImageSetState> = list.sets.iter().collect();
    // The sort is stable: sets with as urgent an image stay in the order of names.
    sets.sort_by_key(|set| set.images.iter().map(|image| image.phase).min());
    html! {
        ul.sets { @for set in sets.iter().take(SETS) { li data-key=(set.name) { (self::set(report, set)) } } }
        @if sets.len() > SETS { p.note { "and " (plural(sets.len() - SETS, "set")) " more" } }
        p.note {
            @match list.last_report {
                Some(at) => { "Last reported to the API server " (time(Some(at), report.now)) " ago." }
                None => "The API server has accepted no report since the start.",
            }
        }
    }
}

fn set(report: &Report, set: &ImageSetState) -> Markup {
    let count = |phase| set.images.iter().filter(|image| image.phase == phase).count();
    let counts = BAR.map(|phase| (phase, count(phase)));
    let all = set.images.len();
    let mut line = format!("{} of {} ready", counts[0].1, plural(all, "image"));
    for (phase, count) in counts.iter().skip(1).filter(|(_, count)| *count > 0) {
        line.push_str(&format!(", {count} {}", phase.in_words()));
    }
    let failed: Vec<&ImageSetImage> =
        set.images.iter().filter(|image| image.phase == ImageSetImagePhase::Failed).collect();
    html! {
        h3 { bdi { (set.name) } }
        (bar(&format!("{}: {line}", set.name), &counts, all))
        p.note {
            (line)
            @if set.bytes.total > 0 { ", " span.figure { (bytes(set.bytes.done)) " of " (bytes(set.bytes.total)) } }
        }
        @if !failed.is_empty() {
            ul.failed {
                @for image in failed.iter().take(FAILED) { li data-key=(image.name) { (image_name(&image.name)) ": " (state(report, image)) } }
                @if failed.len() > FAILED { li data-key="more" { "and " (plural(failed.len() - FAILED, "image")) " more" } }
            }
        }
        details {
            summary { (plural(all, "image")) }
            (images(report, set))
        }
    }
}

/// Renders the states of the images, as parts of a bar.
fn bar(label: &str, counts: &[(ImageSetImagePhase, usize)], all: usize) -> Markup {
    let mut before = 0;
    let parts = counts.iter().filter(|(_, count)| *count > 0).map(|(phase, count)| {
        let from = before;
        before += count;
        (phase.in_words(), percent(from as f64, all as f64), percent(*count as f64, all as f64))
    });
    html! {
        svg.states role="img" aria-label=(label) width="100%" height="10" {
            @for (class, x, width) in parts { rect.(class) x=(x) width=(width) height="10" {} }
        }
    }
}

/// Renders the state of an image with its reason and the next attempt.
fn state(report: &Report, image: &ImageSetImage) -> Markup {
    html! {
        @if image.phase == ImageSetImagePhase::Failed { span.bad { "failed" } } @else { (image.phase.in_words()) }
        @if let Some(reason) = &image.reason { ", " bdi { (reason) } }
        @if let Some(at) = image.retry_at {
            @match milliseconds_until(at, report.now).div_ceil(1000).saturating_mul(1000) {
                0 => span.note { ", retries now" },
                left => span.note { ", next attempt in " (whole_duration(left)) },
            }
        }
    }
}

fn images(report: &Report, set: &ImageSetState) -> Markup {
    let mut images: Vec<&ImageSetImage> = set.images.iter().collect();
    images.sort_by_key(|image| image.phase);
    html! {
        div.scroll { table {
            thead { tr {
                th scope="col" { "Image" }
                th scope="col" { "State" }
                th.number scope="col" { "Attempts" }
                th.number scope="col" { "Received" }
            } }
            tbody { @for image in images.iter().take(IMAGES) { (row(report, image)) } }
        } }
        @if images.len() > IMAGES { p.note { "and " (plural(images.len() - IMAGES, "image")) " more" } }
    }
}

fn row(report: &Report, image: &ImageSetImage) -> Markup {
    let received = image.bytes.from_registry.saturating_add(image.bytes.from_mirrors);
    html! {
        tr data-key=(image.name) {
            th scope="row" data-label="Image" {
                (image_name(&image.name))
                @if image.pinned { " " span.tag { "pinned" } }
            }
            td data-label="State" {
                (state(report, image))
                @if let Some(message) = &image.message { details { summary { "Message" } bdi.message { (message) } } }
            }
            td.number data-label="Attempts" { (image.attempts) }
            td.number data-label="Received" { @if received > 0 { (bytes(received)) } @else { span.none { "–" } } }
        }
    }
}
