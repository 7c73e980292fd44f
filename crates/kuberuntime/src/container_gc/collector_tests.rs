//! The collector on the fake runtime and real directories.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cri_api::testing::{CallKind, FakeProcess, FakeRuntimeService};
use cri_api::{ContainerConfig, ContainerMetadata, Error, ImageSpec, PodSandboxConfig, PodSandboxMetadata};
use image_manager::RingRecorder;
use jiff::Timestamp;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::plan::GcRow;
use super::super::select::tests::KnownPods;
use super::*;
use crate::labels::POD_UID;

struct Node {
    dir: TempDir,
    runtime: FakeRuntimeService,
    events: Arc<RingRecorder>,
    gc: Arc<ContainerGc>,
}

fn node(pods: KnownPods) -> Node {
    let dir = TempDir::new().unwrap();
    let logs = LogDirectories { pods: dir.path().join("pods"), links: Some(dir.path().join("containers")) };
    fs::create_dir(dir.path().join("containers")).unwrap();
    let runtime = FakeRuntimeService::new();
    let events = Arc::new(RingRecorder::new(16));
    let clock: WallClock = Arc::new(|| "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
    let options = ContainerGcOptions { pods: Arc::new(pods), logs: Some(logs), ..ContainerGcOptions::new(clock) };
    let gc = ContainerGc::new(Arc::new(runtime.clone()), Arc::clone(&events) as Arc<dyn EventRecorder>, options);
    Node { dir, runtime, events, gc: Arc::new(gc) }
}

impl Node {
    async fn sandbox(&self, pod: &str, attempt: u32) -> (String, PodSandboxConfig) {
        let config = PodSandboxConfig {
            metadata: PodSandboxMetadata { name: pod.into(), uid: pod.into(), namespace: "ns".into(), attempt },
            log_directory: self.dir.path().join(format!("pods/ns_{pod}_{pod}")).display().to_string(),
            ..PodSandboxConfig::default()
        };
        (self.runtime.run_pod_sandbox(&config, "").await.unwrap(), config)
    }

    /// A container that has ended, with its log and the link to it.
    async fn dead(&self, sandbox: &(String, PodSandboxConfig), name: &str, attempt: u32) -> String {
        let pod = &sandbox.1.metadata.name;
        let labels = [(POD_UID, pod.as_str()), (POD_NAME, pod), (POD_NAMESPACE, "ns"), (CONTAINER_NAME, name)];
        let config = ContainerConfig {
            metadata: ContainerMetadata { name: name.into(), attempt },
            image: ImageSpec::new("image"),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            log_path: format!("{name}/{attempt}.log"),
            ..ContainerConfig::default()
        };
        let id = self.runtime.create_container(&sandbox.0, &config, &sandbox.1).await.unwrap();
        self.runtime.start_container(&id).await.unwrap();
        self.runtime.exit(&id, 0);
        let log = Path::new(&sandbox.1.log_directory).join(&config.log_path);
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        fs::write(&log, "line\n").unwrap();
        symlink(&log, self.dir.path().join("containers").join(link_name(pod, "ns", name, &id))).unwrap();
        id
    }

    fn files(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join(path)).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    async fn containers(&self) -> Vec<String> {
        self.runtime.list_containers(None).await.unwrap().into_iter().map(|c| c.id).collect()
    }

    async fn sandboxes(&self) -> Vec<String> {
        self.runtime.list_pod_sandboxes(None).await.unwrap().into_iter().map(|s| s.id).collect()
    }
}

#[tokio::test]
async fn a_round_leaves_what_is_needed() {
    let node = node(KnownPods::new(&["alive"], &[]));
    let old = node.sandbox("alive", 0).await;
    node.dead(&old, "app", 0).await;
    node.runtime.kill_sandbox(&old.0);
    let new = node.sandbox("alive", 1).await;
    node.dead(&new, "app", 1).await;
    let newest = node.dead(&new, "app", 2).await;
    let gone = node.sandbox("gone", 0).await;
    node.dead(&gone, "app", 0).await;
    node.runtime.kill_sandbox(&gone.0);

    let plan = node.gc.plan().await.unwrap();
    assert_eq!(plan.removals(), 3 + 2 + 1, "{plan:#?}");
    assert_eq!(node.containers().await.len(), 4, "a plan removes nothing");

    let report = node.gc.collect().await;
    assert_eq!(report.failure(), None);
    let ids = |rows: &[GcRow]| rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>();
    let planned = |rows: &[GcRow]| ids(&rows.iter().filter(|r| r.verdict.removes()).cloned().collect::<Vec<_>>());
    assert_eq!(ids(&report.containers), planned(&plan.containers));
    assert_eq!(ids(&report.sandboxes), planned(&plan.sandboxes));
    assert_eq!(ids(&report.log_directories), planned(&plan.log_directories));
    assert_eq!(report.log_files, 3);
    assert_eq!((node.containers().await, node.sandboxes().await), (vec![newest.clone()], vec![new.0.clone()]));
    assert_eq!(node.files("pods"), ["ns_alive_alive"]);
    assert_eq!(node.files("pods/ns_alive_alive/app"), ["2.log"]);
    assert_eq!(node.files("containers"), [link_name("alive", "ns", "app", &newest)]);
    assert!(node.gc.collect().await.is_empty(), "nothing is left to do");
}

/// A sandbox is removed in the same round as its last container; one whose container could not be removed stays.
#[tokio::test]
async fn what_cannot_be_removed_does_not_keep_the_rest() {
    let node = node(KnownPods::new(&[], &[]));
    let mut ids = Vec::new();
    for pod in ["a", "b", "c"] {
        let sandbox = node.sandbox(pod, 0).await;
        ids.push((sandbox.0.clone(), node.dead(&sandbox, "app", 0).await));
        node.runtime.kill_sandbox(&sandbox.0);
    }
    let stuck = Error::new(Kind::Unknown, "device or resource busy");
    node.runtime.faults().fail_for(CallKind::RemoveContainer, &ids[1].1, stuck);
    let report = node.gc.collect().await;
    assert_eq!((report.containers.len(), report.sandboxes.len()), (2, 2));
    let text = report.failure().unwrap();
    assert_eq!(text, format!("remove container {}: device or resource busy", ids[1].1));
    assert_eq!(node.containers().await, [ids[1].1.clone()]);
    assert_eq!(node.sandboxes().await, [ids[1].0.clone()]);
    assert_eq!(node.files("pods"), Vec::<String>::new(), "logs go with the pod");
    node.runtime.faults().clear(CallKind::RemoveContainer);
    assert_eq!(node.gc.collect().await.failure(), None);
    assert_eq!((node.containers().await.len(), node.sandboxes().await.len()), (0, 0));
}

// upstream: containergc/TestUnknownStateContainerGC
#[tokio::test(start_paused = true)]
async fn what_may_run_is_stopped_first() {
    let node = node(KnownPods::new(&[], &[]));
    for (index, (annotation, wait)) in [(None, 2), (Some("1"), 2), (Some("30"), 30)].into_iter().enumerate() {
        let sandbox = node.sandbox("gone", 0).await;
        let id = node.dead(&sandbox, "app", 0).await;
        let mut container = node.runtime.list_containers(None).await.unwrap().remove(0);
        container.state = ContainerState::Unknown;
        let annotation =
            annotation.map(|seconds: &str| ("io.kubernetes.pod.terminationGracePeriod".to_owned(), seconds.to_owned()));
        container.annotations.extend(annotation);
        assert_eq!(grace(&container), Duration::from_secs(wait), "case {index}");
        node.runtime.put_container(container);
        node.runtime.forget_calls();
        assert_eq!(node.gc.collect().await.failure(), None);
        let about = |(kind, subject): &(CallKind, String)| (subject == &id).then_some(*kind);
        let calls: Vec<CallKind> = node.runtime.calls().iter().filter_map(about).collect();
        let want = [CallKind::StopContainer, CallKind::ContainerStatus, CallKind::RemoveContainer];
        assert_eq!(calls, want, "case {index}");
        node.runtime.take_sandbox(&sandbox.0);
    }
}

#[tokio::test]
async fn what_cannot_be_stopped_stays() {
    let node = node(KnownPods::new(&[], &[]));
    let sandbox = node.sandbox("gone", 0).await;
    let id = node.dead(&sandbox, "app", 0).await;
    let container = node.runtime.list_containers(None).await.unwrap().remove(0);
    node.runtime.put_container(Container { state: ContainerState::Unknown, ..container });
    node.runtime.faults().fail(CallKind::StopContainer, Error::new(Kind::Unavailable, "shim is away"));
    let report = node.gc.collect().await;
    assert_eq!(report.failure(), Some(format!("stop container {id}: shim is away")));
    assert_eq!(node.containers().await, [id]);
}

/// A running process is never selected: neither in a live pod nor in a removed one, nor under pressure.
#[tokio::test]
async fn nothing_that_runs_is_touched() {
    let node = node(KnownPods::new(&[], &["ended"]));
    node.runtime.behave("app", FakeProcess::default());
    let mut ids = Vec::new();
    for pod in ["gone", "ended"] {
        let sandbox = node.sandbox(pod, 0).await;
        let id = node.dead(&sandbox, "app", 0).await;
        let container = node.runtime.list_containers(None).await.unwrap().into_iter().find(|c| c.id == id).unwrap();
        node.runtime.put_container(Container { state: ContainerState::Running, ..container });
        ids.push(id);
    }
    node.runtime.forget_calls();
    assert!(node.gc.collect().await.is_empty());
    node.gc.delete_all_unused_containers().await.unwrap();
    let lists = [CallKind::ListContainers, CallKind::ListPodSandboxes];
    assert!(node.runtime.calls().iter().all(|(kind, _)| lists.contains(kind)), "{:?}", node.runtime.calls());
    assert_eq!(node.containers().await, ids);
    assert_eq!(node.files("pods"), ["ns_ended_ended", "ns_gone_gone"]);
}

/// Under disk pressure, the remains of pods that have ended are removed as well.
#[tokio::test]
async fn pressure_takes_what_ended_pods_left() {
    let node = node(KnownPods::new(&[], &["ended"]));
    let sandbox = node.sandbox("ended", 0).await;
    node.dead(&sandbox, "app", 0).await;
    node.runtime.kill_sandbox(&sandbox.0);
    assert!(node.gc.collect().await.is_empty());
    node.gc.delete_all_unused_containers().await.unwrap();
    assert_eq!((node.containers().await.len(), node.sandboxes().await.len()), (0, 0));
    assert_eq!(node.files("pods"), ["ns_ended_ended"], "the pod is still to be looked at");
}

#[tokio::test(start_paused = true)]
async fn rounds_run_on_timer_and_nudge_and_warn_from_the_second_failure() {
    let node = node(KnownPods::new(&[], &[]));
    let lists = |node: &Node| node.runtime.calls().iter().filter(|(k, _)| *k == CallKind::ListPodSandboxes).count();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    node.runtime.faults().be_absent(Error::new(Kind::Unavailable, "no runtime"));
    let (gc, token) = (Arc::clone(&node.gc), stop.clone());
    let task = tasks.spawn(async move { gc.run(&token).await });
    // Each round asks twice: for containers, and for sandboxes.
    let until = async |rounds: usize| {
        while lists(&node) < 2 * rounds || node.gc.failures.try_lock().is_err() {
            tokio::task::yield_now().await;
        }
    };
    until(1).await;
    assert_eq!(node.events.events().len(), 0, "once is not yet told");
    tokio::time::advance(Duration::from_secs(60)).await;
    until(2).await;
    node.gc.nudge();
    until(3).await;
    let told: Vec<_> = node.events.events().into_iter().map(|e| (e.event.reason, e.event.message)).collect();
    let text = "[list sandboxes: no runtime, list sandboxes: no runtime, list containers: no runtime]";
    assert_eq!(told, vec![("ContainerGCFailed", text.to_owned()); 2]);

    node.runtime.faults().return_to_duty();
    node.gc.nudge();
    until(4).await;
    node.runtime.faults().be_absent(Error::new(Kind::Unavailable, "no runtime"));
    node.gc.nudge();
    until(5).await;
    assert_eq!(node.events.events().len(), 2, "counted anew");
    stop.cancel();
    task.await.unwrap();
}

/// Without a source of pods, only what exceeds the policy's limits is removed.
#[tokio::test]
async fn without_pod_sources_only_excess_is_removed() {
    let node = node(KnownPods { sources_ready: false, ..KnownPods::default() });
    let options = ContainerGcOptions { pods: Arc::new(NoPodSource), ..node.gc.options.clone() };
    let gc =
        ContainerGc::new(Arc::new(node.runtime.clone()), Arc::clone(&node.events) as Arc<dyn EventRecorder>, options);
    let sandbox = node.sandbox("some", 0).await;
    node.dead(&sandbox, "app", 0).await;
    let newest = node.dead(&sandbox, "app", 1).await;
    node.runtime.kill_sandbox(&sandbox.0);
    let report = gc.collect().await;
    assert_eq!((report.containers.len(), report.sandboxes.len(), report.log_directories.len()), (1, 0, 0));
    gc.delete_all_unused_containers().await.unwrap();
    assert_eq!(node.containers().await, [newest]);
}
