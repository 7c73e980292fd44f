//! `imagelet status`: the state of a node's images and their disk. `-o json` has the form of a Node's `status.images` and
//! `status.conditions`.

use std::io::IsTerminal as _;

use cri_api::engine::UnfinishedPulls;
use serde::Deserialize;

use crate::app::App;
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Format, Table, units};

/// The displayed fields of the status.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusReport {
    images: Vec<Image>,
    image_count: usize,
    conditions: Vec<Condition>,
    image_fs: Fs,
    container_fs: Option<Fs>,
    node_fs: Option<Fs>,
    eviction_signals: Vec<Signal>,
    unfinished_pulls: Option<UnfinishedPulls>,
    pull_engine: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    #[serde(default)]
    names: Vec<String>,
    size_bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: jiff::Timestamp,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fs {
    path: String,
    capacity_bytes: u64,
    available_bytes: u64,
    used_bytes: u64,
    inodes: u64,
    inodes_free: u64,
    images_bytes: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Signal {
    signal: String,
    threshold: u64,
    available: u64,
    crossed: bool,
}

pub(super) async fn run(app: &App) -> Outcome {
    let status = app.collector().await?.status().await?;
    let format = app.printer.format.unwrap_or_default();
    if format.is_document() && !app.printer.quiet {
        return app.printer.document(Format::Json, &status);
    }
    let shown: StatusReport = serde_json::from_value(status)
        .map_err(|error| Failure::caused(Code::Failed, "understand the status", &error))?;
    if app.printer.quiet {
        return app.printer.lines(shown.conditions.iter().map(|c| format!("{}={}", c.kind, c.status)));
    }
    match format {
        Format::Name => app.printer.lines(shown.images.iter().filter_map(|image| image.names.first())),
        Format::Wide => {
            app.printer.lines([tables(&shown, true).join("\n") + "\n" + images(&shown).render().trim_end()])
        }
        _ => {
            let whole = app.printer.whole || !std::io::stdout().is_terminal();
            app.printer.lines([tables(&shown, whole).join("\n").trim_end()])
        }
    }
}

/// Columns of a path, with which a line fits a terminal of 80 columns.
const PATH_WIDTH: usize = 26;

/// Returns a path, or the end of one that is too wide.
fn short_path(path: &str, whole: bool) -> String {
    let length = path.chars().count();
    if whole || length <= PATH_WIDTH {
        return path.to_owned();
    }
    let end: String = path.chars().skip(length + 1 - PATH_WIDTH).collect();
    format!("…{end}")
}

/// Returns tables of conditions, file systems and thresholds. `whole`: paths are not cut.
fn tables(shown: &StatusReport, whole: bool) -> Vec<String> {
    let mut conditions = Table::new(&["CONDITION", "STATUS", "SINCE", "MESSAGE"]);
    for condition in &shown.conditions {
        let Condition { kind, status, last_transition_time, message } = condition;
        let since = units::time(Some(*last_transition_time));
        conditions.row([kind.clone(), status.clone(), since, message.clone()]);
    }
    let mut disks = Table::new(&["DISK", "SIZE", "USED", "FREE", "INODES FREE", "PATH"]);
    let all = [
        ("images", Some(&shown.image_fs)),
        ("containers", shown.container_fs.as_ref()),
        ("node", shown.node_fs.as_ref()),
    ];
    for (what, fs) in all {
        let Some(fs) = fs else { continue };
        let bytes = [fs.capacity_bytes, fs.used_bytes, fs.available_bytes].map(units::bytes);
        // A file system that allocates inodes dynamically has no count of them.
        let inodes = if fs.inodes == 0 { String::new() } else { fs.inodes_free.to_string() };
        let row = [what.to_owned()].into_iter().chain(bytes).chain([inodes, short_path(&fs.path, whole)]);
        disks.row(row);
    }
    let mut signals = Table::new(&["SIGNAL", "AVAILABLE", "THRESHOLD", "CROSSED"]);
    for signal in &shown.eviction_signals {
        let amount = |n: u64| if signal.signal.ends_with("inodesFree") { n.to_string() } else { units::bytes(n) };
        let crossed = if signal.crossed { "yes" } else { "no" };
        signals.row([signal.signal.clone(), amount(signal.available), amount(signal.threshold), crossed.to_owned()]);
    }
    let images = shown.image_fs.images_bytes.map(|bytes| {
        let take = if shown.image_count == 1 { "takes" } else { "take" };
        format!("{} {take} {} on disk.\n", units::count(shown.image_count as u64, "image"), units::bytes(bytes))
    });
    let left = shown.unfinished_pulls.filter(|left| *left != UnfinishedPulls::default());
    let left =
        left.map(|left| format!("Interrupted pulls left {left} ({}) for later ones.\n", units::bytes(left.bytes)));
    let engine = shown.pull_engine.as_ref().map(|engine| format!("Pull engine: {engine}.\n"));
    let tables = [conditions.render(), disks.render(), signals.render()].into_iter();
    let lines: String = images.into_iter().chain(left).chain(engine).collect();
    tables.chain((!lines.is_empty()).then_some(lines)).collect()
}

/// Returns the images of the status, the largest first.
fn images(shown: &StatusReport) -> Table {
    let mut table = Table::new(&["ON DISK", "NAMES"]);
    for image in &shown.images {
        table.row([units::bytes(image.size_bytes), image.names.join(" ")]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_for_people() {
        let fs = |path: &str, inodes: u64| {
            json!({"path": path, "capacityBytes": 100_000_000_000_u64, "availableBytes": 40_000_000_000_u64,
                "usedBytes": 60_000_000_000_u64, "inodes": inodes, "inodesFree": inodes / 2, "inodesUsed": inodes / 2,
                "imagesBytes": 7_000_000_000_u64})
        };
        let status = json!({
            "images": [{"names": ["r.example/a@sha256:0", "r.example/a:1"], "sizeBytes": 5_000_000}, {"sizeBytes": 7}],
            "imageCount": 2,
            "conditions": [{"type": "DiskPressure", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:01Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "KubeletHasNoDiskPressure",
                "message": "kubelet has no disk pressure"}],
            "imageFs": fs("/data", 1000),
            "nodeFs": fs("/", 0),
            "evictionSignals": [{"signal": "imagefs.available", "threshold": 15_000_000_000_u64,
                "available": 40_000_000_000_u64, "capacity": 100_000_000_000_u64, "crossed": false},
                {"signal": "imagefs.inodesFree", "threshold": 50, "available": 20, "capacity": 1000, "crossed": true}],
        });
        let mut shown: StatusReport = serde_json::from_value(status).expect("a status");
        assert_eq!(
            tables(&shown, false).join("\n"),
            "CONDITION      STATUS   SINCE                  MESSAGE\n\
             DiskPressure   False    2026-01-01T00:00:00Z   kubelet has no disk pressure\n\
             \n\
             DISK     SIZE    USED   FREE   INODES FREE   PATH\n\
             images   100GB   60GB   40GB   500           /data\n\
             node     100GB   60GB   40GB   -             /\n\
             \n\
             SIGNAL               AVAILABLE   THRESHOLD   CROSSED\n\
             imagefs.available    40GB        15GB        no\n\
             imagefs.inodesFree   20          50          yes\n\
             \n\
             2 images take 7GB on disk.\n"
        );
        shown.unfinished_pulls = Some(UnfinishedPulls { layers: 1, blobs: 2, bytes: 7000 });
        shown.pull_engine = Some("embedded: it fills containerd's snapshotter overlayfs".to_owned());
        assert_eq!(
            tables(&shown, false)[3],
            "2 images take 7GB on disk.\n\
             Interrupted pulls left 1 layer, 2 parts (7kB) for later ones.\n\
             Pull engine: embedded: it fills containerd's snapshotter overlayfs.\n"
        );
        shown.image_fs.path = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs".to_owned();
        shown.image_fs.inodes_free = 123_456_789;
        let disks = &tables(&shown, false)[1];
        assert!(disks.contains(" ….snapshotter.v1.overlayfs\n"), "{disks}");
        assert!(disks.lines().all(|line| line.chars().count() <= 80), "{disks}");
        assert!(tables(&shown, true)[1].contains(" /var/lib/containerd/io"));
        assert_eq!(
            images(&shown).render(),
            "ON DISK   NAMES\n5MB       r.example/a@sha256:0 r.example/a:1\n7B        -\n"
        );
    }
}
