//! Statuses of pods: phases, conditions, states of containers with their reasons.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::{ContainerState, Waiting};
use super::*;
use crate::actions::{ProbeResult, ProbeResults, Probed};
use crate::labels::{ContainerInfo, PodOwner};
use crate::observed::{ObservedContainer, ObservedPod, ObservedSandbox};
use crate::pod::Pod;
use cri_api::ContainerState as Seen;

const NOW: i64 = 1_700_000_000;

/// A pod, and what is seen of it.
struct Scene {
    pod: Pod,
    runs: Vec<ObservedContainer>,
    sandbox: Option<bool>,
    probes: ProbeResults,
    waiting: BTreeMap<String, Waiting>,
    ended: Option<PodEnd>,
    previous: Option<PodStatus>,
}

fn scene(spec: Value) -> Scene {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"}, "spec": spec});
    let mut pod = Pod::from_json(&manifest).expect("a pod");
    crate::set_defaults(&mut pod);
    Scene {
        pod,
        runs: Vec::new(),
        sandbox: Some(true),
        probes: ProbeResults::default(),
        waiting: BTreeMap::new(),
        ended: None,
        previous: None,
    }
}

fn two() -> Scene {
    scene(json!({"containers": [{"name": "a", "image": "app:1"}, {"name": "b", "image": "app:1"}]}))
}

impl Scene {
    fn run(mut self, name: &str, state: Seen, exit_code: i32, restart_count: u32) -> Self {
        let info = ContainerInfo { restart_count, ..ContainerInfo::default() };
        let seconds = |n: i64| (NOW + i64::from(restart_count) * 10 + n) * 1_000_000_000 + 5;
        self.runs.push(ObservedContainer {
            id: format!("{name}{restart_count}"),
            name: name.into(),
            state,
            exit_code,
            image: "app:1".into(),
            image_ref: "sha256:1".into(),
            started_at: if state == Seen::Created { 0 } else { seconds(1) },
            finished_at: if state == Seen::Exited { seconds(2) } else { 0 },
            reason: match (state, exit_code) {
                (Seen::Exited, 0) => "Completed".into(),
                (Seen::Exited, _) => "Error".into(),
                _ => String::new(),
            },
            info,
            ..ObservedContainer::default()
        });
        self
    }

    fn waits(mut self, name: &str, reason: &str) -> Self {
        self.waiting.insert(name.into(), Waiting { reason: reason.into(), message: format!("{reason} because") });
        self
    }

    fn probed(mut self, id: &str, probed: Probed) -> Self {
        self.probes.0.insert(id.into(), probed);
        self
    }

    fn status(&self) -> PodStatus {
        let sandbox = self.sandbox.map(|ready| ObservedSandbox {
            id: "s".into(),
            ready,
            ips: vec!["10.0.0.9".into()],
            ..ObservedSandbox::default()
        });
        let observed = ObservedPod::new(PodOwner::default(), sandbox, self.runs.clone());
        pod_status(&StatusInput {
            pod: &self.pod,
            observed: &observed,
            probes: &self.probes,
            waiting: &self.waiting,
            ended: self.ended.as_ref(),
            host_ips: &["192.0.2.1".to_owned()],
            runtime_name: "containerd",
            previous: self.previous.as_ref(),
            now: Timestamp::from_second(NOW + 100).expect("a time"),
        })
    }

    /// In one line: phase; conditions that hold; each container with its state and whether it is ready.
    fn short(&self) -> String {
        let status = self.status();
        let holds: String = status.conditions.iter().filter(|c| c.status == "True").map(|c| &c.kind[..1]).collect();
        let containers = status.all_containers().map(|c| {
            let state = match &c.state {
                ContainerState::Waiting(waiting) => waiting.reason.clone(),
                ContainerState::Running(_) => "running".into(),
                ContainerState::Terminated(end) => format!("ended {}", end.exit_code),
            };
            let last = c.last_state.as_ref().map(|end| format!(" after {}", end.exit_code)).unwrap_or_default();
            let count = if c.restart_count > 0 { format!(" #{}", c.restart_count) } else { String::new() };
            format!("{} {state}{last}{count}{}", c.name, if c.ready { " ready" } else { "" })
        });
        let containers: Vec<String> = containers.collect();
        format!("{} {holds}: {}", status.phase, containers.join(", "))
    }
}

