//! Pods that an agent finds at its start: pods of the agent before it, pods that no source wants any more, pods of
//! other programs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::CallKind;
use cri_api::{Error, Kind, PodSandbox, PodSandboxMetadata};
use serde_json::json;

use super::world::{World, pass, pod, simple, uid};
use crate::Phase;
use crate::labels::{POD_NAME, POD_NAMESPACE, POD_UID};
use crate::pod::Pod;
use crate::sources::CONFIG_ORIGIN_ANNOTATION;
use crate::workers::WorkerState;

#[tokio::test(start_paused = true)]
async fn pods_of_the_agent_before_go_on() {
    let world = World::new();
    let (web, spec) =
        (simple("web", "x:1"), json!({"restartPolicy": "Never", "containers": [{"name": "job", "image": "x:1"}]}));
    let job = pod("job", &spec);
    world.ends("job", 0);
    world.want([&web, &job]);
    let first = world.start();
    first.until_ready(&web).await;
    first.until_state(&job, WorkerState::Terminated).await;
    let started = first.view(&web).expect("listed").status.start_time;
    first.kill();
    pass(3600).await;
    let id = world.running("web").await;
    world.runtime.forget_calls();

    let second = world.start();
    assert!(second.until_ready(&web).await < Duration::from_secs(1));
    second.until_pod("over", &job, |view| view.status.phase == Phase::Succeeded).await;
    pass(300).await;
    assert_eq!(world.running("web").await, id);
    let begun: Vec<_> = world.changes().into_iter().filter(|(kind, _)| *kind != CallKind::StopPodSandbox).collect();
    assert_eq!(begun, [], "nothing was restarted");
    let view = second.view(&web).expect("listed");
    assert_eq!((view.status.start_time, view.status.container_statuses[0].restart_count), (started, 0));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_is_known_once_sources_and_runtime_have_reported() {
    let world = World::new();
    let (web, later) = (simple("web", "x:1"), simple("later", "x:1"));
    world.want([&web]);
    let first = world.start();
    first.until_ready(&web).await;
    first.kill();

    // The runtime is away: nothing is known, however long it takes.
    let known = Duration::from_secs(600);
    world.runtime.faults().be_absent(Error::new(Kind::Unavailable, "no such file"));
    world.want([]);
    let second = world.start();
    tokio::time::timeout(known, second.agent.until_known()).await.expect_err("nobody knows");
    world.runtime.faults().return_to_duty();
    // A pod that no source wants is in the list as well, while it ends.
    tokio::time::timeout(known, second.agent.until_known()).await.expect("known");
    second.kill();

    // A source that is silent is waited for, for five seconds; pods that others want are known then.
    world.want([&web, &later]);
    world.desired.send_modify(|desired| desired.ready = false);
    let third = world.start();
    let begin = tokio::time::Instant::now();
    third.agent.until_known().await;
    assert_eq!(begin.elapsed(), Duration::from_secs(5));
    assert!(third.view(&web).is_some() && third.view(&later).is_some());
    third.agent.until_known().await;
    assert_eq!(begin.elapsed(), Duration::from_secs(5), "it is known from then on");
    third.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_continues_across_agents() {
    let world = World::new();
    let spec = json!({"activeDeadlineSeconds": 60, "containers": [{"name": "web", "image": "x:1"}]});
    let web = pod("web", &spec);
    world.want([&web]);
    let first = world.start();
    first.until_ready(&web).await;
    pass(30).await;
    first.stop().await;
    let second = world.start();
    let took = second.until_state(&web, WorkerState::Terminated).await;
    assert!(took > Duration::from_secs(25) && took < Duration::from_secs(35), "{took:?}");
    second.kill();
    pass(100).await;
    let third = world.start();
    third.until_state(&web, WorkerState::Terminated).await;
    assert_eq!(third.view(&web).expect("listed").status.reason, "DeadlineExceeded");
    assert!(world.running("web").await.is_none());
    third.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unwanted_pods_end_once_that_is_known() {
    let world = World::new();
    world.is_stubborn("web");
    let web = pod("web", &json!({"terminationGracePeriodSeconds": 9, "containers": [{"name": "web", "image": "x:1"}]}));
    world.want([&web]);
    let first = world.start();
    first.until_ready(&web).await;
    first.kill();
    // The manifest was removed and edited in between, and one source has not reported yet.
    world.desired.send_modify(|desired| desired.ready = false);
    let mut other = Pod::clone(&simple("web", "x:2"));
    other.metadata.annotations.insert(CONFIG_ORIGIN_ANNOTATION.to_owned(), "https://fleet/web.yaml".to_owned());
    let other = Arc::new(other);
    world.want([&other]);
    world.runtime.forget_calls();
    let second = world.start();
    pass(120).await;
    assert_eq!(world.changes(), [], "it may only be late");
    assert_eq!(second.view(&other).expect("listed").state, WorkerState::Queued);
    let states = second.agent.states();
    assert!(!states.sources_ready() && !states.content_removable(uid(&web)));

    world.desired.send_modify(|desired| desired.ready = true);
    second.until_state(&web, WorkerState::Terminating).await;
    let found = second.view(&web).expect("listed");
    assert_eq!((&*found.pod.metadata.name, &*found.status.container_statuses[0].name), ("web-edge", "web"));
    let took = second.until_ready(&other).await;
    assert!((9..12).contains(&took.as_secs()), "its own grace, from its annotations: {took:?}");
    assert_eq!((world.uids().await, world.directories()), (vec![uid(&other).to_owned()], vec![uid(&other).to_owned()]));
    assert!(world.nth(CallKind::RemovePodSandbox, "sandbox-0001") < world.nth(CallKind::RunPodSandbox, "web-edge"));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_its_own_manifest_replaced_waits_for_no_other_source() {
    let world = World::new();
    let [one, two] = ["x:1", "x:2"].map(|image| simple("web", image));
    world.want([&one]);
    let first = world.start();
    first.until_ready(&one).await;
    first.kill();
    world.desired.send_modify(|desired| desired.ready = false);
    world.want([&two]);
    let second = world.start();
    second.until_ready(&two).await;
    assert_eq!(world.uids().await, [uid(&two)]);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_replaced_during_an_outage_ends_first() {
    let world = World::new();
    world.is_stubborn("web");
    let [one, two] = ["x:1", "x:2"].map(|image| simple("web", image));
    world.want([&one]);
    let first = world.start();
    first.until_ready(&one).await;
    first.kill();
    world.runtime.faults().be_absent(Error::new(Kind::Unavailable, "not yet"));
    world.runtime.forget_calls();
    let second = world.start();
    pass(5).await;
    world.want([&two]);
    pass(5).await;
    world.runtime.faults().return_to_duty();
    let took = second.until_ready(&two).await;
    assert!((30..35).contains(&took.as_secs()), "{took:?}");
    assert!(world.nth(CallKind::RemovePodSandbox, "sandbox-0001") < world.nth(CallKind::RunPodSandbox, "web-edge"));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_manifest_cannot_be_read_stays() {
    let world = World::new();
    let web = simple("web", "x:1");
    world.want([&web]);
    let first = world.start();
    first.until_ready(&web).await;
    let hold = |held: bool| {
        world.desired.send_modify(|desired| {
            desired.held.clear();
            desired.held.extend(held.then(|| "/etc/pods/web.yaml".to_owned()));
        });
    };
    // Under the agent that knows it, and under one that does not.
    hold(true);
    world.want([]);
    world.runtime.forget_calls();
    pass(120).await;
    assert_eq!((world.changes(), first.view(&web).expect("listed").state), (vec![], WorkerState::Syncing));
    first.kill();
    let second = world.start();
    pass(120).await;
    assert_eq!(world.changes(), []);
    assert_eq!(world.directories(), [uid(&web)]);
    assert!(!second.agent.states().content_removable(uid(&web)));
    // It is readable again, and says the same.
    world.want([&web]);
    hold(false);
    assert!(second.until_ready(&web).await < Duration::from_secs(2));
    assert_eq!(world.changes(), []);
    // Or it is not there any more.
    world.want([]);
    second.until_removed(&web).await;
    world.assert_empty().await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_others_are_left_alone() {
    let world = World::new();
    let labels = [(POD_UID, "theirs"), (POD_NAME, "web"), (POD_NAMESPACE, "kube-system")];
    let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    // A static pod of a kubelet: it has its annotations, and not ours.
    let annotations = BTreeMap::from([("kubernetes.io/config.source".to_owned(), "file".to_owned())]);
    let metadata =
        PodSandboxMetadata { name: "web".into(), uid: "theirs".into(), namespace: "kube-system".into(), attempt: 0 };
    let theirs =
        PodSandbox { id: "theirs".into(), metadata, ready: true, labels, annotations, ..PodSandbox::default() };
    world.runtime.put_sandbox(theirs);
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    pass(300).await;
    let states = at_work.agent.states();
    assert!(!states.content_removable("theirs") && !states.runtime_removable("theirs"));
    // Where other programs have pods, an unknown pod may be theirs.
    assert!(!states.content_removable("unheard of"));
    world.want([]);
    at_work.until_removed(&web).await;
    assert_eq!(world.uids().await, ["theirs"]);
    assert_eq!(at_work.agent.pods().len(), 0);
    world.runtime.take_sandbox("theirs");
    pass(3).await;
    assert!(states.content_removable("unheard of"));
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn orphaned_pod_directories_are_removed() {
    let world = World::new();
    let web = simple("web", "x:1");
    std::fs::create_dir_all(world.root.path().join("pods/6d6f-left/volumes/kubernetes.io~empty-dir/a")).expect("made");
    world.desired.send_modify(|desired| desired.ready = false);
    world.want([&web]);
    let at_work = world.start();
    at_work.until_ready(&web).await;
    pass(200).await;
    assert_eq!(world.directories().len(), 2, "before all is known nothing goes");
    world.desired.send_modify(|desired| desired.ready = true);
    pass(70).await;
    assert_eq!(world.directories(), [uid(&web)]);
    assert_eq!(at_work.agent.pods().len(), 1);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_who_runs_some_pods_only_ends_no_others() {
    let mut world = World::new();
    let [one, two] = ["x:1", "x:2"].map(|image| simple("web", image));
    let mut third = Pod::clone(&simple("web", "x:3"));
    third.metadata.annotations.insert(CONFIG_ORIGIN_ANNOTATION.to_owned(), "/elsewhere.yaml".to_owned());
    let (third, other) = (Arc::new(third), simple("other", "x:1"));
    world.want([&one, &other]);
    let first = world.start();
    first.until_ready(&one).await;
    first.until_ready(&other).await;
    first.kill();
    world.options.end_unknown = false;
    // The first agent's pod may belong to another program. It blocks the new pod of the same name, and that is
    // reported.
    world.want([&third]);
    let second = world.start();
    let waits = format!("wait until pod {} of the same name is gone", uid(&one));
    second.until_pod("waits", &third, |view| view.actions == waits && view.state == WorkerState::Queued).await;
    pass(60).await;
    // But the earlier pod of its own manifest is removed.
    world.want([&two]);
    second.until_ready(&two).await;
    pass(60).await;
    let mut left = [uid(&two).to_owned(), uid(&other).to_owned()];
    left.sort();
    assert_eq!(world.uids().await, left);
    second.agent.end_all(None).await;
    assert_eq!(world.uids().await, [uid(&other)]);
    second.stop().await;
}
