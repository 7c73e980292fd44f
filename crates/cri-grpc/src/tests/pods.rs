//! The client of RuntimeService: the whole suite over a socket, deadlines, idempotent ends, and errors that name their call.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::conformance::runtime::{FakePods, run_all};
use cri_api::testing::{CallKind, FakeRuntimeService};
use cri_api::{
    AttachRequest, ContainerConfig, ContainerMetadata, Error, ExecRequest, ImageSpec, Kind, LinuxContainerResources,
    PodSandboxConfig, PodSandboxMetadata, RuntimeService,
};
use tokio_util::task::TaskTracker;

use super::pod_peer::Peer;
use super::support::{Raw, soon};
use crate::client::{ClientOptions, RemoteRuntimeService, connect_runtime_service};

async fn client(peer: &Raw, options: ClientOptions) -> RemoteRuntimeService {
    soon(connect_runtime_service(&peer.endpoint, options)).await.unwrap()
}

fn pod() -> PodSandboxConfig {
    PodSandboxConfig {
        metadata: PodSandboxMetadata { name: "web".into(), uid: "u1".into(), namespace: "shop".into(), attempt: 0 },
        ..PodSandboxConfig::default()
    }
}

fn container() -> ContainerConfig {
    let metadata = ContainerMetadata { name: "app".into(), attempt: 0 };
    ContainerConfig { metadata, image: ImageSpec::new("image"), ..ContainerConfig::default() }
}

/// A pod with a container that runs.
async fn running(runtime: &dyn RuntimeService) -> (String, String) {
    let sandbox = runtime.run_pod_sandbox(&pod(), "").await.unwrap();
    let id = runtime.create_container(&sandbox, &container(), &pod()).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    (sandbox, id)
}

#[tokio::test]
async fn runtime_behind_a_socket_conforms() {
    let fake = FakePods::fake();
    let peer = Peer::new(fake.clone()).serve();
    let client = client(&peer, ClientOptions::default()).await;
    let report = run_all(&FakePods::new(&fake, Arc::new(client))).await;
    report.assert_passed();
    assert_eq!(report.not_applicable(), ["a_log_is_written"], "{report}");
}

/// Fields that the conformance suite does not cover cross the wire as well.
#[tokio::test]
async fn sent_messages_arrive() {
    let fake = FakeRuntimeService::new();
    fake.offer_handler("kata");
    let peer = Peer::new(fake.clone()).serve();
    let client = client(&peer, ClientOptions::default()).await;
    let mut config = pod();
    config.linux.sysctls.insert("net.core.somaxconn".into(), "7".into());
    config.linux.security.run_as_user = Some(0);
    let sandbox = soon(client.run_pod_sandbox(&config, "kata")).await.unwrap();
    assert_eq!(fake.sandbox_config(&sandbox), Some(config.clone()));
    let mut made = container();
    made.envs = vec![cri_api::EnvVar::new("A", vec![0xff, 0])];
    made.stop_signal = cri_api::Signal::from_name("SIGRTMIN+3");
    let id = soon(client.create_container(&sandbox, &made, &config)).await.unwrap();
    assert_eq!(fake.container_config(&id), Some(made));
    let resources = LinuxContainerResources { cpu_quota: -1, ..Default::default() };
    let annotations = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    soon(client.update_container_resources(&id, &resources, &annotations)).await.unwrap();
    let updated = fake.container_config(&id).unwrap();
    assert_eq!((updated.linux.resources, updated.annotations), (resources.clone(), annotations));
    let overhead = LinuxContainerResources { memory_limit_in_bytes: 5, ..Default::default() };
    soon(client.update_pod_sandbox_resources(&sandbox, &overhead, &resources)).await.unwrap();
    let linux = fake.sandbox_config(&sandbox).unwrap().linux;
    assert_eq!((linux.overhead, linux.resources), (overhead, resources));
    soon(client.update_runtime_config("10.1.0.0/16")).await.unwrap();
    assert_eq!(fake.calls().last(), Some(&(CallKind::UpdateRuntimeConfig, "10.1.0.0/16".to_owned())));
    assert_eq!(format!("{client:?}"), format!("RemoteRuntimeService({:?})", peer.endpoint));
}

