//! Pods that use more of the node's disk than they may, or than there is; and `kill -9` of imagelet while one is evicted.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Imagelet;
use crate::support::cluster::{Cluster, Namespace, play};
use crate::support::disk::{LoopFs, Space};
use crate::support::node::{FOREVER, NODE, is};
use crate::support::pod_history::PodHistory;
use crate::support::random::{Random, noise_of, number};
use crate::support::start_log::StartLog;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_beyond_their_limits_are_evicted() {
    let cluster = Cluster::start();
    play(&cluster, &[("volume", volume), ("hidden", hidden), ("writable-layer", writable_layer)]);
}

fn volume(scene: &Namespace<'_>) {
    let script = format!("dd if=/dev/zero of=/v/file bs=1M count=3 2>/dev/null; {FOREVER}");
    let mut main = scene.cluster.container("main", &script);
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "2Mi"}}]);
    scene.pod("greedy", json!({"terminationGracePeriodSeconds": 30, "volumes": volumes, "containers": [main]}));
    let modest = scene.cluster.container("main", FOREVER);
    scene.pod("modest", json!({"terminationGracePeriodSeconds": 1, "volumes": volumes, "containers": [modest]}));
    let greedy = scene.phase("greedy", "Failed");
    let status = &greedy["status"];
    assert_eq!(status["reason"], "Evicted", "{status:#}");
    assert_eq!(status["message"], "Usage of EmptyDir volume \"v\" exceeds the limit \"2Mi\". ");
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let disrupted = conditions.into_iter().find(|condition| condition["type"] == "DisruptionTarget");
    assert_eq!(disrupted.map(|condition| &condition["reason"]), Some(&json!("TerminationByKubelet")), "{status:#}");
    assert!(!scene.events("greedy", "Evicted").is_empty());
    scene.ready("modest");
}

/// Data below more names than a path can have.
fn hidden(scene: &Namespace<'_>) {
    let mut main = scene.cluster.container("main", FOREVER);
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "2Mi"}}]);
    scene.pod("hidden", json!({"terminationGracePeriodSeconds": 1, "volumes": volumes, "containers": [main]}));
    let pod = scene.ready("hidden");
    let uid = pod["metadata"]["uid"].as_str().expect("a uid");
    let root = scene.cluster.node.scene.scratch.join("root/pods").join(uid);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::RWXU;
    let top = rustix::fs::open(root.join("volumes/kubernetes.io~empty-dir/v"), flags, mode);
    let mut below = top.expect("the directory of the volume");
    for level in 0..20 {
        let name = format!("{level:0>250}");
        rustix::fs::mkdirat(&below, name.as_str(), mode).expect("made");
        below = rustix::fs::openat(&below, name.as_str(), flags, mode).expect("open");
    }
    let create = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
    let file = rustix::fs::openat(&below, "file", create, mode).expect("made");
    rustix::io::write(&file, &vec![1; 3 << 20]).expect("written");
    drop((file, below));
    let evicted = scene.phase("hidden", "Failed");
    assert_eq!(evicted["status"]["reason"], "Evicted", "{evicted:#}");
    assert_eq!(evicted["status"]["message"], "Usage of EmptyDir volume \"v\" exceeds the limit \"2Mi\". ");
}

fn writable_layer(scene: &Namespace<'_>) {
    let script = format!("dd if=/dev/zero of=/file bs=1M count=3 2>/dev/null; {FOREVER}");
    let mut main = scene.cluster.container("main", &script);
    main["resources"] = json!({"limits": {"ephemeral-storage": "2Mi"}, "requests": {"ephemeral-storage": "1Mi"}});
    scene.pod("writer", json!({"terminationGracePeriodSeconds": 1, "containers": [main]}));
    let writer = scene.phase("writer", "Failed");
    let status = &writer["status"];
    assert_eq!(status["reason"], "Evicted", "{status:#}");
    let expected = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
    assert_eq!(status["message"], expected);
}

/// Disk of the node in MiB. A fifth of it must stay free.
const DISK: u64 = 256;

/// A cluster whose node has such a disk, before imagelet is started.
#[track_caller]
fn on_a_small_disk() -> Cluster {
    Cluster::idle_on(
        Some(LoopFs::ext4(DISK)),
        &json!({
            "evictionHard": {"nodefs.available": "20%", "imagefs.available": "20%"},
            "evictionPressureTransitionPeriod": "15s",
            "imageMinimumGCAge": "0s",
        }),
    )
}

/// A pod that requests this much of the disk, writes this many MiB to a volume, and then is ready.
fn writer(cluster: &Cluster, request: &str, mebibytes: u64) -> Value {
    let script =
        format!("dd if=/dev/zero of=/v/file bs=1M count={mebibytes} 2>/dev/null; touch /tmp/written; {FOREVER}");
    let mut main = cluster.container("main", &script);
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    main["resources"] = json!({"requests": {"ephemeral-storage": request}});
    main["readinessProbe"] = json!({"exec": {"command": ["test", "-e", "/tmp/written"]}, "periodSeconds": 1});
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    json!({"terminationGracePeriodSeconds": 1, "containers": [main], "volumes": volumes})
}

#[track_caller]
fn is_evicted(pod: &Value) {
    let status = &pod["status"];
    assert_eq!(status["reason"], "Evicted", "{status:#}");
    let message = status["message"].as_str().unwrap_or_default();
    let head = "The node was low on resource: ephemeral-storage. Threshold quantity: ";
    assert!(message.starts_with(head) && message.contains(", available: "), "{message}");
}

