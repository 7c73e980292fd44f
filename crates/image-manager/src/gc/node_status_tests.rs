//! Tests of the node's status: shapes, limits, and the condition with its memory.

use super::*;
use crate::gc::manager::tests::{GIB, Rig, SECOND, image, policy};
use crate::gc::pressure::Layout;
use crate::gc::{DiskSpace, Thresholds};

// upstream: nodestatus/TestUpdateNewNodeStatus/5 image limit
// upstream: nodestatus/TestUpdateNewNodeStatus/no image limit
// upstream: nodestatus/TestImages/max images enforced
// upstream: nodestatus/TestImages/no max images cap for -1
// upstream: nodestatus/TestImages/max names per image enforced
// upstream: nodestatus/TestImages/images are sorted by size, descending
#[test]
fn the_largest_images_with_five_names_digests_first() {
    let named = |id: &str, size, tags: usize, digests: usize| Image {
        id: id.into(),
        size,
        repo_tags: (0..tags).map(|n| format!("r.example/{id}:{n}")).collect(),
        repo_digests: (0..digests).map(|n| format!("r.example/{id}@sha256:{n}")).collect(),
        ..Image::default()
    };
    let images = [named("a", 5, 4, 3), named("b", 9, 1, 0), named("c", 5, 0, 0), named("d", 7, 9, 0)];
    let sizes = |max| NodeImages::of(&images, max).as_slice().iter().map(|image| image.size_bytes).collect::<Vec<_>>();
    assert_eq!(sizes(-1), [9, 7, 5, 5]);
    assert_eq!(sizes(0), [0; 0]);
    assert_eq!(sizes(2), [9, 7]);
    let all = NodeImages::of(&images, 50);
    let names = &all.as_slice()[3].names;
    assert_eq!(names[..3], ["r.example/a@sha256:0", "r.example/a@sha256:1", "r.example/a@sha256:2"]);
    assert_eq!(names[3..], ["r.example/a:0", "r.example/a:1"]);
    // Equal in size: the last id first, as the kubelet's cache has it.
    assert!(all.as_slice()[2].names.is_empty());
    assert_eq!(all.as_slice()[1].names.len(), 5);
    let text = serde_json::to_string(&NodeImages::of(&images[1..3], -1)).expect("plain data");
    assert_eq!(text, r#"[{"names":["r.example/b:0"],"sizeBytes":9},{"sizeBytes":5}]"#);
}

#[tokio::test]
async fn a_status_in_the_shape_of_a_node() {
    let rig = Rig::new(policy(90, 80, 0, 0), 10 * GIB, 5 * GIB, vec![image("0", 1000), image("1", 2000)]);
    let status = rig.manager.status().await.expect("all is there");
    let json = serde_json::to_value(&status).expect("plain data");
    assert_eq!(json["images"][0]["sizeBytes"], 2000);
    assert_eq!(json["imageCount"], 2);
    assert_eq!(json["imageFs"]["capacityBytes"], 10 * GIB);
    assert_eq!(json["imageFs"]["availableBytes"], 5 * GIB);
    assert_eq!(json["imageFs"]["usedBytes"], 5 * GIB);
    let want = serde_json::json!({
        "type": "DiskPressure",
        "status": "False",
        "lastHeartbeatTime": "2023-11-14T22:13:20Z",
        "lastTransitionTime": "2023-11-14T22:13:20Z",
        "reason": "KubeletHasNoDiskPressure",
        "message": "kubelet has no disk pressure",
    });
    assert_eq!(json["conditions"][0], want);
    assert_eq!(json["evictionSignals"][0]["signal"], "imagefs.available");
    assert_eq!(json["evictionSignals"][0]["crossed"], false);
    assert!(rig.events().is_empty(), "a node that begins well tells nothing: {:?}", rig.events());
}

#[tokio::test]
async fn pressure_stays_for_its_period_also_across_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rig = |free| {
        let at = directory.path().to_owned();
        Rig::changed(policy(90, 80, 0, 0), 1000, free, Vec::new(), move |options| options.directory = Some(at))
    };
    let first = rig(100);
    let status = first.manager.status().await.expect("measured");
    assert!(status.has_disk_pressure());
    assert_eq!(first.events(), ["Normal NodeHasDiskPressure Node node-1 status is now: NodeHasDiskPressure"]);
    // There is space again; another process measures.
    let second = rig(900);
    second.pass(300 * SECOND);
    let status = second.manager.status().await.expect("measured");
    assert!(status.has_disk_pressure(), "the period is not over");
    assert_eq!(status.conditions[0].message, "kubelet has disk pressure");
    assert_eq!(status.conditions[0].last_transition_time.as_second(), 1_700_000_000);
    let third = rig(900);
    third.pass(301 * SECOND);
    assert!(!third.manager.status().await.expect("measured").has_disk_pressure());
    assert_eq!(third.events(), ["Normal NodeHasNoDiskPressure Node node-1 status is now: NodeHasNoDiskPressure"]);
}

#[tokio::test]
async fn a_status_without_thresholds_knows_no_pressure() {
    let rig = Rig::changed(policy(90, 80, 0, 0), 1000, 0, Vec::new(), |options| {
        options.pressure.thresholds = Thresholds::none();
    });
    let status = rig.manager.status().await.expect("measured");
    assert!(!status.has_disk_pressure() && status.eviction_signals.is_empty());
}

#[tokio::test]
async fn separate_file_systems_are_reported_separately() {
    let disks = |images: u64, containers: Option<u64>, node: Option<u64>| {
        let on = |device| DiskSpace { capacity: 1000, available: 0, device, ..DiskSpace::default() };
        let disks = Disks { images: Some(on(images)), containers: containers.map(on), node: node.map(on) };
        let measured = MeasuredDisks {
            info: cri_api::FsInfo::default(),
            disks,
            observations: Vec::new(),
            pressure: Pressure::default(),
            unfinished: None,
        };
        measured.layout()
    };
    assert_eq!(disks(1, None, None), Layout::Shared);
    assert_eq!(disks(1, None, Some(1)), Layout::Shared);
    assert_eq!(disks(1, None, Some(2)), Layout::DedicatedImages);
    assert_eq!(disks(0, None, Some(2)), Layout::Shared);
    assert_eq!(disks(1, Some(2), Some(2)), Layout::Split);
}
