//! The HTML of the page. Pure: from a [`Report`] to text. Every foreign text is escaped, since names and messages are from registries
//! and manifests. Each part has an id, by which it is replaced when it changes. Called by [`super::routes`] and [`super::live`].

mod charts;
mod disk;
mod images;
mod layers;
mod pods;
mod pulls;
#[cfg(test)]
pub(super) mod samples;
mod words;

use maud::{DOCTYPE, Markup, html};

use super::assets;
use super::query::ImageQuery;
use super::report::Report;
use words::{bytes, count, time};

/// Renders the whole page.
pub(super) fn page(report: &Report, query: &ImageQuery) -> Markup {
    let parts: Vec<(&'static str, Markup)> = parts(report, query);
    let (top, main): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|(id, _)| ["overview", "announcement"].contains(id));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (report.node_name) " – imagelet" }
                link rel="icon" type="image/svg+xml" href=(assets::ICON.path());
                link rel="stylesheet" href=(assets::STYLE.path());
                script src=(assets::SCRIPT.path()) defer {}
            }
            body data-version=(format!("{:016x}", assets::VERSION)) {
                a.skip href="#main" { "Skip to content" }
                header {
                    p.brand { a href="/" { "imagelet" } }
                    h1 { bdi { (report.node_name) } }
                    p.facts {
                        "version " (env!("CARGO_PKG_VERSION")) ", started " (time(Some(report.started), report.now)) " ago"
                    }
                    p.live {
                        noscript { "As of " (report.now.strftime("%H:%M:%S UTC").to_string()) ". " a href="" { "Reload" } }
                        span #state role="status" {}
                        button #pause type="button" hidden { "Pause" }
                    }
                }
                @for (_, part) in &top { (part) }
                main #main tabindex="-1" { @for (_, part) in &main { (part) } }
            }
        }
    }
}

/// Renders the parts that change, by id, in the order of the page.
pub(super) fn parts(report: &Report, query: &ImageQuery) -> Vec<(&'static str, Markup)> {
    vec![
        ("announcement", pulls::announcement(report)),
        ("overview", overview(report)),
        ("disk", disk::disk(report)),
        ("pulls", pulls::running(report)),
        ("speed", charts::speed(report)),
        ("images", images::images(report, query)),
        ("layers", layers::layers(report)),
        ("pods", pods::pods(report)),
        ("backoff", pods::backoff(report)),
        ("ended", pulls::ended(report)),
        ("events", pods::events(report)),
    ]
}

/// Renders the most important figures of the node, each with a link to its part.
fn overview(report: &Report) -> Markup {
    let inventory = &report.inventory;
    let all = inventory.images.iter().map(|row| row.image.size_bytes).fold(0, u64::saturating_add);
    let rate: u64 = report.pulls.iter().filter_map(|pull| pull.bytes_per_second).fold(0, u64::saturating_add);
    html! {
        nav #overview aria-label="Overview" {
            ul {
                @if let Some(disk) = &inventory.disk {
                    li { a href="#disk" {
                        span.label { "Disk" }
                        span.value { (disk.used_percent) "%" }
                        span.note { (bytes(disk.available_bytes)) " free" }
                    } }
                }
                li { a href="#images" {
                    span.label { "Images" }
                    span.value { (count(inventory.images.len())) }
                    span.note {
                        @match &inventory.sharing {
                            Some(sharing) if sharing.saved_bytes > 0 => { (bytes(sharing.saved_bytes)) " saved by sharing" }
                            _ => { (bytes(all)) }
                        }
                    }
                } }
                li { a href="#pulls" {
                    span.label { "Pulls" }
                    span.value { (count(report.pulls.len())) }
                    span.note {
                        @if rate > 0 { (bytes(rate)) "/s" } @else if report.pulls.is_empty() { "none running" } @else { "running" }
                    }
                } }
                @if let Some(of) = &report.pods {
                    @let (ready, all) = pods::ready(of);
                    li { a href="#pods" {
                        span.label { "Pods" }
                        span.value { (count(ready)) span.of { "/" (count(all)) } }
                        span.note { @if of.refused.is_empty() { "ready" } @else { "ready, " (count(of.refused.len())) " refused" } }
                    } }
                }
                @if let Some(waiting) = &report.backoff {
                    li { a href="#backoff" class=[(!waiting.is_empty()).then_some("warn")] {
                        span.label { "Back-off" }
                        span.value { (count(waiting.len())) }
                        span.note { @if waiting.is_empty() { "no pull waits" } @else { "failed pulls wait" } }
                    } }
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
