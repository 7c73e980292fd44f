//! Tests of a Node's status: the cases of the kubelet's setters.

use cri_api::{RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures};
use image_manager::gc::NodeImage;
use serde_json::{Value, json};

use super::super::RuntimeReport;
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_millisecond(second * 1000 + 250).expect("a time")
}

fn identity() -> NodeIdentity {
    NodeIdentity {
        name: "n".into(),
        hostname: "host".into(),
        addresses: vec!["10.0.0.7".parse().expect("an address"), "fd00::7".parse().expect("an address")],
        version: "v1.36.0+imagelet.1".into(),
        port: 10250,
        max_pods: 110,
    }
}

fn machine() -> Machine {
    Machine {
        cpus: 2,
        memory: 8_000_000 << 10,
        swap: Some(1 << 30),
        machine_id: "m".into(),
        system_uuid: "s".into(),
        boot_id: "b".into(),
        kernel_version: "6.1".into(),
        os_image: "Debian".into(),
    }
}

fn ready() -> RuntimeStatus {
    let condition = |kind: &str| Condition { kind: kind.to_owned(), status: true, ..Condition::default() };
    RuntimeStatus { conditions: vec![condition("RuntimeReady"), condition("NetworkReady")], ..RuntimeStatus::default() }
}

fn seen(runtime: RuntimeStatus) -> Observed {
    Observed {
        runtime: RuntimeReport { version: Some("containerd://1.7.24".into()), status: Some(Ok(runtime)) },
        images: Some(vec![NodeImage { names: vec!["r/a@sha256:1".into(), "r/a:1".into()], size_bytes: 9 }]),
        disk_pressure: Some(false),
        disk: Some(Disk { capacity: 100 << 20, kept_free: 10 << 20 }),
    }
}

fn status(seen: &Observed) -> Value {
    let none = Pressures { memory: Some(false), disk: Some(false), pids: Some(false) };
    let status = node_status(&NodeStatus::default(), &identity(), &machine(), seen, none, at(60));
    serde_json::to_value(status).expect("plain data")
}

fn ready_condition(status: &Value) -> (&str, &str) {
    let all = status["conditions"].as_array().expect("conditions");
    let ready = all.iter().find(|condition| condition["type"] == "Ready").expect("Ready");
    (ready["status"].as_str().expect("a status"), ready["message"].as_str().expect("a message"))
}

