//! The pure parts and the code that acts, together, over the runtime in memory: a manifest is admitted, its actions are
//! performed, and the next actions are computed from the state that the runtime then shows.

use serde_json::json;

use crate::actions::PodReason;
use crate::sync::tests::bench::Bench;

#[tokio::test(start_paused = true)]
async fn a_pod_starts_in_order_and_then_needs_no_action() {
    let bench = Bench::new(&json!({
        "initContainers": [
            {"name": "first", "image": "x"}, {"name": "side", "image": "x", "restartPolicy": "Always"},
            {"name": "second", "image": "x"},
        ],
        "containers": [{"name": "a", "image": "x", "env": [{"name": "N", "value": "1"}]}, {"name": "b", "image": "x"}],
    }));
    bench.ends("first", 0);
    bench.ends("second", 0);
    assert_eq!(bench.settle().await, ["first", "side", "second", "a b"]);
    let status = bench.status().await;
    assert_eq!(status.phase.as_str(), "Running");
    assert!(status.is("Ready") && status.is("Initialized") && status.is("PodReadyToStartContainers"));
    assert_eq!(status.init_container_statuses.iter().filter(|c| c.ready).count(), 3);
    assert!(!status.pod_ip.is_empty());
    // After a restart this program observes the same state, and finds nothing to do.
    assert!(bench.actions().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ended_containers_restart_alone_and_are_counted() {
    let bench = Bench::new(&json!({
        "initContainers": [{"name": "side", "image": "x", "restartPolicy": "Always"}],
        "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}],
    }));
    bench.settle().await;
    let (kept, sidecar) = (bench.id_of("a").await, bench.id_of("side").await);
    bench.runtime.exit(&bench.id_of("b").await, 3);
    bench.runtime.exit(&sidecar, 1);
    assert_eq!(bench.settle().await, ["side b"]);
    assert_eq!((bench.id_of("a").await, bench.counts().await), (kept, vec![0, 1]));
    let status = bench.status().await;
    assert_eq!(status.container_statuses[1].last_state.as_ref().map(|end| end.exit_code), Some(3));
    assert_eq!(status.phase.as_str(), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_dead_sandbox_is_replaced_with_everything_in_it() {
    let init = json!([{"name": "i", "image": "x"}, {"name": "j", "image": "x"}]);
    let bench = Bench::new(&json!({"initContainers": init, "containers": [{"name": "a", "image": "x"}]}));
    bench.ends("i", 0);
    bench.ends("j", 0);
    bench.settle().await;
    let first = bench.observe().await.sandboxes[0].id.clone();
    bench.runtime.kill_sandbox(&first);
    let actions = bench.actions().await;
    assert_eq!((actions.kill_pod.clone(), actions.attempt), (Some(PodReason::NotReady), 1), "{actions}");
    // The containers of the earlier sandbox are still shown, and do not count as done in the new one.
    assert_eq!(bench.settle().await, ["i", "j", "a"]);
    let observed = bench.observe().await;
    assert_eq!((observed.sandboxes.len(), observed.sandboxes[0].attempt, observed.sandboxes[0].ready), (2, 1, true));
    assert_eq!(bench.counts().await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_new_image_replaces_its_container_only() {
    let mut bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:1"}]}));
    bench.settle().await;
    let (a, b) = (bench.id_of("a").await, bench.id_of("b").await);
    bench.pod.spec.containers[0].image = "x:2".into();
    assert_eq!(bench.settle().await, ["a"]);
    assert_ne!(bench.id_of("a").await, a);
    assert_eq!(bench.id_of("b").await, b);
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_reports_its_phase_and_stays_ended() {
    for (code, phase) in [(0, "Succeeded"), (4, "Failed")] {
        let bench = Bench::new(&json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}));
        bench.ends("a", code);
        assert_eq!(bench.settle().await, ["a"]);
        assert_eq!(bench.status().await.phase.as_str(), phase);
        for _ in 0..3 {
            let actions = bench.good().await.actions;
            assert!(actions.kill_pod.is_some() && !actions.create_sandbox && actions.containers_to_start.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_rule_restarts_the_whole_pod_in_its_sandbox() {
    let rule = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let bench = Bench::new(&json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "i", "image": "x"}],
        "containers": [
            {"name": "a", "image": "x", "restartPolicy": "Never", "restartPolicyRules": rule}, {"name": "b", "image": "x"},
        ],
    }));
    bench.ends("i", 0);
    bench.settle().await;
    let (sandbox, b) = (bench.observe().await.sandboxes[0].id.clone(), bench.id_of("b").await);
    bench.runtime.exit(&bench.id_of("a").await, 42);
    assert_eq!(bench.settle().await, ["", "i", "a b"]);
    let observed = bench.observe().await;
    assert_eq!((observed.sandboxes.len(), &observed.sandboxes[0].id), (1, &sandbox));
    assert_ne!(bench.id_of("b").await, b);
    assert_eq!(bench.status().await.phase.as_str(), "Running");
}
