//! The status manager on an API server in memory.

use base::lock::Mutex;

use super::*;
use crate::fake::FakeServer;
use crate::watch::{Selection, follow};

const POD: &str = "/api/v1/namespaces/shop/pods/web";

struct Scene {
    server: FakeServer,
    views: Arc<Mutex<BTreeMap<String, NodeView>>>,
    changed: watch::Sender<u64>,
    /// Counts how often the views were asked for.
    _stop: tokio_util::sync::DropGuard,
}

fn running() -> NodeView {
    NodeView {
        status: json!({
            "phase": "Running", "startTime": "2026-11-23T10:00:00Z", "qosClass": "BestEffort",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-23T10:00:05Z"}],
            "containerStatuses": [{"name": "c", "state": {"running": {"startedAt": null}}, "ready": true}],
        }),
        may_run: true,
        has_ended: false,
        generation: None,
        readiness_gates: Vec::new(),
        restart_policy: "Always",
    }
}

fn ended(phase: &str, code: i32) -> NodeView {
    let mut view = NodeView { may_run: false, has_ended: true, ..running() };
    view.status["phase"] = json!(phase);
    view.status["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": code}});
    view.status["conditions"][0]["status"] = json!("False");
    view
}

impl Scene {
    /// A server with the pod `web` of this uid.
    async fn new(uid: &str) -> Self {
        let server = FakeServer::new(true);
        server
            .put(POD, json!({"metadata": {"uid": uid}, "spec": {"nodeName": "edge"}, "status": {"phase": "Pending"}}));
        Self::with(server).await
    }

    async fn with(server: FakeServer) -> Self {
        let (tell, stop) = (watch::Sender::new(Selected::default()), CancellationToken::new());
        let (changed, views) = (watch::Sender::new(0), Arc::<Mutex<BTreeMap<String, NodeView>>>::default());
        let manager = StatusManager::new(server.client(), tell.subscribe());
        let (client, ended, table, changes) = (server.client(), stop.clone(), Arc::clone(&views), changed.subscribe());
        let selection = Selection::pods_of("edge");
        tokio_util::task::TaskTracker::new().spawn(async move {
            let views = move |_: &Objects| table.lock().clone();
            tokio::join!(follow(&client, &selection, &tell, &ended), manager.run(views, changes, &ended));
        });
        let scene = Self { server, views, changed, _stop: stop.drop_guard() };
        scene.settle().await;
        scene
    }

    /// Lets everything happen that is to happen at once.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    /// The node sees the pod of this uid so; the writes that follow.
    async fn see(&self, uid: &str, view: NodeView) -> Vec<String> {
        self.views.lock().insert(uid.to_owned(), view);
        self.changed.send_modify(|count| *count += 1);
        self.settle().await;
        self.writes()
    }

    fn writes(&self) -> Vec<String> {
        let all = self.server.take_requests().into_iter();
        all.filter(|line| line.starts_with("PATCH") || line.starts_with("DELETE")).collect()
    }

    fn status(&self) -> Value {
        self.server.get(POD).expect("there")["status"].clone()
    }
}

const PATCH: &str = "PATCH /api/v1/namespaces/shop/pods/web/status";
const DELETE: &str = "DELETE /api/v1/namespaces/shop/pods/web";

// upstream: status/TestNewStatus/
// upstream: status/TestNewStatusSetsReadyTransitionTime/
// upstream: status/TestStatusEquality/
// upstream: status/TestSyncPod/
// upstream: status/TestChangedStatus/
// upstream: status/TestUnchangedStatus/
// upstream: status/TestStaleUpdates/
#[tokio::test(start_paused = true)]
async fn a_change_is_written_once_and_nothing_else_is() {
    let scene = Scene::new("u").await;
    assert_eq!(scene.see("u", running()).await, [PATCH]);
    assert_eq!(scene.status()["containerStatuses"][0]["name"], "c");
    assert_eq!(scene.see("u", running()).await, [] as [&str; 0]);
    let mut other = running();
    other.status["podIP"] = json!("10.0.0.2");
    assert_eq!(scene.see("u", other).await, [PATCH]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.writes(), [] as [&str; 0]);
}

// upstream: status/TestReconcilePodStatus/
#[tokio::test(start_paused = true)]
async fn foreign_changes_of_a_status_are_corrected() {
    let scene = Scene::new("u").await;
    scene.see("u", running()).await;
    let mut object = scene.server.get(POD).expect("there");
    object["status"]["podIP"] = json!("1.2.3.4");
    object["status"]["conditions"].as_array_mut().expect("a list").push(json!({"type": "a/b", "status": "True"}));
    object["status"]["nominatedNodeName"] = json!("n");
    scene.server.put(POD, object);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let status = scene.status();
    assert!(status.get("podIP").is_none());
    assert_eq!((status["conditions"].as_array().map(Vec::len), &status["nominatedNodeName"]), (Some(2), &json!("n")));
}