// upstream: nodestatus/TestMachineInfo/machine identifiers, basic capacity and allocatable
// upstream: nodestatus/TestMachineInfo/allocatable should equal capacity minus reservations
// upstream: nodestatus/TestMachineInfo/ephemeral storage is reflected in capacity and allocatable
// upstream: nodestatus/TestMachineInfo/with swap info
// upstream: nodestatus/TestVersionInfo/versions set in node info
// upstream: nodestatus/TestVersionInfo/DisableNodeKubeProxyVersion FeatureGate enable, versions set in node info
// upstream: nodestatus/TestImages/repo digests and tags both show up in image names
// upstream: nodestatus/TestDaemonEndpoints/daemon endpoints with specific port
#[test]
fn a_status_has_what_a_kubelet_reports() {
    let mut status = status(&seen(ready()));
    let conditions = status.as_object_mut().expect("a map").remove("conditions").expect("conditions");
    let want = json!({
        "addresses": [
            {"address": "10.0.0.7", "type": "InternalIP"},
            {"address": "fd00::7", "type": "InternalIP"},
            {"address": "host", "type": "Hostname"},
        ],
        "capacity": {"cpu": "2", "ephemeral-storage": "102400Ki", "memory": "8000000Ki", "pods": "110"},
        "allocatable": {"cpu": "2", "ephemeral-storage": "94371840", "memory": "7897600Ki", "pods": "110"},
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": [{"names": ["r/a@sha256:1", "r/a:1"], "sizeBytes": 9}],
        "nodeInfo": {
            "architecture": architecture(), "bootID": "b", "containerRuntimeVersion": "containerd://1.7.24",
            "kernelVersion": "6.1", "kubeProxyVersion": "", "kubeletVersion": "v1.36.0+imagelet.1", "machineID": "m",
            "operatingSystem": "linux", "osImage": "Debian", "swap": {"capacity": 1_073_741_824}, "systemUUID": "s",
        },
    });
    assert_eq!(status, want);
    let kinds: Vec<&Value> =
        conditions.as_array().expect("a list").iter().map(|condition| &condition["type"]).collect();
    assert_eq!(kinds, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
    assert_eq!(conditions[3]["lastHeartbeatTime"], "1970-01-01T00:01:00Z", "whole seconds");
}

#[test]
fn handlers_and_features_are_those_of_the_runtime() {
    let handler = |name: &str, read_only, namespaces| RuntimeHandler {
        name: name.to_owned(),
        features: RuntimeHandlerFeatures { recursive_read_only_mounts: read_only, user_namespaces: namespaces },
    };
    let runtime = RuntimeStatus {
        handlers: vec![handler("runc", true, false), handler("", false, true)],
        features: RuntimeFeatures { supplemental_groups_policy: true, ..RuntimeFeatures::default() },
        ..ready()
    };
    let status = status(&seen(runtime));
    let want = json!([
        {"name": "", "features": {"recursiveReadOnlyMounts": false, "userNamespaces": true}},
        {"name": "runc", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": false}},
    ]);
    assert_eq!(status["runtimeHandlers"], want);
    assert_eq!(status["features"], json!({"supplementalGroupsPolicy": true}));
    let old: NodeStatus = serde_json::from_value(status).expect("a status");
    let new = node_status(&old, &identity(), &machine(), &seen(ready()), Pressures::default(), at(60));
    assert_eq!((new.runtime_handlers, new.features), (None, None), "a runtime that reports none any more");
}

// upstream: nodestatus/TestUpdateNodeStatusWithRuntimeStateError
// upstream: nodestatus/TestReadyCondition/new, not ready: missing capacities
#[test]
fn a_node_that_cannot_run_pods_says_why() {
    let fails = |kind: &str, reason: &str, message: &str| {
        let mut runtime = ready();
        let found = runtime.conditions.iter_mut().find(|condition| condition.kind == kind).expect("there");
        (found.status, found.reason, found.message) = (false, reason.to_owned(), message.to_owned());
        seen(runtime)
    };
    let absent = RuntimeStatus { conditions: Vec::new(), ..ready() };
    let down = |status| Observed { runtime: RuntimeReport { version: None, status }, ..seen(ready()) };
    for (seen, want) in [
        (seen(ready()), ("True", "kubelet is posting ready status")),
        (
            fails("NetworkReady", "NetworkPluginNotReady", "cni plugin not initialized"),
            (
                "False",
                "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized",
            ),
        ),
        (
            fails("RuntimeReady", "R", "m"),
            ("False", "container runtime not ready: RuntimeReady=false reason:R message:m"),
        ),
        (
            seen(absent),
            (
                "False",
                "[container runtime not ready: the runtime does not report RuntimeReady, container runtime network not ready: the runtime does not report NetworkReady]",
            ),
        ),
        (down(None), ("False", "container runtime status check may not have completed yet")),
        (down(Some(Err("no socket".into()))), ("False", "container runtime is down: no socket")),
        (Observed { disk: None, ..seen(ready()) }, ("False", "missing node capacity for resources: ephemeral-storage")),
    ] {
        let status = status(&seen);
        assert_eq!(ready_condition(&status), want);
    }
}

// upstream: nodestatus/TestMachineInfo/on failure to get machine info, allocatable and capacity for memory and cpu are set to 0, pods to maxPods
// upstream: nodestatus/TestVersionInfo/error getting runtime version results in Unknown runtime
// upstream: nodestatus/TestVersionInfo/DisableNodeKubeProxyVersion FeatureGate enable, KubeProxyVersion will be cleared if it is set.
#[test]
fn values_never_known_are_zero_or_unknown() {
    let blind = Observed { runtime: RuntimeReport { version: None, status: None }, ..seen(ready()) };
    let mut old = NodeStatus::default();
    old.node_info.get_or_insert_default().kube_proxy_version = "v1".into();
    let made = node_status(&old, &identity(), &Machine::default(), &blind, Pressures::default(), at(60));
    let made = serde_json::to_value(made).expect("plain data");
    for amounts in ["capacity", "allocatable"] {
        let of = |name: &str| made[amounts][name].as_str().expect("an amount").to_owned();
        assert_eq!((of("cpu"), of("memory"), of("pods")), ("0".into(), "0Ki".into(), "110".into()), "{amounts}");
    }
    let info = &made["nodeInfo"];
    assert_eq!((&info["containerRuntimeVersion"], &info["kubeProxyVersion"]), (&json!("Unknown"), &json!("")));
    // The runtime that was there before is not forgotten.
    old.node_info.get_or_insert_default().container_runtime_version = "containerd://1.7".into();
    let kept = node_status(&old, &identity(), &Machine::default(), &blind, Pressures::default(), at(60));
    assert_eq!(kept.node_info.expect("info").container_runtime_version, "containerd://1.7");
}

#[test]
fn values_unknown_now_keep_their_last_state() {
    let none = Pressures::default();
    let first = node_status(&NodeStatus::default(), &identity(), &machine(), &seen(ready()), none, at(60));
    let runtime = RuntimeReport { version: None, ..seen(ready()).runtime };
    let blind = Observed { images: None, disk: None, runtime, ..seen(ready()) };
    let second = node_status(&first, &identity(), &machine(), &blind, none, at(60));
    assert_eq!(second, first);
    let empty = Observed { images: Some(Vec::new()), ..seen(ready()) };
    assert_eq!(node_status(&first, &identity(), &machine(), &empty, none, at(60)).images, None);
}

// upstream: nodestatus/TestMachineInfo/negative capacity resources should be set to 0 in allocatable
// upstream: nodestatus/TestUpdateNewNodeStatusTooLargeReservation
#[test]
fn little_memory_and_disk_leave_nothing_to_pods() {
    assert_eq!(allocatable(MIN_FREE_MEMORY - 1, Disk { capacity: 5, kept_free: 6 }), (0, 0));
}
