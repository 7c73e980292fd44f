//! `imagelet status`: images, file systems and disk pressure of a node, on a disk that is really full, and that it does not
//! flap.

use serde_json::Value;

use crate::support::Imagelet;
use crate::support::disk::{Foreign, LoopFs, Space};
use crate::support::scene::Scene;

/// Status of the condition DiskPressure, and since when.
#[track_caller]
fn pressure(status: &Value) -> (String, String) {
    let conditions = status["conditions"].as_array().expect("conditions");
    let condition = conditions.iter().find(|c| c["type"] == "DiskPressure").expect("DiskPressure");
    let text = |field: &str| condition[field].as_str().expect("a text").to_owned();
    (text("status"), text("lastTransitionTime"))
}

/// Signals whose threshold is crossed.
fn crossed(status: &Value) -> Vec<&str> {
    let signals = status["evictionSignals"].as_array().expect("signals");
    signals.iter().filter(|s| s["crossed"] == true).filter_map(|s| s["signal"].as_str()).collect()
}

fn pressure_rises_and_falls(disk: LoopFs, fill: impl Fn(&std::path::Path, Space) -> Foreign, signals: &[&str]) {
    let s = Scene::new();
    let disk = disk.mount(&s.scratch, "disk");
    let imagelet = Imagelet::on(&disk.join("store"));
    let (name, _) = s.push_file("status/one:1", "a", "one");
    imagelet.ok(&["pull", &name]);
    assert_eq!(pressure(&imagelet.json(&["status"])).0, "False");

    let foreign = fill(&disk, Space::of(&disk));
    let full = imagelet.json(&["status"]);
    let (status, since) = pressure(&full);
    assert_eq!((status.as_str(), crossed(&full)), ("True", signals.to_vec()), "{full:#}");
    let table = imagelet.ok(&["status"]);
    assert!(table.contains("DiskPressure   True"), "{table}");

    foreign.remove();
    let after = imagelet.json(&["status"]);
    assert_eq!((pressure(&after), crossed(&after)), (("True".to_owned(), since.clone()), vec![]), "it does not flap");
    assert_eq!(pressure(&imagelet.clone().later(4 * 60).json(&["status"])), ("True".to_owned(), since.clone()));
    let over = pressure(&imagelet.clone().later(6 * 60).json(&["status"]));
    assert!(over.0 == "False" && over.1 > since, "{over:?}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_disk_without_bytes_is_under_pressure_for_a_while() {
    pressure_rises_and_falls(
        LoopFs::ext4(64),
        |disk, space| Foreign::leaving(disk, space.capacity / 8),
        &["imagefs.available"],
    );
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_disk_without_inodes_is_under_pressure_for_a_while() {
    pressure_rises_and_falls(
        LoopFs::ext4(64).inodes(1000),
        |disk, space| Foreign::leaving_inodes(disk, space.inodes / 50),
        &["imagefs.inodesFree", "nodefs.inodesFree"],
    );
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_disk_that_has_room_shows_its_images_the_largest_first() {
    let s = Scene::new();
    let disk = LoopFs::ext4(256).mount(&s.scratch, "disk");
    let imagelet = Imagelet::on(&disk.join("store"));
    let mut names = Vec::new();
    for (name, size) in [("status/small:1", 1), ("status/large:1", 900_000), ("status/middle:1", 300_000)] {
        let (whole, _) = s.push_file(name, "a", name.repeat(size / name.len() + 1));
        imagelet.ok(&["pull", &whole]);
        names.push(whole);
    }
    let status = imagelet.json(&["status"]);
    let tags: Vec<&str> = status["images"]
        .as_array()
        .expect("images")
        .iter()
        .map(|image| {
            let names = image["names"].as_array().expect("names");
            assert!(names[0].as_str().is_some_and(|n| n.contains("@sha256:")), "digests first: {names:?}");
            names.last().and_then(Value::as_str).expect("a tag")
        })
        .collect();
    assert_eq!(tags, [&names[1], &names[2], &names[0]]);
    let sizes: Vec<u64> =
        status["images"].as_array().expect("images").iter().filter_map(|image| image["sizeBytes"].as_u64()).collect();
    assert!(sizes.len() == 3 && sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    let kubelet = s.scratch.join("kubelet.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nnodeStatusMaxImages: 1\n";
    std::fs::write(&kubelet, text).expect("written");
    let limited = imagelet.clone().global("--kubelet-config", &kubelet.display().to_string()).json(&["status"]);
    assert_eq!(limited["images"].as_array().map(Vec::len), Some(1));

    let space = Space::of(&disk);
    let fs = &status["imageFs"];
    assert_eq!((&fs["capacityBytes"], &fs["inodes"]), (&space.capacity.into(), &space.inodes.into()));
    assert!(fs["availableBytes"].as_u64().is_some_and(|a| a.abs_diff(space.free) < 1 << 20), "{fs} {space:?}");
    assert!(fs["inodesFree"].as_u64().is_some_and(|i| i.abs_diff(space.inodes_free) < 8), "{fs} {space:?}");
    assert_eq!(pressure(&status).0, "False");
}

/// On the store itself and through the agent that has it.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_interrupted_pulls_left_is_shown_wherever_space_is() {
    let s = Scene::new();
    let (name, _) = s.push_file("status/one:1", "a", "one");
    s.imagelet.ok(&["pull", &name]);
    let ingest = s.scratch.join("store/ingest");
    let head = format!(r#"{{"blob":"sha256:{}","size":9000,"begin":0}}"#, "7".repeat(64));
    std::fs::write(ingest.join("7"), [7; 5000]).expect("written");
    std::fs::write(ingest.join("7.sums"), head + "\n").expect("written");
    let mut agent = None;
    for through in ["the store", "the agent"] {
        if through == "the agent" {
            agent = Some(s.imagelet.serve(&s.scratch.join("cri.sock")));
        }
        let df = s.imagelet.json(&["df"]);
        let left = &df["unfinished"];
        assert_eq!((&left["layers"], &left["blobs"]), (&0.into(), &1.into()), "{through}: {df:#}");
        assert!(left["bytes"].as_u64().is_some_and(|bytes| bytes >= 5000), "{through}: {df:#}");
        assert_eq!(s.imagelet.json(&["status"])["unfinishedPulls"], *left, "{through}");
        assert_eq!(s.imagelet.json(&["check"])["unfinishedPulls"], *left, "{through}");
        for command in ["df", "status", "check"] {
            let table = s.imagelet.ok(&[command]);
            assert!(table.contains("0 layers, 1 part"), "{through}: {table}");
        }
    }
    let metrics = s.imagelet.ok(&["metrics"]);
    for line in ["imagelet_unfinished_pulls 1", "imagelet_unfinished_pulls_bytes "] {
        assert!(metrics.lines().any(|l| l.starts_with(line)), "{line}: {metrics}");
    }
    drop(agent);
    s.imagelet.ok(&["gc", "--all-unused", "--min-age", "0s"]);
    assert_eq!(s.imagelet.json(&["df"])["unfinished"]["blobs"], 0);
}
