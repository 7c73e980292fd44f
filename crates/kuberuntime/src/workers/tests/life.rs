//! The life of pods under one agent: they come, change, end and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::{CallKind, FakeProcess};
use cri_api::{ContainerState, RuntimeService as _};
use serde_json::json;
use tokio::time::Instant;

use super::world::{World, pass, pod, simple, uid};
use crate::Phase;
use crate::pod::Pod;
use crate::workers::{PodView, WorkerState};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_pod_starts_and_ends_with_its_manifest() {
    let world = World::new();
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    assert!(at_work.until_ready(&web).await < 2 * SECOND);
    let view = at_work.view(&web).expect("listed");
    assert_eq!((view.state, &*view.actions, &view.error), (WorkerState::Syncing, "nothing to do", &None));
    assert!(view.status.container_statuses[0].container_id.starts_with("fake://"));
    assert_eq!(world.directories(), [uid(&web)]);

    world.want([]);
    assert!(at_work.until_removed(&web).await < SECOND);
    world.assert_empty().await;
    // It may come again, though it is the same.
    world.want([&web]);
    at_work.until_ready(&web).await;
    at_work.stop().await;
    assert!(world.running("web").await.is_some(), "containers outlive the process");
}

#[tokio::test(start_paused = true)]
async fn an_edited_file_ends_the_old_pod_before_the_new_one_begins() {
    let world = World::new();
    world.is_stubborn("web");
    let at_work = world.start();
    let [one, two, three] = ["x:1", "x:2", "x:3"].map(|image| simple("web", image));
    world.want([&one]);
    at_work.until_ready(&one).await;
    world.runtime.forget_calls();
    world.want([&two]);
    at_work.until_state(&two, WorkerState::Queued).await;
    at_work.until_state(&one, WorkerState::Terminating).await;
    let ending = at_work.view(&one).expect("listed");
    assert!(ending.pod.metadata.deletion_timestamp.is_some(), "it says that it is being deleted");
    pass(5).await;
    // Edited once more while it waits: the version in between never runs.
    world.want([&three]);
    pass(20).await;
    assert_eq!(at_work.view(&three).expect("listed").state, WorkerState::Queued);
    let took = at_work.until_ready(&three).await;
    assert!(took < 7 * SECOND, "{took:?}");
    assert!(at_work.view(&one).is_none() && at_work.view(&two).is_none());
    assert!(world.nth(CallKind::RemovePodSandbox, "sandbox-0001") < world.nth(CallKind::RunPodSandbox, "web-edge"));
    assert_eq!(world.changes().iter().filter(|(kind, _)| *kind == CallKind::RunPodSandbox).count(), 1);
    assert_eq!(world.uids().await, [uid(&three)]);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_a_name_come_in_their_order() {
    let world = World::new();
    let at_work = world.start();
    let [one, two] = ["x:1", "x:2"].map(|image| simple("web", image));
    world.want([&one]);
    pass(1).await;
    world.want([&one, &two]);
    at_work.until_ready(&one).await;
    pass(300).await;
    assert_eq!(at_work.view(&two).expect("listed").state, WorkerState::Queued);
    assert_eq!(world.uids().await, [uid(&one)]);
    world.want([&two]);
    at_work.until_ready(&two).await;
    // A pod that never had its turn is removed at once.
    world.want([&two, &one]);
    at_work.until_state(&one, WorkerState::Queued).await;
    world.want([&two]);
    assert!(at_work.until_removed(&one).await < SECOND);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_definition_of_a_uid_interrupts_the_running_sync() {
    let world = World::new();
    let gate = world.images.faults().hold(CallKind::PullImage);
    let at_work = world.start();
    let wrong = simple("web", "x:1");
    world.want([&wrong]);
    gate.until_arrived(1).await;
    let mut right = Pod::clone(&wrong);
    right.spec.containers[0].image = "x:2".into();
    let right = Arc::new(right);
    world.want([&right]);
    gate.until_arrived(2).await;
    gate.open();
    assert!(at_work.until_ready(&right).await < 3 * SECOND);
    let all = world.containers("web").await;
    assert_eq!(all.iter().map(|c| &*c.image.user_specified_image).collect::<Vec<_>>(), ["x:2"]);
    // An equal one is no other one.
    world.runtime.forget_calls();
    world.want([&Arc::new(Pod::clone(&right))]);
    pass(5).await;
    assert_eq!(world.changes(), []);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_no_image() {
    let world = World::new();
    let gate = world.images.faults().hold(CallKind::PullImage);
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    gate.until_arrived(1).await;
    let view = at_work.view(&web).expect("listed");
    assert_eq!(view.status.phase, Phase::Pending);
    world.want([]);
    assert!(at_work.until_removed(&web).await < SECOND);
    world.assert_empty().await;
    // No pull continues without a pod.
    gate.until_waiting(0).await;
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_runs_the_hook_and_can_be_made_shorter() {
    let world = World::new();
    let stop = || vec!["/stop".to_owned()];
    let process = FakeProcess {
        ignores_stop: true,
        commands: BTreeMap::from([(stop(), cri_api::testing::FakeExec::Ends(Default::default()))]),
        ..FakeProcess::default()
    };
    world.behave("web", process);
    let at_work = world.start();
    let spec = json!({"terminationGracePeriodSeconds": 600, "containers": [
        {"name": "web", "image": "x:1", "lifecycle": {"preStop": {"exec": {"command": stop()}}}},
    ]});
    let web = pod("web", &spec);
    world.want([&web]);
    at_work.until_ready(&web).await;
    world.runtime.forget_calls();
    world.want([]);
    at_work.until_state(&web, WorkerState::Terminating).await;
    pass(60).await;
    let id = world.running("web").await.expect("it has ten minutes");
    // The end is made shorter: the ten minutes become five seconds, and the hook is not run again.
    let begin = Instant::now();
    at_work.agent.end_all(Some(5)).await;
    assert!(begin.elapsed() < 7 * SECOND, "{:?}", begin.elapsed());
    world.assert_empty().await;
    let hooks = world.changes().into_iter().filter(|(kind, _)| *kind == CallKind::ExecSync).count();
    assert_eq!(hooks, 1);
    assert!(world.nth(CallKind::ExecSync, &id) < world.nth(CallKind::StopContainer, &id));
    // The agent takes no further pods.
    world.want([&web]);
    pass(30).await;
    world.assert_empty().await;
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_has_the_kubelets_times() {
    let world = World::new();
    let at_work = world.start();
    world.ends("web", 1);
    let web = simple("web", "x:1");
    world.want([&web]);
    let counted =
        |n: u32| move |view: &PodView| view.status.container_statuses.first().is_some_and(|c| c.restart_count == n);
    at_work.until_pod("restarted", &web, counted(1)).await;
    for (n, delay) in [(2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (8, 300)] {
        let took = at_work.until_pod("restarted", &web, counted(n)).await;
        // Retries follow the back-off, not the observations: a back-off that ends between two of them is waited out to
        // its end.
        let (least, most) = (Duration::from_secs(delay) - SECOND, Duration::from_secs(delay) + 2 * SECOND);
        assert!(took >= least && took <= most, "{n}: {took:?}");
    }
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_ended_container_restarts_and_is_reported_meanwhile() {
    let world = World::new();
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    pass(700).await;
    world.runtime.exit(&world.running("web").await.expect("runs"), 3);
    let again = |view: &PodView| {
        let container = &view.status.container_statuses[0];
        container.restart_count == 1 && container.state.is_running() && container.last_state.is_some()
    };
    let took = at_work.until_pod("comes back", &web, again).await;
    assert!(took < 2 * SECOND, "{took:?}");
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn jobs_end_and_stay_listed_until_they_are_removed() {
    let world = World::new();
    let at_work = world.start();
    let job = |name: &str, policy: &str| {
        pod(name, &json!({"restartPolicy": policy, "containers": [{"name": name, "image": "x:1"}]}))
    };
    let jobs = [job("good", "Never"), job("bad", "Never"), job("again", "OnFailure")];
    world.ends("good", 0);
    world.ends("bad", 4);
    world.ends("again", 1);
    world.want(&jobs);
    at_work.until_pod("fails", &jobs[2], |view| view.status.container_statuses[0].restart_count == 2).await;
    world.ends("again", 0);
    let views = at_work.agent.finished().await;
    let phases: Vec<_> = jobs
        .iter()
        .map(|job| views.iter().find(|view| view.pod.metadata.uid == uid(job)).expect("listed").status.phase)
        .collect();
    assert_eq!(phases, [Phase::Succeeded, Phase::Failed, Phase::Succeeded]);
    // The sandboxes are stopped, the containers are kept for inspection, and nothing more is done.
    world.runtime.forget_calls();
    pass(600).await;
    assert_eq!(world.changes(), []);
    assert_eq!(world.containers("bad").await.len(), 1);
    let states = at_work.agent.states();
    assert!(states.runtime_removable(uid(&jobs[1])) && !states.content_removable(uid(&jobs[1])));
    world.want([]);
    at_work.until("gone", <[_]>::is_empty).await;
    world.assert_empty().await;
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_may_not_run_for_longer_than_it_may() {
    let world = World::new();
    let at_work = world.start();
    let spec = json!({"activeDeadlineSeconds": 30, "containers": [{"name": "web", "image": "x:1"}]});
    let web = pod("web", &spec);
    world.want([&web]);
    at_work.until_ready(&web).await;
    // The wall clock is set: that makes no pod older.
    world.set_clock(86_400);
    pass(10).await;
    world.set_clock(-3 * 86_400);
    pass(10).await;
    assert_eq!(at_work.view(&web).expect("listed").status.phase, Phase::Running);
    let took = at_work.until_state(&web, WorkerState::Terminated).await;
    assert!(took > 6 * SECOND && took < 14 * SECOND, "{took:?}");
    let view = at_work.view(&web).expect("listed");
    assert_eq!((view.status.phase, &*view.status.reason), (Phase::Failed, "DeadlineExceeded"));
    assert!(world.running("web").await.is_none());
    let told = world.ring.events().into_iter().filter(|event| event.event.reason == "DeadlineExceeded").count();
    assert_eq!(told, 1);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_hundred_pods_come_and_go() {
    let world = World::new();
    let at_work = world.start();
    let pods: Vec<_> = (0..200).map(|n| simple(&format!("p{n:03}"), "x:1")).collect();
    world.runtime.faults().delay(CallKind::RunPodSandbox, Duration::from_millis(500));
    world.want(&pods);
    let ready = |views: &[Arc<PodView>]| views.iter().filter(|view| view.status.is("Ready")).count() == 200;
    let took = at_work.until("all are ready", ready).await;
    assert!(took < 3 * SECOND, "none waits for another: {took:?}");
    // Pods begin in the order in which they were added; how long each step takes is up to runtime and disk.
    let mut begun: Vec<_> = at_work.agent.shared.table().slots.values().cloned().collect();
    begun.sort_by_key(|slot| slot.sequence);
    assert!(begun.windows(2).all(|pair| pair[0].owner.name < pair[1].owner.name));
    world.want([]);
    let took = at_work.until("all are gone", <[_]>::is_empty).await;
    assert!(took < 3 * SECOND, "{took:?}");
    world.assert_empty().await;
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn idle_pods_cost_two_lists_a_second_and_an_observation_a_minute() {
    let world = World::new();
    let at_work = world.start();
    let pods: Vec<_> = (0..30).map(|n| simple(&format!("p{n:02}"), "x:1")).collect();
    world.want(&pods);
    at_work.until("ready", |views| views.iter().filter(|view| view.status.is("Ready")).count() == 30).await;
    pass(5).await;
    world.runtime.forget_calls();
    pass(300).await;
    let calls = world.runtime.calls();
    let statuses = calls.iter().filter(|(kind, _)| *kind == CallKind::ContainerStatus).count();
    let lists = calls.iter().filter(|(kind, _)| *kind == CallKind::ListContainers).count();
    // One observation every 60 to 90 seconds.
    assert!((100..=150).contains(&statuses), "{statuses}");
    assert!(lists <= 300 + statuses + 1, "{lists}");
    assert_eq!(world.changes(), []);
    let exited = world.runtime.list_containers(None).await.expect("listed");
    assert!(exited.iter().all(|container| container.state == ContainerState::Running));
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_changes_under_its_uid_is_another_pod() {
    let world = World::new();
    let at_work = world.start();
    let named = |name: &str| {
        let mut pod = Pod::clone(&simple(name, "x:1"));
        pod.metadata.uid = "fixed".into();
        Arc::new(pod)
    };
    let (old, new) = (named("old"), named("new"));
    world.want([&old]);
    at_work.until_ready(&old).await;
    world.want([&new]);
    let is_new = |view: &PodView| view.pod.metadata.name == "new-edge" && view.status.is("Ready");
    at_work.until_pod("comes anew", &new, is_new).await;
    assert!(world.nth(CallKind::RemovePodSandbox, "sandbox-0001") < world.nth(CallKind::RunPodSandbox, "new-edge"));
    assert_eq!((at_work.agent.pods().len(), world.containers("old").await.len()), (1, 0));
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_counted_under_the_kubelets_names() {
    let mut world = World::new();
    world.options.metrics = crate::workers::WorkerMetrics::new();
    let gate = world.images.faults().hold(CallKind::PullImage);
    let at_work = world.start();
    let [web, other] = ["web", "other"].map(|name| simple(name, "x:1"));
    world.want([&web, &other]);
    gate.until_arrived(1).await;
    // It waits for its image for seven seconds, which are not its own.
    pass(7).await;
    gate.open();
    at_work.until_ready(&web).await;
    at_work.until_ready(&other).await;
    world.want([&web]);
    at_work.until_removed(&other).await;
    pass(5).await;
    let mut registry = prometheus_client::registry::Registry::default();
    at_work.agent.metrics().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("written");
    for line in [
        "kubelet_pod_start_duration_seconds_count 2",
        "kubelet_pod_start_duration_seconds_bucket{le=\"6.0\"} 0",
        "kubelet_pod_start_sli_duration_seconds_bucket{le=\"0.5\"} 2",
        "kubelet_pod_worker_duration_seconds_count{operation_type=\"create\"} 2",
        "kubelet_pod_worker_duration_seconds_count{operation_type=\"kill\"} 1",
        "kubelet_pod_worker_start_duration_seconds_count 2",
        "kubelet_running_pods 1",
        "kubelet_running_containers{container_state=\"running\"} 1",
        "kubelet_desired_pods{static=\"true\"} 1",
        "kubelet_active_pods{static=\"true\"} 1",
        "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"true\"} 1",
        "kubelet_orphaned_runtime_pods_total 0",
        "kubelet_pleg_discard_events 0",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
    }
    assert!(text.contains("kubelet_pleg_relist_interval_seconds_bucket{le=\"1.0\"}"));
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn documents_that_change_reach_their_pods_at_once() {
    let world = World::new();
    let at_work = world.start();
    let config_map = |text: &str| {
        let data = BTreeMap::from([("text".to_owned(), crate::DocumentContent::new(text))]);
        let document = crate::Document { data, ..crate::Document::default() };
        *world.documents.lock() = crate::Documents {
            config_maps: BTreeMap::from([("settings".to_owned(), document)]),
            ..crate::Documents::default()
        };
    };
    let spec = json!({
        "containers": [{"name": "web", "image": "x:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "env": [{"name": "TEXT", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "text"}}}]}],
        "volumes": [{"name": "v", "configMap": {"name": "settings"}}],
    });
    let (web, plain) = (pod("web", &spec), simple("plain", "x:1"));
    world.want([&web, &plain]);
    at_work.until_pod("waits", &web, |view| view.error.is_some()).await;
    pass(100).await;
    assert_eq!(at_work.view(&web).expect("listed").status.phase, Phase::Pending);
    config_map("one");
    at_work.agent.documents_changed();
    assert!(at_work.until_ready(&web).await < SECOND);
    let file = world.root.path().join(format!("pods/{}/volumes/kubernetes.io~configmap/v/text", uid(&web)));
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "one");
    pass(1).await;
    world.runtime.forget_calls();
    config_map("two");
    at_work.agent.documents_changed();
    pass(1).await;
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "two");
    let looked = world.runtime.calls().iter().filter(|(kind, _)| *kind == CallKind::ContainerStatus).count();
    assert_eq!((looked, world.changes()), (1, vec![]), "who names none is left alone, and nothing is restarted");
    at_work.stop().await;
}
