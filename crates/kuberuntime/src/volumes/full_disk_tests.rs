//! A disk that is full at each step: the error is reported, no existing file is lost, and with free space everything is
//! made.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rustix::mount::MountFlags;
use serde_json::json;

use super::{Bench, bench, pod};
use crate::documents::{Document, DocumentContent};

const FULL: &str = "No space left on device (os error 28)";

/// The directory of pods on a disk of its own, with these options.
fn disk(bench: &Bench, options: &str) {
    let options = std::ffi::CString::new(options).unwrap();
    let pods = bench.directory("pods");
    rustix::mount::mount("tmpfs", pods, "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
}

fn grow(bench: &Bench, options: &str) {
    rustix::mount::mount_remount(bench.path("pods"), MountFlags::empty(), options).unwrap();
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn files_run_out_at_each_step() {
    let volumes = json!([
        {"name": "scratch", "emptyDir": {}}, {"name": "login", "secret": {"secretName": "login"}},
        {"name": "settings", "configMap": {"name": "settings", "items": [{"key": "a", "path": "d/e/a"}]}},
    ]);
    let mounts = json!([
        {"name": "scratch", "mountPath": "/s", "subPath": "a/b"}, {"name": "login", "mountPath": "/l"},
        {"name": "settings", "mountPath": "/c"},
    ]);
    let pod = pod(volumes, Some(mounts), json!({}));
    let mut failures = std::collections::BTreeSet::new();
    let mut files = 1;
    loop {
        let bench = bench();
        disk(&bench, &format!("nr_inodes={files}"));
        let made = match bench.set_up(&pod).await {
            Ok(()) => bench.mounts_of(&pod, 0, Some("127.0.0.1\tlocalhost\n"), false).await.map(drop),
            failed => failed,
        };
        grow(&bench, "nr_inodes=1000");
        // Whatever was begun is no obstacle.
        bench.set_up(&pod).await.unwrap();
        bench.mounts_of(&pod, 0, Some("127.0.0.1\tlocalhost\n"), false).await.unwrap();
        assert_eq!(fs::read_to_string(bench.volume("configmap", "settings").join("d/e/a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(bench.path("pods/u1/etc-hosts")).unwrap(), "127.0.0.1\tlocalhost\n");
        bench.tear_down().await.unwrap();
        let Err(error) = made else { break };
        assert!(error.ends_with(FULL), "{error}");
        failures.insert(error);
        files += 1;
    }
    assert!(failures.len() >= 8, "{failures:#?}");
    assert!(files > 20, "{files}");
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn what_containers_see_stays_when_there_is_no_room_for_more() {
    let mut bench = bench();
    disk(&bench, "size=256k");
    let pod = pod(json!([{"name": "settings", "configMap": {"name": "settings"}}]), None, json!({}));
    bench.set_up(&pod).await.unwrap();
    let hosts = "1.2.3.4\tweb\n";
    bench.mounts_of(&pod, 0, Some(hosts), false).await.unwrap();
    let large = Document {
        data: [("a".to_owned(), DocumentContent::new("x".repeat(200 << 10)))].into(),
        ..Document::default()
    };
    bench.documents.config_maps.insert("settings".into(), large);
    fs::write(bench.path("pods/filler"), "f".repeat(150 << 10)).unwrap();
    let told = format!("MountVolume.SetUp failed for volume \"settings\" : write \"a\": {FULL}");
    for _ in 0..2 {
        assert_eq!(bench.set_up(&pod).await, Err(told.clone()));
        assert_eq!(fs::read_to_string(bench.volume("configmap", "settings").join("a")).unwrap(), "1");
    }
    fs::remove_file(bench.path("pods/filler")).unwrap();
    bench.set_up(&pod).await.unwrap();
    assert_eq!(fs::metadata(bench.volume("configmap", "settings").join("a")).unwrap().size(), 200 << 10);
    // A hosts file whose text grows on a full disk is whole again when there is room.
    let longer = hosts.repeat(2000);
    fs::write(bench.path("pods/filler"), "f".repeat(40 << 10)).unwrap();
    let failed = bench.mounts_of(&pod, 1, Some(&longer), false).await.unwrap_err();
    assert_eq!(failed, format!("failed to write its hosts file: {FULL}"));
    fs::remove_file(bench.path("pods/filler")).unwrap();
    bench.mounts_of(&pod, 1, Some(&longer), false).await.unwrap();
    assert_eq!(fs::read_to_string(bench.path("pods/u1/etc-hosts")).unwrap(), longer);
    // Taking away needs no room.
    let _ = fs::write(bench.path("pods/filler"), "f".repeat(300 << 10));
    bench.tear_down().await.unwrap();
    assert!(!bench.path("pods/u1").exists());
}
