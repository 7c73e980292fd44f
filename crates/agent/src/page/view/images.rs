//! The images: one page of them, in the order that the reader asked for. Pure; called by [`super`].

use maud::{Markup, html};

use super::words::{bytes, count, image_name, plural, short, time};
use crate::page::inventory::ImageRow;
use crate::page::query::{ImageQuery, Order};
use crate::page::report::Report;

pub(super) fn images(report: &Report, query: &ImageQuery) -> Markup {
    let all = &report.inventory.images;
    let selected = query.select(all);
    html! {
        section #images aria-labelledby="images-title" {
            h2 #images-title { "Images" }
            form.filter role="search" method="get" action="/#images" {
                label for="image-filter" { "Name or ID" }
                input #image-filter name="image" type="search" maxlength="200" value=(query.filter) autocomplete="off";
                @if query.order != Order::default() { input type="hidden" name="sort" value=(query.order.word()); }
                button type="submit" { "Find" }
                @if !query.filter.is_empty() {
                    a href=(link(&ImageQuery { filter: String::new(), page: 0, ..query.clone() })) { "Show all" }
                }
            }
            @if selected.rows.is_empty() {
                p.empty { @if all.is_empty() { "There are no images." } @else { "No image has this text in its name or ID." } }
            } @else {
                p.note {
                    (plural(selected.count, "image"))
                    @if selected.count < all.len() { " of " (count(all.len())) }
                    @if let Some(sharing) = &report.inventory.sharing { ", " (bytes(sharing.disk_bytes)) " on disk" }
                }
                div.scroll { table.images {
                    thead { tr {
                        (heading("Image", Order::Name, query))
                        (heading("Download", Order::Download, query))
                        (heading("On disk", Order::Size, query))
                        (heading("Freed if removed", Order::Freed, query))
                        (heading("Pulled", Order::Age, query))
                        (heading("Last used", Order::Used, query))
                        th scope="col" { "Kept because" }
                    } }
                    tbody { @for image in selected.rows { (row(report, image)) } }
                } }
                @if selected.pages > 1 {
                    nav.pages aria-label="Pages of images" {
                        @if selected.page > 0 {
                            a rel="prev" href=(link(&ImageQuery { page: selected.page - 1, ..query.clone() })) { "Previous" }
                        }
                        span { "Page " (selected.page + 1) " of " (selected.pages) }
                        @if selected.page + 1 < selected.pages {
                            a rel="next" href=(link(&ImageQuery { page: selected.page + 1, ..query.clone() })) { "Next" }
                        }
                    }
                }
            }
        }
    }
}

fn link(query: &ImageQuery) -> String {
    match query.url().as_str() {
        "" => "/#images".to_owned(),
        text => format!("/?{text}#images"),
    }
}

/// Renders the head of a column, which orders the table by it.
fn heading(title: &str, order: Order, query: &ImageQuery) -> Markup {
    let is_in_force = query.order == order;
    let direction = if order == Order::Name { "ascending" } else { "descending" };
    html! {
        th scope="col" class=[(order != Order::Name).then_some("number")] aria-sort=[is_in_force.then_some(direction)] {
            a href=(link(&ImageQuery { order, page: 0, ..query.clone() })) { (title) }
        }
    }
}

fn row(report: &Report, row: &ImageRow) -> Markup {
    let image = &row.image;
    html! {
        tr data-key=(image.id) {
            th scope="row" data-label="Image" {
                @if image.names.is_empty() { span.none { "no name" } } @else { (image_name(image.title())) }
                @if image.names.len() > 1 {
                    @let others = image.names[1..].join("\n");
                    span.path title=(others) { " +" (image.names.len() - 1) }
                }
                " " code { (short(&image.id)) }
                @if row.pinned { " " span.tag { "pinned" } }
            }
            td.number data-label="Download" { @match row.download_bytes { Some(size) => (bytes(size)), None => span.none { "–" } } }
            td.number data-label="On disk" { (bytes(row.disk_bytes())) }
            td.number data-label="Freed if removed" {
                @match row.usage { Some(usage) => (bytes(usage.unique_bytes)), None => span.none { "–" } }
            }
            td.number data-label="Pulled" {
                (time(image.first_detected, report.now)) @if image.first_detected.is_some() { " ago" }
            }
            td.number data-label="Last used" { (time(image.last_used, report.now)) }
            td data-label="Kept because" {
                @if image.decision.is_empty() { span.none { "not known" } }
                @else if image.is_removed() { strong.warn { "removed next: " } bdi { (image.why) } }
                @else { bdi { (image.why) } }
            }
        }
    }
}
