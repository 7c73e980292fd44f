//! The fakes themselves: faults, gates, logs, credentials, pins, and the lists of the runtime fake.

extern crate imagelet_cri_api as cri_api;

use base::lock::Mutex;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::{Call, CallKind, FakeImage, FakeImageService, FakeRuntimeService};
use cri_api::{
    Condition, Container, ContainerConfig, ContainerFilter, ContainerMetadata, ContainerState, Error, ImageService,
    ImageSpec, Kind, PodSandbox, PodSandboxConfig, PodSandboxFilter, PodSandboxMetadata, ProgressSink, PullEvent,
    PullImageRequest, RuntimeService,
};
use oci::RegistryAuth;
use tokio::task::JoinSet;

fn offered() -> FakeImageService {
    let fake = FakeImageService::new();
    fake.publish("app:v1", &FakeImage::new("app"));
    fake
}

#[tokio::test]
async fn errors_last_as_long_as_they_should() {
    let fake = offered();
    let error = Error::new(Kind::Unavailable, "no network");
    fake.faults().fail_times(CallKind::PullImage, 2, error.clone());
    for _ in 0..2 {
        assert_eq!(fake.pull_image(PullImageRequest::new("app:v1")).await, Err(error.clone()));
    }
    assert!(fake.pull_image(PullImageRequest::new("app:v1")).await.is_ok());
    fake.faults().fail(CallKind::ImageFsInfo, error.clone());
    for _ in 0..3 {
        assert_eq!(fake.image_fs_info().await, Err(error.clone()));
    }
    fake.faults().clear(CallKind::ImageFsInfo);
    assert!(fake.image_fs_info().await.is_ok());
}

#[tokio::test]
async fn gates_count_and_let_through_in_order() {
    let fake = offered();
    let gate = fake.faults().hold(CallKind::PullImage);
    let mut pulls = JoinSet::new();
    for _ in 0..3 {
        let fake = fake.clone();
        pulls.spawn(async move { fake.pull_image(PullImageRequest::new("app:v1")).await });
    }
    gate.until_waiting(3).await;
    gate.let_through(1);
    assert!(pulls.join_next().await.expect("three pulls").expect("no panic").is_ok());
    assert_eq!((gate.arrived(), gate.waiting()), (3, 2));
    pulls.shutdown().await;
    assert_eq!((gate.waiting(), fake.abandoned_pulls()), (0, 2));
    fake.faults().clear(CallKind::PullImage);
    assert!(fake.pull_image(PullImageRequest::new("app:v1")).await.is_ok());
    assert_eq!(fake.abandoned_pulls(), 2, "a pull that ends is not abandoned");
}

#[tokio::test]
async fn calls_are_written_down_before_they_fail() {
    let fake = offered();
    fake.faults().fail(CallKind::RemoveImage, Error::new(Kind::Internal, "stuck"));
    let spec = ImageSpec::new("app:v1");
    let auth = Some(RegistryAuth::basic("ada", "swordfish"));
    fake.image_status(&spec, true).await.expect("works");
    fake.pull_image(PullImageRequest { image: spec.clone(), auth, ..PullImageRequest::default() })
        .await
        .expect("works");
    fake.remove_image(&spec).await.expect_err("stuck");
    let want = [
        Call::ImageStatus("app:v1".into()),
        Call::PullImage(spec.clone(), Some("ada".into())),
        Call::RemoveImage("app:v1".into()),
    ];
    assert_eq!(fake.calls(), want);
    assert_eq!(fake.call_kinds(), [CallKind::ImageStatus, CallKind::PullImage, CallKind::RemoveImage]);
    assert!(!format!("{fake:?}").contains("swordfish"));
    fake.forget_calls();
    assert_eq!(fake.calls(), []);
    assert!(fake.image_status(&spec, false).await.expect("works").image.is_some());
}

#[tokio::test]
async fn repositories_can_want_a_credential_and_can_go() {
    let fake = offered();
    let good = RegistryAuth::basic("ada", "right");
    fake.require_auth("app", good.clone());
    let pull = |auth: Option<RegistryAuth>| {
        let request = PullImageRequest { auth, ..PullImageRequest::new("app:v1") };
        let fake = fake.clone();
        async move { fake.pull_image(request).await.map_err(|e| e.kind()) }
    };
    assert_eq!(pull(None).await, Err(Kind::Unauthenticated));
    assert_eq!(pull(Some(RegistryAuth::default())).await, Err(Kind::Unauthenticated));
    assert_eq!(pull(Some(RegistryAuth::basic("ada", "wrong"))).await, Err(Kind::PermissionDenied));
    assert!(pull(Some(good.clone())).await.is_ok());
    fake.withdraw("app");
    assert_eq!(pull(Some(good)).await, Err(Kind::NotFound));
}