#[test]
fn phases_and_states() {
    let of = |policy: &str, containers: Value| scene(json!({"restartPolicy": policy, "containers": containers}));
    let ab = || json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]);
    let cases: Vec<(Scene, &str)> = vec![
        (two(), "Pending PIP: a ContainerCreating, b ContainerCreating"),
        (Scene { sandbox: None, ..two() }, "Pending IP: a ContainerCreating, b ContainerCreating"),
        (two().waits("a", "ErrImagePull"), "Pending PIP: a ErrImagePull, b ContainerCreating"),
        (two().run("a", Seen::Running, 0, 0), "Pending PIP: a running ready, b ContainerCreating"),
        (
            two().run("a", Seen::Running, 0, 0).run("b", Seen::Running, 0, 0),
            "Running PIRCP: a running ready, b running ready",
        ),
        (two().run("a", Seen::Running, 0, 0).run("b", Seen::Exited, 1, 0), "Running PIP: a running ready, b ended 1"),
        (
            two().run("a", Seen::Running, 0, 0).run("b", Seen::Exited, 1, 0).waits("b", "CrashLoopBackOff"),
            "Running PIP: a running ready, b CrashLoopBackOff after 1",
        ),
        (
            two().run("a", Seen::Running, 0, 3).run("a", Seen::Exited, 2, 2).run("b", Seen::Running, 0, 0),
            "Running PIRCP: a running after 2 #3 ready, b running ready",
        ),
        (two().run("a", Seen::Exited, 0, 0).run("b", Seen::Exited, 0, 0), "Running PIP: a ended 0, b ended 0"),
        (
            of("OnFailure", ab()).run("a", Seen::Exited, 0, 0).run("b", Seen::Exited, 1, 0),
            "Running PIP: a ended 0, b ended 1",
        ),
        (
            of("OnFailure", ab()).run("a", Seen::Exited, 0, 0).run("b", Seen::Exited, 0, 0),
            "Succeeded PIP: a ended 0, b ended 0",
        ),
        (
            of("Never", ab()).run("a", Seen::Exited, 0, 0).run("b", Seen::Exited, 1, 0),
            "Failed PIP: a ended 0, b ended 1",
        ),
        (of("Never", ab()).run("a", Seen::Exited, 1, 0), "Pending PIP: a ended 1, b ContainerCreating"),
        (
            of("Never", json!([{"name": "a", "image": "x", "restartPolicy": "Always"}])).run("a", Seen::Exited, 1, 0),
            "Running PIP: a ended 1",
        ),
        // A reason of a container that is not to be started is an old one.
        (
            of("Never", ab()).run("a", Seen::Exited, 0, 0).run("b", Seen::Exited, 0, 0).waits("a", "CrashLoopBackOff"),
            "Succeeded PIP: a ended 0, b ended 0",
        ),
        (
            two().run("a", Seen::Created, 0, 0).waits("a", "RunContainerError"),
            "Pending PIP: a RunContainerError, b ContainerCreating",
        ),
        (
            of("Never", json!([{"name": "a", "image": "x"}])).run("a", Seen::Created, 0, 0),
            "Pending PIP: a ContainerCreating",
        ),
        (two().run("a", Seen::Unknown, 0, 0), "Pending PIP: a ContainerCreating, b ContainerCreating"),
    ];
    for (scene, want) in cases {
        assert_eq!(scene.short(), want);
    }
}