#[tokio::test]
async fn deadlines_are_the_kubelets() {
    let fake = FakeRuntimeService::new();
    let (sandbox, id) = running(&fake).await;
    let peer = Peer::new(fake.clone()).serve();
    let options = ClientOptions { request_timeout: Duration::from_millis(50), ..Default::default() };
    let client = client(&peer, options).await;
    let exec = ExecRequest { container_id: id.clone(), stdout: true, ..Default::default() };
    let attach = AttachRequest { container_id: id.clone(), stdout: true, ..Default::default() };
    // Twice the time where a network is set up, plus the container's own time where it has one.
    let table = [
        (CallKind::RunPodSandbox, "100ms", "RunPodSandbox for pod \"shop/web\""),
        (CallKind::StopPodSandbox, "50ms", &format!("StopPodSandbox {sandbox:?}")),
        (CallKind::RemovePodSandbox, "50ms", &format!("RemovePodSandbox {sandbox:?}")),
        (CallKind::PodSandboxStatus, "50ms", &format!("PodSandboxStatus {sandbox:?}")),
        (CallKind::ListPodSandboxes, "50ms", "ListPodSandbox"),
        (CallKind::CreateContainer, "50ms", &format!("CreateContainer \"app\" in sandbox {sandbox:?}")),
        (CallKind::StartContainer, "50ms", &format!("StartContainer {id:?}")),
        (CallKind::StopContainer, "250ms", &format!("StopContainer {id:?}")),
        (CallKind::RemoveContainer, "50ms", &format!("RemoveContainer {id:?}")),
        (CallKind::ContainerStatus, "50ms", &format!("ContainerStatus {id:?}")),
        (CallKind::ListContainers, "50ms", "ListContainers"),
        (CallKind::ExecSync, "150ms", &format!("ExecSync {id:?}")),
        (CallKind::Exec, "50ms", &format!("Exec {id:?}")),
        (CallKind::Attach, "50ms", &format!("Attach {id:?}")),
        (CallKind::PortForward, "50ms", &format!("PortForward {sandbox:?}")),
        (CallKind::ContainerStats, "50ms", &format!("ContainerStats {id:?}")),
        (CallKind::RuntimeConfig, "50ms", "RuntimeConfig"),
    ];
    for (kind, limit, name) in table {
        let stuck = fake.faults().hold(kind);
        let error = soon(async {
            match kind {
                CallKind::RunPodSandbox => client.run_pod_sandbox(&pod(), "").await.map(drop),
                CallKind::StopPodSandbox => client.stop_pod_sandbox(&sandbox).await,
                CallKind::RemovePodSandbox => client.remove_pod_sandbox(&sandbox).await,
                CallKind::PodSandboxStatus => client.pod_sandbox_status(&sandbox, false).await.map(drop),
                CallKind::ListPodSandboxes => client.list_pod_sandboxes(None).await.map(drop),
                CallKind::CreateContainer => client.create_container(&sandbox, &container(), &pod()).await.map(drop),
                CallKind::StartContainer => client.start_container(&id).await,
                CallKind::StopContainer => client.stop_container(&id, Duration::from_millis(200)).await,
                CallKind::RemoveContainer => client.remove_container(&id).await,
                CallKind::ContainerStatus => client.container_status(&id, false).await.map(drop),
                CallKind::ListContainers => client.list_containers(None).await.map(drop),
                CallKind::ExecSync => client.exec_sync(&id, &[], Duration::from_millis(100)).await.map(drop),
                CallKind::Exec => client.exec(&exec).await.map(drop),
                CallKind::Attach => client.attach(&attach).await.map(drop),
                CallKind::PortForward => client.port_forward(&sandbox, &[80]).await.map(drop),
                CallKind::ContainerStats => client.container_stats(&id).await.map(drop),
                _ => client.runtime_config().await.map(drop),
            }
        })
        .await
        .unwrap_err();
        assert_eq!(error.kind(), Kind::DeadlineExceeded, "{error}");
        let separator = if name.contains(' ') { ":" } else { ": " };
        let start = format!("{}{separator}", name.trim_end());
        assert!(error.message().starts_with(start.trim_end()), "{error}, want {name}");
        assert!(error.message().ends_with(&format!("no answer from {} within {limit}", peer.endpoint)), "{error}");
        // The peer sees that no caller is waiting any more.
        soon(stuck.until_waiting(0)).await;
    }
}