#[tokio::test]
async fn pinned_images_say_so_and_go_all_the_same() {
    let fake = FakeImageService::new();
    let id = fake.preload("app:v1", &FakeImage::new("app"));
    fake.pin(&id, true);
    assert!(fake.list_images(None).await.expect("works")[0].pinned);
    fake.remove_image(&ImageSpec::new("app:v1")).await.expect("a removal is obeyed");
    assert_eq!(fake.list_images(None).await, Ok(vec![]));
}

#[tokio::test]
async fn a_pull_tells_its_layers() {
    let fake = FakeImageService::new();
    fake.publish("app:v1", &FakeImage::new("base").layer("app").sized(1000));
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let progress = ProgressSink::new(move |event| sink.lock().push(event));
    fake.pull_image(PullImageRequest { progress, ..PullImageRequest::new("app:v1") }).await.expect("works");
    let told = told.lock();
    let [PullEvent::Resolved { layers, .. }, PullEvent::Committing] = told.as_slice() else { panic!("told {told:?}") };
    assert_eq!(layers.iter().map(|(_, size)| *size).collect::<Vec<_>>(), [4, 1000]);
}

#[tokio::test]
async fn the_runtime_lists_what_fits() {
    let runtime = FakeRuntimeService::new();
    for (id, ready) in [("sandbox-a", true), ("sandbox-b", false)] {
        let mut sandbox = PodSandbox { id: id.into(), ready, ..PodSandbox::default() };
        sandbox.labels.insert("app".into(), id.into());
        runtime.put_sandbox(sandbox);
        let container = Container {
            id: format!("container-of-{id}"),
            pod_sandbox_id: id.into(),
            state: if ready { ContainerState::Running } else { ContainerState::Exited },
            ..Container::default()
        };
        runtime.put_container(container);
    }
    let sandboxes = |filter: PodSandboxFilter| {
        let runtime = runtime.clone();
        async move {
            let listed = runtime.list_pod_sandboxes(Some(&filter)).await.expect("works");
            listed.into_iter().map(|s| s.id).collect::<Vec<_>>()
        }
    };
    assert_eq!(sandboxes(PodSandboxFilter::default()).await.len(), 2);
    assert_eq!(sandboxes(PodSandboxFilter { ready: Some(true), ..Default::default() }).await, ["sandbox-a"]);
    assert_eq!(sandboxes(PodSandboxFilter { id: Some("sandbox-b".into()), ..Default::default() }).await, ["sandbox-b"]);
    let labels = [("app".to_owned(), "sandbox-a".to_owned())].into();
    assert_eq!(sandboxes(PodSandboxFilter { labels, ..Default::default() }).await, ["sandbox-a"]);

    let exited = ContainerFilter { state: Some(ContainerState::Exited), ..ContainerFilter::default() };
    assert_eq!(runtime.list_containers(Some(&exited)).await.expect("works")[0].pod_sandbox_id, "sandbox-b");
    runtime.take_sandbox("sandbox-b");
    assert_eq!(runtime.list_containers(None).await.expect("works").len(), 1);
    runtime.take_container("container-of-sandbox-a");
    assert_eq!(runtime.list_containers(None).await, Ok(vec![]));
    assert_eq!(runtime.version().await.expect("works").version, "0.1.0");
    assert!(runtime.status(false).await.expect("works").conditions.iter().all(|c| c.status));
    runtime.faults().fail(CallKind::ListContainers, Error::new(Kind::Unavailable, "gone"));
    assert!(runtime.list_containers(None).await.is_err());
}

/// Sandboxes of two pods, and a container that runs in each.
async fn two_pods(runtime: &FakeRuntimeService) -> [(String, String); 2] {
    let mut made = Vec::new();
    for pod in ["a", "b"] {
        let metadata =
            PodSandboxMetadata { name: pod.into(), uid: format!("uid-{pod}"), namespace: "ns".into(), attempt: 0 };
        let config = PodSandboxConfig { metadata, ..PodSandboxConfig::default() };
        let sandbox = runtime.run_pod_sandbox(&config, "").await.expect("works");
        let metadata = ContainerMetadata { name: format!("app-{pod}"), attempt: 0 };
        let container = ContainerConfig { metadata, ..ContainerConfig::default() };
        let id = runtime.create_container(&sandbox, &container, &config).await.expect("works");
        runtime.start_container(&id).await.expect("works");
        made.push((sandbox, id));
    }
    made.try_into().expect("two")
}

