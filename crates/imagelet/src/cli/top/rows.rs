//! The rows of pulls, pods and images, each as one line of text for a number of columns. Pure. Called by [`super::frame`] and
//! [`super::details`].

use image_manager::{EndedPull, PullInFlight, PullOutcome, PullStep};
use jiff::Timestamp;
use oci::text::printable;

use super::picture::PodFigures;
use crate::output::units;
use crate::pods::age;

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

pub(super) fn pull_title(columns: usize) -> String {
    pull_row(columns, ["PULL", "STEP", "LAYERS", "BYTES", "RATE", "LEFT", "WANTED BY"]).trim_end().to_owned()
}

pub(super) fn running_row(pull: &PullInFlight, columns: usize) -> String {
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

pub(super) fn ended_row(pull: &EndedPull, now: Timestamp, columns: usize) -> String {
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

pub(super) fn pod_title(columns: usize) -> String {
    pod_row(columns, ["POD", "READY", "STATUS", "RESTARTS", "AGE"])
}

pub(super) fn pods_row(pod: &PodFigures, now: Timestamp, columns: usize) -> String {
    let name = format!("{}/{}", pod.namespace, pod.name);
    let age = age::since(pod.created, now);
    let (name, status) = (printable(&name, '?', &[]), printable(&pod.status, '?', &[]));
    pod_row(columns, [&name, &pod.ready, &status, &pod.restarts.to_string(), &age])
}

/// Columns of an image's row after its name.
const IMAGE_COLUMNS: usize = 1 + 12 + 1 + 9 + 1 + 6;

fn image_cells(columns: usize, [image, id, size, age]: [&str; 4]) -> String {
    let name = columns.saturating_sub(IMAGE_COLUMNS).clamp(LEAST, 80);
    format!("{:name$} {id:12} {size:>9} {age:>6}", cut_front(image, name)).trim_end().to_owned()
}

pub(super) fn image_title(columns: usize) -> String {
    image_cells(columns, ["IMAGE", "IMAGE ID", "ON DISK", "PULLED"])
}

pub(super) fn image_row(image: &cri_api::Image, now: Timestamp, columns: usize) -> String {
    let title = printable(image_name(image), '?', &[]);
    let pulled = image.pulled_at.and_then(|at| Timestamp::from_nanosecond(i128::from(at)).ok());
    let age = pulled.map(|at| age::since(Some(at), now)).unwrap_or_default();
    image_cells(columns, [&title, short_id(&image.id), &units::bytes(image.size), &age])
}

/// Returns the first name of an image, or its ID.
pub(super) fn image_name(image: &cri_api::Image) -> &str {
    image.repo_tags.first().or_else(|| image.repo_digests.first()).unwrap_or(&image.id)
}

/// Returns the first twelve digits of a digest.
pub(super) fn short_id(digest: &str) -> &str {
    let hex = digest.split_once(':').map_or(digest, |(_, hex)| hex);
    hex.get(..12).unwrap_or(hex)
}

fn short_time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Returns the first `width` characters.
pub(super) fn cut(text: &str, width: usize) -> String {
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
