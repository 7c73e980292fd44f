//! Ends of pods: their order, their time, their events, the reports of failures, and leftovers.

use std::collections::BTreeMap;
use std::time::Duration;

use cri_api::testing::{CallKind, FakeExec, FakeProcess};
use cri_api::{Container, ContainerState, Error, Kind};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::bench::Bench;
use crate::labels::PodOwner;
use crate::{ProbeResult, Probed};

fn stubborn() -> FakeProcess {
    FakeProcess { ignores_stop: true, ..FakeProcess::default() }
}

/// Commands that hang.
fn hanging(command: &str) -> FakeProcess {
    FakeProcess { commands: BTreeMap::from([(vec![command.to_owned()], FakeExec::Hangs)]), ..FakeProcess::default() }
}

fn sidecars() -> Bench {
    Bench::new(&json!({
        "terminationGracePeriodSeconds": 10,
        "initContainers": [
            {"name": "s1", "image": "x:1", "restartPolicy": "Always"},
            {"name": "s2", "image": "x:1", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:1"}],
    }))
}

async fn stopped(bench: &Bench, names: &[&str]) -> Vec<String> {
    let mut ids = BTreeMap::new();
    for name in names {
        ids.insert(bench.id_of(name).await, (*name).to_owned());
    }
    let stops = bench.runtime.calls().into_iter().filter(|(kind, _)| *kind == CallKind::StopContainer);
    stops.map(|(_, id)| ids[&id].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn sidecars_stop_after_the_others_and_share_the_grace_period() {
    let bench = sidecars();
    bench.settle().await;
    bench.runtime.behave("b", stubborn());
    bench.runtime.forget_calls();
    let begun = Instant::now();
    bench.end(None).await.expect("ended");
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(stopped(&bench, &["a", "b", "s1", "s2"]).await, ["a", "b", "s2", "s1"]);
    let kinds: Vec<CallKind> = bench.changes().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds.last(), Some(&CallKind::StopPodSandbox));
    assert_eq!(bench.observe().await.latest("b").map(|run| run.exit_code), Some(137));
    // All are reported at once, and none of them twice.
    let told = bench.events();
    assert_eq!(told[told.len() - 4..].iter().filter(|event| event.ends_with(": Killing")).count(), 4, "{told:?}");
    bench.end(None).await.expect("nothing is left to end");
    assert_eq!(bench.events(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_pod_ends_by_its_recorded_settings() {
    let bench = sidecars();
    bench.settle().await;
    bench.runtime.behave("a", stubborn());
    bench.runtime.forget_calls();
    let begun = Instant::now();
    let observed = bench.observe().await;
    bench.pod_runtime.end_pod(None, &observed, None).await.expect("ended");
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(stopped(&bench, &["a", "b", "s1", "s2"]).await, ["a", "b", "s2", "s1"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_call_is_faster_and_tells_nothing_again() {
    let bench = Bench::new(&json!({
        "terminationGracePeriodSeconds": 500,
        "containers": [{"name": "a", "image": "x:1", "lifecycle": {"preStop": {"exec": {"command": ["bye"]}}}}],
    }));
    bench.settle().await;
    let process = FakeProcess { ignores_stop: true, ..hanging("bye") };
    bench.runtime.behave("a", process);
    bench.events();
    timeout(Duration::from_secs(20), bench.end(None)).await.expect_err("its hook hangs");
    let begun = Instant::now();
    bench.end(Some(4)).await.expect("ended");
    assert_eq!(begun.elapsed().as_secs(), 4);
    assert_eq!(bench.events(), ["a: Killing"]);
    let hooks = bench.runtime.calls().into_iter().filter(|(kind, _)| *kind == CallKind::ExecSync).count();
    assert_eq!(hooks, 1);
}

#[tokio::test(start_paused = true)]
async fn a_hook_before_the_stop_has_its_time_and_no_more() {
    let bench = Bench::new(&json!({
        "terminationGracePeriodSeconds": 30,
        "containers": [{"name": "a", "image": "x:1", "lifecycle": {"preStop": {"exec": {"command": ["bye"]}}}}],
    }));
    bench.settle().await;
    bench.runtime.behave("a", FakeProcess { ignores_stop: true, ..hanging("bye") });
    let begun = Instant::now();
    bench.end(None).await.expect("ended");
    // The hook took all of it, and the least is left for the process.
    assert_eq!(begun.elapsed().as_secs(), 32);
}

#[tokio::test(start_paused = true)]
async fn failures_to_stop_are_reported_and_the_rest_ends() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:1"}]}));
    bench.settle().await;
    let error = Error::new(Kind::Internal, "the shim is stuck");
    bench.runtime.faults().fail_for(CallKind::StopContainer, "a", error.clone());
    bench.runtime.faults().fail_times(CallKind::StopPodSandbox, 1, error);
    let failed = bench.end(None).await.expect_err("one does not end");
    let observed = bench.observe().await;
    let id = |name: &str| observed.latest(name).expect("there").id.clone();
    let sandbox = &observed.sandboxes[0].id;
    assert_eq!(failed.what, format!("stop container a ({}), stop sandbox {sandbox}", id("a")));
    assert_eq!(failed.source.message(), "the shim is stuck");
    assert_eq!(observed.latest("b").map(|run| run.state), Some(ContainerState::Exited));
    bench.runtime.faults().clear(CallKind::StopContainer);
    bench.end(None).await.expect("ended");
    assert_eq!(bench.everything().await.0.iter().filter(|(_, state)| *state == ContainerState::Running).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_removal_continues_after_errors_and_is_retried() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:1"}]}));
    bench.settle().await;
    bench.end(None).await.expect("ended");
    let below = |name: &str| bench.root.path().join(name);
    let entries = |name: &str| std::fs::read_dir(below(name)).map_or(0, Iterator::count);
    std::fs::create_dir_all(below("logs/shop_other_u-2")).expect("made");
    std::os::unix::fs::symlink(below("logs/shop_other_u-2/c/0.log"), below("links/other.log")).expect("linked");
    assert_eq!((entries("logs"), entries("links")), (2, 3));
    let observed = bench.observe().await;
    let error = Error::new(Kind::Unavailable, "not now");
    bench.runtime.faults().fail_for(CallKind::RemoveContainer, "b", error.clone());
    bench.runtime.faults().fail_times(CallKind::RemovePodSandbox, 1, error);
    let failed = bench.pod_runtime.remove_pod(&observed).await.expect_err("one stays");
    assert!(failed.what.starts_with("remove container b (") && failed.what.contains("remove sandbox "), "{failed}");
    assert_eq!(bench.observe().await.containers.len(), 1);
    // What a container that is left may use stays.
    assert_eq!((entries("logs"), entries("links")), (2, 3));
    bench.runtime.faults().clear(CallKind::RemoveContainer);
    bench.pod_runtime.remove_pod(&bench.observe().await).await.expect("removed");
    assert_eq!(bench.everything().await, (vec![], 0));
    assert_eq!((entries("logs"), entries("links"), entries("pods")), (1, 1, 0));
    let nothing =
        crate::ObservedPod::new(PodOwner { uid: bench.pod.metadata.uid.clone(), ..PodOwner::default() }, [], []);
    bench.pod_runtime.remove_pod(&nothing).await.expect("nothing is left");
    bench.pod_runtime.remove_pod(&crate::ObservedPod::default()).await.expect("nobody's things stay");
    assert_eq!(entries("logs"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_container_in_unknown_state_is_stopped_first() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}]}));
    bench.settle().await;
    let observed = bench.observe().await;
    let id = bench.id_of("a").await;
    let config = bench.runtime.container_config(&id).expect("there");
    bench.runtime.put_container(Container {
        id: id.clone(),
        pod_sandbox_id: observed.sandboxes[0].id.clone(),
        metadata: config.metadata,
        state: ContainerState::Unknown,
        labels: config.labels,
        annotations: config.annotations,
        ..Container::default()
    });
    bench.runtime.forget_calls();
    bench.good().await;
    let kinds: Vec<CallKind> = bench.changes().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [CallKind::StopContainer, CallKind::CreateContainer, CallKind::StartContainer]);
    let (all, _) = bench.everything().await;
    assert_eq!(all.iter().filter(|(_, state)| *state == ContainerState::Running).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_liveness_probe_restarts_its_container() {
    let mut bench = Bench::new(&json!({"containers": [
        {"name": "a", "image": "x:1", "livenessProbe": {"exec": {"command": ["live"]}, "terminationGracePeriodSeconds": 3}},
        {"name": "b", "image": "x:1"},
    ]}));
    bench.settle().await;
    bench.events();
    bench.runtime.behave("a", stubborn());
    let (a, b) = (bench.id_of("a").await, bench.id_of("b").await);
    let failed = Probed { liveness: Some(ProbeResult::Failure), ..Probed::default() };
    bench.probes.0.insert(a.clone(), failed);
    let begun = Instant::now();
    bench.good().await;
    assert_eq!(begun.elapsed().as_secs(), 3);
    assert_eq!(bench.events(), ["a: Killing", "a: Pulled", "a: Created", "a: Started"]);
    assert_ne!(bench.id_of("a").await, a);
    assert_eq!((bench.id_of("b").await, bench.counts().await), (b, vec![1, 0]));
}
