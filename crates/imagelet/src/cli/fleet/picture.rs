//! The picture of a rollout as text, in at most 80 columns, and its short form in one line. Pure. Called by `status` and `watch`.

use fleet::api::FailureGroup;
use fleet::console::{RolloutPicture, SlowNode};
use jiff::Timestamp;
use oci::text::printable;

use crate::output::units::{bytes, count};
use crate::pods::age;

/// Columns of a line.
const COLUMNS: usize = 80;
/// Columns of a bar.
const BAR: usize = 40;

/// Returns the state of a rollout in a few words.
pub(super) fn state(picture: &RolloutPicture) -> String {
    if picture.is_current { picture.state.clone() } else { "Pending".to_owned() }
}

/// Returns the rollout in one line, without a time.
pub(super) fn line(picture: &RolloutPicture) -> String {
    let nodes = picture.nodes;
    let mut parts = vec![format!("{}/{} ready", nodes.ready, nodes.desired)];
    let others =
        [(nodes.pulling, "in progress"), (nodes.waiting, "waiting"), (nodes.failed, "failed"), (nodes.lost, "lost")];
    parts.extend(others.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}")));
    format!("imageset/{} {}: {}", picture.name, state(picture), parts.join(", "))
}

/// Returns the lines of the picture.
pub(super) fn render(picture: &RolloutPicture, now: Timestamp) -> Vec<String> {
    let mut lines = vec![head(picture, now), String::new()];
    lines.extend(bars(picture));
    lines.extend(transferred(picture));
    lines.push(String::new());
    for condition in &picture.conditions {
        let (name, status) = (&condition.name, &condition.status);
        lines.push(format!("{name:<12} {status:<8} {}: {}", condition.reason, condition.message));
    }
    if picture.conditions.is_empty() {
        lines.push("no conditions: the controller has not handled this set".to_owned());
    }
    lines.push(String::new());
    lines.push("IMAGES".to_owned());
    for image in &picture.images {
        let state = match (&image.digest, &image.problem) {
            (Some(digest), _) => short(digest),
            (None, Some(problem)) if !problem.is_empty() => format!("no digest: {problem}"),
            (None, _) => "no digest yet".to_owned(),
        };
        // The state is the news of a row: a long name gives way.
        let name = ending(&image.name, COLUMNS - 24);
        lines.push(format!("  {name:<40}  {state}"));
    }
    lines.extend(failures(&picture.failures));
    lines.extend(slowest(picture.slowest.as_deref(), picture.nodes.pulling, now));
    lines.into_iter().map(|line| cut(&line)).collect()
}

fn head(picture: &RolloutPicture, now: Timestamp) -> String {
    let mut parts = vec![format!("imageset/{}", picture.name), state(picture)];
    if picture.is_paused && picture.state != "Paused" {
        parts.push("paused".to_owned());
    }
    parts.extend(picture.rolled_back_to.map(|generation| format!("back to generation {generation}")));
    parts.push(format!("generation {}", picture.generation));
    parts.extend(picture.started.map(|started| format!("started {} ago", age::since(Some(started), now))));
    parts.push(count(u64::from(picture.nodes.desired), "node"));
    parts.join("  ")
}

fn bars(picture: &RolloutPicture) -> Vec<String> {
    let nodes = picture.nodes;
    let states = [
        ("ready", nodes.ready),
        ("in progress", nodes.pulling),
        ("waiting", nodes.waiting),
        ("failed", nodes.failed),
        ("lost", nodes.lost),
    ];
    states.iter().map(|(name, number)| format!("{name:<12} [{}] {number:>6}", bar(*number, nodes.desired))).collect()
}

/// Returns a bar. A state with a node has at least one mark.
fn bar(number: u32, all: u32) -> String {
    let part = usize::try_from(u64::from(number) * BAR as u64 / u64::from(all.max(1))).unwrap_or(BAR).min(BAR);
    let part = if number > 0 { part.max(1) } else { 0 };
    format!("{:BAR$}", "#".repeat(part))
}

fn transferred(picture: &RolloutPicture) -> Vec<String> {
    let all = picture.bytes;
    let progress = format!("{:<12} {} of {} on all nodes", "bytes", bytes(all.done), bytes(all.total));
    let sources = format!(
        "{:<12} {} from registries, {} from mirrors",
        "received",
        bytes(all.from_registry),
        bytes(all.from_mirrors)
    );
    let lines = [(all.total > 0, progress), (all.from_registry + all.from_mirrors > 0, sources)];
    lines.into_iter().filter_map(|(is_known, line)| is_known.then_some(line)).collect()
}

fn failures(groups: &[FailureGroup]) -> Vec<String> {
    if groups.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "FAILURES".to_owned()];
    for group in groups {
        let image = if group.image.is_empty() { String::new() } else { format!("  {}", group.image) };
        let nodes = count(u64::from(group.count), "node");
        lines.push(format!("  {}  {nodes}{image}", group.reason));
        if !group.message.is_empty() {
            lines.push(format!("    {}", group.message));
        }
        let more = if usize::try_from(group.count).is_ok_and(|all| all > group.nodes.len()) { ", …" } else { "" };
        lines.push(format!("    on {}{more}", group.nodes.join(", ")));
    }
    lines
}

fn slowest(slowest: Option<&[SlowNode]>, pulling: u32, now: Timestamp) -> Vec<String> {
    let Some(nodes) = slowest else {
        let note = "the slowest nodes are left out: you may not list nodeimages".to_owned();
        return if pulling > 0 { vec![String::new(), note] } else { Vec::new() };
    };
    if nodes.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "SLOWEST NODES".to_owned()];
    for node in nodes {
        let progress = match node.total {
            0 => "size unknown".to_owned(),
            total => format!("{} of {}", bytes(node.done), bytes(total)),
        };
        let since = node.since.map(|since| format!("  not ready for {}", age::since(Some(since), now)));
        let image = node.image.as_deref().map(|image| format!("  {}", ending(image, 30)));
        let (since, image) = (since.unwrap_or_default(), image.unwrap_or_default());
        lines.push(format!("  {:<16}  {progress}{since}{image}", node.node));
    }
    lines
}

/// Returns the beginning of a digest: enough to compare.
fn short(digest: &str) -> String {
    digest
        .split_once(':')
        .and_then(|(algorithm, hex)| Some(format!("{algorithm}:{}", hex.get(..12)?)))
        .unwrap_or_else(|| digest.to_owned())
}

/// Returns the end of a text, where names of images differ.
fn ending(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        text.to_owned()
    } else {
        format!("…{}", text.chars().skip(length + 1 - most).collect::<String>())
    }
}

fn cut(line: &str) -> String {
    let line = printable(line, '?', &[]);
    let line = line.trim_end();
    match line.char_indices().nth(COLUMNS) {
        None => line.to_owned(),
        Some(_) => line.chars().take(COLUMNS - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
