//! Pods of an API server on their way through the sources.

use std::time::Duration;

use image_manager::RingRecorder;
use serde_json::json;

use super::*;
use crate::sources::{DesiredPods, Source, Sources};
use crate::status::api::Phase;

const NOW: &str = "2026-11-23T12:00:00Z";

fn object(name: &str, spec: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "creationTimestamp": "2026-11-23T10:00:00Z",
            "resourceVersion": "7", "generation": 1, "managedFields": [{"manager": "kubectl"}], "brandNew": {"a": 1},
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    })
}

fn runs() -> Value {
    json!({"containers": [{"name": "c", "image": "x:1", "fieldOfTomorrow": {"a": [1]}}], "priority": 0,
           "enableServiceLinks": true, "readinessGates": [{"conditionType": "a/b"}], "automountServiceAccountToken": false})
}

struct Scene {
    cluster: watch::Sender<ClusterPods>,
    desired: watch::Receiver<DesiredPods>,
    ring: Arc<RingRecorder>,
}

impl Scene {
    fn new() -> Self {
        let ring = Arc::new(RingRecorder::new(100));
        let clock: image_manager::WallClock = Arc::new(|| NOW.parse().expect("a time"));
        let parse: crate::sources::Parse = Arc::new(|_| Ok(Vec::new()));
        let options = SourceOptions::new("edge".to_owned(), parse, Arc::clone(&ring) as _, clock);
        let cluster = watch::Sender::new(ClusterPods::default());
        let sources = Sources::new(vec![Source::Cluster(cluster.subscribe())], options);
        let desired = sources.desired();
        tokio_util::task::TaskTracker::new()
            .spawn(async move { sources.run(&tokio_util::sync::CancellationToken::new()).await });
        Self { cluster, desired, ring }
    }

    /// The server sends these pods.
    async fn serve(&mut self, pods: &[&Arc<Value>]) -> DesiredPods {
        self.publish(ClusterPods { ready: true, pods: pods.iter().copied().cloned().collect(), ..Default::default() })
            .await
    }

    async fn publish(&mut self, pods: ClusterPods) -> DesiredPods {
        self.cluster.send_replace(pods);
        // Time stands still until no task has anything to do.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.desired.borrow_and_update().clone()
    }
}

fn names(desired: &DesiredPods) -> Vec<&str> {
    desired.pods.values().map(|pod| pod.metadata.name.as_str()).collect()
}

