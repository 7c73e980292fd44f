//! Probes on the runtime in memory, with time that advances only while a task sleeps.

use std::collections::BTreeMap;

use cri_api::testing::{CallKind, FakeExec, FakeProcess, FakeRuntimeService};
use cri_api::{ContainerMetadata, Error, ExecSyncOutput, Kind};
use image_manager::RingRecorder;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::actions::ProbeResult::{Failure, Success, Unknown};
use crate::actions::Probed;
use crate::labels::PodOwner;
use crate::observed::{ObservedContainer, ObservedSandbox};

/// When all tests begin, seconds since the epoch.
const BEGIN: i64 = 1_000_000;

struct Scene {
    runtime: FakeRuntimeService,
    manager: ProbeManager,
    events: Arc<RingRecorder>,
    changed: UnboundedReceiver<String>,
    pod: Arc<Pod>,
    began: Instant,
}

/// A probe that asks the command of its name, with these numbers.
fn probe(command: &str, numbers: &Value) -> Value {
    let mut probe = json!({"exec": {"command": [command]}});
    for (name, value) in numbers.as_object().expect("numbers") {
        probe[name] = value.clone();
    }
    probe
}

fn pod(spec: &Value) -> Arc<Pod> {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
    Arc::new(crate::admit(&manifest, "edge", crate::Origin::File("/etc/pods/web.yaml")).expect("admitted"))
}

/// A pod with one container, `web`, that has these fields.
fn scene(container: Value) -> Scene {
    let mut container = container;
    container["name"] = json!("web");
    container["image"] = json!("x");
    scene_of(&json!({"containers": [container]}))
}

fn scene_of(spec: &Value) -> Scene {
    let (runtime, events, began) = (FakeRuntimeService::new(), Arc::new(RingRecorder::new(100)), Instant::now());
    let (tell, changed) = unbounded_channel();
    let clock: WallClock = Arc::new(move || {
        let elapsed = i64::try_from(began.elapsed().as_secs()).expect("seconds");
        Timestamp::from_second(BEGIN + elapsed).expect("a time")
    });
    let handlers = Arc::new(Handlers::new(Arc::new(runtime.clone())));
    let manager = ProbeManager::new(handlers, Arc::clone(&events) as Arc<dyn EventRecorder>, tell, clock);
    Scene { runtime, manager, events, changed, pod: pod(spec), began }
}

impl Scene {
    /// How the commands of a container end from now on.
    fn say(&self, name: &str, commands: &[(&str, i32)]) {
        let commands = commands.iter().map(|(command, code)| {
            let output =
                ExecSyncOutput { exit_code: *code, stdout: format!("it is {code}").into(), stderr: Vec::new() };
            (vec![(*command).to_owned()], FakeExec::Ends(output))
        });
        let process = FakeProcess { commands: commands.collect::<BTreeMap<_, _>>(), ..FakeProcess::default() };
        self.runtime.behave(name, process);
    }

    /// The runtime shows these containers: id, name, state, seconds since the start.
    fn shows(&self, containers: &[(&str, &str, ContainerState, i64)]) {
        let now = BEGIN + i64::try_from(self.began.elapsed().as_secs()).expect("seconds");
        let observed = containers.iter().map(|(id, name, state, age)| {
            let metadata = ContainerMetadata { name: (*name).into(), attempt: 0 };
            let container =
                cri_api::Container { id: (*id).into(), metadata, state: *state, ..cri_api::Container::default() };
            self.runtime.put_container(container);
            ObservedContainer {
                id: (*id).into(),
                name: (*name).into(),
                state: *state,
                started_at: (now - age) * 1_000_000_000,
                ..ObservedContainer::default()
            }
        });
        let sandbox = ObservedSandbox { ready: true, ips: vec!["10.0.0.1".into()], ..ObservedSandbox::default() };
        self.manager.observe(&self.pod, &ObservedPod::new(PodOwner::default(), [sandbox], observed), None);
    }

    fn runs(&self, id: &str) {
        self.shows(&[(id, "web", ContainerState::Running, 0)]);
    }

    fn result(&self, id: &str) -> Probed {
        self.manager.results(&self.pod.metadata.uid).of(id)
    }

    /// Questions so far, about one container.
    fn asked(&self, id: &str) -> usize {
        self.runtime.calls().iter().filter(|(kind, about)| *kind == CallKind::ExecSync && about == id).count()
    }

    /// Returns the number of changes that were reported since the last call.
    fn changes(&mut self) -> usize {
        std::iter::from_fn(|| self.changed.try_recv().ok()).count()
    }

