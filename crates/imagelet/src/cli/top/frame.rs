//! The view of `imagelet top` as lines that fit a terminal. Pure. Called by `top`.

use image_manager::{EndedPull, PullInFlight, PullOutcome, PullStep};
use jiff::Timestamp;
use oci::text::printable;

use crate::output::units;
use crate::pods::age;

/// The columns of plain text.
const PLAIN_COLUMNS: usize = 120;
/// Maximum number of ended pulls in plain text.
const PLAIN_ENDED: usize = 10;

/// The state of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) now: Timestamp,
    /// A label of the agent.
    pub(super) agent: String,
    pub(super) pulls: Vec<PullInFlight>,
    /// The pulls that ended last, the latest first.
    pub(super) ended: Vec<EndedPull>,
    pub(super) images: Option<u64>,
    pub(super) disk: Option<DiskFigures>,
    pub(super) has_pressure: bool,
    /// `None` where the agent runs no pods.
    pub(super) pods: Option<Vec<PodFigures>>,
    /// Reason for which the figures are outdated.
    pub(super) problem: Option<String>,
}

/// The file system of the images.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskFigures {
    pub(super) path: String,
    pub(super) capacity: u64,
    pub(super) available: u64,
    pub(super) images: Option<u64>,
}

/// A pod.
#[derive(Clone, Debug, Default)]
pub(super) struct PodFigures {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) ready: String,
    pub(super) is_ready: bool,
    pub(super) status: String,
    pub(super) restarts: u32,
    pub(super) created: Option<Timestamp>,
}

/// Returns the lines for a terminal of this size; without one, all of them.
pub(super) fn lines(picture: &Picture, size: Option<(usize, usize)>) -> Vec<String> {
    let (columns, rows) = size.unwrap_or((PLAIN_COLUMNS, usize::MAX));
    let mut lines = vec![head(picture), disk(picture, columns)];
    lines.extend(picture.problem.iter().map(|problem| format!("! {problem}")));
    let ended = if size.is_none() { PLAIN_ENDED } else { picture.ended.len() };
    let pulls: Vec<String> = picture.pulls.iter().map(|pull| running_row(pull, columns)).collect();
    let done: Vec<String> =
        picture.ended.iter().take(ended).map(|pull| ended_row(pull, picture.now, columns)).collect();
    let pods = picture.pods.as_deref().map(|pods| pod_rows(pods, picture.now, columns));
    // Empty lines and titles of the sections.
    let sections = 2 + usize::from(!done.is_empty()) * 2 + usize::from(pods.is_some()) * 2;
    let room = rows.saturating_sub(lines.len() + sections);
    let wanted = [pulls.len().max(1), pods.as_ref().map_or(0, |pods| pods.len().max(1)), done.len()];
    let [for_pulls, for_pods, for_done] = share(room, wanted);
    section(&mut lines, &pull_title(columns), "no pull runs", pulls, for_pulls);
    if let Some(pods) = pods {
        section(&mut lines, &pod_title(columns), "no pods", pods, for_pods);
    }
    if !done.is_empty() {
        section(&mut lines, "ENDED", "", done, for_done);
    }
    lines.truncate(rows);
    lines.into_iter().map(|line| cut(&line, columns)).collect()
}

/// Distributes the rows among pulls, pods and ended pulls. Each gets all that it needs if there is enough space; otherwise running pulls
/// and pods share the space, and ended pulls get a few rows at most.
fn share(room: usize, [pulls, pods, ended]: [usize; 3]) -> [usize; 3] {
    let few = ended.min(3).min(room / 4);
    let rest = room - few;
    let for_pulls = pulls.min((rest / 2).max(rest.saturating_sub(pods)));
    let for_pods = pods.min(rest - for_pulls);
    [for_pulls, for_pods, ended.min(room - for_pulls - for_pods)]
}

fn section(lines: &mut Vec<String>, title: &str, nothing: &str, rows: Vec<String>, room: usize) {
    lines.extend([String::new(), title.to_owned()]);
    if rows.is_empty() {
        lines.push(nothing.to_owned());
        return;
    }
    let all = rows.len();
    if all <= room {
        lines.extend(rows);
        return;
    }
    let shown = room.saturating_sub(1);
    lines.extend(rows.into_iter().take(shown));
    lines.extend((room > 0).then(|| format!("  and {} more", all - shown)));
}