#[test]
fn init_containers_and_sidecars() {
    let spec = |policy: &str| {
        scene(json!({
            "restartPolicy": policy,
            "initContainers": [{"name": "i", "image": "x"}, {"name": "s", "image": "x", "restartPolicy": "Always",
                "startupProbe": {"exec": {"command": ["x"]}}, "readinessProbe": {"exec": {"command": ["x"]}}}],
            "containers": [{"name": "a", "image": "x"}],
        }))
    };
    let up = Probed { startup: Some(ProbeResult::Success), ..Probed::default() };
    let ready = Probed { readiness: Some(ProbeResult::Success), ..up };
    let done = || spec("Always").run("i", Seen::Exited, 0, 0);
    let cases = [
        (spec("Always"), "Pending PP: i PodInitializing, s PodInitializing, a PodInitializing"),
        (spec("Always").run("i", Seen::Running, 0, 0), "Pending PP: i running, s PodInitializing, a PodInitializing"),
        (spec("Always").run("i", Seen::Exited, 1, 0), "Pending PP: i ended 1, s PodInitializing, a PodInitializing"),
        (
            spec("Always").run("i", Seen::Exited, 1, 0).waits("i", "CrashLoopBackOff"),
            "Pending PP: i CrashLoopBackOff after 1, s PodInitializing, a PodInitializing",
        ),
        (spec("Never").run("i", Seen::Exited, 1, 0), "Failed PP: i ended 1, s PodInitializing, a PodInitializing"),
        (done(), "Pending PP: i ended 0 ready, s PodInitializing, a PodInitializing"),
        (done().run("s", Seen::Running, 0, 0), "Pending PP: i ended 0 ready, s running, a PodInitializing"),
        (
            done().run("s", Seen::Running, 0, 0).probed("s0", up),
            "Pending PIP: i ended 0 ready, s running, a PodInitializing",
        ),
        (
            done().run("s", Seen::Running, 0, 0).probed("s0", ready).run("a", Seen::Running, 0, 0),
            "Running PIRCP: i ended 0 ready, s running ready, a running ready",
        ),
        // A sidecar that is restarted does not take the pod back.
        (
            done().run("s", Seen::Exited, 1, 0).run("a", Seen::Running, 0, 0),
            "Running PIP: i ended 0 ready, s ended 1, a running ready",
        ),
        // What the runtime forgot of a pod that has begun was done.
        (
            spec("Always").run("s", Seen::Running, 0, 0).probed("s0", ready).run("a", Seen::Running, 0, 0),
            "Running PIRCP: i ended 0 ready, s running ready, a running ready",
        ),
    ];
    for (scene, want) in cases {
        assert_eq!(scene.short(), want);
    }
}

#[test]
fn an_earlier_sandbox_says_nothing_about_init_containers() {
    let spec = json!({"initContainers": [{"name": "i", "image": "x"}], "containers": [{"name": "a", "image": "x"}]});
    let mut scene = scene(spec).run("i", Seen::Exited, 0, 2).run("a", Seen::Exited, 137, 0);
    assert_eq!(scene.short(), "Running PIP: i ended 0 #2 ready, a ended 137");
    scene.runs.iter_mut().for_each(|run| run.sandbox_id = "earlier".into());
    assert_eq!(scene.short(), "Pending PP: i PodInitializing after 0 #2, a ended 137");
}

#[test]
fn a_container_whose_hook_runs_has_not_come_up() {
    let run = || two().run("a", Seen::Running, 0, 0).run("b", Seen::Running, 0, 0);
    assert_eq!(run().waits("a", "ContainerCreating").short(), "Pending PIP: a ContainerCreating, b running ready");
    // An earlier failure says nothing about one that runs all the same.
    assert_eq!(run().waits("a", "RunContainerError").short(), "Running PIRCP: a running ready, b running ready");
}

#[test]
fn probes_decide_about_readiness() {
    let probe = json!({"exec": {"command": ["x"]}});
    let spec = json!({"containers": [{"name": "a", "image": "x", "startupProbe": probe, "readinessProbe": probe}]});
    let run = || scene(spec.clone()).run("a", Seen::Running, 0, 0);
    let (good, bad) = (Some(ProbeResult::Success), Some(ProbeResult::Failure));
    let cases = [
        (None, None, false, false),
        (good, None, true, false),
        (None, good, false, false),
        (good, good, true, true),
        (good, bad, true, false),
    ];
    for (startup, readiness, started, ready) in cases {
        let status = run().probed("a0", Probed { startup, readiness, liveness: None }).status();
        let container = &status.container_statuses[0];
        assert_eq!((container.started, container.ready, status.is("Ready")), (Some(started), ready, ready));
    }
}

