//! Tests of the keeper: registration, races, and when a status is written.

use image_manager::RingRecorder;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::super::{Disk, Machine, NodeIdentity, Observed, RuntimeReport};
use super::*;
use crate::fake::FakeServer;

const NODE: &str = "/api/v1/nodes/n";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";

/// A node whose images can grow.
struct Scene {
    images: AtomicU64,
    events: Arc<RingRecorder>,
}

impl Default for Scene {
    fn default() -> Self {
        Self { images: AtomicU64::new(0), events: Arc::new(RingRecorder::new(100)) }
    }
}

#[async_trait::async_trait]
impl Observe for Scene {
    async fn observe(&self) -> Observed {
        let condition = |kind: &str| cri_api::Condition { kind: kind.to_owned(), status: true, ..Default::default() };
        let status = cri_api::RuntimeStatus {
            conditions: vec![condition("RuntimeReady"), condition("NetworkReady")],
            handlers: vec![cri_api::RuntimeHandler::default()],
            ..cri_api::RuntimeStatus::default()
        };
        let count = self.images.load(Ordering::Relaxed);
        let image = |number| image_manager::gc::NodeImage { names: vec![format!("i:{number}")], size_bytes: number };
        Observed {
            runtime: RuntimeReport { version: Some("containerd://1.7".to_owned()), status: Some(Ok(status)) },
            images: Some((0..count).rev().map(image).collect()),
            disk_pressure: Some(false),
            disk: Some(Disk { capacity: 1 << 30, kept_free: 0 }),
        }
    }
}

fn keeper(api: &FakeServer, instance: &str, scene: &Arc<Scene>) -> NodeKeeper {
    let identity = NodeIdentity { name: "n".into(), hostname: "n".into(), max_pods: 110, ..NodeIdentity::default() };
    let machine = Machine { cpus: 2, memory: 8 << 30, boot_id: "second".into(), ..Machine::default() };
    let seconds = AtomicI64::new(1000);
    let clock = Arc::new(move || Timestamp::from_second(seconds.fetch_add(1, Ordering::Relaxed)).expect("a time"));
    let options = NodeOptions {
        random: Arc::new(|| 0.5),
        labels: vec!["rack=7".parse().expect("a label")],
        taints: vec![super::super::DEFAULT_TAINT.parse().expect("a taint")],
        provider_id: Some("lab://n".into()),
        ..NodeOptions::new(identity, machine, instance.to_owned(), clock)
    };
    NodeKeeper::new(api.client(), options, OwnNode::default(), Arc::clone(scene) as _, Arc::clone(&scene.events) as _)
}

/// Keeps the node for this long.
async fn keep(keeper: &NodeKeeper, seconds: u64) -> Result<(), NameTaken> {
    let stop = CancellationToken::new();
    let ends = async {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        stop.cancel();
    };
    tokio::join!(keeper.keep(&stop), ends).0
}

