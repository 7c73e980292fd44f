//! Troubles of nodes in many states: each failure has one entry, and what is being started has none.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::admin::backoff::WaitingImage;
use crate::node::board::RefusedPod;
use crate::page::inventory::Inventory;
use crate::page::report::{FollowedSets, PodReport};
use crate::page::view::samples::{empty, ended, lively, now, running, with_sets};
use crate::pods::shape::Pod;

fn pod(name: &str, phase: &str, statuses: Value) -> Pod {
    Pod::of(&json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
        "status": {"phase": phase, "containerStatuses": statuses},
    }))
    .expect("a pod")
}

fn of_pods(pods: Vec<Pod>) -> Report {
    Report { pods: Some(PodReport { pods, ..PodReport::default() }), ..empty() }
}

fn lines(report: &Report) -> Vec<String> {
    let line = |trouble: Trouble| {
        format!("{:?}: {}; {:?}; {}", trouble.subject, trouble.cause, trouble.retry, trouble.command_line())
    };
    troubles(report).into_iter().map(line).collect()
}

#[test]
fn a_quiet_node_needs_no_attention() {
    assert!(troubles(&empty()).is_empty());
}

#[test]
fn a_failing_pull_is_one_entry_for_all_its_pods() {
    let mut report = lively(3, "");
    let waiting = report.backoff.as_mut().expect("a list");
    let second = WaitingImage {
        pod: "worker-8".to_owned(),
        uid: "worker-8".to_owned(),
        remaining_milliseconds: 9_000,
        ..waiting[0].clone()
    };
    waiting.push(second);
    let all = troubles(&report);
    let images: Vec<&Trouble> = all.iter().filter(|trouble| matches!(trouble.subject, Subject::Image(..))).collect();
    assert_eq!(images.len(), 1, "{all:#?}");
    let pods = vec!["shop/worker-7".to_owned(), "shop/worker-8".to_owned()];
    assert_eq!(images[0].subject, Subject::Image("ghcr.io/example/worker:7".to_owned(), pods));
    assert_eq!((images[0].cause.as_str(), images[0].retry), ("not found, 3 failed pulls", Retry::In(9_000)));
    assert_eq!(images[0].command_line(), "imagelet explain ghcr.io/example/worker:7");
    assert_eq!(images[0].details, ["ghcr.io/example/worker:7: not found"], "equal messages are one");
    assert!(!all.iter().any(|trouble| trouble.subject == Subject::Pod("shop/worker-7".to_owned())), "{all:#?}");
}

#[test]
fn containers_that_fail_name_the_next_command() {
    let crashing = json!([{
        "name": "main", "ready": false, "restartCount": 4, "image": "x", "imageID": "x",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 1m20s restarting failed container=main pod=web_shop(web)"}},
        "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-11-24T11:59:30Z", "message": "no database"}},
    }]);
    let running_for = |started: &str, ready: bool| json!([{"name": "main", "ready": ready, "started": true, "restartCount": 0, "image": "x", "imageID": "x", "state": {"running": {"startedAt": started}}}]);
    let waiting = |reason: &str| json!([{"name": "main", "ready": false, "restartCount": 0, "image": "x", "imageID": "x", "state": {"waiting": {"reason": reason, "message": "secret \"s\" not found"}}}]);
    let ended = json!([{"name": "main", "ready": false, "restartCount": 0, "image": "x", "imageID": "x", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]);
    let report = of_pods(vec![
        pod("crash", "Running", crashing),
        pod("fresh", "Running", running_for("2026-11-24T11:59:50Z", false)),
        pod("slow", "Running", running_for("2026-11-24T11:50:00Z", false)),
        pod("well", "Running", running_for("2026-11-24T11:50:00Z", true)),
        pod("start", "Pending", waiting("ContainerCreating")),
        pod("config", "Pending", waiting("CreateContainerConfigError")),
        pod("job", "Failed", ended),
    ]);
    let want = [
        "Pod(\"shop/crash\"): exited with code 3, container main, 4 restarts; In(50000); imagelet logs --previous shop/crash -c main",
        "Pod(\"shop/slow\"): not ready, container main; Never; imagelet describe shop/slow",
        "Pod(\"shop/config\"): CreateContainerConfigError, container main; Never; imagelet describe shop/config",
        "Pod(\"shop/job\"): OOMKilled, code 137, container main; Never; imagelet logs shop/job -c main",
    ];
    assert_eq!(lines(&report), want);
    assert_eq!(troubles(&report)[0].details, ["no database"]);
}

