//! Reports for tests: those of a lively node, of an empty one, and of one with very many images.

use std::sync::Arc;

use cri_api::LayerState;
use cri_api::engine::{ImageLayers, LayersOf};
use image_manager::gc::PlannedImage;
use image_manager::{
    EndedPull, Event, EventType, LayerInFlight, ObjectRef, PullInFlight, PullOutcome, PullStep, WantedBy,
};
use jiff::Timestamp;
use serde_json::json;

use crate::admin::backoff::WaitingImage;
use crate::admin::image_sets::{
    ImageSetBytes, ImageSetImage, ImageSetImagePhase, ImageSetList, ImageSetPhase, ImageSetState,
};
use crate::api::gc::DiskUsage;
use crate::node::board::RefusedPod;
use crate::node::events::RecordedEvent;
use crate::page::history::{INTERVALS, Interval};
use crate::page::inventory::{ImageRow, Inventory, Removals};
use crate::page::report::{FollowedSets, PodReport, Report};
use crate::page::sharing::{self, Sharing};
use crate::pods::shape::Pod;

/// Text that breaks out of whatever it is not escaped for.
pub(in crate::page) const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>&\u{202e}";

pub(in crate::page) fn now() -> Timestamp {
    "2026-11-24T12:00:00Z".parse().expect("a time")
}

fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(now().as_second() - seconds).expect("a time")
}

pub(in crate::page) fn image(name: &str, size_bytes: u64) -> ImageRow {
    let id = oci::Digest::sha256(name.as_bytes()).to_string();
    let image = PlannedImage { id, names: vec![name.to_owned()], size_bytes, ..PlannedImage::default() };
    ImageRow { image, usage: None, download_bytes: Some(size_bytes / 3), pinned: false }
}

pub(in crate::page) fn running(id: u64, received_bytes: u64) -> PullInFlight {
    PullInFlight {
        id,
        image: "docker.io/library/postgres:17".to_owned(),
        wanted_by: vec![WantedBy::Pod { namespace: "shop".to_owned(), name: "db-0".to_owned() }],
        waiters: 1,
        since: ago(4),
        elapsed_milliseconds: 4200,
        step: PullStep::Fetching,
        queue_position: None,
        total_bytes: Some(152_000_000),
        received_bytes,
        unpacked_bytes: received_bytes * 2,
        bytes_per_second: Some(23_400_000),
        layers: None,
    }
}

pub(in crate::page) fn ended(number: u64, id: u64, received_bytes: u64) -> EndedPull {
    EndedPull {
        number,
        id,
        image: "ghcr.io/example/web:1.4.2".to_owned(),
        wanted_by: Vec::new(),
        since: ago(90),
        ended: ago(80),
        duration_milliseconds: 10_000,
        queued_milliseconds: 0,
        received_bytes,
        outcome: PullOutcome::Pulled,
        image_ref: None,
        cause: None,
        message: None,
    }
}

/// Returns the report of a node without any activity.
pub(in crate::page) fn empty() -> Report {
    Report {
        node_name: "edge-1".to_owned(),
        started: ago(5),
        now: now(),
        inventory: Arc::new(Inventory {
            thresholds: (85, 80),
            sharing: Some(Sharing::default()),
            ..Inventory::default()
        }),
        pulls: Vec::new(),
        ended: Vec::new(),
        throughput: vec![Interval::default(); INTERVALS],
        backoff: Some(Vec::new()),
        pods: Some(PodReport::default()),
        image_sets: FollowedSets::None,
    }
}

