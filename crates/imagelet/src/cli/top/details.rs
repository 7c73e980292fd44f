//! Everything about one pull, pod or image, with the commands that show more; and the keys of the view. Pure. Called by [`super::frame`].

use cri_api::Image;
use image_manager::{EndedPull, PullInFlight};
use oci::text::printable;

use super::list::RowId;
use super::picture::{Picture, PodFigures};
use super::rows::{ended_row, image_name, pods_row, running_row, short_id};
use crate::output::units;

/// Returns the keys.
pub(super) fn help() -> Vec<String> {
    [
        "",
        "KEYS",
        "  ↑ ↓  k j          select a pull, a pod or an image",
        "  PgUp PgDn  b Space  a page up or down",
        "  Home End  g G     the first or the last row",
        "  Tab               the next section",
        "  Enter             details of the selected row",
        "  Esc               back, or select nothing",
        "  ?                 this help",
        "  q  Ctrl-C         quit",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Returns everything about the selected row.
pub(super) fn of(picture: &Picture, selected: Option<&RowId>, columns: usize) -> Vec<String> {
    let found = match selected {
        Some(RowId::Pull(id)) => picture.pulls.iter().find(|pull| pull.id == *id).map(|one| pull(one, columns)),
        Some(RowId::Pod(namespace, name)) => {
            let mut pods = picture.pods.iter().flatten();
            let found = pods.find(|pod| pod.namespace == *namespace && pod.name == *name);
            found.map(|one| pod(picture, one, columns))
        }
        Some(RowId::Image(id)) => picture.images.iter().find(|image| image.id == *id).map(image),
        Some(RowId::Ended(number)) => {
            let found = picture.ended.iter().find(|pull| pull.number == *number);
            found.map(|one| ended(picture, one, columns))
        }
        None => None,
    };
    let lines = found.unwrap_or_else(|| vec!["no longer listed".to_owned()]);
    let lines = lines.into_iter().flat_map(|line| wrapped(&printable(&line, '?', &[]), columns));
    std::iter::once(String::new()).chain(lines).collect()
}

fn pull(pull: &PullInFlight, columns: usize) -> Vec<String> {
    let mut lines = vec![format!("PULL {}", pull.image), running_row(pull, columns)];
    let by = pull.wanted_by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !by.is_empty() {
        lines.push(format!("requested by {by}"));
    }
    for layer in pull.layers.iter().flatten() {
        let state = layer.state.in_words();
        let (received, size) = (units::bytes(layer.received_bytes), units::bytes(layer.size_bytes));
        lines.push(format!("  layer {} {:>15} {state}", short_id(&layer.digest), format!("{received}/{size}")));
    }
    lines
}

fn pod(picture: &Picture, pod: &PodFigures, columns: usize) -> Vec<String> {
    let name = format!("{}/{}", pod.namespace, pod.name);
    let mut lines = vec![format!("POD {name}"), pods_row(pod, picture.now, columns)];
    for container in &pod.containers {
        let restarts =
            if container.restarts == 1 { "1 restart".to_owned() } else { format!("{} restarts", container.restarts) };
        lines.push(format!("  {}: {}, {restarts}, {}", container.name, container.state, container.image));
    }
    lines.extend([format!("$ imagelet describe {name}"), format!("$ imagelet logs {name}")]);
    lines
}

fn image(image: &Image) -> Vec<String> {
    let name = image_name(image);
    let mut lines = vec![format!("IMAGE {name}"), format!("ID {}", image.id)];
    lines.push(format!("{} on disk{}", units::bytes(image.size), if image.pinned { ", pinned" } else { "" }));
    lines.extend(image.repo_tags.iter().chain(&image.repo_digests).map(|name| format!("  {name}")));
    lines.extend([format!("$ imagelet history {name}"), format!("$ imagelet gc explain {name}")]);
    lines
}

fn ended(picture: &Picture, pull: &EndedPull, columns: usize) -> Vec<String> {
    let mut lines = vec![format!("ENDED PULL {}", pull.image)];
    match &pull.message {
        Some(message) => {
            let cause = pull.cause.as_deref().unwrap_or("failed");
            lines.extend([format!("{cause}: {message}"), format!("$ imagelet explain {}", pull.image)]);
        }
        None => lines.push(ended_row(pull, picture.now, columns)),
    }
    lines
}

/// Returns a line in pieces that fit.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    match characters.len() {
        0 => vec![String::new()],
        _ => characters.chunks(columns.max(1)).map(|piece| piece.iter().collect()).collect(),
    }
}
