//! Faults at each call: it fails, its answer is lost, it hangs, the runtime is not there. What is shown at the end is the pod.

use cri_api::testing::{CallKind, FakeImage, Faults};
use cri_api::{Condition, ContainerState, Error, ImageService as _, ImageSpec, Kind, RuntimeStatus};
use serde_json::{Value, json};

use super::bench::{Bench, pod};
use crate::sync::network_remedy;

fn error() -> Error {
    Error::new(Kind::Unavailable, "the connection is gone")
}

fn spec() -> Value {
    json!({
        "initContainers": [
            {"name": "first", "image": "x:1"}, {"name": "side", "image": "x:2", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:2"}],
    })
}

const CALLS: [CallKind; 10] = [
    CallKind::RuntimeStatus,
    CallKind::ListPodSandboxes,
    CallKind::ListContainers,
    CallKind::RunPodSandbox,
    CallKind::PodSandboxStatus,
    CallKind::CreateContainer,
    CallKind::StartContainer,
    CallKind::ContainerStatus,
    CallKind::ImageStatus,
    CallKind::PullImage,
];

type Fault = (&'static str, fn(&Faults, CallKind));

const FAULTS: [Fault; 4] = [
    ("fails once", |faults, kind| faults.fail_times(kind, 1, error())),
    ("fails three times", |faults, kind| faults.fail_times(kind, 3, error())),
    ("loses its answer", |faults, kind| faults.lose_answers(kind, 1, error())),
    ("is slow", |faults, kind| faults.delay(kind, std::time::Duration::from_secs(90))),
];

#[tokio::test(start_paused = true)]
async fn a_pod_starts_whichever_call_fails() {
    use ContainerState::{Exited, Running};
    for kind in CALLS {
        for (name, fault) in FAULTS {
            for after_a_kill in [false, true] {
                let mut bench = Bench::new(&spec());
                bench.ends("first", 0);
                fault(bench.runtime.faults(), kind);
                fault(bench.images.faults(), kind);
                if after_a_kill {
                    let _ = bench.try_sync().await;
                    bench.kill_9();
                }
                bench.recover().await;
                let want = [("a", Running), ("b", Running), ("first", Exited), ("side", Running)];
                let want = want.map(|(name, state)| (name.to_owned(), state));
                assert_eq!(bench.everything().await, (want.to_vec(), 1), "{kind:?} {name} {after_a_kill}");
                assert_eq!(bench.counts().await, [0, 0], "{kind:?} {name} {after_a_kill}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_holds_its_own_pod_only() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}]}));
    let mut other = pod(&json!({"containers": [{"name": "other", "image": "x:1"}]}));
    other.metadata.name = "other".into();
    other.metadata.uid = "u-other".into();
    let gate = bench.runtime.faults().hold_for(CallKind::CreateContainer, "web-edge");
    let stuck = bench.sync();
    let free = async {
        gate.until_waiting(1).await;
        let observed = bench.pod_runtime.observe("u-other").await.expect("observed");
        let report = bench.pod_runtime.sync_pod(&other, &observed, &bench.probes, &|_, _| (), &bench.stop).await;
        assert_eq!(report.errors, Vec::<String>::new());
        // Asked to go no further, it waits for the call that has begun, and starts nothing behind it.
        bench.stop.cancel();
        tokio::task::yield_now().await;
        gate.open();
    };
    let (report, ()) = tokio::join!(stuck, free);
    assert!(report.cancelled, "{report:?}");
    let (containers, sandboxes) = bench.everything().await;
    assert_eq!(sandboxes, 2);
    assert_eq!(containers, [("a".to_owned(), ContainerState::Created), ("other".to_owned(), ContainerState::Running)]);
}

#[tokio::test(start_paused = true)]
async fn without_a_network_there_is_no_sandbox_and_images_come_all_the_same() {
    let mut bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}]}));
    let (reason, message) = ("NetworkPluginNotReady".to_owned(), "cni plugin not initialized".to_owned());
    let kind = "NetworkReady".to_owned();
    bench.runtime.set_condition(Condition { kind: kind.clone(), status: false, reason, message });
    let report = bench.sync().await;
    let text = "network is not ready: container runtime network not ready: NetworkReady=false \
                reason:NetworkPluginNotReady message:cni plugin not initialized; the runtime needs a CNI configuration in \
                /etc/cni/net.d, for example /usr/share/doc/imagelet/examples/10-pods.conflist; pods with hostNetwork: true need none";
    assert_eq!((report.network_not_ready, report.errors), (true, vec![text.to_owned()]));
    bench.rest(1).await;
    // The event is recorded once, however often the start is tried.
    assert!(bench.sync().await.network_not_ready);
    let mut events = bench.events();
    events.sort();
    assert_eq!(events, ["a: Pulled".into(), "a: Pulling".into(), format!("pod: NetworkNotReady: {text}")]);
    assert_eq!(bench.everything().await, (vec![], 0));
    bench.runtime.set_condition(Condition { kind: kind.clone(), status: true, ..Condition::default() });
    bench.good().await;
    assert_eq!(bench.events(), ["a: Created", "a: Started"]);
    bench.end(None).await.expect("ended");
    bench.pod_runtime.remove_pod(&bench.observe().await).await.expect("removed");
    // One with the node's network does not ask.
    bench.runtime.set_condition(Condition { kind, status: false, ..Condition::default() });
    bench.pod = pod(&json!({"hostNetwork": true, "containers": [{"name": "a", "image": "x:1"}]}));
    bench.recover().await;
    assert_eq!(bench.everything().await.0.len(), 1);
}

#[test]
fn network_remedy_names_the_directory_and_an_error_of_loading() {
    let remedy = |cni: &str, load: &str| {
        let info = [("cniconfig", cni), ("lastCNILoadStatus", load)];
        let info = info.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        network_remedy(&RuntimeStatus { info, ..RuntimeStatus::default() })
    };
    let rest = "for example /usr/share/doc/imagelet/examples/10-pods.conflist; pods with hostNetwork: true need none";
    let elsewhere = r#"{"PluginConfDir": "/etc/cni/other"}"#;
    let missing = "cni config load failed: no network config found in /etc/cni/other: cni plugin not initialized";
    let text = format!("the runtime needs a CNI configuration in /etc/cni/other, {rest}");
    assert_eq!(remedy(elsewhere, missing), text);
    let broken =
        "cni config load failed: failed to load CNI config list file /etc/cni/other/1.conflist: invalid character";
    assert_eq!(remedy(elsewhere, broken), format!("{text} (the runtime reports: {broken})"));
}

#[tokio::test(start_paused = true)]
async fn sandbox_image_is_ensured_before_the_first_sandbox_and_after_a_failure() {
    let mut bench = Bench::new(&json!({"hostNetwork": true, "containers": [{"name": "a", "image": "x:1"}]}));
    bench.images.publish("registry.example/pause:3.6", &FakeImage::new("pause"));
    bench.runtime.report("config", r#"{"sandboxImage": "registry.example/pause:3.6"}"#);
    bench.runtime.faults().fail_times(CallKind::RunPodSandbox, 1, Error::new(Kind::Unknown, "no more addresses"));
    let report = bench.sync().await;
    assert_eq!(report.errors, ["create sandbox: no more addresses"]);
    let image = ImageSpec::new("registry.example/pause:3.6");
    assert!(bench.images.image_status(&image, false).await.expect("a status").image.is_some());
    // It is ensured once more after the failure, and only then.
    bench.images.remove_image(&image).await.expect("removed");
    bench.rest(1).await;
    bench.good().await;
    assert!(bench.images.image_status(&image, false).await.expect("a status").image.is_some());
    bench.images.forget_calls();
    bench.end(None).await.expect("ended");
    bench.pod = pod(&json!({"hostNetwork": true, "containers": [{"name": "b", "image": "x:1"}]}));
    bench.recover().await;
    let calls = format!("{:?}", bench.images.calls());
    assert!(!calls.contains("pause"), "{calls}");
    // An image that cannot be pulled does not keep the runtime from having it.
    bench.runtime.report("config", r#"{"sandboxImage": "registry.example/absent:1"}"#);
    bench.kill_9();
    bench.end(None).await.expect("ended");
    bench.pod = pod(&json!({"hostNetwork": true, "containers": [{"name": "c", "image": "x:1"}]}));
    bench.runtime.faults().fail_times(
        CallKind::RunPodSandbox,
        1,
        Error::new(Kind::Unknown, "failed to get sandbox image"),
    );
    let report = bench.sync().await;
    let start = "create sandbox: failed to get sandbox image (imagelet cannot pull the sandbox image registry.example/absent:1 either: ";
    assert!(report.errors.len() == 1 && report.errors[0].starts_with(start), "{:?}", report.errors);
    bench.recover().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_sandbox_creation_is_reported() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}]}));
    bench.runtime.faults().fail_times(CallKind::RunPodSandbox, 1, Error::new(Kind::Unknown, "no more addresses"));
    let report = bench.sync().await;
    assert_eq!(report.errors, ["create sandbox: no more addresses"]);
    let events = bench.events();
    let want = "pod: FailedCreatePodSandBox: Failed to create pod sandbox: no more addresses";
    assert!(events.iter().any(|event| event == want), "{events:?}");
    // A name that the runtime holds back without showing who has it is passed over.
    let reserved = Error::new(Kind::Unknown, "failed to reserve sandbox name \"web\": name is reserved for \"abc\"");
    bench.runtime.faults().fail_times(CallKind::RunPodSandbox, 1, reserved.clone());
    bench.runtime.faults().fail_times(CallKind::CreateContainer, 1, reserved);
    bench.good().await;
    let observed = bench.observe().await;
    assert_eq!((observed.sandboxes[0].attempt, observed.containers[0].restart_count()), (1, 1));
    assert_eq!(bench.everything().await, (vec![("a".to_owned(), ContainerState::Running)], 1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_sandbox_is_reported_and_replaced() {
    let bench = Bench::new(&spec());
    bench.ends("first", 0);
    bench.settle().await;
    bench.events();
    bench.runtime.kill_sandbox(&bench.observe().await.sandboxes[0].id);
    bench.runtime.faults().fail_times(CallKind::PodSandboxStatus, 1, error());
    bench.try_sync().await.expect_err("nobody can tell how it is");
    bench.settle().await;
    let events = bench.events();
    assert_eq!(events[0], "pod: SandboxChanged");
    assert_eq!(events.iter().filter(|event| event.ends_with(": Started")).count(), 4, "{events:?}");
    // Runs of init containers of the earlier sandbox were removed.
    assert_eq!(bench.observe().await.runs("first").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_init_container_that_keeps_failing_leaves_two_logs_and_no_gap() {
    let bench = Bench::new(&json!({
        "initContainers": [{"name": "i", "image": "x:1"}], "containers": [{"name": "a", "image": "x:1"}],
    }));
    bench.ends("i", 1);
    for _ in 0..5 {
        bench.good().await;
        let path = bench.observe().await.latest("i").expect("there").log_path.clone();
        std::fs::write(path, "t stdout F x\n").expect("written");
        bench.rest(700).await;
    }
    let logs = bench.pod_runtime.logs();
    let directory = bench.observe().await.latest("i").expect("there").log_path.clone();
    let directory = std::path::Path::new(&directory).parent().expect("above it");
    assert_eq!(logs.numbers(directory), [3, 4]);
    assert_eq!(bench.observe().await.runs("i").count(), 2);
    // The pod gets another sandbox: the run is removed with all logs before its own, and the next one has the next
    // number.
    bench.runtime.kill_sandbox(&bench.observe().await.sandboxes[0].id);
    bench.good().await;
    let observed = bench.observe().await;
    assert_eq!(observed.runs("i").map(crate::ObservedContainer::restart_count).collect::<Vec<_>>(), [5]);
    assert_eq!(logs.numbers(directory), [4]);
    assert_eq!(std::fs::read_dir(bench.root.path().join("links")).expect("links").count(), 1);
}