fn head(picture: &Picture) -> String {
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut parts = vec![picture.agent.clone(), count(picture.pulls.len(), "pull")];
    parts.extend(picture.images.map(|images| count(usize::try_from(images).unwrap_or(usize::MAX), "image")));
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

/// Columns of the rows of running pulls after the image, and the minimum width of the image.
const PULL_COLUMNS: usize = 1 + 10 + 1 + 7 + 1 + 15 + 1 + 9 + 1 + 6;
const LEAST: usize = 16;

/// Returns the columns of an image's name, and of the pull's requester if there is space for it.
fn widths(columns: usize) -> (usize, usize) {
    let rest = columns.saturating_sub(PULL_COLUMNS);
    if rest >= 2 * LEAST + 10 { (rest - rest / 3 - 1, rest / 3) } else { (rest.max(LEAST), 0) }
}

fn pull_row(columns: usize, cells: [&str; 7]) -> String {
    let (name, by) = widths(columns);
    let [image, step, layers, bytes, rate, left, wanted_by] = cells;
    let image = cut_front(image, name);
    let row = format!("{image:name$} {step:10} {layers:>7} {bytes:>15} {rate:>9} {left:>6}");
    if by == 0 { row } else { format!("{row} {}", cut(wanted_by, by)) }
}

fn pull_title(columns: usize) -> String {
    pull_row(columns, ["PULL", "STEP", "LAYERS", "BYTES", "RATE", "LEFT", "WANTED BY"]).trim_end().to_owned()
}

fn running_row(pull: &PullInFlight, columns: usize) -> String {
    use cri_api::LayerState;
    let image = printable(&pull.image, '?', &[]);
    let step = match (pull.step, pull.queue_position) {
        (PullStep::Queued, Some(position)) => format!("queued {position}"),
        (PullStep::Queued, None) => "queued".to_owned(),
        (PullStep::Pulling, _) => "pulling".to_owned(),
        (PullStep::Resolving, _) => "resolving".to_owned(),
        (PullStep::Fetching, _) => "fetching".to_owned(),
        (PullStep::Committing, _) => "committing".to_owned(),
    };
    let layers = pull.layers.as_ref().map(|layers| {
        let is_here =
            |layer: &&image_manager::LayerInFlight| matches!(layer.state, LayerState::Done | LayerState::Present);
        format!("{}/{}", layers.iter().filter(is_here).count(), layers.len())
    });
    let bytes = pull.total_bytes.map(|total| format!("{}/{}", units::bytes(pull.received_bytes), units::bytes(total)));
    let rate = pull.bytes_per_second.map(|rate| format!("{}/s", units::bytes(rate))).unwrap_or_default();
    let left = pull
        .total_bytes
        .zip(pull.bytes_per_second)
        .and_then(|(total, rate)| total.saturating_sub(pull.received_bytes).checked_div(rate).map(short_time));
    let mut by = pull.wanted_by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if pull.waiters == 0 {
        by = "no waiter".to_owned();
    }
    let (layers, bytes) = (layers.unwrap_or_else(|| "-".to_owned()), bytes.unwrap_or_else(|| "-".to_owned()));
    let by = printable(&by, '?', &[]);
    pull_row(columns, [&image, &step, &layers, &bytes, &rate, &left.unwrap_or_default(), &by]).trim_end().to_owned()
}

fn ended_row(pull: &EndedPull, now: Timestamp, columns: usize) -> String {
    let image = printable(&pull.image, '?', &[]);
    let time = units::seconds(std::time::Duration::from_millis(pull.duration_milliseconds));
    let ago = age::since(Some(pull.ended), now);
    let what = match pull.outcome {
        PullOutcome::Pulled => format!("pulled {} in {time}, {ago} ago", units::bytes(pull.received_bytes)),
        PullOutcome::Present => format!("was here, {ago} ago"),
        PullOutcome::Cancelled => format!("given up after {time}, {ago} ago"),
        PullOutcome::Failed => {
            let cause = pull.cause.as_deref().unwrap_or("failed");
            let message = pull.message.as_deref().unwrap_or_default();
            format!("{cause} after {time}, {ago} ago: {}", printable(message, '?', &[]))
        }
    };
    let name = (columns / 2).min(48);
    format!("{:name$} {what}", cut_front(&image, name))
}

/// Columns of a pod's row after its name.
const POD_COLUMNS: usize = 1 + 6 + 1 + 20 + 1 + 8 + 1 + 6;

fn pod_row(columns: usize, cells: [&str; 5]) -> String {
    let name = columns.saturating_sub(POD_COLUMNS).clamp(LEAST, 60);
    let [pod, ready, status, restarts, age] = cells;
    let (pod, status) = (cut_front(pod, name), cut(status, 20));
    format!("{pod:name$} {ready:>6} {status:20} {restarts:>8} {age:>6}").trim_end().to_owned()
}

fn pod_title(columns: usize) -> String {
    pod_row(columns, ["POD", "READY", "STATUS", "RESTARTS", "AGE"])
}

/// Returns the rows of pods: those that are not ready are first.
fn pod_rows(pods: &[PodFigures], now: Timestamp, columns: usize) -> Vec<String> {
    let mut pods: Vec<&PodFigures> = pods.iter().collect();
    pods.sort_by_key(|pod| (pod.is_ready, &pod.namespace, &pod.name));
    let row = |pod: &&PodFigures| {
        let name = format!("{}/{}", pod.namespace, pod.name);
        let age = age::since(pod.created, now);
        let (name, status) = (printable(&name, '?', &[]), printable(&pod.status, '?', &[]));
        pod_row(columns, [&name, &pod.ready, &status, &pod.restarts.to_string(), &age])
    };
    pods.iter().map(row).collect()
}

fn short_time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Returns the first `width` characters.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// Returns the end of a name, which distinguishes images and pods.
fn cut_front(name: &str, width: usize) -> String {
    let count = name.chars().count();
    if count <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(2);
    "..".chars().take(width).chain(name.chars().skip(count - kept)).collect()
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
