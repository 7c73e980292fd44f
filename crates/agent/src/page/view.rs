//! The HTML of the page. Pure: from a [`Report`] to text. Every foreign text is escaped, since names and messages are from registries
//! and manifests. Each part has an id, by which it is replaced when it changes. Called by [`super::routes`] and [`super::live`].

mod cards;
mod charts;
mod disk;
mod images;
mod layers;
mod pods;
mod pulls;
#[cfg(test)]
pub(super) mod samples;
mod sets;
mod words;

use maud::{DOCTYPE, Markup, html};

use super::assets;
use super::attention::{self, Trouble};
use super::health::Health;
use super::query::ImageQuery;
use super::report::Report;
use words::time;

/// Renders the whole page.
pub(super) fn page(report: &Report, query: &ImageQuery) -> Markup {
    let troubles = attention::troubles(report);
    let health = Health::of(report, &troubles);
    let parts = rendered(report, query, &troubles, &health);
    let (top, main): (Vec<_>, Vec<_>) = parts.into_iter().partition(|(id, _)| ["health", "announcement"].contains(id));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (cards::title(report, &health)) }
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
    let troubles = attention::troubles(report);
    let health = Health::of(report, &troubles);
    rendered(report, query, &troubles, &health)
}

fn rendered(report: &Report, query: &ImageQuery, troubles: &[Trouble], health: &Health) -> Vec<(&'static str, Markup)> {
    vec![
        ("announcement", pulls::announcement(report)),
        ("health", cards::health(report, health)),
        ("attention", cards::attention(troubles)),
        ("pulls", pulls::running(report)),
        ("pods", pods::pods(report)),
        ("sets", sets::sets(report)),
        ("disk", disk::disk(report)),
        ("images", images::images(report, query)),
        ("layers", layers::layers(report)),
        ("speed", charts::speed(report)),
        ("ended", pulls::ended(report, troubles)),
        ("events", pods::events(report)),
    ]
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