/// A command without a limit is waited for as long as it takes.
#[tokio::test]
async fn exec_without_timeout_has_no_deadline() {
    let fake = FakeRuntimeService::new();
    let (_, id) = running(&fake).await;
    let peer = Peer::new(fake.clone()).serve();
    let options = ClientOptions { request_timeout: Duration::from_secs(1), ..Default::default() };
    let client = client(&peer, options).await;
    let gate = fake.faults().hold(CallKind::ExecSync);
    let (calling, called) = (client.clone(), id.clone());
    let exec = TaskTracker::new().spawn(async move { calling.exec_sync(&called, &[], Duration::ZERO).await });
    soon(gate.until_waiting(1)).await;
    let stuck = fake.faults().hold(CallKind::ContainerStatus);
    soon(client.container_status(&id, false)).await.expect_err("its deadline passed meanwhile");
    drop(stuck);
    gate.open();
    assert_eq!(soon(exec).await.unwrap().unwrap().exit_code, 0);
}

#[tokio::test]
async fn times_are_rounded_up_to_seconds() {
    let fake = FakeRuntimeService::new();
    let (_, id) = running(&fake).await;
    let peer = Peer::new(fake.clone());
    let timeouts = peer.stop_timeouts();
    let peer = peer.serve();
    let client = client(&peer, ClientOptions::default()).await;
    for milliseconds in [0, 1, 1000, 1001] {
        soon(client.stop_container(&id, Duration::from_millis(milliseconds))).await.unwrap();
    }
    assert_eq!(*timeouts.lock(), [0, 1, 1, 2]);
}

#[tokio::test]
async fn removing_absent_objects_succeeds() {
    let fake = FakeRuntimeService::new();
    let peer = Peer::new(fake.clone()).serve();
    let client = client(&peer, ClientOptions::default()).await;
    let kinds =
        [CallKind::StopPodSandbox, CallKind::RemovePodSandbox, CallKind::StopContainer, CallKind::RemoveContainer];
    for (kind, ends_well) in [(Kind::NotFound, true), (Kind::Unknown, false), (Kind::FailedPrecondition, false)] {
        for call in kinds {
            fake.faults().fail(call, Error::new(kind, "it is not what it was"));
        }
        let results = [
            ("StopPodSandbox \"s\"", soon(client.stop_pod_sandbox("s")).await),
            ("RemovePodSandbox \"s\"", soon(client.remove_pod_sandbox("s")).await),
            ("StopContainer \"c\"", soon(client.stop_container("c", Duration::ZERO)).await),
            ("RemoveContainer \"c\"", soon(client.remove_container("c")).await),
        ];
        for (name, result) in results {
            match result {
                Ok(()) => assert!(ends_well, "{name}: {kind}"),
                Err(error) => {
                    assert_eq!((error.kind(), ends_well), (kind, false));
                    assert_eq!(error.message(), format!("{name}: it is not what it was"));
                }
            }
        }
    }
    fake.faults().fail(CallKind::StartContainer, Error::new(Kind::NotFound, "gone"));
    assert_eq!(soon(client.start_container("c")).await.unwrap_err().message(), "StartContainer \"c\": gone");
}

