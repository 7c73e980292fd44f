//! The view of `imagelet top` as lines that fit a terminal: a head, the part of the list that is scrolled to, and a line of keys. Pure. Called
//! by `top`.

use oci::text::printable;

use super::details;
use super::list::list;
use super::picture::Picture;
use super::rows::cut;
use super::view::{Mode, View};
use crate::output::units;

/// The columns of plain text.
const PLAIN_COLUMNS: usize = 120;
/// Maximum number of ended pulls in plain text.
const PLAIN_ENDED: usize = 10;
/// The keys of the list, from the most important one on.
const KEYS: [&str; 6] = ["q quit", "? help", "↑↓ select", "Enter details", "Tab next section", "PgUp PgDn scroll"];
/// The keys of the other modes.
const BACK_KEYS: [&str; 3] = ["Esc back", "q quit", "↑↓ scroll"];

/// The lines of a screen.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) lines: Vec<String>,
    /// Index of the line that is highlighted.
    pub(super) highlighted: Option<usize>,
}

/// Returns the plain text of a picture.
pub(super) fn plain(picture: &Picture) -> Vec<String> {
    let head = head_lines(picture, PLAIN_COLUMNS);
    let ended = picture.ended.iter().take(PLAIN_ENDED).cloned().collect();
    let picture = Picture { images: Vec::new(), ended, ..picture.clone() };
    let list = list(&picture, PLAIN_COLUMNS).into_iter().map(|line| line.text);
    head.into_iter().chain(list).map(|line| cut(&line, PLAIN_COLUMNS)).collect()
}

/// Returns the screen of a picture.
pub(super) fn screen(picture: &Picture, view: &View, (columns, rows): (usize, usize)) -> Frame {
    let mut lines = head_lines(picture, columns);
    let (body, selected) = body(picture, view, columns);
    // The head and the keys give way on a screen of a few rows.
    let height = body_height(picture, columns, rows);
    let from = view.first_line(&body, selected, height);
    let shown = body.iter().skip(from).take(height);
    let highlighted =
        selected.filter(|index| (from..from + height).contains(index)).map(|index| lines.len() + index - from);
    lines.extend(shown.cloned());
    lines.truncate(rows.saturating_sub(1));
    if rows > 1 {
        lines.resize(rows - 1, String::new());
        lines.push(key_line(view, columns, from, height, body.len()));
    }
    let lines: Vec<String> = lines.into_iter().map(|line| cut(&line, columns)).collect();
    Frame { highlighted: highlighted.filter(|index| index + 1 < lines.len()), lines }
}

/// Returns the number of rows between the head and the line of keys.
pub(super) fn body_height(picture: &Picture, columns: usize, rows: usize) -> usize {
    rows.saturating_sub(head_lines(picture, columns).len() + 1)
}

/// Returns the lines of the present mode, and the index of the selected one.
fn body(picture: &Picture, view: &View, columns: usize) -> (Vec<String>, Option<usize>) {
    match view.mode {
        Mode::Help => (details::help(), None),
        Mode::Details => (details::of(picture, view.selected.as_ref(), columns), None),
        Mode::List => {
            let list = list(picture, columns);
            let selected = view.selected.as_ref();
            let index = selected.and_then(|row| list.iter().position(|line| line.row.as_ref() == Some(row)));
            (list.into_iter().map(|line| line.text).collect(), index)
        }
    }
}

fn key_line(view: &View, columns: usize, from: usize, height: usize, all: usize) -> String {
    let keys: &[&str] = if view.mode == Mode::List { &KEYS } else { &BACK_KEYS };
    let place =
        if all > height { format!("{}-{} of {all}", from + 1, (from + height).min(all)) } else { String::new() };
    let room = columns.saturating_sub(place.chars().count() + 1);
    let mut line = String::new();
    for key in keys {
        let longer = if line.is_empty() { (*key).to_owned() } else { format!("{line}  {key}") };
        if longer.chars().count() > room {
            break;
        }
        line = longer;
    }
    let gap = columns.saturating_sub(line.chars().count() + place.chars().count());
    format!("{line}{:gap$}{place}", "")
}

fn head_lines(picture: &Picture, columns: usize) -> Vec<String> {
    let mut lines = vec![head(picture), disk(picture, columns)];
    lines.extend(picture.problem.iter().map(|problem| format!("! {}", printable(problem, '?', &[]))));
    lines
}

fn head(picture: &Picture) -> String {
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut parts = vec![picture.agent.clone(), count(picture.pulls.len(), "pull")];
    parts.extend(picture.image_count.map(|images| count(usize::try_from(images).unwrap_or(usize::MAX), "image")));
    parts.extend(picture.pods.as_ref().map(|pods| {
        let ready = pods.iter().filter(|pod| pod.is_ready).count();
        format!("{}, {ready} ready", count(pods.len(), "pod"))
    }));
    parts.join(" · ")
}

fn disk(picture: &Picture, columns: usize) -> String {
    let Some(disk) = &picture.disk else { return "disk: not measured".to_owned() };
    let used = disk.capacity.saturating_sub(disk.available);
    let of = |whole: usize| {
        let part = u128::from(used) * whole as u128 / u128::from(disk.capacity.max(1));
        usize::try_from(part).unwrap_or(whole).min(whole)
    };
    let bar = if columns >= 60 { 20 } else { 8 };
    let images = disk.images.map(|bytes| format!(", images {}", units::bytes(bytes))).unwrap_or_default();
    let pressure = if picture.has_pressure { "  DISK PRESSURE" } else { "" };
    format!(
        "disk [{:bar$}] {}% of {}, {} free{images}{pressure}  {}",
        "#".repeat(of(bar)),
        of(100),
        units::bytes(disk.capacity),
        units::bytes(disk.available),
        printable(&disk.path, '?', &[]),
    )
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