// upstream: nodestatus/TestRegisterWithApiServerWithTaint
// upstream: nodestatus/TestTryRegisterWithApiServer/success case - new node
#[tokio::test(start_paused = true)]
async fn a_new_node_is_made_whole() {
    let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
    keep(&keeper(&api, "a", &scene), 5).await.expect("kept");
    let node = api.get(NODE).expect("registered");
    assert_eq!(node["metadata"]["labels"]["rack"], "7");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n");
    assert_eq!(node["metadata"]["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"], "true");
    assert_eq!(
        node["spec"],
        json!({"providerID": "lab://n", "taints": [{"effect": "NoSchedule", "key": "imagelet.dev/node"}]})
    );
    let ready = node["status"]["conditions"].as_array().expect("conditions").last().expect("one");
    assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("True")));
    assert_eq!(api.get(LEASE).expect("renewed")["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
}

// upstream: nodestatus/TestTryRegisterWithApiServer/create failed
#[tokio::test(start_paused = true)]
async fn registration_is_tried_until_the_server_takes_it() {
    let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
    for code in [500, 429, 503, 401, 404] {
        api.fail("POST /nodes", code);
    }
    keep(&keeper(&api, "a", &scene), 30).await.expect("kept");
    assert!(api.get(NODE).is_some());
    assert_eq!(api.count("POST /nodes"), 6);
}

// upstream: nodestatus/TestRegisterWithApiServer
// upstream: nodestatus/TestUpdateExistingNodeStatus
#[tokio::test(start_paused = true)]
async fn a_node_that_exists_is_reconciled() {
    let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
    api.put(NODE, json!({
        "metadata": {"name": "n", "uid": "old", "labels": {"kubernetes.io/hostname": "old", "mine": "stays", "rack": "1"}},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "KernelDeadlock", "status": "False"}]},
    }));
    keep(&keeper(&api, "a", &scene), 60).await.expect("kept: no other renews the Lease");
    let node = api.get(NODE).expect("there");
    let labels = &node["metadata"]["labels"];
    assert_eq!(
        (&labels["kubernetes.io/hostname"], &labels["mine"], &labels["rack"]),
        (&json!("n"), &json!("stays"), &json!("1"))
    );
    assert_eq!(node["spec"], json!({"unschedulable": true}), "taints and providerID are given at creation");
    assert_eq!(
        (&node["metadata"]["uid"], &node["metadata"]["annotations"]["imagelet.dev/instance"]),
        (&json!("old"), &json!("a"))
    );
    let kinds: Vec<&Value> =
        node["status"]["conditions"].as_array().expect("conditions").iter().map(|c| &c["type"]).collect();
    assert_eq!(kinds, ["KernelDeadlock", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
}

#[tokio::test(start_paused = true)]
async fn of_two_that_start_together_one_ends() {
    let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
    let (one, other) = (keeper(&api, "a", &scene), keeper(&api, "b", &scene));
    let (first, second) = tokio::join!(keep(&one, 120), keep(&other, 120));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    let taken = first.and(second).expect_err("one of them");
    let winner = api.get(LEASE).expect("kept")["metadata"]["annotations"]["imagelet.dev/instance"].clone();
    assert_eq!(taken.holder, format!("the imagelet {}", winner.as_str().expect("a name")));
    assert_eq!(api.get(NODE).expect("kept")["metadata"]["annotations"]["imagelet.dev/instance"], winner);
}

// upstream: nodestatus/TestTryRegisterWithApiServer/success case - existing node - create forbidden - no change in CMAD
// upstream: nodestatus/TestTryRegisterWithApiServer/get existing node failed
// upstream: nodestatus/TestTryRegisterWithApiServer/update existing node failed
#[tokio::test(start_paused = true)]
async fn a_node_that_exists_is_found_whatever_the_server_answers_first() {
    for (faults, creations) in [
        (&[("POST /nodes", 403)][..], 1),
        (&[("GET /nodes/n", 409)], 2),
        (&[("PATCH /nodes/n", 409)], 2),
        (&[("POST /nodes", 403), ("GET /nodes/n", 500)], 2),
    ] {
        let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
        api.put(NODE, json!({"metadata": {"name": "n", "annotations": {"imagelet.dev/instance": "a"}}}));
        for (request, code) in faults {
            api.fail(request, *code);
        }
        keep(&keeper(&api, "a", &scene), 5).await.expect("kept");
        assert_eq!(api.count("POST /nodes"), creations, "{faults:?}");
        assert_eq!(api.get(NODE).expect("there")["metadata"]["labels"]["kubernetes.io/hostname"], "n", "{faults:?}");
    }
}

// upstream: nodestatus/TestMachineInfo/node reboot event is recorded
#[tokio::test(start_paused = true)]
async fn a_reboot_is_reported_once() {
    for (before, want) in [("first", 1), ("second", 0), ("", 0)] {
        let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
        let status = json!({"nodeInfo": {
            "architecture": "", "bootID": before, "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
        }});
        api.put(
            NODE,
            json!({"metadata": {"name": "n", "annotations": {"imagelet.dev/instance": "a"}}, "status": status}),
        );
        api.fail("PATCH /status", 500);
        keep(&keeper(&api, "a", &scene), 45).await.expect("kept");
        let events = scene.events.events().into_iter().map(|numbered| numbered.event);
        let told: Vec<String> = events.filter(|event| event.reason == "Rebooted").map(|event| event.message).collect();
        assert_eq!(told.len(), want, "{before}: {told:?}");
        assert!(told.iter().all(|text| text == "Node n has been rebooted, boot id: second"), "{told:?}");
    }
}

// upstream: nodestatus/TestIsUpdateStatusPeriodExpired/not expired and no delay
// upstream: nodestatus/TestIsUpdateStatusPeriodExpired/not expired
// upstream: nodestatus/TestIsUpdateStatusPeriodExpired/expired
// upstream: nodestatus/TestUpdateNodeStatusWithLease
#[tokio::test(start_paused = true)]
async fn a_status_is_written_when_it_changed_or_after_five_minutes() {
    let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
    let kept = keeper(&api, "a", &scene);
    let stop = CancellationToken::new();
    let story = async {
        let after = async |seconds| {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            api.count("PATCH /status")
        };
        assert_eq!(after(200).await, 0, "as it was created");
        scene.images.store(2, Ordering::Relaxed);
        assert_eq!(after(15).await, 1, "an image came");
        assert_eq!(after(250).await, 1);
        assert_eq!(after(60).await, 2, "five minutes later");
        stop.cancel();
    };
    let (kept, ()) = tokio::join!(kept.keep(&stop), story);
    kept.expect("kept");
    let node = api.get(NODE).expect("there");
    assert_eq!(
        node["status"]["images"],
        json!([{"names": ["i:1"], "sizeBytes": 1}, {"names": ["i:0"], "sizeBytes": 0}])
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_server_gets_no_newer_fields() {
    let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
    api.refuse_field("runtimeHandlers");
    api.put(NODE, json!({"metadata": {"name": "n", "annotations": {"imagelet.dev/instance": "a"}}}));
    keep(&keeper(&api, "a", &scene), 45).await.expect("kept");
    let node = api.get(NODE).expect("there");
    assert!(node["status"]["nodeInfo"]["containerRuntimeVersion"] == "containerd://1.7", "{node:#}");
    assert_eq!(node["status"]["runtimeHandlers"], Value::Null);
    assert_eq!(api.count("PATCH /status"), 2, "refused once, then without");
}

// upstream: nodestatus/TestUpdateNodeStatusError
#[tokio::test(start_paused = true)]
async fn a_status_that_could_not_be_written_is_written_later() {
    let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
    let kept = keeper(&api, "a", &scene);
    for _ in 0..3 {
        api.fail("PATCH /status", 500);
    }
    api.fail("PATCH /status", 409);
    scene.images.store(1, Ordering::Relaxed);
    api.put(NODE, json!({"metadata": {"name": "n", "annotations": {"imagelet.dev/instance": "a"}}}));
    keep(&kept, 60).await.expect("kept");
    assert_eq!(api.get(NODE).expect("there")["status"]["images"][0]["names"][0], "i:0");
}

#[tokio::test(start_paused = true)]
async fn the_own_node_is_known_once_its_name_is_ours() {
    let (api, scene) = (FakeServer::new(true), Arc::new(Scene::default()));
    api.put(NODE, json!({"metadata": {"name": "n", "annotations": {"imagelet.dev/instance": "b"}}}));
    let kept = keeper(&api, "a", &scene);
    let stop = CancellationToken::new();
    let story = async {
        // The Lease of the other installation may still appear. Until the name is ours, no pod is admitted by the Node.
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(kept.own.get(), None);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let name = |label: &str| kept.own.get().and_then(|node| node.metadata.labels?.get(label).cloned());
        assert_eq!(name("kubernetes.io/hostname").as_deref(), Some("n"));
        // Changes by other clients are seen, and one watch is enough.
        let mut node = api.get(NODE).expect("there");
        node["metadata"]["labels"]["rack"] = json!("8");
        api.put(NODE, node);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(name("rack").as_deref(), Some("8"));
        assert_eq!(api.count("WATCH /nodes"), 1);
        api.remove(NODE);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(kept.own.get(), None, "deleted by somebody");
        stop.cancel();
    };
    let (kept, ()) = tokio::join!(kept.keep(&stop), story);
    kept.expect("kept");
}