#[test]
fn a_container_removed_without_a_trace_keeps_its_reported_state() {
    let mut scene = two().run("a", Seen::Running, 0, 0).run("b", Seen::Running, 0, 0);
    let first = scene.status();
    // A container that ran was removed without a trace.
    scene.previous = Some(first.clone());
    scene.runs.remove(0);
    assert_eq!(scene.short(), "Running PIP: a ContainerCreating after 137 #1, b running ready");
    let second = scene.status();
    assert_eq!(
        second.container_statuses[0].last_state.as_ref().map(|end| &*end.reason),
        Some("ContainerStatusUnknown")
    );
    assert_eq!(second.start_time, first.start_time);
    // The condition that did not change keeps its time.
    let since = |status: &PodStatus, kind: &str| {
        status.conditions.iter().find(|c| c.kind == kind).map(|c| c.last_transition_time).expect("there")
    };
    let mut older = first.clone();
    older.conditions.iter_mut().for_each(|c| c.last_transition_time = Timestamp::UNIX_EPOCH);
    scene.previous = Some(older);
    let third = scene.status();
    assert_eq!(since(&third, "PodScheduled"), Timestamp::UNIX_EPOCH);
    assert_ne!(since(&third, "Ready"), Timestamp::UNIX_EPOCH);
    // A container whose end was reported stays terminated when it is collected.
    let mut scene = two().run("a", Seen::Exited, 3, 0).run("b", Seen::Running, 0, 0);
    scene.previous = Some(scene.status());
    scene.runs.remove(0);
    assert_eq!(scene.short(), "Running PIP: a ended 3, b running ready");
}

#[test]
fn a_pod_that_was_ended_has_failed_and_stays_so() {
    let mut scene = two().run("a", Seen::Running, 0, 0).run("b", Seen::Running, 0, 0);
    scene.pod.spec.active_deadline_seconds = Some(60);
    let at = |second: i64| Timestamp::from_second(second).expect("a time");
    assert_eq!(PodEnd::deadline(&scene.pod, at(NOW), at(NOW + 59)), None);
    scene.ended = PodEnd::deadline(&scene.pod, at(NOW), at(NOW + 60));
    let status = scene.status();
    assert_eq!((status.phase, &*status.reason), (Phase::Failed, "DeadlineExceeded"));
    (scene.ended, scene.previous) = (None, Some(status));
    let status = scene.status();
    assert_eq!((status.phase, &*status.reason), (Phase::Failed, "DeadlineExceeded"));
}

// upstream: status/TestStatusNormalizeTimeStamp/
#[test]
fn the_shape_is_that_of_kubernetes() {
    let scene = two()
        .run("a", Seen::Running, 0, 1)
        .run("a", Seen::Exited, 1, 0)
        .run("b", Seen::Exited, 1, 0)
        .waits("b", "CrashLoopBackOff");
    let got = serde_json::to_value(scene.status()).expect("JSON");
    let want = json!({
        "phase": "Running",
        "conditions": [
            {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "2023-11-14T22:15:00Z"},
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2023-11-14T22:15:00Z"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2023-11-14T22:15:00Z",
             "reason": "ContainersNotReady", "message": "containers with unready status: [b]"},
            {"type": "ContainersReady", "status": "False", "lastTransitionTime": "2023-11-14T22:15:00Z",
             "reason": "ContainersNotReady", "message": "containers with unready status: [b]"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2023-11-14T22:15:00Z"},
        ],
        "hostIP": "192.0.2.1", "hostIPs": [{"ip": "192.0.2.1"}],
        "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}],
        "startTime": "2023-11-14T22:15:00Z",
        "containerStatuses": [
            {
                "name": "a", "state": {"running": {"startedAt": "2023-11-14T22:13:31Z"}},
                "lastState": {"terminated": {
                    "exitCode": 1, "reason": "Error", "startedAt": "2023-11-14T22:13:21Z",
                    "finishedAt": "2023-11-14T22:13:22Z", "containerID": "containerd://a0",
                    }},
                "ready": true, "restartCount": 1, "image": "app:1", "imageID": "sha256:1",
                "containerID": "containerd://a1", "started": true,
            },
            {
                "name": "b",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "CrashLoopBackOff because"}},
                "lastState": {"terminated": {
                    "exitCode": 1, "reason": "Error", "startedAt": "2023-11-14T22:13:21Z",
                    "finishedAt": "2023-11-14T22:13:22Z", "containerID": "containerd://b0",
                    }},
                "ready": false, "restartCount": 0, "image": "app:1", "imageID": "sha256:1",
                "containerID": "containerd://b0", "started": false,
            },
        ],
        "qosClass": "BestEffort",
    });
    assert_eq!(got, want);
}