#[tokio::test]
async fn empty_responses_are_errors() {
    let fake = FakeRuntimeService::new();
    let (sandbox, id) = running(&fake).await;
    let peer = Peer::new(fake.clone()).forgetful().serve();
    let client = client(&peer, ClientOptions::default()).await;
    let another = PodSandboxConfig { metadata: PodSandboxMetadata { attempt: 1, ..pod().metadata }, ..pod() };
    let other = ContainerConfig { metadata: ContainerMetadata { name: "app".into(), attempt: 1 }, ..container() };
    let exec = ExecRequest { container_id: id.clone(), stdout: true, ..Default::default() };
    let attach = AttachRequest { container_id: id.clone(), stdout: true, ..Default::default() };
    let results = [
        (
            soon(client.run_pod_sandbox(&another, "")).await.map(drop),
            "RunPodSandbox for pod \"shop/web\": the answer has no id".to_owned(),
        ),
        (
            soon(client.create_container(&sandbox, &other, &pod())).await.map(drop),
            format!("CreateContainer \"app\" in sandbox {sandbox:?}: the answer has no id"),
        ),
        (
            soon(client.pod_sandbox_status(&sandbox, false)).await.map(drop),
            format!("PodSandboxStatus {sandbox:?}: status.id is not set"),
        ),
        (
            soon(client.container_status(&id, false)).await.map(drop),
            format!("ContainerStatus {id:?}: status.image is not set"),
        ),
        (soon(client.exec(&exec)).await.map(drop), format!("Exec {id:?}: the answer has no URL")),
        (soon(client.attach(&attach)).await.map(drop), format!("Attach {id:?}: the answer has no URL")),
        (
            soon(client.port_forward(&sandbox, &[1])).await.map(drop),
            format!("PortForward {sandbox:?}: the answer has no URL"),
        ),
        (soon(client.container_stats(&id)).await.map(drop), format!("ContainerStats {id:?}: the answer has no stats")),
        (
            soon(client.pod_sandbox_stats(&sandbox)).await.map(drop),
            format!("PodSandboxStats {sandbox:?}: the answer has no stats"),
        ),
    ];
    for (result, want) in results {
        let error = result.expect_err(&want);
        assert_eq!((error.kind(), error.message()), (Kind::Internal, want.as_str()));
    }
}

/// A peer that dies ends the stream of events with an error; one that does not have the call says so first.
#[tokio::test]
async fn event_stream_ends_with_its_peer() {
    let fake = FakeRuntimeService::new();
    let peer = Peer::new(fake.clone()).serve();
    let client = client(&peer, ClientOptions::default()).await;
    let mut events = client.container_events();
    let next = poll_fn(|cx| events.as_mut().poll_next(cx));
    let (event, ()) = soon(async {
        tokio::join!(next, async {
            // The call must have arrived before anything happens.
            while fake.listeners() == 0 {
                tokio::task::yield_now().await;
            }
            fake.run_pod_sandbox(&pod(), "").await.unwrap();
        })
    })
    .await;
    assert_eq!(event.unwrap().unwrap().kind, cri_api::ContainerEventKind::Created);
    fake.end_events(Error::new(Kind::Unavailable, "the runtime ends"));
    let mut last = None;
    while let Some(event) = soon(poll_fn(|cx| events.as_mut().poll_next(cx))).await {
        last = Some(event);
    }
    let error = last.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.message()), (Kind::Unavailable, "GetContainerEvents: the runtime ends"));

    let server = super::support::Running::fake(&cri_api::testing::FakeImageService::new());
    let client = soon(connect_runtime_service(&server.endpoint, ClientOptions::default())).await.unwrap();
    let mut events = client.container_events();
    let error = soon(poll_fn(|cx| events.as_mut().poll_next(cx))).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Unimplemented, "{error}");
    assert!(soon(poll_fn(|cx| events.as_mut().poll_next(cx))).await.is_none());
}

/// This program's own socket serves images, and says so to a client that expects a container runtime.
#[tokio::test]
async fn own_server_reports_that_it_runs_no_pods() {
    let server = super::support::Running::fake(&cri_api::testing::FakeImageService::new());
    let client = soon(connect_runtime_service(&server.endpoint, ClientOptions::default())).await.unwrap();
    let error = soon(client.run_pod_sandbox(&pod(), "")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unimplemented);
    assert!(error.message().contains("this endpoint serves images"), "{error}");
    assert!(soon(client.list_pod_sandboxes(None)).await.unwrap().is_empty());
}
