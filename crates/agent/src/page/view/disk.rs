//! The disk: how full it is, where collection starts and ends, and the images to remove next. Pure; called by [`super`].

use maud::{Markup, html};

use super::words::{bytes, image_name, percent, plural, time};
use crate::api::gc::DiskUsage;
use crate::page::inventory::{Inventory, Removals};
use crate::page::report::Report;

/// Number of listed images that are removed next.
const LISTED: usize = 8;

pub(super) fn disk(report: &Report) -> Markup {
    let inventory = &*report.inventory;
    html! {
        section #disk aria-labelledby="disk-title" {
            h2 #disk-title { "Disk" }
            @match &inventory.disk {
                Some(disk) => (gauge(disk, inventory.thresholds)),
                None => p.empty { "The image file system cannot be measured." },
            }
            @for problem in &inventory.problems { p.problem { bdi { (problem) } } }
            (removals(report, inventory))
        }
    }
}

fn gauge(disk: &DiskUsage, (high, low): (i32, i32)) -> Markup {
    let used = disk.capacity_bytes.saturating_sub(disk.available_bytes);
    let full = i64::try_from(disk.used_percent).unwrap_or(i64::MAX) >= i64::from(high);
    let mark = |threshold: i32| percent(f64::from(threshold), 100.0);
    let label = format!("{}% of the disk is used. Collection starts at {high}% and ends at {low}%.", disk.used_percent);
    html! {
        p.figure {
            strong { (bytes(used)) } " of " (bytes(disk.capacity_bytes)) " used, "
            strong { (bytes(disk.available_bytes)) } " free"
            @if disk.inodes > 0 { ", " (disk.inodes_used_percent) "% of inodes" }
        }
        svg.gauge role="img" aria-label=(label) width="100%" height="24" {
            rect.track x="0" y="5" width="100%" height="14" rx="3" {}
            rect.zone x=(mark(low)) y="5" width=(percent(f64::from(high.saturating_sub(low)), 100.0)) height="14" {}
            rect.fill.full[full] x="0" y="5" width=(percent(used as f64, disk.capacity_bytes as f64)) height="14" rx="3" {}
            @for threshold in [low, high] { line.mark x1=(mark(threshold)) x2=(mark(threshold)) y1="0" y2="24" {} }
        }
        p.note {
            @if high >= 100 { "Collection by space is switched off." }
            @else { "Collection starts at " (high) "% and ends at " (low) "%." }
        }
    }
}

fn removals(report: &Report, inventory: &Inventory) -> Markup {
    let Removals { now, images, frees_bytes } = &inventory.removals;
    let high = inventory.thresholds.0;
    html! {
        h3 { @if *now { "Goes with the next collection" } @else { "Goes first when the disk is " (high) "% full" } }
        @if images.is_empty() {
            p.empty {
                @if inventory.images.is_empty() { "There are no images." }
                @else if high >= 100 { "Collection by space is switched off." }
                @else { "Nothing can go: every image is needed or kept." }
            }
        } @else {
            p.note { (plural(images.len(), "image")) ", " (bytes(*frees_bytes)) }
            div.scroll {
                table {
                    thead { tr {
                        th scope="col" { "Image" }
                        th.number scope="col" { "Frees" }
                        th.number scope="col" { "Last used" }
                        th scope="col" { "Why" }
                    } }
                    tbody {
                        @for image in images.iter().take(LISTED) {
                            tr data-key=(image.id) {
                                th scope="row" data-label="Image" { (image_name(image.title())) }
                                td.number data-label="Frees" { (bytes(image.frees_bytes.unwrap_or_default())) }
                                td.number data-label="Last used" { (time(image.last_used, report.now)) }
                                td data-label="Why" { bdi { (image.why) } }
                            }
                        }
                    }
                }
            }
            @if images.len() > LISTED { p.note { "and " (plural(images.len() - LISTED, "image")) " more" } }
        }
    }
}