    fn events(&self) -> Vec<String> {
        let line = |event: &image_manager::Event| {
            let image_manager::Event { object, kind, reason, message } = event;
            format!("{} {} {reason} {message}", object.field_path, kind.as_str())
        };
        self.events.events().iter().map(|numbered| line(&numbered.event)).collect()
    }
}

/// So many, and a little, so that what is due then was done.
async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
}

fn only(kind: ProbeKind, result: crate::ProbeResult) -> Probed {
    let mut probed = Probed::default();
    let field = match kind {
        ProbeKind::Startup => &mut probed.startup,
        ProbeKind::Liveness => &mut probed.liveness,
        ProbeKind::Readiness => &mut probed.readiness,
    };
    *field = Some(result);
    probed
}

// upstream: prober/TestInitialDelay
#[tokio::test(start_paused = true)]
async fn before_anybody_asked_it_lives_cannot_serve_and_may_not_have_come_up() {
    for (kind, field, want) in [
        (ProbeKind::Liveness, "livenessProbe", Success),
        (ProbeKind::Readiness, "readinessProbe", Failure),
        (ProbeKind::Startup, "startupProbe", Unknown),
    ] {
        let mut scene = scene(json!({field: probe("p", &json!({"initialDelaySeconds": 30}))}));
        assert_eq!(scene.result("a"), Probed::default());
        scene.shows(&[("a", "web", ContainerState::Created, 0)]);
        assert_eq!(scene.result("a"), only(kind, want));
        scene.runs("a");
        seconds(29).await;
        assert_eq!((scene.asked("a"), scene.result("a")), (0, only(kind, want)));
        seconds(2).await;
        assert_eq!((scene.asked("a"), scene.result("a")), (1, only(kind, Success)));
        assert_eq!(scene.changes(), usize::from(want != Success));
    }
}

// upstream: prober/TestFailureThreshold
// upstream: prober/TestSuccessThreshold
// upstream: prober/TestUpdateReadiness
#[tokio::test(start_paused = true)]
async fn answers_count_when_they_come_often_enough_in_a_row() {
    let numbers = json!({"periodSeconds": 10, "failureThreshold": 3, "successThreshold": 2});
    let mut scene = scene(json!({"readinessProbe": probe("p", &numbers)}));
    scene.runs("a");
    seconds(5).await;
    // What the command ends with at each turn, and what that makes of the result.
    let turns = [
        (0, Failure),
        (1, Failure),
        (0, Failure),
        (0, Success),
        (0, Success),
        (1, Success),
        (1, Success),
        (0, Success),
        (1, Success),
        (1, Success),
        (1, Failure),
        (1, Failure),
        (0, Failure),
        (0, Success),
    ];
    // The first turn was after a second.
    assert_eq!((scene.asked("a"), scene.result("a").readiness), (1, Some(Failure)));
    let mut before = Failure;
    for (turn, (code, want)) in turns.into_iter().enumerate().skip(1) {
        scene.say("web", &[("p", code)]);
        seconds(10).await;
        assert_eq!((scene.asked("a"), scene.result("a").readiness), (turn + 1, Some(want)), "turn {turn}");
        assert_eq!(scene.changes(), usize::from(want != before), "turn {turn}");
        before = want;
    }
    assert_eq!(scene.events()[0], "spec.containers{web} Warning Unhealthy Readiness probe failed: it is 1");
    assert_eq!(scene.events().len(), 7);
}

// upstream: prober/TestOnHoldOnLivenessOrStartupCheckFailure
// upstream: prober/TestResultRunOnLivenessCheckFailure
// upstream: prober/TestResultRunOnStartupCheckFailure
// upstream: prober/TestStartupProbeFailureThreshold
#[tokio::test(start_paused = true)]
async fn a_container_that_failed_is_left_alone_until_another_one_is_there() {
    for (kind, field) in [(ProbeKind::Liveness, "livenessProbe"), (ProbeKind::Startup, "startupProbe")] {
        let numbers = json!({"periodSeconds": 5, "failureThreshold": 3, "initialDelaySeconds": 1});
        let mut scene = scene(json!({field: probe("p", &numbers)}));
        scene.say("web", &[("p", 1)]);
        scene.runs("a");
        seconds(12).await;
        assert_eq!((scene.asked("a"), scene.result("a"), scene.changes()), (3, only(kind, Failure), 1));
        seconds(300).await;
        scene.runs("a");
        seconds(300).await;
        assert_eq!((scene.asked("a"), scene.result("a"), scene.changes()), (3, only(kind, Failure), 0));
        // The run ends, and the next one starts without its results.
        scene.shows(&[("a", "web", ContainerState::Exited, 0)]);
        scene.say("web", &[("p", 0)]);
        scene.runs("b");
        let fresh = if kind == ProbeKind::Liveness { Success } else { Unknown };
        assert_eq!((scene.result("a"), scene.result("b")), (Probed::default(), only(kind, fresh)));
        seconds(2).await;
        assert_eq!((scene.asked("b"), scene.result("b")), (1, only(kind, Success)));
    }
}

