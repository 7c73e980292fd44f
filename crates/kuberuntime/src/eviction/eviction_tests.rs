//! Tests of the order of eviction, of limits and of messages, as tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use image_manager::gc::{EvictionCause, Signal};
use serde_json::{Value, json};

use super::disk_use::{ContainerDiskUse, DiskAmount, DiskUse, PodDiskUse};
use super::limits::exceeded_limit;
use super::messages::low_resource;
use super::rank::{Measure, rank};
use super::*;

const MIB: u64 = 1 << 20;

fn pod(name: &str, spec: &Value) -> Arc<Pod> {
    let manifest =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "n"}, "spec": spec});
    Arc::new(Pod::from_json(&manifest).expect("a pod"))
}

/// A pod with a container of a priority and a request, in MiB, that wrote so much.
fn used(name: &str, priority: i32, request: u64, mib: u64) -> PodDiskUse {
    let resources = json!({"requests": {"ephemeral-storage": format!("{request}Mi")}});
    let pod =
        pod(name, &json!({"priority": priority, "containers": [{"name": "c", "image": "x", "resources": resources}]}));
    let writable_layer = DiskAmount { bytes: mib * MIB, inodes: mib };
    let container = ContainerDiskUse { writable_layer, logs: DiskUse::default() };
    PodDiskUse { pod, containers: BTreeMap::from([("c".to_owned(), container)]), volumes: BTreeMap::new() }
}

fn cause(signal: Signal) -> EvictionCause {
    let (threshold, available) = (10 << 30, 5 << 30);
    EvictionCause { signal, threshold, available, writable_layers: true, logs_and_volumes: true }
}

fn order(mut pods: Vec<PodDiskUse>, cause: &EvictionCause) -> Vec<String> {
    rank(&mut pods, Measure::from(cause));
    pods.iter().map(|of| of.pod.metadata.name.clone()).collect()
}

#[test]
fn pods_above_their_request_go_first_then_by_priority_then_by_use() {
    let pods = || {
        vec![
            used("high-below", 100, 80, 50),
            used("low-below-a-little", 0, 100, 90),
            used("low-below-much", 0, 100, 10),
            used("high-above", 100, 10, 60),
            used("low-above-a-little", 0, 50, 60),
            used("low-above-much", 0, 10, 60),
        ]
    };
    let by_bytes = order(pods(), &cause(Signal::NodeFsAvailable));
    let expected =
        ["low-above-much", "low-above-a-little", "high-above", "low-below-a-little", "low-below-much", "high-below"];
    assert_eq!(by_bytes, expected);
    // No pod can request inodes: all pods that use some are above their request, and the largest user is first.
    let by_inodes = order(pods(), &cause(Signal::NodeFsInodesFree));
    assert_eq!(by_inodes[..3], ["low-below-a-little", "low-above-a-little", "low-above-much"]);
    assert_eq!(by_inodes[3..], ["low-below-much", "high-above", "high-below"]);
}

#[test]
fn only_what_lies_on_the_short_disk_counts() {
    let mut logs = used("logs", 0, 0, 10);
    let container = logs.containers.get_mut("c").expect("a container");
    let layer = std::mem::replace(&mut container.writable_layer, DiskAmount { bytes: MIB, inodes: 1 });
    container.logs = DiskUse::Measured(layer);
    let pods = || vec![logs.clone(), used("layer", 0, 0, 5)];
    let only = |writable_layers, logs_and_volumes| {
        let both = cause(Signal::ImageFsAvailable);
        order(pods(), &EvictionCause { writable_layers, logs_and_volumes, ..both })
    };
    assert_eq!(only(true, true), ["logs", "layer"]);
    assert_eq!(only(true, false), ["layer", "logs"]);
    assert_eq!(only(false, true), ["logs", "layer"]);
}

#[test]
fn the_message_names_containers_above_their_request() {
    let message = low_resource(&cause(Signal::NodeFsAvailable), &used("a", 0, 10, 60));
    assert_eq!(
        message,
        "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 5Gi. Container c was using 60Mi, \
         request is 10Mi, has larger consumption of ephemeral-storage. "
    );
    let message = low_resource(&cause(Signal::NodeFsAvailable), &used("a", 0, 80, 60));
    assert!(message.ends_with("available: 5Gi. "), "{message}");
    let message = low_resource(&cause(Signal::ImageFsInodesFree), &used("a", 0, 0, 60));
    assert!(message.starts_with("The node was low on resource: inodes. ") && message.ends_with("5Gi. "), "{message}");
}