fn has_pressure(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let pressure = conditions.into_iter().find(|condition| condition["type"] == "DiskPressure");
    pressure.is_some_and(|pressure| pressure["status"] == "True")
}

fn has_room(disk: &Path) -> bool {
    let space = Space::of(disk);
    space.free > space.capacity / 5
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_full_disk_costs_the_pod_that_filled_it() {
    let mut cluster = on_a_small_disk();
    let disk = cluster.node.scene.scratch.join("root");
    cluster.node.start();
    cluster.is_ready();
    // An unused image is removed first, and is not enough.
    let (unused, _) = cluster.node.scene.push_file("team/unused:1", "noise", noise_of("unused", 8 << 20));
    let runtime = Imagelet::remote(&cluster.node.containerd.endpoint());
    runtime.ok(&["pull", &unused]);
    let scene = cluster.namespace("full");
    // The first one uses more than the other, but less than it requested.
    scene.pod("modest", writer(&cluster, "100Mi", 40));
    scene.ready("modest");
    let before = cluster.node.running("modest/main");
    scene.pod("greedy", writer(&cluster, "1Mi", DISK));
    is_evicted(&scene.phase("greedy", "Failed"));
    cluster.plane.until_object(&["node", NODE], "it has disk pressure", has_pressure);
    cluster.plane.until("the disk has room again", || has_room(&disk));
    cluster.plane.until_object(&["node", NODE], "the pressure goes", |node| !has_pressure(node));
    assert!(!runtime.images().iter().any(|image| image.to_string().contains("team/unused")), "it was collected");
    assert_eq!(cluster.node.running("modest/main"), before, "the other one runs on");
    assert!(is(&scene.get(&["pod", "modest"]), "Ready"));
    // Pods are scheduled to the node again.
    scene.running("later");
    scene.clear();
    cluster.node.nothing_is_left();
}

/// Evictions that imagelet is killed in, in the quick form. `scripts/test-long.sh cluster` runs the long one.
const KILLS: usize = 3;
const SEED: u64 = 0x00E7_1C70_2026;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kills_during_evictions_cost_one_pod_each() {
    let rounds = number("IMAGELET_EVICTION_KILLS", KILLS);
    let seed = SEED + number("IMAGELET_SEED", 0) as u64;
    let mut random = Random(seed);
    let mut cluster = on_a_small_disk();
    let root = cluster.node.scene.scratch.join("root");
    cluster.node.start();
    cluster.is_ready();
    let (mut history, starts) = (PodHistory::follow(&cluster.plane), StartLog::follow(&cluster.node.containerd));
    let scene = cluster.namespace("full");
    // A pod that must not be evicted: it uses less than it requested.
    scene.pod("modest", writer(&cluster, "100Mi", 40));
    scene.ready("modest");
    let modest = cluster.node.running("modest/main");
    let decisions = |cluster: &Cluster| {
        let log = cluster.node.log();
        log.iter().filter(|line| line.contains("evicting a pod")).cloned().collect::<Vec<_>>()
    };
    // Kills before the API server knew of the end.
    let mut early = 0;
    for round in 0..rounds {
        let context = format!("seed {seed:#x}, round {round}");
        let (name, before) = (format!("greedy-{round}"), decisions(&cluster).len());
        let scene = cluster.namespace_again("full");
        scene.pod(&name, writer(&cluster, "1Mi", DISK));
        cluster.node.eventually("a pod is chosen", || decisions(&cluster).len() > before);
        // A moment at random of the one or two seconds that an eviction takes, not a state: nothing is waited for.
        std::thread::park_timeout(Duration::from_secs_f64(2.0 * random.next().powi(3)));
        cluster.node.kill();
        early += usize::from(
            !history
                .latest()
                .values()
                .any(|pod| pod["metadata"]["name"] == *name && pod["status"]["phase"] == "Failed"),
        );
        cluster.node.start();
        let scene = cluster.namespace_again("full");
        let greedy = scene.phase(&name, "Failed");
        is_evicted(&greedy);
        let uid = greedy["metadata"]["uid"].as_str().expect("a uid").to_owned();
        cluster.plane.until("its volumes are freed", || !root.join("pods").join(&uid).join("volumes").exists());
        assert!(has_room(&root), "{context}: {:?}", Space::of(&root));
        cluster.plane.until_object(&["node", NODE], "the pressure goes", |node| !has_pressure(node));

        let chosen = &decisions(&cluster)[before..];
        assert!(chosen.iter().all(|line| line.contains(&name)), "{context}: others were chosen, too: {chosen:#?}");
        assert_eq!(cluster.node.running("modest/main"), modest, "{context}: the other one runs on");
        // The new process knows its readiness after a probe, which it begins once the disk has space again.
        scene.ready("modest");
        // It has ended for good, and once: no revision of it came after its end but of the same phase.
        history.is_sound(&context);
        starts.is_sound(&context);
        assert!(!cluster.node.ran().iter().any(|ran| ran.running && ran.of == format!("{name}/main")), "{context}");
        assert_eq!(history.latest()[&uid]["status"]["reason"], "Evicted", "{context}");
        scene.kubectl(&["delete", "pod", &name, "--timeout=60s"]);
    }
    let scene = cluster.namespace_again("full");
    scene.running("later");
    scene.clear();
    cluster.node.nothing_is_left();
    println!("seed {seed:#x}: {rounds} kills during evictions, {early} of them before the API server knew of the end");
}