#[tokio::test(start_paused = true)]
async fn faults_of_a_runtime_can_be_of_one_pod() {
    let runtime = FakeRuntimeService::new();
    let [(sandbox_a, a), (_, b)] = two_pods(&runtime).await;
    let now = Duration::ZERO;
    // By container name, by pod name, by sandbox id, by its own id: always the one pod's call.
    for subject in ["app-a", "a", sandbox_a.as_str(), a.as_str()] {
        let gate = runtime.faults().hold_for(CallKind::StopContainer, subject);
        let mut stuck = JoinSet::new();
        let (held, id) = (runtime.clone(), a.clone());
        stuck.spawn(async move { held.stop_container(&id, now).await });
        gate.until_waiting(1).await;
        runtime.stop_container(&b, now).await.expect("the other pod's call goes on");
        gate.open();
        stuck.join_next().await.expect("one call").expect("no panic").expect("works");
        runtime.faults().clear(CallKind::StopContainer);
        let busy = Error::new(Kind::Unknown, "busy");
        runtime.faults().fail_for(CallKind::ContainerStatus, subject, busy.clone());
        assert_eq!(runtime.container_status(&a, false).await, Err(busy), "{subject}");
        assert!(runtime.container_status(&b, false).await.is_ok());
        runtime.faults().clear(CallKind::ContainerStatus);
    }
    runtime.faults().fail_for(CallKind::CreateContainer, "app-c", Error::new(Kind::Unknown, "no"));
    let config = |name: &str| {
        let metadata = ContainerMetadata { name: name.into(), attempt: 0 };
        ContainerConfig { metadata, ..ContainerConfig::default() }
    };
    let of = PodSandboxConfig::default();
    runtime.create_container(&sandbox_a, &config("app-c"), &of).await.expect_err("of this name");
    runtime.create_container(&sandbox_a, &config("app-d"), &of).await.expect("of another");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_can_be_slow_absent_or_lose_its_answers() {
    let runtime = FakeRuntimeService::new();
    let [(sandbox, a), _] = two_pods(&runtime).await;
    let slow = Duration::from_secs(100);
    runtime.faults().delay(CallKind::ListContainers, slow);
    let began = tokio::time::Instant::now();
    assert_eq!(runtime.list_containers(None).await.expect("works").len(), 2);
    assert_eq!(began.elapsed(), slow);

    let away = Error::new(Kind::Unavailable, "no such socket");
    runtime.faults().be_absent(away.clone());
    assert_eq!(runtime.version().await, Err(away.clone()));
    assert_eq!(runtime.stop_pod_sandbox(&sandbox).await, Err(away));
    runtime.faults().return_to_duty();
    assert!(runtime.pod_sandbox_status(&sandbox, false).await.expect("works").ready, "nothing has happened meanwhile");

    let late = Error::new(Kind::DeadlineExceeded, "no answer");
    runtime.faults().lose_answers(CallKind::RemoveContainer, 1, late.clone());
    assert_eq!(runtime.remove_container(&a).await, Err(late));
    assert_eq!(runtime.container_status(&a, false).await.expect_err("it is done").kind(), Kind::NotFound);
    runtime.remove_container(&a).await.expect("the next answer comes");
    let removals = runtime.calls().into_iter().filter(|(kind, _)| *kind == CallKind::RemoveContainer).count();
    assert_eq!(removals, 2);
}

#[tokio::test]
async fn sandboxes_and_processes_can_end_by_themselves() {
    let runtime = FakeRuntimeService::new();
    let [(_, a), (sandbox_b, b)] = two_pods(&runtime).await;
    runtime.set_now(1_800_000_000_000_000_000);
    runtime.exit(&a, 9);
    let status = runtime.container_status(&a, false).await.expect("works");
    assert_eq!((status.state, status.exit_code, status.reason.as_str()), (ContainerState::Exited, 9, "Error"));
    assert_eq!(status.finished_at / 1_000_000_000, 1_800_000_000);
    runtime.kill_sandbox(&sandbox_b);
    assert!(!runtime.pod_sandbox_status(&sandbox_b, false).await.expect("works").ready);
    assert_eq!(runtime.container_status(&b, false).await.expect("works").exit_code, 137);
    let condition = Condition { kind: "NetworkReady".into(), reason: "NoPlugin".into(), ..Condition::default() };
    runtime.set_condition(condition);
    let status = runtime.status(false).await.expect("works");
    assert_eq!((status.holds("RuntimeReady"), status.holds("NetworkReady")), (true, false));
}
