//! The health line, and the card of everything that needs attention. Pure; called by [`super`].

use maud::{Markup, html};

use super::words::{image_name, plural, whole_duration};
use crate::page::attention::{Retry, Subject, Trouble};
use crate::page::health::{Health, Level};
use crate::page::report::Report;

/// Number of listed entries.
const LISTED: usize = 50;
/// Number of pods or sets that the entry of an image names.
const NAMED: usize = 3;

/// Returns the title of the page.
pub(super) fn title(report: &Report, health: &Health) -> String {
    format!("{} – {} – imagelet", health.line(), report.node_name)
}

pub(super) fn health(report: &Report, health: &Health) -> Markup {
    html! {
        nav #health.(class(health.level())) aria-label="Health" data-title=(title(report, health)) {
            ul { @for item in &health.0 { li { a.(class(item.level)) href=(item.link) { (item.text) } } } }
        }
    }
}

fn class(level: Level) -> &'static str {
    match level {
        Level::Good => "good",
        Level::Warning => "warn",
        Level::Bad => "bad",
    }
}

pub(super) fn attention(troubles: &[Trouble]) -> Markup {
    if troubles.is_empty() {
        // The part keeps its place for a page that is live.
        return html! { section #attention hidden {} };
    }
    html! {
        section #attention aria-labelledby="attention-title" {
            h2 #attention-title { "Needs attention" }
            ul.troubles { @for trouble in troubles.iter().take(LISTED) { (row(trouble)) } }
            @if troubles.len() > LISTED { p.note { "and " (troubles.len() - LISTED) " more" } }
        }
    }
}

fn row(trouble: &Trouble) -> Markup {
    html! {
        li data-key=(trouble.key) {
            h3 { (subject(&trouble.subject)) }
            p.cause {
                bdi.bad { (trouble.cause) }
                @match trouble.retry {
                    Retry::In(0) => span.note { " · retries now" },
                    Retry::In(milliseconds) => span.note {
                        " · next retry in " (whole_duration(milliseconds.div_ceil(1000).saturating_mul(1000)))
                    },
                    Retry::OnRequest => span.note { " · next retry when a client requests it" },
                    Retry::Never => {}
                }
            }
            p.command { code { (trouble.command_line()) } }
            @if !trouble.details.is_empty() {
                details {
                    summary { "Details" }
                    @for message in &trouble.details { p.message { bdi { (message) } } }
                }
            }
        }
    }
}

fn subject(subject: &Subject) -> Markup {
    html! {
        @match subject {
            Subject::Pod(name) => { "Pod " bdi { (name) } }
            Subject::Image(name, pods) => {
                "Image " (image_name(name))
                @if !pods.is_empty() {
                    span.note {
                        " for " @if pods.len() == 1 { "pod " } @else { (plural(pods.len(), "pod")) ": " }
                        bdi { (pods[..pods.len().min(NAMED)].join(", ")) }
                        @if pods.len() > NAMED { " and " (pods.len() - NAMED) " more" }
                    }
                }
            }
            Subject::SetImage(name, sets) => {
                "Image " (image_name(name))
                span.note {
                    " for " @if sets.len() == 1 { "image set " } @else { (plural(sets.len(), "image set")) ": " }
                    bdi { (sets[..sets.len().min(NAMED)].join(", ")) }
                    @if sets.len() > NAMED { " and " (sets.len() - NAMED) " more" }
                }
            }
            Subject::Manifest(name) => { "Manifest of " bdi { (name) } }
            Subject::Disk => "Disk of the images",
            Subject::Service => "Image service",
        }
    }
}