/// Returns the report of a busy node with `images` images, with `text` in every name, message and reason.
pub(in crate::page) fn lively(images: usize, text: &str) -> Report {
    let repositories = [
        "library/postgres",
        "library/nginx",
        "example/web",
        "example/worker",
        "grafana/grafana",
        "prom/prometheus",
        "team-a/api-gateway",
    ];
    let mut layers = ImageLayers::default();
    let mut rows = Vec::new();
    for index in 0..images {
        let repository = repositories[index % repositories.len()];
        let host = if repository.starts_with("library") { "docker.io" } else { "registry.example:5000" };
        let name = format!("{host}/{repository}{text}:{}.{}", index / repositories.len() + 1, index % 7);
        let size = 20_000_000 + (index as u64 * 7_919_000) % 400_000_000;
        let mut row = image(&name, size);
        row.image.first_detected = Some(ago(3600 + index as i64 * 5000));
        row.image.last_used = index.is_multiple_of(3).then(|| ago(index as i64 * 900));
        let (decision, why) = match index % 5 {
            0 => ("in-use", format!("in use by pod shop/web-{index}{text}")),
            1 => ("not-needed", "its space is not needed".to_owned()),
            2 => ("pinned", "pinned".to_owned()),
            3 => ("too-young", "pulled 1m30s ago, and images stay for at least 2m0s".to_owned()),
            _ => ("not-needed", format!("kept by rule {text}")),
        };
        (row.image.decision, row.image.why) = (decision.to_owned(), why);
        row.pinned = index % 5 == 2;
        // Bases that many have, middles that some have, and a layer of each image's own.
        let own = [index % 3, 10 + index % 7, 20 + index % 11, 40 + index];
        let own: Vec<u32> = own.into_iter().map(|layer| u32::try_from(layer).expect("few layers")).collect();
        let of = LayersOf { own_bytes: 4096, layers: own, used_by: None };
        layers.images.insert(row.image.id.clone(), of);
        rows.push(row);
    }
    layers.layers = (0..40 + images as u64).map(|n| 3_000_000 + n * n * 73_000 % 60_000_000).collect();
    let usage = sharing::usage(&layers);
    rows.iter_mut().for_each(|row| row.usage = usage.get(row.image.id.as_str()).copied());
    let next: Vec<PlannedImage> = rows
        .iter()
        .filter(|row| row.image.decision == "not-needed")
        .take(6)
        .map(|row| PlannedImage {
            decision: "remove".to_owned(),
            why: "its space is needed".to_owned(),
            frees_bytes: Some(row.image.size_bytes / 2),
            ..row.image.clone()
        })
        .collect();
    let disk = DiskUsage {
        path: "/var/lib/imagelet".to_owned(),
        capacity_bytes: 64_000_000_000,
        available_bytes: 19_500_000_000,
        used_percent: 69,
        inodes: 4_000_000,
        inodes_free: 3_500_000,
        inodes_used_percent: 12,
    };
    let inventory = Inventory {
        disk: Some(disk),
        thresholds: (85, 80),
        removals: Removals {
            now: false,
            frees_bytes: next.iter().filter_map(|image| image.frees_bytes).sum(),
            images: next,
        },
        images: rows,
        sharing: Some(Sharing::of(&layers)),
        problems: Vec::new(),
    };
    let mut report = Report { inventory: Arc::new(inventory), ..empty() };
    report.started = ago(3 * 86_400 + 7000);
    pulls(&mut report, text);
    pods(&mut report, text);
    report
}

fn pulls(report: &mut Report, text: &str) {
    let layer = |n: u8, size_bytes, received_bytes, state| LayerInFlight {
        digest: oci::Digest::sha256(&[n]).to_string(),
        size_bytes,
        received_bytes,
        unpacked_bytes: received_bytes * 2,
        state,
    };
    let mut first = running(1, 88_300_000);
    first.image.push_str(text);
    first.layers = Some(vec![
        layer(1, 28_200_000, 28_200_000, LayerState::Done),
        layer(2, 4_100_000, 4_100_000, LayerState::Present),
        layer(3, 96_000_000, 51_000_000, LayerState::Fetching),
        layer(4, 20_000_000, 20_000_000, LayerState::Unpacking),
        layer(5, 7_000_000, 0, LayerState::Waiting),
    ]);
    let mut second = running(2, 0);
    second.image = "registry.example:5000/team-a/api-gateway:2026.11.3-rc.1".to_owned();
    (second.step, second.queue_position, second.total_bytes, second.bytes_per_second) =
        (PullStep::Queued, Some(1), None, None);
    report.pulls = vec![first, second];
    for number in 1..=24_u64 {
        let mut pull = ended(number, 100 + number, number * 9_100_000 % 160_000_000);
        pull.ended = ago(3500 - number as i64 * 140);
        pull.duration_milliseconds = 400 + number * number * 1777 % 38_000;
        if number.is_multiple_of(9) {
            pull.outcome = PullOutcome::Failed;
            pull.received_bytes = 0;
            pull.cause = Some("not_found".to_owned());
            pull.message = Some(format!("ghcr.io/example/web:1.4.2: not found{text}"));
        }
        report.ended.push(pull);
    }
    for (index, interval) in report.throughput.iter_mut().enumerate() {
        let wave = (index as u64 * 37) % 29;
        let bytes = if index % 9 < 4 { wave * 21_000_000 } else { 0 };
        *interval = Interval { bytes, rate: bytes / 20 };
    }
}