#[test]
fn refused_manifests_full_disks_and_failing_services_are_listed() {
    let mut report = of_pods(Vec::new());
    let refused = |origin: &str| RefusedPod {
        skipped: false,
        origin: origin.to_owned(),
        pod: None,
        reason: "spec.containers: Required value\nand more".to_owned(),
    };
    report.pods.as_mut().expect("pods").refused =
        vec![refused("/etc/imagelet/manifests/a b.yaml"), refused("https://x.example/pods")];
    let disk =
        |used_percent| crate::api::gc::DiskUsage { used_percent, available_bytes: 7_000_000_000, ..Default::default() };
    let inventory = Inventory {
        disk: Some(disk(86)),
        thresholds: (85, 80),
        problems: vec!["no answer".to_owned()],
        ..Inventory::default()
    };
    report.inventory = Arc::new(inventory.clone());
    let want = [
        "Manifest(\"/etc/imagelet/manifests/a b.yaml\"): refused: spec.containers: Required value; Never; imagelet explain -f '/etc/imagelet/manifests/a b.yaml'",
        "Manifest(\"https://x.example/pods\"): refused: spec.containers: Required value; Never; imagelet pods",
        "Disk: 86% is in use, 7GB free; collection starts at 85%; Never; imagelet gc --dry-run",
        "Service: no answer; Never; imagelet status",
    ];
    assert_eq!(lines(&report), want);
    for (used, thresholds, listed) in [(84, (85, 80), 0), (94, (100, 100), 0), (95, (100, 100), 1)] {
        let inventory = Inventory { disk: Some(disk(used)), thresholds, ..Inventory::default() };
        let report = Report { inventory: Arc::new(inventory), ..empty() };
        assert_eq!(troubles(&report).len(), listed, "{used} {thresholds:?}");
    }
}

#[test]
fn failed_pulls_of_clients_are_listed_until_one_succeeds() {
    let failed = |number, image: &str| EndedPull {
        image: image.to_owned(),
        outcome: PullOutcome::Failed,
        cause: Some("unauthenticated".to_owned()),
        message: Some("401".to_owned()),
        ..ended(number, number, 0)
    };
    let report = |ended: Vec<EndedPull>| Report { backoff: None, pods: None, ended, ..empty() };
    let name = "ghcr.io/example/web:1.4.2";
    let want = "Image(\"ghcr.io/example/web:1.4.2\", []): access denied; OnRequest; imagelet explain --check-credentials ghcr.io/example/web:1.4.2";
    assert_eq!(lines(&report(vec![ended(1, 1, 5), failed(2, name), failed(3, name)])), [want]);
    assert_eq!(lines(&report(vec![failed(1, name), ended(2, 2, 5)])), [""; 0], "a later pull succeeded");
    let old = EndedPull { ended: "2026-11-24T10:59:59Z".parse().expect("a time"), ..failed(1, name) };
    assert_eq!(lines(&report(vec![old])), [""; 0]);
    let mut again = report(vec![failed(1, "docker.io/library/postgres:17")]);
    again.pulls = vec![running(1, 5)];
    assert_eq!(lines(&again), [""; 0], "the pull runs again");
    assert!(now() > again.started);
}

#[test]
fn failed_image_of_sets_is_one_entry() {
    let mut report = with_sets(empty(), 3, "");
    let FollowedSets::Known(list) = &mut report.image_sets else { panic!("no sets") };
    let (front, back) = (list.sets[1].images[0].clone(), list.sets[1].images[1].name.clone());
    list.sets[0].images.push(front);
    let front = "r.example/shop/front:9";
    let want = "SetImage(\"r.example/shop/front:9\", [\"base\", \"web\"]): InsufficientSpace, 4 failed pulls; In(90000); imagelet gc --dry-run";
    assert_eq!(lines(&report), [want]);
    assert_eq!(troubles(&report)[0].details, ["3 GB would have to be free"], "equal messages are one");

    // A process without back-off also has the failed pull itself, also one by digest.
    report.backoff = None;
    let failed = |number, image: &str| EndedPull {
        image: image.to_owned(),
        outcome: PullOutcome::Failed,
        ..ended(number, number, 0)
    };
    report.ended = vec![failed(1, front), failed(2, &back)];
    assert_eq!(lines(&report).len(), 2, "{:#?}", lines(&report));
    assert_eq!(lines(&report)[1], want);
    let FollowedSets::Known(list) = &mut report.image_sets else { panic!("no sets") };
    let digest = oci::Digest::sha256(b"front").to_string();
    list.sets[0].images.last_mut().expect("an image").digest = Some(digest.clone());
    report.ended = vec![failed(1, &format!("r.example/shop/front@{digest}"))];
    assert_eq!(lines(&report), [want]);

    // Pods wait for the same image: the entry with the pods stays.
    report.ended.clear();
    let waiting = lively(1, "").backoff.expect("a list").remove(0);
    report.backoff = Some(vec![WaitingImage { image: front.to_owned(), ..waiting }]);
    let all = lines(&report);
    assert!(all.len() == 1 && all[0].starts_with("Image(\"r.example/shop/front:9\", [\"shop/worker-7\"])"), "{all:#?}");
}
