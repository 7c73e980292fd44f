//! Runtimes that hang, fail, go away and come back.

use std::time::Duration;

use cri_api::testing::CallKind;
use cri_api::{Error, Kind, RuntimeService as _};
use serde_json::json;
use tokio::time::Instant;

use super::world::{World, pass, pod, simple, uid};
use crate::Phase;
use crate::workers::{PodView, WorkerState};

const SECOND: Duration = Duration::from_secs(1);

fn unavailable() -> Error {
    Error::new(Kind::Unavailable, "connect: no such file or directory")
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_holds_up_its_own_pod_alone() {
    let world = World::new();
    let (stuck, free) = (simple("stuck", "x:1"), simple("free", "x:1"));
    let gate = world.runtime.faults().hold_for(CallKind::RunPodSandbox, "stuck-edge");
    let at_work = world.start();
    world.want([&stuck]);
    gate.until_arrived(1).await;
    world.want([&stuck, &free]);
    assert!(at_work.until_ready(&free).await < 2 * SECOND);
    world.want([&stuck]);
    assert!(at_work.until_removed(&free).await < 2 * SECOND);
    assert_eq!((at_work.agent.pods().len(), at_work.agent.healthy()), (1, Ok(())));
    // A deletion does not wait for it for ever, and finds what it made after all.
    world.want([]);
    pass(119).await;
    assert_eq!(at_work.view(&stuck).expect("listed").state, WorkerState::Syncing);
    assert!(at_work.until_removed(&stuck).await < 3 * SECOND);
    gate.open();
    pass(5).await;
    world.assert_empty().await;
    // And the end of the process does not wait for one either.
    let gate = world.runtime.faults().hold_for(CallKind::RunPodSandbox, "stuck-edge");
    world.want([&stuck]);
    gate.until_arrived(1).await;
    let begin = Instant::now();
    at_work.stop().await;
    assert!(begin.elapsed() < 6 * SECOND, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_stops_no_worker() {
    let world = World::new();
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    let gate = world.runtime.faults().hold(CallKind::ListPodSandboxes);
    gate.until_waiting(1).await;
    // Looks need the same call: they may pass, the relist may not.
    gate.let_through(0);
    pass(170).await;
    assert_eq!(at_work.agent.healthy(), Ok(()));
    pass(20).await;
    let sick = at_work.agent.healthy().expect_err("too old");
    assert!(sick.starts_with("pleg was last seen active 1"), "{sick}");
    gate.open();
    pass(2).await;
    assert_eq!(at_work.agent.healthy(), Ok(()));
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_not_there_yet_is_waited_for() {
    let world = World::new();
    world.runtime.faults().be_absent(unavailable());
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    let told = at_work.until_pod("told", &web, |view| view.error.is_some()).await;
    assert!(told < 2 * SECOND);
    pass(600).await;
    let view = at_work.view(&web).expect("listed");
    assert_eq!((view.status.phase, view.state), (Phase::Pending, WorkerState::Queued));
    assert!(at_work.agent.healthy().is_err_and(|error| error.contains("no such file")));
    assert!(!at_work.agent.states().sources_ready(), "nothing is collected on a guess");
    world.runtime.faults().return_to_duty();
    assert!(at_work.until_ready(&web).await < 2 * SECOND);
    assert_eq!(at_work.view(&web).expect("listed").error, None);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_runtime_changes_nothing() {
    let world = World::new();
    let at_work = world.start();
    let pods: Vec<_> = (0..30).map(|n| simple(&format!("p{n:02}"), "x:1")).collect();
    world.want(&pods);
    let ready = |views: &[std::sync::Arc<crate::workers::PodView>]| {
        views.iter().filter(|view| view.status.is("Ready") && view.error.is_none()).count() == 30
    };
    at_work.until("ready", ready).await;
    world.runtime.faults().be_absent(unavailable());
    world.runtime.forget_calls();
    at_work.until("all are told", |views| views.iter().all(|view| view.error.is_some())).await;
    pass(1800).await;
    assert!(at_work.agent.healthy().is_err());
    for view in at_work.agent.pods() {
        assert_eq!((view.status.phase, view.state), (Phase::Running, WorkerState::Syncing));
        assert!(view.error.as_ref().is_some_and(|error| error.contains("no such file")), "{:?}", view.error);
    }
    // One that was deleted meanwhile waits for its end.
    world.want(&pods[1..]);
    at_work.until_state(&pods[0], WorkerState::Terminating).await;
    let calls = world.runtime.calls().len();
    assert!(calls < 30 * 2 * 1800 / 10 + 2 * 1800, "{calls}");
    world.runtime.forget_calls();
    world.runtime.faults().return_to_duty();
    assert!(at_work.until_removed(&pods[0]).await < 2 * SECOND);
    let back = at_work.until("well again", |views| views.iter().all(|view| view.error.is_none())).await;
    assert!(back < 2 * SECOND, "{back:?}");
    let touched: Vec<_> = world
        .changes()
        .into_iter()
        .filter(|(kind, _)| {
            matches!(kind, CallKind::RunPodSandbox | CallKind::CreateContainer | CallKind::StartContainer)
        })
        .collect();
    assert_eq!((touched, world.uids().await.len()), (vec![], 29));
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn errors_are_retried_and_reported_once() {
    let world = World::new();
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.runtime.faults().fail_times(CallKind::RunPodSandbox, 3, Error::new(Kind::Unknown, "no CNI plugin"));
    world.want([&web]);
    at_work.until_pod("told", &web, |view| view.error.as_ref().is_some_and(|e| e.contains("no CNI plugin"))).await;
    let took = at_work.until_ready(&web).await;
    // Three times 10 s and up to a half more.
    assert!((30..46).contains(&took.as_secs()), "{took:?}");
    assert_eq!(at_work.view(&web).expect("listed").error, None);
    // A network that is not ready is asked for every second.
    let condition = cri_api::Condition {
        kind: "NetworkReady".into(),
        message: "cni plugin not initialized".into(),
        ..Default::default()
    };
    world.runtime.set_condition(condition);
    let other = simple("other", "x:1");
    world.want([&web, &other]);
    at_work.until_pod("told", &other, |view| view.error.is_some()).await;
    pass(30).await;
    let ready = cri_api::Condition { kind: "NetworkReady".into(), status: true, ..Default::default() };
    world.runtime.set_condition(ready);
    assert!(at_work.until_ready(&other).await <= SECOND);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_fails_is_tried_until_it_is_one() {
    let world = World::new();
    let at_work = world.start();
    let web = pod("web", &json!({"containers": [{"name": "web", "image": "x:1"}]}));
    world.want([&web]);
    at_work.until_ready(&web).await;
    let faults = world.runtime.faults();
    faults.fail_times(CallKind::StopContainer, 2, Error::new(Kind::Internal, "shim is stuck"));
    faults.fail_times(CallKind::RemovePodSandbox, 2, Error::new(Kind::Internal, "device is busy"));
    faults.lose_answers(CallKind::RemoveContainer, 1, Error::new(Kind::DeadlineExceeded, "no answer"));
    world.want([]);
    at_work.until_pod("told", &web, |view| view.error.as_ref().is_some_and(|e| e.contains("shim is stuck"))).await;
    at_work.until_pod("told", &web, |view| view.error.as_ref().is_some_and(|e| e.contains("device is busy"))).await;
    let states = at_work.agent.states();
    assert!(states.content_removable(uid(&web)), "it has ended, and is being removed");
    at_work.until_removed(&web).await;
    world.assert_empty().await;
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_dies_as_fast_as_it_is_made_does_not_drive_anybody_mad() {
    let world = World::new();
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    world.runtime.forget_calls();
    for _ in 0..600 {
        for sandbox in world.runtime.list_pod_sandboxes(None).await.expect("listed") {
            world.runtime.kill_sandbox(&sandbox.id);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let made = world.changes().iter().filter(|(kind, _)| *kind == CallKind::RunPodSandbox).count();
    assert!((1..=70).contains(&made), "{made} in a minute");
    assert!(at_work.until_ready(&web).await < 65 * SECOND);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_a_removal_left_is_found_and_removed() {
    let world = World::new();
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    let sandboxes = world.runtime.list_pod_sandboxes(None).await.expect("listed");
    world.want([]);
    at_work.until_removed(&web).await;
    // As if it had answered and done nothing.
    world.runtime.put_sandbox(sandboxes[0].clone());
    pass(6).await;
    world.assert_empty().await;
    at_work.stop().await;
}

/// Something that calls of a kind meet.
type Trouble = fn(&World, CallKind);

#[tokio::test(start_paused = true)]
async fn each_call_may_fail_lose_its_answer_or_take_long() {
    let trouble: [(&str, Trouble); 4] = [
        ("fails", |world, kind| world.runtime.faults().fail_times(kind, 2, unavailable())),
        ("loses its answer", |world, kind| world.runtime.faults().lose_answers(kind, 1, unavailable())),
        ("takes long", |world, kind| world.runtime.faults().delay(kind, 7 * SECOND)),
        ("meets a restart", |world, _| world.runtime.faults().be_absent(unavailable())),
    ];
    for (what, make) in trouble {
        for kind in super::chaos::CALLS {
            let world = World::new();
            let at_work = world.start();
            let spec = json!({"initContainers": [{"name": "init", "image": "x:1"}],
                              "containers": [{"name": "web", "image": "x:1"}]});
            world.ends("init", 0);
            let web = pod("web", &spec);
            let calm = || {
                world.runtime.faults().clear(kind);
                world.runtime.faults().return_to_duty();
            };
            make(&world, kind);
            world.want([&web]);
            pass(4).await;
            calm();
            let took = at_work.until_ready(&web).await;
            assert!(took < 61 * SECOND, "{kind:?} {what}: {took:?}");
            assert_eq!(world.containers("web").await.len(), 1, "{kind:?} {what}");
            make(&world, kind);
            world.want([]);
            pass(4).await;
            calm();
            let took = at_work.until_removed(&web).await;
            assert!(took < 61 * SECOND, "{kind:?} {what}: {took:?}");
            world.assert_empty().await;
            at_work.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_step_delays_no_restart_for_long_and_restarts_nothing() {
    let world = World::new();
    let at_work = world.start();
    world.ends("web", 1);
    let (web, calm) = (simple("web", "x:1"), simple("calm", "x:1"));
    world.want([&web, &calm]);
    let mut restarts = 3;
    let counted = |n: u32| move |view: &PodView| view.status.container_statuses[0].restart_count >= n;
    at_work.until_pod("restarted", &web, counted(restarts)).await;
    let id = world.running("calm").await;
    for step in [86_400, -2 * 86_400, 86_400] {
        world.set_clock(step);
        restarts += 1;
        let took = at_work.until_pod("restarted", &web, counted(restarts)).await;
        assert!(took <= 310 * SECOND, "{step}: {took:?}");
        assert_eq!(at_work.agent.healthy(), Ok(()));
    }
    assert_eq!(world.running("calm").await, id);
    at_work.stop().await;
}