// upstream: podmanager/TestAddOrUpdatePod/mirror pod
// upstream: podmanager/TestAddOrUpdatePod/normal pod
// upstream: podmanager/TestGetSetPods/Get normal pod
// upstream: podmanager/TestGetSetPods/Get mirror pod
#[tokio::test(start_paused = true)]
async fn pods_are_read_as_a_decoder_reads_them() {
    let mut scene = Scene::new();
    let pod = Arc::new(object("a", &runs()));
    let mirror = {
        let mut mirror = object("m", &runs());
        mirror["metadata"]["annotations"] = json!({MIRROR_ANNOTATION: "hash"});
        Arc::new(mirror)
    };
    let desired = scene.serve(&[&pod, &mirror]).await;
    assert_eq!((names(&desired), desired.ready), (vec!["a"], true));
    let read = &desired.pods["uid-a"];
    assert_eq!((&*read.metadata.namespace, read.metadata.generation), ("shop", Some(1)));
    assert_eq!(read.metadata.annotations[CONFIG_SOURCE_ANNOTATION], "api");
    assert!(desired.statuses.is_empty() && desired.refused.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_list_from_the_server_is_not_ready() {
    let mut scene = Scene::new();
    let pods = vec![Arc::new(object("a", &runs()))];
    let desired = scene.publish(ClusterPods { ready: false, pods, ..Default::default() }).await;
    assert_eq!((names(&desired), desired.ready), (vec!["a"], false));
    assert!(scene.serve(&[]).await.ready);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_changes_wakes_no_pod() {
    let mut scene = Scene::new();
    let mut raw = object("a", &runs());
    let first = scene.serve(&[&Arc::new(raw.clone())]).await;
    raw["status"] = json!({"phase": "Running", "startTime": NOW});
    raw["metadata"]["resourceVersion"] = json!("8");
    let second = scene.serve(&[&Arc::new(raw.clone())]).await;
    assert!(Arc::ptr_eq(&first.pods["uid-a"], &second.pods["uid-a"]));
    raw["spec"]["containers"][0]["image"] = json!("x:2");
    let third = scene.serve(&[&Arc::new(raw)]).await;
    assert_eq!(third.pods["uid-a"].spec.containers[0].image, "x:2");
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_field_that_cannot_be_honoured_fails_with_its_name() {
    let cases = [
        (
            json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}),
            "spec.volumes[0].persistentVolumeClaim",
        ),
        (json!({"volumes": [{"name": "d", "diskOfTomorrow": {"a": 1}}]}), "spec.volumes[0].diskOfTomorrow"),
        (json!({"hostUsers": false}), "spec.hostUsers"),
        (json!({"resourceClaims": [{"name": "gpu"}]}), "spec.resourceClaims"),
    ];
    for (more, field) in cases {
        let mut scene = Scene::new();
        let mut spec = runs();
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let desired = scene.serve(&[&Arc::new(object("a", &spec))]).await;
        let status = &desired.statuses["uid-a"];
        assert_eq!((status.phase, &*status.reason), (Phase::Failed, "UnexpectedAdmissionError"), "{field}");
        assert!(status.message.starts_with(&format!("Pod was rejected: {field}: ")), "{}", status.message);
        let event = scene.ring.events().remove(0);
        let event = event.event;
        assert!(event.reason == "UnexpectedAdmissionError" && event.message.starts_with(field), "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn admission_runs_once_and_the_oldest_pod_first() {
    let asks = json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "600m"}}}]});
    let mut scene = Scene::new();
    let node = Arc::new(NodeCapacity {
        allocatable: [("cpu".to_owned(), "1".parse().expect("an amount"))].into(),
        ..NodeCapacity::default()
    });
    let (mut old, new) = (object("z", &asks), Arc::new(object("a", &asks)));
    old["metadata"]["creationTimestamp"] = json!("2026-11-23T09:00:00Z");
    let with = |pods: Vec<Arc<Value>>| ClusterPods { ready: true, pods, node: Arc::clone(&node) };
    let desired = scene.publish(with(vec![Arc::clone(&new), Arc::new(old.clone())])).await;
    let rejected = &desired.statuses["uid-a"];
    assert_eq!((&*rejected.reason, desired.statuses.len()), ("OutOfcpu", 1));
    // A pod that was refused stays so when there is room.
    old["status"] = json!({"phase": "Succeeded", "startTime": NOW});
    let desired = scene.publish(with(vec![Arc::clone(&new), Arc::new(old.clone())])).await;
    assert_eq!(desired.statuses["uid-a"].reason, "OutOfcpu");
    // Another one has it.
    let desired = scene.publish(with(vec![new, Arc::new(old), Arc::new(object("b", &asks))])).await;
    assert_eq!((desired.pods.len(), desired.statuses.len()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn what_ran_before_and_what_ended_is_not_asked_again() {
    let mut scene = Scene::new();
    let node = Arc::new(NodeCapacity { pods: Some(0), ..NodeCapacity::default() });
    let with = |name: &str, phase: &str| {
        let mut raw = object(name, &runs());
        raw["status"] = json!({"phase": phase, "startTime": "2026-11-23T11:00:00Z", "reason": "Before"});
        Arc::new(raw)
    };
    let pods = vec![with("r", "Running"), with("f", "Failed"), with("p", "Pending")];
    let desired = scene.publish(ClusterPods { ready: true, pods, node }).await;
    let reasons: Vec<_> = desired.statuses.iter().map(|(uid, status)| (&**uid, &*status.reason)).collect();
    assert_eq!(reasons, [("uid-f", "Before"), ("uid-p", "OutOfpods"), ("uid-r", "Before")]);
    assert_eq!(desired.statuses["uid-r"].start_time.to_string(), "2026-11-23T11:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn an_update_that_cannot_be_honoured_leaves_the_pod_and_its_end_counts() {
    let mut scene = Scene::new();
    let mut raw = object("a", &runs());
    scene.serve(&[&Arc::new(raw.clone())]).await;
    raw["spec"]["hostUsers"] = json!(false);
    raw["metadata"]["deletionTimestamp"] = json!(NOW);
    raw["metadata"]["deletionGracePeriodSeconds"] = json!(3);
    for _ in 0..2 {
        let desired = scene.serve(&[&Arc::new(raw.clone())]).await;
        let metadata = &desired.pods["uid-a"].metadata;
        assert_eq!((metadata.deletion_timestamp.is_some(), metadata.deletion_grace_period_seconds), (true, Some(3)));
    }
    assert_eq!(scene.ring.events().len(), 1, "it is told once");
}
