//! Pods of an API server under one agent and the next one.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::world::{World, pass, pod, simple, uid};
use crate::Phase;
use crate::pod::Pod;
use crate::status::api::PodStatus;
use crate::workers::WorkerState;

/// Returns the same pod with a requested deletion.
fn deleted(pod: &Arc<Pod>, grace: i64) -> Arc<Pod> {
    let mut deleted = Pod::clone(pod);
    deleted.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
    deleted.metadata.deletion_grace_period_seconds = Some(grace);
    Arc::new(deleted)
}

fn failed(pod: &Pod, reason: &str) -> Arc<PodStatus> {
    Arc::new(PodStatus::failed(pod, reason.to_owned(), "for people".to_owned(), Timestamp::UNIX_EPOCH))
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_ends_in_its_grace_period_and_stays_until_its_object_is_removed() {
    let world = World::new();
    world.is_stubborn("web");
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    world.want([&deleted(&web, 20)]);
    at_work.until_state(&web, WorkerState::Terminating).await;
    pass(5).await;
    // A shorter time wins, a longer one does not.
    world.want([&deleted(&web, 3)]);
    pass(1).await;
    world.want([&deleted(&web, 60)]);
    let took = at_work.until_state(&web, WorkerState::Terminated).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    let view = at_work.view(&web).expect("listed");
    assert!(view.pod.metadata.deletion_timestamp.is_some() && view.status.phase == Phase::Failed, "{:?}", view.status);
    pass(120).await;
    assert!(world.running("web").await.is_none(), "it is not started again");
    world.want([]);
    at_work.until_removed(&web).await;
    world.assert_empty().await;
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_not_started_by_the_next_agent() {
    let world = World::new();
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    at_work.kill();
    // It ended meanwhile, and its end was asked for.
    let id = world.running("web").await.expect("runs");
    world.runtime.exit(&id, 0);
    world.want([&deleted(&web, 20)]);
    let at_work = world.start();
    at_work.until_state(&web, WorkerState::Terminated).await;
    assert_eq!(world.containers("web").await.len(), 1);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deletion_of_a_terminated_pod_is_reported() {
    let world = World::new();
    world.ends("job", 0);
    let at_work = world.start();
    let job = pod("job", &json!({"restartPolicy": "Never", "containers": [{"name": "job", "image": "x:1"}]}));
    world.want([&job]);
    at_work.until_state(&job, WorkerState::Terminated).await;
    world.want([&deleted(&job, 0)]);
    let is_told = |view: &crate::workers::PodView| view.pod.metadata.deletion_timestamp.is_some();
    at_work.until_pod("told", &job, is_told).await;
    assert_eq!(at_work.view(&job).expect("listed").status.phase, Phase::Succeeded);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_begins_with_its_end_is_never_started() {
    let world = World::new();
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.desired.send_modify(|desired| {
        desired.pods.insert(uid(&web).to_owned(), Arc::clone(&web));
        desired.statuses.insert(uid(&web).to_owned(), failed(&web, "OutOfcpu"));
    });
    at_work.until_state(&web, WorkerState::Terminated).await;
    let status = at_work.view(&web).expect("listed").status.clone();
    assert_eq!((status.phase, &*status.reason, &*status.message), (Phase::Failed, "OutOfcpu", "for people"));
    assert!(status.container_statuses.is_empty() && world.uids().await.is_empty());
    pass(300).await;
    assert!(world.uids().await.is_empty());
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_failed_elsewhere_is_ended() {
    let world = World::new();
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    world.desired.send_modify(|desired| {
        desired.statuses.insert(uid(&web).to_owned(), failed(&web, "NodeLost"));
    });
    at_work.until_state(&web, WorkerState::Terminated).await;
    assert!(world.running("web").await.is_none());
    let status = at_work.view(&web).expect("listed").status.clone();
    assert_eq!((status.phase, &*status.reason), (Phase::Failed, "NodeLost"));
    at_work.stop().await;
}