fn pods(report: &mut Report, text: &str) {
    let pod = |name: &str, phase: &str, reason: Option<&str>, restarts: u32| {
        let state = match reason {
            None => json!({"running": {"startedAt": "2026-11-24T08:00:00Z"}}),
            Some(reason) => json!({"waiting": {"reason": reason}}),
        };
        let status = json!({"phase": phase, "containerStatuses": [
            {"name": "main", "ready": reason.is_none(), "started": reason.is_none(), "restartCount": restarts, "state": state, "image": "x", "imageID": "x"}]});
        let metadata = json!({"name": format!("{name}{text}"), "namespace": "shop", "uid": name, "creationTimestamp": "2026-11-23T08:00:00Z"});
        let env = json!([{"name": "PASSWORD", "value": "s3cret-of-a-container"}]);
        Pod::of(&json!({"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "x", "env": env}]}, "status": status})).expect("a pod")
    };
    let event = |number: u64, kind, reason, message: &str, count| RecordedEvent {
        number,
        id: number,
        event: Event {
            object: ObjectRef {
                namespace: "shop".to_owned(),
                name: "web-1".to_owned(),
                field_path: "spec.containers{main}".to_owned(),
                ..ObjectRef::default()
            },
            kind,
            reason,
            message: format!("{message}{text}"),
        },
        count,
        first: ago(600),
        last: ago(number as i64 * 41),
    };
    report.pods = Some(PodReport {
        pods: vec![
            pod("db-0", "Pending", Some("ContainerCreating"), 0),
            pod("web-1", "Running", None, 0),
            pod("web-2", "Running", None, 2),
            pod("worker-7", "Running", Some("ImagePullBackOff"), 11),
        ],
        refused: vec![RefusedPod {
            origin: "/etc/imagelet/manifests/odd.yaml".to_owned(),
            pod: Some(format!("shop/odd{text}")),
            reason: format!("spec.containers: Required value{text}"),
            skipped: false,
        }],
        events: vec![
            event(1, EventType::Normal, "Pulling", "Pulling image \"docker.io/library/postgres:17\"", 1),
            event(2, EventType::Warning, "Failed", "Failed to pull image \"ghcr.io/example/worker:7\": not found", 3),
            event(3, EventType::Warning, "BackOff", "Back-off pulling image \"ghcr.io/example/worker:7\"", 12),
            event(4, EventType::Normal, "Started", "Container started", 1),
        ],
    });
    report.backoff = Some(vec![WaitingImage {
        namespace: "shop".to_owned(),
        pod: "worker-7".to_owned(),
        uid: "worker-7".to_owned(),
        image: format!("ghcr.io/example/worker{text}:7"),
        registry: "ghcr.io".to_owned(),
        cause: "not_found".to_owned(),
        failures: 3,
        window_milliseconds: 40_000,
        remaining_milliseconds: 27_300,
        message: format!("ghcr.io/example/worker:7: not found{text}"),
    }]);
}

/// Adds two image sets: `web`, with an image that failed and one that is pulled, and `base`, which is ready and has `images` images.
pub(in crate::page) fn with_sets(report: Report, images: usize, text: &str) -> Report {
    let image = |name: &str, phase| ImageSetImage {
        name: format!("{name}{text}"),
        phase,
        pinned: true,
        bytes: ImageSetBytes { total: 40_000_000, done: 10_000_000, from_registry: 7_000_000, from_mirrors: 3_000_000 },
        ..ImageSetImage::default()
    };
    let failed = ImageSetImage {
        reason: Some(format!("InsufficientSpace{text}")),
        message: Some(format!("3 GB would have to be free{text}")),
        attempts: 4,
        retry_at: Some(ago(-90)),
        ..image("r.example/shop/front:9", ImageSetImagePhase::Failed)
    };
    let web = ImageSetState {
        name: format!("web{text}"),
        phase: ImageSetPhase::Pulling,
        bytes: ImageSetBytes { total: 80_000_000, done: 20_000_000, ..ImageSetBytes::default() },
        images: vec![failed, image("r.example/shop/back:9", ImageSetImagePhase::Pulling)],
    };
    let base = ImageSetState {
        name: "base".to_owned(),
        phase: ImageSetPhase::Ready,
        images: (0..images).map(|n| image(&format!("r.example/base/{n}:1"), ImageSetImagePhase::Ready)).collect(),
        ..ImageSetState::default()
    };
    let list = ImageSetList { sets: vec![base, web], last_report: Some(ago(12)) };
    Report { image_sets: FollowedSets::Known(list), ..report }
}
