//! Container collection on Debian's containerd with runc: sandboxes and containers really run, end and are collected; their
//! logs, mounts and processes are gone; nothing of a pod that runs is touched.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri_api::{ContainerState, RuntimeService};
use image_manager::RingRecorder;
use jiff::Timestamp;
use kuberuntime::container_gc::{
    ContainerGc, ContainerGcOptions, ContainerGcReport, GcRow, LogDirectories, NoPodSource, PodStates,
};

use serde_json::Value;

use crate::support::stage::{Does, Stage};

/// Pods that a source has reported. All other pods count as removed.
struct ReportedPods(BTreeSet<String>);

impl PodStates for ReportedPods {
    fn sources_ready(&self) -> bool {
        true
    }

    fn content_removable(&self, pod_uid: &str) -> bool {
        !self.0.contains(pod_uid)
    }

    fn runtime_removable(&self, pod_uid: &str) -> bool {
        !self.0.contains(pod_uid)
    }
}

fn links(stage: &Stage) -> PathBuf {
    stage.scene.scratch.directory("log/containers")
}

fn collector(stage: &Stage, pods: Arc<dyn PodStates>) -> ContainerGc {
    let logs = LogDirectories { pods: stage.logs(), links: Some(links(stage)) };
    let clock = Arc::new(Timestamp::now);
    let options = ContainerGcOptions { pods, logs: Some(logs), ..ContainerGcOptions::new(clock) };
    ContainerGc::new(Arc::new(stage.service.clone()), Arc::new(RingRecorder::new(16)), options)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap_or_else(|e| panic!("read {}: {e}", directory.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a text")).collect();
    names.sort();
    names
}

fn ids(rows: &[GcRow]) -> BTreeSet<String> {
    rows.iter().map(|row| row.id.clone()).collect()
}

fn done(report: &ContainerGcReport) -> (BTreeSet<String>, BTreeSet<String>) {
    assert_eq!(report.failure(), None);
    (ids(&report.containers), ids(&report.sandboxes))
}

/// Ids that the node still shows in its mounts.
fn mounted(of: &BTreeSet<String>) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("read the mounts");
    of.iter().filter(|id| mounts.contains(id.as_str())).cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn what_pods_leave_behind_is_collected_and_what_runs_is_not() {
    let stage = Stage::new().await;
    let service = &stage.service;
    // A pod that lives: its sandbox was replaced, its container ended twice and runs again.
    let (old, new) = (stage.pod("alive", 0), stage.pod("alive", 1));
    let old_sandbox = stage.sandbox(&old).await;
    let before = stage.container((&old_sandbox, &old), "app", 0, Does::Say("first", 0)).await;
    stage.ended(&before).await;
    service.stop_pod_sandbox(&old_sandbox).await.expect("stop a sandbox");
    let new_sandbox = stage.sandbox(&new).await;
    let failed = stage.container((&new_sandbox, &new), "app", 1, Does::Say("second", 3)).await;
    assert_eq!(stage.ended(&failed).await.exit_code, 3);
    let runs = stage.container((&new_sandbox, &new), "app", 2, Does::Sleep).await;
    // A pod that was deleted and has ended; its log was rotated once, and it had two containers.
    let gone = stage.pod("gone", 0);
    let gone_sandbox = stage.sandbox(&gone).await;
    let mut of_gone = BTreeSet::new();
    for name in ["one", "two"] {
        let id = stage.container((&gone_sandbox, &gone), name, 0, Does::Say("bye", 0)).await;
        stage.ended(&id).await;
        symlink(
            Path::new(&gone.log_directory).join(format!("{name}/0.log")),
            links(&stage).join(format!("gone_shop_{name}-{id}.log")),
        )
        .expect("link a log");
        of_gone.insert(id);
    }
    let log = Path::new(&gone.log_directory).join("one/0.log");
    assert!(fs::read_to_string(&log).expect("a log").contains("stdout F bye"));
    fs::write(log.with_extension("log.20260101-000000"), "older\n").expect("write an older log");
    service.stop_pod_sandbox(&gone_sandbox).await.expect("stop a sandbox");
    // A pod that no source knows, and that runs all the same.
    let stray = stage.pod("stray", 0);
    let stray_sandbox = stage.sandbox(&stray).await;
    let stray_runs = stage.container((&stray_sandbox, &stray), "app", 0, Does::Sleep).await;
    // A dangling link, and a directory that belongs to no pod.
    let nothing = stage.logs().join("shop_old_u/app/0.log");
    symlink(nothing, links(&stage).join("old_shop_app-0123456789.log")).expect("link nothing");
    stage.scene.scratch.directory("log/pods/lost+found");
    let started = |status: cri_api::ContainerStatus| (status.state, status.started_at);
    let seen = started(service.container_status(&runs, false).await.expect("a status"));

    let gc = collector(&stage, Arc::new(ReportedPods(["uid-of-alive".to_owned()].into())));
    let plan = gc.plan().await.expect("a plan");
    let going = |rows: &[GcRow]| ids(&rows.iter().filter(|row| row.verdict.removes()).cloned().collect::<Vec<_>>());
    let mut want: BTreeSet<String> = of_gone.clone();
    want.insert(before.clone());
    assert_eq!(going(&plan.containers), want, "{plan:#?}");
    assert_eq!(going(&plan.sandboxes), BTreeSet::from([old_sandbox.clone(), gone_sandbox.clone()]));
    assert_eq!(going(&plan.log_directories), BTreeSet::from(["shop_gone_uid-of-gone".to_owned()]));
    assert_eq!(service.list_containers(None).await.expect("a list").len(), 6, "a plan removes nothing");
    let sandboxes = going(&plan.sandboxes);
    assert_ne!(mounted(&[new_sandbox.clone(), runs.clone()].into()), Vec::<String>::new(), "what runs is mounted");

    let report = gc.collect().await;
    assert_eq!(done(&report), (want.clone(), sandboxes.clone()));
    assert_eq!(report.log_files, 4, "three logs, one of them turned");
    let left = service.list_containers(None).await.expect("a list");
    let left: BTreeSet<String> = left.into_iter().map(|container| container.id).collect();
    assert_eq!(left, BTreeSet::from([failed.clone(), runs.clone(), stray_runs.clone()]));
    let left = service.list_pod_sandboxes(None).await.expect("a list");
    let left: BTreeSet<(String, bool)> = left.into_iter().map(|sandbox| (sandbox.id, sandbox.ready)).collect();
    assert_eq!(left, BTreeSet::from([(new_sandbox, true), (stray_sandbox, true)]));
    assert_eq!(mounted(&want.union(&sandboxes).cloned().collect()), Vec::<String>::new(), "their mounts are gone");
    assert_eq!(names(&stage.logs()), ["lost+found", "shop_alive_uid-of-alive", "shop_stray_uid-of-stray"]);
    assert_eq!(names(&Path::new(&new.log_directory).join("app")), ["1.log", "2.log"]);
    assert_eq!(names(&links(&stage)), Vec::<String>::new());

    // Nothing of what runs was touched: the same process, and it answers.
    assert_eq!(started(service.container_status(&runs, false).await.expect("a status")), seen);
    for id in [&runs, &stray_runs] {
        let command = ["/bin/echo", "here"].map(str::to_owned);
        let said = service.exec_sync(id, &command, Duration::from_secs(30)).await.expect("it runs");
        assert_eq!(said.stdout, b"here\n");
    }
    assert!(gc.collect().await.is_empty(), "nothing is left to do");
}

/// A runtime that is killed and restarted: one round fails, the next one does its work, and the containers still run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn a_collection_survives_its_runtime() {
    let mut stage = Stage::new().await;
    let pod = stage.pod("web", 0);
    let sandbox = stage.sandbox(&pod).await;
    let mut dead = Vec::new();
    for attempt in 0..3 {
        dead.push(stage.container((&sandbox, &pod), "app", attempt, Does::Say("x", 1)).await);
        stage.ended(&dead[dead.len() - 1]).await;
    }
    let runs = stage.container((&sandbox, &pod), "app", 3, Does::Sleep).await;
    let gc = collector(&stage, Arc::new(NoPodSource));
    stage.containerd.kill();
    let report = gc.collect().await;
    let failure = report.failure().expect("nobody is there");
    assert!(report.is_empty() && failure.contains("list sandboxes"), "{failure}");
    stage.containerd.start_again();
    // The client's pause between attempts may not have passed yet.
    let deadline = tokio::time::Instant::now() + crate::support::process::PATIENCE;
    let report = loop {
        let report = gc.collect().await;
        if report.failure().is_none() {
            break report;
        }
        assert!(tokio::time::Instant::now() < deadline, "{:?}", report.failure());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // Without a source of pods the newest that ended stays.
    assert_eq!(done(&report), (dead[..2].iter().cloned().collect(), BTreeSet::new()));
    let status = stage.service.container_status(&runs, false).await.expect("a status");
    assert_eq!(status.state, ContainerState::Running);
}

/// `imagelet gc containers`: it knows no source of pods, so it only removes what exceeds the policy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn the_command_collects_what_is_too_much() {
    let stage = Stage::new().await;
    let pod = stage.pod("web", 0);
    let sandbox = stage.sandbox(&pod).await;
    let mut dead = Vec::new();
    for attempt in 0..3 {
        dead.push(stage.container((&sandbox, &pod), "app", attempt, Does::Say("x", 1)).await);
        stage.ended(&dead[dead.len() - 1]).await;
    }
    let runs = stage.container((&sandbox, &pod), "app", 3, Does::Sleep).await;
    let endpoint = stage.containerd.endpoint();
    let imagelet = stage
        .scene
        .imagelet
        .clone()
        .global("--image-endpoint", &endpoint)
        .global("--pod-logs-dir", &stage.logs().display().to_string());
    let plan: Value =
        serde_json::from_str(&imagelet.ok(&["gc", "containers", "--dry-run", "-o", "json"])).expect("JSON");
    let said = |id: &String| {
        let item = plan["items"].as_array().expect("a list").iter().find(|item| item["id"] == **id);
        let item = item.unwrap_or_else(|| panic!("{id} is not in {plan:#}"));
        (item["kind"].as_str().expect("a kind").to_owned(), item["decision"].as_str().expect("a word").to_owned())
    };
    let two = |kind: &str, word: &str| (kind.to_owned(), word.to_owned());
    assert_eq!(said(&dead[0]), two("container", "remove"));
    assert_eq!(said(&dead[2]), two("container", "within-limits"));
    assert_eq!(said(&runs), two("container", "running"));
    assert_eq!(said(&sandbox), two("sandbox", "ready"));
    let left = async || {
        let list = stage.service.list_containers(None).await.expect("a list");
        list.into_iter().map(|container| container.id).collect::<BTreeSet<_>>()
    };
    assert_eq!(left().await.len(), 4, "a dry run removes nothing");

    let gone: BTreeSet<String> = imagelet.ok(&["gc", "containers", "-q"]).lines().map(str::to_owned).collect();
    assert_eq!(gone, dead[..2].iter().cloned().collect());
    assert_eq!(left().await, BTreeSet::from([dead[2].clone(), runs.clone()]));
    let logs = Path::new(&pod.log_directory).join("app");
    assert_eq!(names(&logs), ["2.log", "3.log"]);
    assert_eq!(imagelet.ok(&["gc", "containers", "-q"]).trim(), "", "the newest one stays");
}
