//! Pods that ask for the same port of the node, under one agent and its successors.

use std::sync::Arc;

use serde_json::{Value, json};

use super::world::{AtWork, World, pass, pod, uid};
use crate::Phase;
use crate::pod::Pod;
use crate::sources::{API_SOURCE, CONFIG_ORIGIN_ANNOTATION};
use crate::workers::WorkerState;

/// A pod with a container of its own name that takes port 8080 of the node.
fn asks(name: &str, image: &str, more: &Value) -> Arc<Pod> {
    let ports = json!([{"containerPort": 80, "hostPort": 8080}]);
    let mut spec = json!({"containers": [{"name": name, "image": image, "ports": ports}]});
    spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    pod(name, &spec)
}

async fn until_rejected(at_work: &AtWork, pod: &Pod) {
    at_work.until_pod("rejected", pod, |view| view.status.reason == "NodePorts").await;
    let status = at_work.view(pod).expect("listed").status.clone();
    assert_eq!(status.phase, Phase::Failed);
    assert_eq!(
        status.message,
        "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    );
}

#[tokio::test(start_paused = true)]
async fn the_earlier_pod_has_the_port_and_the_later_one_waits_for_its_end() {
    let world = World::new();
    let at_work = world.start();
    let (first, second) = (asks("z", "x:1", &json!({})), asks("a", "x:1", &json!({})));
    world.want([&first]);
    at_work.until_ready(&first).await;
    world.want([&first, &second]);
    until_rejected(&at_work, &second).await;
    at_work.until_state(&second, WorkerState::Terminated).await;
    pass(120).await;
    assert!(world.containers("a").await.is_empty(), "nothing of it was made");
    assert_eq!(world.uids().await, [uid(&first)]);
    let rejected = world.ring.events().into_iter().filter(|numbered| numbered.event.reason == "NodePorts").count();
    assert_eq!(rejected, 1, "it is told once");
    // A change of the first one is no chance for the second one.
    let changed = asks("z", "x:2", &json!({}));
    world.want([&changed, &second]);
    at_work.until_ready(&changed).await;
    assert!(world.running("a").await.is_none());
    world.want([&second]);
    at_work.until_ready(&second).await;
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_pod_that_runs_has_the_port_after_a_restart() {
    let world = World::new();
    let (running, other) = (asks("z", "x:1", &json!({})), asks("a", "x:1", &json!({})));
    let free = pod("free", &json!({"containers": [{"name": "free", "image": "x:1"}]}));
    let at_work = world.start();
    world.want([&running]);
    at_work.until_ready(&running).await;
    let id = world.running("z").await;
    at_work.stop().await;
    world.want([&running, &other, &free]);
    let at_work = world.start();
    until_rejected(&at_work, &other).await;
    at_work.until_ready(&running).await;
    at_work.until_ready(&free).await;
    assert_eq!(world.running("z").await, id, "it runs on");
    assert!(world.containers("a").await.is_empty());
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_new_pods_get_one_port_between_them() {
    let world = World::new();
    let (one, two) = (
        asks("a", "x:1", &json!({})),
        asks(
            "b",
            "x:1",
            &json!({"hostNetwork": true, "containers": [
                {"name": "b", "image": "x:1", "ports": [{"containerPort": 8080}]},
            ]}),
        ),
    );
    world.want([&one, &two]);
    let at_work = world.start();
    at_work.until_ready(&one).await;
    until_rejected(&at_work, &two).await;
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_has_no_port() {
    let world = World::new();
    world.ends("a", 0);
    let at_work = world.start();
    let ends = asks("a", "x:1", &json!({"restartPolicy": "Never"}));
    world.want([&ends]);
    at_work.until_pod("over", &ends, |view| view.status.phase == Phase::Succeeded).await;
    let next = asks("b", "x:1", &json!({}));
    world.want([&ends, &next]);
    at_work.until_ready(&next).await;
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_an_api_server_fails_for_good() {
    let world = World::new();
    let at_work = world.start();
    let (local, mut remote) = (asks("a", "x:1", &json!({})), Pod::clone(&asks("b", "x:1", &json!({}))));
    remote.metadata.annotations.insert(CONFIG_ORIGIN_ANNOTATION.to_owned(), API_SOURCE.to_owned());
    let remote = Arc::new(remote);
    world.want([&local]);
    at_work.until_ready(&local).await;
    world.want([&local, &remote]);
    until_rejected(&at_work, &remote).await;
    world.want([&remote]);
    at_work.until_removed(&local).await;
    pass(120).await;
    until_rejected(&at_work, &remote).await;
    assert!(world.containers("b").await.is_empty());
    at_work.stop().await;
}