// upstream: prober/TestStartupProbeSuccessThreshold
// upstream: prober/TestLivenessProbeDisabledByStarted
// upstream: prober/TestStartupProbeDisabledByStarted
// upstream: prober/TestUpdatePodStatus
#[tokio::test(start_paused = true)]
async fn the_startup_probe_runs_first_and_stops_after_success() {
    let numbers = json!({"periodSeconds": 10, "failureThreshold": 5});
    let mut scene = scene(json!({
        "startupProbe": probe("s", &numbers), "livenessProbe": probe("l", &numbers), "readinessProbe": probe("r", &numbers),
    }));
    scene.say("web", &[("s", 1)]);
    scene.runs("a");
    seconds(35).await;
    let waiting = Probed { liveness: Some(Success), readiness: Some(Failure), startup: Some(Unknown) };
    assert_eq!((scene.asked("a"), scene.result("a"), scene.changes()), (4, waiting, 0));
    scene.say("web", &[("s", 0)]);
    seconds(8).await;
    let all = Probed { liveness: Some(Success), readiness: Some(Success), startup: Some(Success) };
    // Its last question, and the first ones of the others at once.
    assert_eq!((scene.asked("a"), scene.result("a"), scene.changes()), (7, all, 2));
    scene.say("web", &[("s", 1)]);
    seconds(100).await;
    assert_eq!((scene.asked("a"), scene.result("a")), (27, all));
    // The next container has to come up again.
    scene.shows(&[("a", "web", ContainerState::Exited, 0)]);
    scene.runs("b");
    seconds(45).await;
    let failed = Probed { startup: Some(Failure), ..waiting };
    assert_eq!((scene.asked("b"), scene.result("b")), (5, failed));
}

