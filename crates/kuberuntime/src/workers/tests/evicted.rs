//! Pods that are evicted under one agent.

use std::sync::{Arc, OnceLock};

use image_manager::gc::{EvictPods as _, EvictionCause, Signal};
use serde_json::json;

use super::world::{World, pass, pod, uid};
use crate::eviction::{Evictor, EvictorParts};
use crate::identity::CONFIG_SOURCE_ANNOTATION;
use crate::pod::Pod;
use crate::volumes::Volumes;
use crate::workers::WorkerState;
use crate::{Phase, PodEnd};

/// A pod as an API server has it.
fn remote(name: &str, spec: &serde_json::Value) -> Arc<Pod> {
    let mut remote = Pod::clone(&pod(name, spec));
    remote.metadata.annotations.insert(CONFIG_SOURCE_ANNOTATION.to_owned(), "api".to_owned());
    Arc::new(remote)
}

fn parts(world: &World, agent: &Arc<crate::workers::PodAgent>) -> EvictorParts {
    EvictorParts {
        runtime: Arc::new(world.runtime.clone()),
        volumes: Arc::new(Volumes::new(world.root.path().join("pods"))),
        pod_logs: world.root.path().join("logs").display().to_string(),
        agent: Arc::new(OnceLock::from(Arc::clone(agent))),
    }
}

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_has_failed_and_is_not_started_again() {
    let world = World::new();
    let at_work = world.start();
    let web = remote("web", &json!({"containers": [{"name": "web", "image": "x:1"}]}));
    world.want([&web]);
    at_work.until_ready(&web).await;
    let end = || PodEnd { reason: "Evicted".to_owned(), message: "no room".to_owned() };
    assert!(at_work.agent.evict(uid(&web), end(), 1));
    assert!(!at_work.agent.evict(uid(&web), end(), 1), "it ends once");
    at_work.until_state(&web, WorkerState::Terminated).await;
    pass(120).await;
    let status = at_work.view(&web).expect("listed").status.clone();
    assert_eq!((status.phase, &*status.reason, &*status.message), (Phase::Failed, "Evicted", "no room"));
    let disrupted =
        status.conditions.iter().find(|condition| condition.kind == "DisruptionTarget").expect("a condition");
    assert_eq!((disrupted.status, &*disrupted.reason), ("True", "TerminationByKubelet"));
    assert!(world.running("web").await.is_none());
    let events = world.ring.events().into_iter().map(|numbered| numbered.event);
    assert!(events.into_iter().any(|event| event.reason == "Evicted" && event.message == "no room"));
    assert!(!at_work.agent.evict("nobody", end(), 1));
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn under_pressure_one_pod_is_evicted_at_a_time_and_local_ones_stay() {
    let world = World::new();
    let at_work = world.start();
    let spec =
        |name: &str, priority: i32| json!({"priority": priority, "containers": [{"name": name, "image": "x:1"}]});
    let (first, second) = (remote("first", &spec("first", 0)), remote("second", &spec("second", 10)));
    let local = pod("local", &spec("local", -10));
    world.want([&first, &second, &local]);
    for pod in [&first, &second, &local] {
        at_work.until_ready(pod).await;
    }
    let evictor = Evictor::new(parts(&world, &at_work.agent));
    let signal = Signal::NodeFsAvailable;
    let cause = EvictionCause { signal, threshold: 100, available: 1, writable_layers: true, logs_and_volumes: true };
    assert!(evictor.evict_one(&cause).await);
    at_work.until_state(&first, WorkerState::Terminated).await;
    assert_eq!(at_work.view(&second).expect("listed").state, WorkerState::Syncing);
    assert!(evictor.evict_one(&cause).await);
    at_work.until_state(&second, WorkerState::Terminated).await;
    assert!(!evictor.evict_one(&cause).await, "the local one stays");
    assert!(world.running("local").await.is_some());
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_beyond_its_limit_ends_its_pod() {
    let world = World::new();
    let at_work = world.start();
    let spec = |name: &str| {
        json!({
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            "containers": [{"name": name, "image": "x:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        })
    };
    let (small, big) = (remote("small", &spec("small")), remote("big", &spec("big")));
    world.want([&small, &big]);
    at_work.until_ready(&small).await;
    at_work.until_ready(&big).await;
    let evictor = Evictor::new(parts(&world, &at_work.agent));
    let directory = |pod: &Pod| world.root.path().join("pods").join(uid(pod)).join("volumes/kubernetes.io~empty-dir/v");
    std::fs::write(directory(&small).join("file"), vec![1; 512 << 10]).expect("write");
    std::fs::write(directory(&big).join("file"), vec![1; 2 << 20]).expect("write");
    evictor.enforce_limits().await;
    at_work.until_state(&big, WorkerState::Terminated).await;
    let message = at_work.view(&big).expect("listed").status.message.clone();
    assert_eq!(message, "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ");
    assert_eq!(at_work.view(&small).expect("listed").state, WorkerState::Syncing);
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn data_that_is_hard_to_measure_does_not_evade_a_limit() {
    let world = World::new();
    let at_work = world.start();
    let spec = |name: &str| {
        json!({
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            "containers": [{"name": name, "image": "x:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        })
    };
    let [small, deep, dark] = ["small", "deep", "dark"].map(|name| remote(name, &spec(name)));
    world.want([&small, &deep, &dark]);
    for pod in [&small, &deep, &dark] {
        at_work.until_ready(pod).await;
    }
    let directory = |pod: &Pod| world.root.path().join("pods").join(uid(pod)).join("volumes/kubernetes.io~empty-dir/v");
    // Below more names than a path can have.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::RWXU;
    let mut below = rustix::fs::open(directory(&deep), flags, mode).expect("open");
    for level in 0..20 {
        let name = format!("{level:0>250}");
        rustix::fs::mkdirat(&below, name.as_str(), mode).expect("made");
        below = rustix::fs::openat(&below, name.as_str(), flags, mode).expect("open");
    }
    let create = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
    let file = rustix::fs::openat(&below, "file", create, mode).expect("made");
    rustix::io::write(&file, &vec![1; 2 << 20]).expect("written");
    // A directory of which nothing can be said.
    std::fs::rename(directory(&dark), directory(&dark).with_file_name("moved")).expect("moved");
    std::os::unix::fs::symlink("moved", directory(&dark)).expect("linked");

    Evictor::new(parts(&world, &at_work.agent)).enforce_limits().await;
    at_work.until_state(&deep, WorkerState::Terminated).await;
    at_work.until_state(&dark, WorkerState::Terminated).await;
    let status = |pod: &Pod| at_work.view(pod).expect("listed").status.clone();
    assert_eq!(status(&deep).message, "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ");
    let (dark, expected) = (
        status(&dark),
        "Usage of EmptyDir volume \"v\" could not be measured and counts as more than the limit \"1Mi\": volume \"v\": ",
    );
    assert_eq!(dark.reason, "Evicted");
    assert!(dark.message.starts_with(expected), "{}", dark.message);
    assert_eq!(at_work.view(&small).expect("listed").state, WorkerState::Syncing);
    at_work.stop().await;
}
