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
            (removals(report, inventory))
        }
    }
}

fn gauge(disk: &DiskUsage, (high, low): (i32, i32)) -> Markup {
    let used = disk.capacity_bytes.saturating_sub(disk.available_bytes);
    let full = i64::try_from(disk.used_percent).unwrap_or(i64::MAX) >= i64::from(high);
    let mark = |threshold: i32| percent(f64::from(threshold), 100.0);
    let label =
        format!("{}% of the disk is used. Collection starts at {high}% and stops at {low}%.", disk.used_percent);
    html! {
        p.figure {
            strong { (bytes(used)) } " of " (bytes(disk.capacity_bytes)) " used, "
            strong { (bytes(disk.available_bytes)) } " free"
            @if disk.inodes > 0 { ", " (disk.inodes_used_percent) "% of inodes" }
        }
        svg.gauge role="img" aria-label=(label) width="100%" height="50" {
            rect.track x="0" y="18" width="100%" height="14" rx="3" {}
            rect.zone x=(mark(low)) y="18" width=(percent(f64::from(high.saturating_sub(low)), 100.0)) height="14" {}
            rect.fill.full[full] x="0" y="18" width=(percent(used as f64, disk.capacity_bytes as f64)) height="14" rx="3" {}
            @if high < 100 {
                // One label is above the bar and the other one below it, since the marks may be close to each other.
                @for (threshold, y, word) in [(high, "11", "starts"), (low, "47", "stops")] {
                    @let anchor = if threshold > 50 { "end" } else { "start" };
                    line.mark x1=(mark(threshold)) x2=(mark(threshold)) y1="14" y2="36" {}
                    text x=(mark(threshold)) y=(y) text-anchor=(anchor) { (word) " at " (threshold) "%" }
                }
            }
        }
        p.note {
            @if high >= 100 { "Collection by space is switched off." }
            @else { "The marks show the fill level at which collection starts and stops." }
        }
    }
}

fn removals(report: &Report, inventory: &Inventory) -> Markup {
    let Removals { now, images, frees_bytes } = &inventory.removals;
    let high = inventory.thresholds.0;
    html! {
        h3 { @if *now { "Removed by the next collection" } @else { "Removed first when the disk is " (high) "% full" } }
        @if images.is_empty() {
            p.empty {
                @if inventory.images.is_empty() { "There are no images." }
                @else if high >= 100 { "Collection by space is switched off." }
                @else { "No image can be removed: all are in use or kept." }
            }
        } @else {
            p.note { (plural(images.len(), "image")) ", " (bytes(*frees_bytes)) " freed" }
            div.scroll {
                table {
                    thead { tr {
                        th scope="col" { "Image" }
                        th.number scope="col" { "Freed" }
                        th.number scope="col" { "Last used" }
                        th scope="col" { "Reason" }
                    } }
                    tbody {
                        @for image in images.iter().take(LISTED) {
                            tr data-key=(image.id) {
                                th scope="row" data-label="Image" { (image_name(image.title())) }
                                td.number data-label="Freed" { (bytes(image.frees_bytes.unwrap_or_default())) }
                                td.number data-label="Last used" { (time(image.last_used, report.now)) }
                                td data-label="Reason" { bdi { (image.why) } }
                            }
                        }
                    }
                }
            }
            @if images.len() > LISTED { p.note { "and " (plural(images.len() - LISTED, "image")) " more" } }
        }
    }
}
