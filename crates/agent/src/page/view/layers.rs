//! The picture of shared layers: a row for each group of images, a column for each group of layers, as wide as its layers are
//! large. A table has the same data as text. Pure; called by [`super`].

use std::collections::HashMap;

use maud::{Markup, html};

use super::words::{bytes, image_name, percent, plural, short};
use crate::page::inventory::ImageRow;
use crate::page::report::Report;
use crate::page::sharing::{ImageGroup, LayerGroup, Sharing};

/// Rows of the picture.
const ROWS: usize = 200;
/// Images that a row of the table names.
const NAMED: usize = 6;

/// Position of a column of the picture, in percent of its width.
#[derive(Clone, Copy)]
struct Column {
    x: f64,
    width: f64,
}

pub(super) fn layers(report: &Report) -> Markup {
    let names: HashMap<&str, &ImageRow> =
        report.inventory.images.iter().map(|row| (row.image.id.as_str(), row)).collect();
    html! {
        section #layers aria-labelledby="layers-title" {
            h2 #layers-title { "Shared layers" }
            @match &report.inventory.sharing {
                None => p.empty { "The runtime does not list the layers of its images." },
                Some(sharing) if sharing.layers.is_empty() => p.empty { "No two images share a layer." },
                Some(sharing) => details {
                    summary { "Sharing saves " (bytes(sharing.saved_bytes)) }
                    (notes(sharing))
                    (picture(sharing, &names))
                    (table(sharing, &names))
                },
            }
        }
    }
}

fn notes(sharing: &Sharing) -> Markup {
    html! {
        p.note {
            @if sharing.alone > 0 { " " (plural(sharing.alone, "image")) " " (if sharing.alone == 1 { "shares" } else { "share" }) " nothing." }
            @if sharing.images.len() > ROWS { " The first " (ROWS) " rows are drawn." }
            @if sharing.left_out.0 > 0 {
                " " (plural(sharing.left_out.0, "smaller group")) " of layers, which " (if sharing.left_out.0 == 1 { "saves " } else { "save " })
                (bytes(sharing.left_out.1)) ", " (if sharing.left_out.0 == 1 { "is" } else { "are" }) " not drawn."
            }
        }
    }
}

fn picture(sharing: &Sharing, names: &HashMap<&str, &ImageRow>) -> Markup {
    let columns = columns(&sharing.layers);
    let label = format!(
        "{} of images by {} of layers that they share; the table below says the same",
        plural(sharing.images.len(), "group"),
        plural(sharing.layers.len(), "group"),
    );
    html! {
        div.matrix role="group" aria-label=(label) tabindex="0" {
            div aria-hidden="true" {
                div.row.head {
                    span {}
                    svg width="100%" height="16" {
                        @for (column, group) in columns.iter().zip(&sharing.layers).filter(|(column, _)| column.width > 7.0) {
                            text x=(percent(column.x + column.width / 2.0, 100.0)) y="12" text-anchor="middle" { (bytes(group.bytes)) }
                        }
                    }
                }
                @for group in sharing.images.iter().take(ROWS) { (picture_row(group, &columns, names)) }
            }
        }
    }
}

fn picture_row(group: &ImageGroup, columns: &[Column], names: &HashMap<&str, &ImageRow>) -> Markup {
    let first = group.images.first().map(String::as_str).unwrap_or_default();
    html! {
        div.row data-key=(format!("row-{first}")) {
            span.label {
                (named(first, names))
                @if group.images.len() > 1 { span.more { "+" (group.images.len() - 1) } }
            }
            svg width="100%" height="18" {
                rect.hasnot x="0" y="2" width="100%" height="14" rx="2" {}
                @for column in group.layers.iter().filter_map(|index| columns.get(*index)) {
                    rect.has x=(percent(column.x, 100.0)) y="2" width=(percent(column.width, 100.0)) height="14" rx="2" {}
                }
            }
        }
    }
}

/// Columns with gaps between them. Their widths follow the roots of the bytes: a large base does not hide the rest.
fn columns(groups: &[LayerGroup]) -> Vec<Column> {
    let gap = (20.0 / groups.len().max(1) as f64).min(0.8);
    let weights: Vec<f64> = groups.iter().map(|group| (group.bytes as f64).sqrt().max(1.0)).collect();
    let highest = weights.iter().copied().fold(1.0, f64::max);
    // Nothing is too narrow to be seen.
    let weights: Vec<f64> = weights.into_iter().map(|weight| weight.max(highest / 12.0)).collect();
    let scale = (100.0 - gap * groups.len().saturating_sub(1) as f64) / weights.iter().sum::<f64>();
    let mut x = 0.0;
    let place = |weight: f64| {
        let column = Column { x, width: weight * scale };
        x += column.width + gap;
        column
    };
    weights.into_iter().map(place).collect()
}

fn named(id: &str, names: &HashMap<&str, &ImageRow>) -> Markup {
    match names.get(id).filter(|row| !row.image.names.is_empty()) {
        Some(row) => image_name(row.image.title()),
        None => html! { code { (short(id)) } },
    }
}

fn table(sharing: &Sharing, names: &HashMap<&str, &ImageRow>) -> Markup {
    html! {
        details {
            summary { "As a table" }
            div.scroll { table {
                thead { tr {
                    th scope="col" { "Layers" }
                    th.number scope="col" { "Size" }
                    th.number scope="col" { "Images" }
                    th.number scope="col" { "Saves" }
                    th scope="col" { "Shared by" }
                } }
                tbody {
                    @for group in &sharing.layers {
                        tr {
                            th scope="row" data-label="Layers" { (plural(group.layers, "layer")) }
                            td.number data-label="Size" { (bytes(group.bytes)) }
                            td.number data-label="Images" { (group.images.len()) }
                            td.number data-label="Saves" { (bytes(group.saved())) }
                            td data-label="Shared by" {
                                @for (index, id) in group.images.iter().take(NAMED).enumerate() {
                                    @if index > 0 { ", " }
                                    (named(id, names))
                                }
                                @if group.images.len() > NAMED { " and " (group.images.len() - NAMED) " more" }
                            }
                        }
                    }
                }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fill_the_width() {
        for count in [1, 2, 7, 40] {
            let groups: Vec<LayerGroup> =
                (0..count).map(|n| LayerGroup { layers: 1, bytes: 10_u64.pow(n % 10), images: Vec::new() }).collect();
            let columns = columns(&groups);
            let end = columns.last().map(|column| column.x + column.width).expect("a column");
            assert!((end - 100.0).abs() < 0.001, "{count}: {end}");
            assert!(columns.iter().all(|column| column.width > 0.3), "{count}");
            assert!(columns.windows(2).all(|pair| pair[0].x + pair[0].width <= pair[1].x), "{count}");
        }
        assert!(columns(&[]).is_empty());
    }
}