#[test]
fn limits_of_volumes_pods_and_containers() {
    let limit = |mib: u64| json!({"limits": {"ephemeral-storage": format!("{mib}Mi")}});
    let volume = json!([{"name": "v", "emptyDir": {"sizeLimit": "100Mi"}}, {"name": "free", "emptyDir": {}}]);
    let container = |name: &str, resources: &Value| json!({"name": name, "image": "x", "resources": resources});
    let open = pod("p", &json!({"volumes": volume, "containers": [container("c", &json!({}))]}));
    let bound = pod("p", &json!({"containers": [container("c", &limit(100)), container("d", &json!({}))]}));
    // Volume v, volume free, writable layer of c, logs of c, writable layer of d, in MiB.
    let cases = [
        (&open, [100, 900, 900, 900, 0], None),
        (&open, [101, 0, 0, 0, 0], Some("Usage of EmptyDir volume \"v\" exceeds the limit \"100Mi\". ")),
        (&bound, [0, 0, 60, 40, 0], None),
        (
            &bound,
            [0, 0, 10, 10, 81],
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 100Mi. "),
        ),
        (
            &bound,
            [0, 0, 60, 41, 0],
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 100Mi. "),
        ),
    ];
    let amount = |mib: u64| DiskAmount { bytes: mib * MIB, inodes: 1 };
    for (pod, [v, free, layer, logs, other], expected) in cases {
        let container =
            |layer, logs| ContainerDiskUse { writable_layer: amount(layer), logs: DiskUse::Measured(amount(logs)) };
        let of = PodDiskUse {
            pod: Arc::clone(pod),
            containers: [("c".to_owned(), container(layer, logs)), ("d".to_owned(), container(other, 0))].into(),
            volumes: [("v", v), ("free", free)]
                .map(|(name, mib)| (name.to_owned(), DiskUse::Measured(amount(mib))))
                .into(),
        };
        assert_eq!(exceeded_limit(&of).as_deref(), expected, "{v} {free} {layer} {logs} {other}");
    }
    // Two limits: together they hold, and the container's own does not.
    let two = pod("p", &json!({"containers": [container("c", &limit(50)), container("d", &limit(100))]}));
    let containers = [("c".to_owned(), ContainerDiskUse { writable_layer: amount(51), logs: DiskUse::default() })];
    let of = PodDiskUse { pod: two, containers: containers.into(), volumes: BTreeMap::new() };
    let message = exceeded_limit(&of).expect("exceeded");
    assert_eq!(message, "Container c exceeded its local ephemeral storage limit \"50Mi\". ");
}

fn unmeasurable(kind: &str) -> DiskUse {
    DiskUse::Unmeasurable(format!("{kind}: cannot open a directory 3 levels below the top: Input/output error"))
}

#[test]
fn what_cannot_be_measured_exceeds_every_limit() {
    let resources = json!({"limits": {"ephemeral-storage": "1Gi"}});
    let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "100Mi"}}, {"name": "free", "emptyDir": {}}]);
    let open = pod("p", &json!({"volumes": volumes, "containers": [{"name": "c", "image": "x"}]}));
    let bound =
        pod("p", &json!({"volumes": volumes, "containers": [{"name": "c", "image": "x", "resources": resources}]}));
    let limit = "could not be measured and counts as more than the limit \"100Mi\": v: cannot open a directory";
    let total = "Pod ephemeral local storage usage could not be measured and counts as more than the total limit of containers 1Gi: ";
    let cases = [
        (&open, "v", Some(format!("Usage of EmptyDir volume \"v\" {limit}"))),
        (&bound, "v", Some(format!("Usage of EmptyDir volume \"v\" {limit}"))),
        // No limit is that of this volume or of these logs alone.
        (&open, "free", None),
        (&open, "logs", None),
        (&bound, "free", Some(format!("{total}free: cannot open"))),
        (&bound, "logs", Some(format!("{total}logs: cannot open"))),
    ];
    for (pod, tree, expected) in cases {
        let use_of = |name: &str| if name == tree { unmeasurable(name) } else { DiskUse::default() };
        let of = PodDiskUse {
            pod: Arc::clone(pod),
            containers: [("c".to_owned(), ContainerDiskUse { logs: use_of("logs"), ..ContainerDiskUse::default() })]
                .into(),
            volumes: ["v", "free"].map(|name| (name.to_owned(), use_of(name))).into(),
        };
        let message = exceeded_limit(&of);
        match expected {
            None => assert_eq!(message, None, "{tree}"),
            Some(start) => {
                let message = message.expect(tree);
                assert!(message.starts_with(&start) && message.ends_with("error. "), "{tree}: {message}");
            }
        }
    }
}

#[test]
fn what_cannot_be_measured_is_evicted_first_where_it_counts() {
    let mut dark = used("dark", 100, 80, 1);
    dark.volumes.insert("v".to_owned(), unmeasurable("volume \"v\""));
    let pods = || vec![used("above", 0, 10, 60), dark.clone(), used("below", 0, 80, 60)];
    let both = cause(Signal::NodeFsAvailable);
    assert_eq!(order(pods(), &both), ["dark", "above", "below"]);
    // The volumes are on another disk than the short one.
    let layers = EvictionCause { logs_and_volumes: false, ..cause(Signal::ImageFsAvailable) };
    assert_eq!(order(pods(), &layers), ["above", "below", "dark"]);
    let message = low_resource(&both, &dark);
    assert!(message.ends_with("usage could not be measured: volume \"v\": cannot open a directory 3 levels below the top: Input/output error. "), "{message}");
}

#[test]
fn local_and_system_pods_are_never_evicted() {
    let plain = pod("p", &json!({"containers": []}));
    assert!(!is_critical(&plain));
    for (source, critical) in [("api", false), ("file", true), ("http", true)] {
        let mut of = Pod::clone(&plain);
        of.metadata.annotations.insert(CONFIG_SOURCE_ANNOTATION.to_owned(), source.to_owned());
        assert_eq!(is_critical(&of), critical, "{source}");
    }
    for (priority, critical) in [(1_000_000_000, false), (2_000_000_000, true), (2_000_001_000, true)] {
        let mut of = Pod::clone(&plain);
        of.spec.priority = Some(priority);
        assert_eq!(is_critical(&of), critical, "{priority}");
    }
}