#[tokio::test(start_paused = true)]
async fn a_field_that_the_server_does_not_know_is_not_written_again_and_again() {
    let scene = Scene::new("u").await;
    let view = NodeView { generation: Some(3), ..running() };
    assert_eq!(scene.see("u", view.clone()).await, [PATCH]);
    assert_eq!(scene.status()["observedGeneration"], 3);
    // As an old server answers: without it.
    scene.server.forget_field("/status/observedGeneration");
    let mut other = view;
    other.status["podIP"] = json!("10.0.0.2");
    assert_eq!(scene.see("u", other).await, [PATCH]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.writes(), [] as [&str; 0]);
}

// upstream: status/TestSyncPodIgnoresNotFound/
// upstream: status/TestSyncPodChecksMismatchedUID/
#[tokio::test(start_paused = true)]
async fn another_pod_of_the_name_is_not_touched() {
    let scene = Scene::new("u").await;
    scene.server.fail("PATCH", 404);
    assert_eq!(scene.see("u", running()).await, [PATCH]);
    // The pod was replaced before the watch could report the deletion.
    let scene = Scene::new("u").await;
    scene.server.set_quiet(true);
    scene
        .server
        .put(POD, json!({"metadata": {"uid": "v"}, "spec": {"nodeName": "edge"}, "status": {"phase": "Pending"}}));
    assert_eq!(scene.see("u", running()).await, [PATCH]);
    assert_eq!(scene.status()["phase"], "Pending");
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(scene.writes().len() < 3);
}

// upstream: status/TestDeletePodBeforeFinished/
// upstream: status/TestDoNotDeleteMirrorPods/
// upstream: status/TestSyncBatchCleanupVersions/
// upstream: status/TestDeletePodFinished/
// upstream: status/TestSyncPodNoDeadlock/
#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_removed_after_all_containers_ended() {
    let scene = Scene::new("u").await;
    scene.see("u", running()).await;
    let mut object = scene.server.get(POD).expect("there");
    object["metadata"]["deletionTimestamp"] = json!("2026-11-23T10:01:00Z");
    scene.server.put(POD, object);
    scene.settle().await;
    assert_eq!(scene.writes(), [] as [&str; 0]);
    let stopping = NodeView { may_run: true, has_ended: false, ..ended("Succeeded", 0) };
    assert_eq!(scene.see("u", stopping).await, [PATCH]);
    assert_eq!(scene.status()["phase"], "Running", "not before nothing of it runs");
    let mut told = scene.server.changes();
    told.mark_unchanged();
    assert_eq!(scene.see("u", ended("Succeeded", 0)).await, [PATCH, DELETE]);
    assert!(scene.server.get(POD).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_away_gets_the_last_state_and_no_storm() {
    let scene = Scene::new("u").await;
    scene.see("u", running()).await;
    scene.server.set_away(true);
    for second in 0..120 {
        let mut view = running();
        view.status["message"] = json!(format!("after {second} s"));
        scene.views.lock().insert("u".to_owned(), view);
        scene.changed.send_modify(|count| *count += 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let tries = scene.writes().len();
    assert!((5..12).contains(&tries), "{tries}");
    scene.server.set_away(false);
    tokio::time::sleep(Duration::from_secs(46)).await;
    assert_eq!(scene.writes().last().map(String::as_str), Some(PATCH));
    assert_eq!(scene.status()["message"], "after 119 s");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_one_pod_holds_up_no_other() {
    let scene = Scene::new("u").await;
    let other = "/api/v1/namespaces/shop/pods/other";
    let pod = json!({"metadata": {"uid": "v"}, "spec": {"nodeName": "edge"}, "status": {"phase": "Pending"}});
    scene.server.put(other, pod);
    scene.settle().await;
    scene.server.fail("PATCH /api/v1/namespaces/shop/pods/web", 422);
    scene.views.lock().insert("u".to_owned(), running());
    assert_eq!(scene.see("v", running()).await, [PATCH, &format!("PATCH {other}/status")]);
    assert_eq!(scene.server.get(other).expect("there")["status"]["phase"], "Running");
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(scene.status()["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again() {
    let scene = Scene::new("u").await;
    scene.server.fail("PATCH", 409);
    assert_eq!(scene.see("u", running()).await, [PATCH]);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!((scene.writes(), scene.status()["phase"].clone()), (vec![PATCH.to_owned()], json!("Running")));
}
