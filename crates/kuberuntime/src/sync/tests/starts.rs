//! Starts: their order, their calls, their events, and the words in which they fail.

use cri_api::testing::{CallKind, FakeExec, FakeProcess};
use cri_api::{ContainerState, Error, ExecSyncOutput, Kind};
use serde_json::json;

use super::bench::Bench;

#[tokio::test(start_paused = true)]
async fn a_pod_starts_in_the_kubelets_steps() {
    let bench = Bench::new(&json!({
        "initContainers": [{"name": "first", "image": "x:1"}],
        "containers": [{"name": "a", "image": "x:1"}],
    }));
    bench.ends("first", 0);
    let report = bench.good().await;
    assert_eq!(report.starts.keys().collect::<Vec<_>>(), ["first"]);
    assert_eq!(
        bench.changes(),
        [
            (CallKind::RunPodSandbox, "web-edge".to_owned()),
            (CallKind::CreateContainer, "web-edge/first".to_owned()),
            (CallKind::StartContainer, "container-0002".to_owned()),
        ]
    );
    assert_eq!(bench.events(), ["first: Pulling", "first: Pulled", "first: Created", "first: Started"]);
    bench.good().await;
    assert_eq!(bench.events(), ["a: Pulled", "a: Created", "a: Started"]);
    assert_eq!(bench.status().await.phase.as_str(), "Running");
    bench.end(None).await.expect("ended");
    assert_eq!(bench.events(), ["a: Killing"]);
    bench.pod_runtime.remove_pod(&bench.observe().await).await.expect("removed");
    assert_eq!(bench.everything().await, (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_failed_pull_is_reported_in_the_kubelets_words() {
    let bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "gone:1"}]}));
    let report = bench.sync().await;
    assert_eq!(report.errors, ["start container b: ErrImagePull: pull docker.io/library/gone:1: not found"]);
    assert_eq!(bench.waits("b").await, ("ErrImagePull".into(), "pull docker.io/library/gone:1: not found".into()));
    let told = |event: &str| bench.events().into_iter().filter(|told| told.starts_with(event)).collect::<Vec<_>>();
    assert_eq!(
        told("b: "),
        [
            "b: Pulling",
            "b: Failed: Failed to pull image \"gone:1\": pull docker.io/library/gone:1: not found",
            "b: Failed: Error: ErrImagePull",
        ]
    );
    // One failure was counted, though it was asked for ahead: the window is the first one.
    bench.sync().await;
    let (reason, message) = bench.waits("b").await;
    assert_eq!(reason, "ImagePullBackOff");
    assert!(message.starts_with("Back-off pulling image \"gone:1\": ErrImagePull: pull"), "{message}");
    assert_eq!(bench.pod_runtime.parts().images.backoff()[0].failures, 1);
    assert_eq!(told("b: "), ["b: BackOff", "b: Failed: Error: ImagePullBackOff"]);
    bench.images.publish("gone:1", &cri_api::testing::FakeImage::new("back"));
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    bench.good().await;
    assert_eq!(told("b: "), ["b: Pulling", "b: Pulled", "b: Created", "b: Started"]);
    assert_eq!(bench.status().await.phase.as_str(), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_container_left_created_by_a_killed_process_is_recreated_with_its_attempt() {
    let mut bench = Bench::new(&json!({"containers": [{"name": "a", "image": "x:1"}]}));
    let error = Error::new(Kind::Unavailable, "the connection is gone");
    bench.runtime.faults().lose_answers(CallKind::CreateContainer, 1, error);
    assert_eq!(bench.sync().await.errors.len(), 1);
    bench.kill_9();
    bench.good().await;
    assert_eq!(bench.everything().await, (vec![("a".to_owned(), ContainerState::Running)], 1));
    assert_eq!(bench.counts().await, [0]);
    assert!(bench.root.path().join("links").read_dir().expect("links").count() == 1);
}

#[tokio::test(start_paused = true)]
async fn each_step_of_a_start_fails_in_its_own_words() {
    let hook = json!({"postStart": {"exec": {"command": ["hello"]}}});
    let bench = Bench::new(&json!({"containers": [
        {"name": "document", "image": "x:1", "envFrom": [{"configMapRef": {"name": "settings"}}]},
        {"name": "root", "image": "x:1", "securityContext": {"runAsNonRoot": true}},
        {"name": "never", "image": "x:9", "imagePullPolicy": "Never"},
        {"name": "create", "image": "x:1"},
        {"name": "start", "image": "x:1"},
        {"name": "hook", "image": "x:1", "lifecycle": hook},
        {"name": "well", "image": "x:1"},
    ]}));
    let error = |text: &str| Error::new(Kind::Unknown, text);
    bench.runtime.faults().fail_for(CallKind::CreateContainer, "create", error("no such device"));
    bench.runtime.faults().fail_for(CallKind::StartContainer, "start", error("exec: not found"));
    bench.runtime.behave(
        "hook",
        FakeProcess {
            commands: [(
                vec!["hello".to_owned()],
                FakeExec::Ends(ExecSyncOutput { exit_code: 3, stderr: b"no".to_vec(), ..ExecSyncOutput::default() }),
            )]
            .into(),
            ..FakeProcess::default()
        },
    );
    let report = bench.sync().await;
    let reason = |name: &str| report.starts[name].as_ref().map(|waiting| waiting.reason.clone()).unwrap_or_default();
    let message = |name: &str| report.starts[name].as_ref().map(|waiting| waiting.message.clone()).unwrap_or_default();
    let uid = &bench.pod.metadata.uid;
    let cases = [
        ("document", "CreateContainerConfigError", "configmap \"settings\" not found".to_owned()),
        (
            "root",
            "CreateContainerConfigError",
            format!(
                "container has runAsNonRoot and image will run as root (pod: \"web-edge_default({uid})\", container: root)"
            ),
        ),
        ("never", "ErrImageNeverPull", "Container image \"x:9\" is not present with pull policy of Never".to_owned()),
        ("create", "CreateContainerError", "no such device".to_owned()),
        ("start", "RunContainerError", "exec: not found".to_owned()),
        ("well", "", String::new()),
    ];
    let events = bench.events();
    for (name, want, text) in cases {
        assert_eq!((reason(name).as_str(), message(name)), (want, text.clone()), "{name}");
        let failed = format!("{name}: Failed: Error: {}", if name == "never" { want.to_owned() } else { text });
        assert_eq!(events.contains(&failed), !want.is_empty(), "{name}: {events:?}");
    }
    assert_eq!(reason("hook"), "PostStartHookError");
    let of_hook: Vec<&String> = events.iter().filter(|event| event.starts_with("hook: ")).collect();
    assert_eq!(
        of_hook[1..],
        ["hook: Created", "hook: Started", "hook: FailedPostStartHook: PostStartHook failed", "hook: Killing"]
    );
    assert_eq!(bench.observe().await.latest("hook").map(|run| run.state), Some(ContainerState::Exited));
    assert_eq!(report.errors.len(), 6);
    // A container that was not started is created again, under its number, and starts once the cause is removed.
    bench.documents.lock().config_maps.insert("settings".into(), crate::Document::default());
    bench.runtime.faults().clear(CallKind::CreateContainer);
    bench.runtime.faults().clear(CallKind::StartContainer);
    bench.sync().await;
    let observed = bench.observe().await;
    for name in ["document", "create", "start"] {
        let run = observed.latest(name).expect("there");
        assert_eq!((run.state, run.restart_count()), (ContainerState::Running, 0), "{name}");
        assert_eq!(observed.runs(name).count(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_hook_does_not_delay_the_end_of_the_pod() {
    let bench = Bench::new(&json!({"containers": [
        {"name": "a", "image": "x:1", "lifecycle": {"postStart": {"exec": {"command": ["hello"]}}}},
        {"name": "b", "image": "x:1"},
    ]}));
    let commands = [(vec!["hello".to_owned()], FakeExec::Hangs)].into();
    bench.runtime.behave("a", FakeProcess { commands, ..FakeProcess::default() });
    let (report, ()) = tokio::join!(bench.sync(), async {
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        bench.stop.cancel();
    });
    assert!(report.cancelled && report.starts.is_empty(), "{report:?}");
    bench.end(None).await.expect("ended");
    bench.pod_runtime.remove_pod(&bench.observe().await).await.expect("removed");
    assert_eq!(bench.everything().await, (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_an_image_needs_a_runtime_that_has_them() {
    let bench = Bench::new(&json!({
        "volumes": [{"name": "models", "image": {"reference": "x:2"}}, {"name": "lost", "image": {"reference": "gone:1"}}],
        "containers": [
            {"name": "a", "image": "x:1", "volumeMounts": [{"name": "models", "mountPath": "/models"}]},
            {"name": "b", "image": "x:1", "volumeMounts": [{"name": "lost", "mountPath": "/lost"}]},
            {"name": "c", "image": "x:1"},
        ],
    }));
    bench.runtime.be_called("containerd", "1.6.20~ds1");
    bench.sync().await;
    let refused = "image volumes are not supported by containerd 1.6.20~ds1";
    assert_eq!(bench.waits("a").await, ("CreateContainerConfigError".into(), refused.into()));
    assert!(bench.events().contains(&format!("a: Failed: Error: {refused}")));
    assert_eq!(bench.everything().await.0, [("c".to_owned(), ContainerState::Running)]);
    bench.runtime.be_called("containerd", "2.1.0");
    bench.rest(700).await;
    bench.sync().await;
    let id = bench.id_of("a").await;
    let config = bench.runtime.container_config(&id).expect("there");
    let mount = config.mounts.iter().find(|mount| mount.container_path == "/models").expect("mounted");
    assert_eq!(mount.image.as_ref().map(|image| image.user_specified_image.as_str()), Some("x:2"));
    assert!(mount.readonly);
    assert_eq!(bench.waits("b").await.0, "ErrImagePull");
    assert!(bench.events().contains(&"b: Failed: Error: ErrImagePull".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn no_container_runs_without_the_image_that_it_should_see() {
    let bench = Bench::new(&json!({
        "volumes": [{"name": "models", "image": {"reference": "x:2"}}],
        "containers": [{"name": "a", "image": "x:1", "volumeMounts": [{"name": "models", "mountPath": "/models"}]}],
    }));
    bench.good().await;
    bench.runtime.exit(&bench.id_of("a").await, 1);
    bench.runtime.pass_images_over();
    bench.sync().await;
    let text = "ImageVolumeMountFailed: the runtime made no mount at /models";
    assert_eq!(bench.waits("a").await, ("CreateContainerError".into(), text.into()));
    assert_eq!(bench.everything().await.0, [("a".to_owned(), ContainerState::Exited)]);
    let mut registry = prometheus_client::registry::Registry::default();
    bench.pod_runtime.metrics().register(&mut registry);
    let mut told = String::new();
    prometheus_client::encoding::text::encode(&mut told, &registry).expect("written");
    for (what, count) in [("requested", 2), ("mounted_succeed", 1), ("mounted_errors", 1)] {
        let line = format!("kubelet_image_volume_{what}_total {count}");
        assert!(told.lines().any(|other| other == line), "{line} is not in {told}");
    }
}