// upstream: prober/TestDoProbe
#[tokio::test(start_paused = true)]
async fn a_container_that_does_not_run_is_not_asked_and_cannot_serve() {
    let mut scene = scene(json!({
        "livenessProbe": probe("l", &json!({"periodSeconds": 1})), "readinessProbe": probe("r", &json!({"periodSeconds": 1})),
    }));
    scene.shows(&[]);
    scene.shows(&[("a", "web", ContainerState::Created, 0)]);
    seconds(20).await;
    assert_eq!(scene.asked("a"), 0);
    scene.runs("a");
    seconds(3).await;
    assert_eq!(scene.result("a"), Probed { liveness: Some(Success), readiness: Some(Success), startup: None });
    scene.shows(&[("a", "web", ContainerState::Unknown, 0)]);
    // The state is unknown: the container is not killed for it, but gets no traffic.
    assert_eq!(scene.result("a"), Probed { liveness: Some(Success), readiness: Some(Failure), startup: None });
    scene.shows(&[("a", "web", ContainerState::Exited, 0)]);
    assert_eq!(scene.result("a"), Probed { liveness: Some(Failure), readiness: Some(Failure), startup: None });
    let (asked, _) = (scene.asked("a"), scene.changes());
    seconds(60).await;
    assert_eq!((scene.asked("a"), scene.changes()), (asked, 0));
    scene.shows(&[]);
    assert_eq!(scene.result("a"), Probed::default());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_is_asked_for_readiness_alone() {
    let numbers = json!({"periodSeconds": 1, "failureThreshold": 1});
    let mut scene = scene(json!({
        "startupProbe": probe("s", &numbers), "livenessProbe": probe("l", &numbers), "readinessProbe": probe("r", &numbers),
    }));
    scene.runs("a");
    seconds(5).await;
    scene.say("web", &[("l", 1), ("s", 1)]);
    scene.manager.ending(&scene.pod.metadata.uid);
    seconds(5).await;
    let ready = Probed { liveness: Some(Success), readiness: Some(Success), startup: Some(Success) };
    assert_eq!(scene.result("a"), ready);
    scene.say("web", &[("r", 1)]);
    scene.runs("a");
    seconds(2).await;
    assert_eq!(scene.result("a"), Probed { readiness: Some(Failure), ..ready });
    assert!(scene.changes() > 0 && scene.events().iter().all(|event| event.contains("Readiness")));
    // A container that has not started is no longer killed for it either, not even when the agent was restarted
    // meanwhile.
    let mut pod = (*scene.pod).clone();
    pod.metadata.uid = "other".into();
    pod.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
    scene.pod = Arc::new(pod);
    scene.say("web", &[("s", 1), ("l", 1)]);
    scene.runs("b");
    seconds(5).await;
    assert_eq!(scene.result("b"), ready);
}

#[tokio::test(start_paused = true)]
async fn questions_that_cannot_be_asked_count_for_nothing() {
    let numbers = json!({"periodSeconds": 10, "failureThreshold": 2});
    let mut scene = scene(json!({"livenessProbe": probe("l", &numbers), "readinessProbe": probe("r", &numbers)}));
    scene.runs("a");
    seconds(15).await;
    let good = Probed { liveness: Some(Success), readiness: Some(Success), startup: None };
    assert_eq!((scene.result("a"), scene.changes()), (good, 1));
    scene.runtime.faults().be_absent(Error::new(Kind::Unavailable, "connection refused"));
    seconds(100).await;
    assert_eq!((scene.result("a"), scene.changes()), (good, 0));
    let event = "spec.containers{web} Warning Unhealthy Liveness probe errored and resulted in unknown state: connection \
                 refused";
    assert!(scene.events().contains(&event.to_owned()), "{:?}", scene.events());
    // A runtime that hangs delays only its own question, and missed turns are not made up for.
    scene.runtime.faults().return_to_duty();
    let gate = scene.runtime.faults().hold(CallKind::ExecSync);
    seconds(100).await;
    let stuck = scene.asked("a");
    gate.open();
    seconds(21).await;
    assert!(scene.asked("a") - stuck <= 6, "{} questions", scene.asked("a") - stuck);
    assert_eq!(scene.result("a"), good);
}

#[tokio::test(start_paused = true)]
async fn what_ran_before_is_asked_soon_and_delays_are_counted_from_its_start() {
    let delayed = |seconds: i32| json!({"periodSeconds": 10, "initialDelaySeconds": seconds});
    let scene = scene(json!({
        "livenessProbe": probe("l", &delayed(5)), "readinessProbe": probe("r", &delayed(60)),
    }));
    scene.shows(&[("a", "web", ContainerState::Running, 40)]);
    seconds(10).await;
    let waiting = Probed { liveness: Some(Success), readiness: Some(Failure), startup: None };
    assert_eq!((scene.asked("a"), scene.result("a")), (1, waiting));
    seconds(12).await;
    assert_eq!(scene.result("a").readiness, Some(Success));
    // A container that began between two observations is no older than that, though the clock was set forward
    // meanwhile.
    scene.shows(&[("a", "web", ContainerState::Exited, 0)]);
    seconds(1).await;
    scene.shows(&[("b", "web", ContainerState::Running, 3600)]);
    seconds(55).await;
    assert_eq!(scene.result("b").readiness, Some(Failure));
    seconds(5).await;
    assert_eq!(scene.result("b").readiness, Some(Success));
    // And one that seems to start in the future has just started.
    scene.shows(&[("c", "web", ContainerState::Running, -3600)]);
    seconds(59).await;
    assert_eq!(scene.result("c").readiness, Some(Failure));
    seconds(2).await;
    assert_eq!(scene.result("c").readiness, Some(Success));
}

// upstream: prober/TestAddRemovePodsWithRestartableInitContainer
// upstream: prober/TestUpdatePodStatusWithInitContainers
#[tokio::test(start_paused = true)]
async fn sidecars_are_asked_and_other_init_containers_are_not() {
    let numbers = json!({"periodSeconds": 1, "failureThreshold": 1});
    let scene = scene_of(&json!({
        "initContainers": [
            {"name": "first", "image": "x"},
            {"name": "side", "image": "x", "restartPolicy": "Always", "startupProbe": probe("s", &numbers)},
        ],
        "containers": [{"name": "plain", "image": "x"}, {"name": "web", "image": "x", "readinessProbe": probe("r", &numbers)}],
    }));
    scene.say("side", &[("s", 1)]);
    let running = ContainerState::Running;
    scene.shows(&[
        ("f", "first", running, 0),
        ("s", "side", running, 0),
        ("p", "plain", running, 0),
        ("w", "web", running, 0),
    ]);
    seconds(3).await;
    let results = scene.manager.results(&scene.pod.metadata.uid);
    assert_eq!(results.0.keys().collect::<Vec<_>>(), ["s", "w"]);
    assert_eq!((scene.result("s").startup, scene.result("w").readiness), (Some(Failure), Some(Success)));
    assert_eq!(scene.events(), ["spec.initContainers{side} Warning Unhealthy Startup probe failed: it is 1"]);
    // A pod without probes costs nothing.
    let plain = pod(&json!({"containers": [{"name": "plain", "image": "x"}]}));
    scene.manager.observe(&plain, &ObservedPod::default(), None);
    assert_eq!(scene.manager.results(&plain.metadata.uid), ProbeResults::default());
}

#[tokio::test(start_paused = true)]
async fn a_changed_probe_is_asked_as_it_says_now_and_keeps_what_was_said() {
    let question = |command: &str| {
        json!({"containers": [{
            "name": "web", "image": "x", "readinessProbe": probe(command, &json!({"periodSeconds": 1})),
        }]})
    };
    let mut scene = scene_of(&question("old"));
    scene.say("web", &[("old", 0), ("new", 1)]);
    scene.runs("a");
    seconds(3).await;
    let mut changed = (*pod(&question("new"))).clone();
    changed.metadata.uid.clone_from(&scene.pod.metadata.uid);
    scene.pod = Arc::new(changed);
    scene.runs("a");
    assert_eq!(scene.result("a").readiness, Some(Success));
    seconds(5).await;
    assert_eq!(scene.result("a").readiness, Some(Failure));
    // Without the probe there is no result, and no question is asked.
    let mut without = (*scene.pod).clone();
    without.spec.containers[0].readiness_probe = None;
    without.spec.containers[0].liveness_probe = scene.pod.spec.containers[0].readiness_probe.clone();
    scene.pod = Arc::new(without);
    scene.runs("a");
    assert_eq!(scene.result("a"), only(ProbeKind::Liveness, Success));
}

// upstream: prober/TestCleanUp
// upstream: prober/TestAddRemovePods
// upstream: prober/TestCleanupPods
// upstream: prober/TestCleanupRepeated
#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_asked_no_more_and_leaves_no_series() {
    let scene = scene(json!({"readinessProbe": probe("r", &json!({"periodSeconds": 1}))}));
    let mut registry = Registry::default();
    scene.manager.metrics().register(&mut registry);
    let exposed = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encoded");
        text
    };
    scene.runs("a");
    seconds(3).await;
    scene.say("web", &[("r", 1)]);
    seconds(2).await;
    let labels =
        format!("container=\"web\",pod=\"web-edge\",namespace=\"default\",pod_uid=\"{}\"", scene.pod.metadata.uid);
    for (result, count) in [("successful", 3), ("failed", 2)] {
        let line = format!("prober_probe_total{{probe_type=\"Readiness\",result=\"{result}\",{labels}}} {count}");
        assert!(exposed().contains(&line), "{line} is not in {}", exposed());
    }
    assert!(exposed().contains("prober_probe_duration_seconds_count{probe_type=\"Readiness\",container=\"web\""));
    scene.manager.forget(&scene.pod.metadata.uid);
    scene.manager.forget(&scene.pod.metadata.uid);
    let asked = scene.asked("a");
    seconds(60).await;
    assert_eq!((scene.asked("a"), scene.result("a")), (asked, Probed::default()));
    assert!(!exposed().contains("web"), "{}", exposed());
    // The same pod may come back.
    scene.runs("b");
    seconds(3).await;
    assert_eq!(scene.asked("b"), 3);
    tokio::time::timeout(Duration::from_secs(1), scene.manager.shutdown()).await.expect("nobody asks any more");
    seconds(60).await;
    assert_eq!(scene.asked("b"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_the_nodes_network_is_asked_at_the_nodes_address() {
    let question = json!({"tcpSocket": {"port": 1}, "periodSeconds": 1});
    let mut scene = scene_of(&json!({
        "hostNetwork": true, "containers": [{"name": "web", "image": "x", "readinessProbe": question}],
    }));
    scene.runs("a");
    seconds(2).await;
    let event = "Readiness probe errored and resulted in unknown state: the pod has no address yet";
    assert!(scene.events()[0].ends_with(event), "{:?}", scene.events());
    assert_eq!(scene.changes(), 0);
}
