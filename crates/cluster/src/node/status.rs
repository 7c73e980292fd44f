//! [`node_status`]: the status of a Node from facts, as the kubelet makes it. Pure. Called by [`super::NodeKeeper`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use cri_api::{Condition, RuntimeStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures, NodeStatus, NodeSwapStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::conditions::{self, MIN_FREE_MEMORY, Pressures};
use super::labels::architecture;
use super::machine::Machine;
use super::observed::{Disk, Observed};
use super::options::NodeIdentity;

/// The version of a runtime that has not answered yet.
const UNKNOWN: &str = "Unknown";

/// Returns the current status of the node. Foreign conditions and times of changes are taken from `old`, the API server's status.
#[must_use]
pub(super) fn node_status(
    old: &NodeStatus,
    node: &NodeIdentity,
    machine: &Machine,
    seen: &Observed,
    pressures: Pressures,
    now: Timestamp,
) -> NodeStatus {
    // Kubernetes' times have whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut status = old.clone();
    status.addresses = Some(addresses(node));
    let before = old.node_info.as_ref().map(|info| info.container_runtime_version.clone());
    let before = before.filter(|version| !version.is_empty());
    let runtime = seen.runtime.version.clone().or(before).unwrap_or_else(|| UNKNOWN.to_owned());
    status.node_info = Some(system_info(node, machine, runtime));
    set_amounts(&mut status, node, machine, seen.disk);
    status.daemon_endpoints =
        Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(node.port) }) });
    if let Some(images) = &seen.images {
        status.images = (!images.is_empty()).then(|| images.iter().map(image).collect());
    }
    if let Some(Ok(runtime)) = &seen.runtime.status {
        status.runtime_handlers = runtime_handlers(runtime);
        status.features = runtime
            .features
            .supplemental_groups_policy
            .then_some(NodeFeatures { supplemental_groups_policy: Some(true) });
    }
    let problems = problems(&status, seen);
    conditions::set(status.conditions.get_or_insert_default(), pressures, &problems, now);
    status
}

/// Returns the addresses, grouped by family in the given order, and the name of the host.
fn addresses(node: &NodeIdentity) -> Vec<NodeAddress> {
    let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
    let internal = node.addresses.iter().map(|ip: &IpAddr| address("InternalIP", ip.to_string()));
    internal.chain([address("Hostname", node.hostname.clone())]).collect()
}

/// Bytes as the kubelet writes them.
fn kibibytes(bytes: u64) -> String {
    format!("{}Ki", bytes / 1024)
}

/// Memory and disk that pods may have, in bytes: all but what evictions keep free.
#[must_use]
pub fn allocatable(memory: u64, disk: Disk) -> (u64, u64) {
    (memory.saturating_sub(MIN_FREE_MEMORY), disk.capacity.saturating_sub(disk.kept_free))
}

/// Sets capacity and allocatable. Foreign resources stay, and so does the amount of a disk that could not be measured now.
fn set_amounts(status: &mut NodeStatus, node: &NodeIdentity, machine: &Machine, disk: Option<Disk>) {
    let (memory, disk_bytes) = allocatable(machine.memory, disk.unwrap_or_default());
    let both = |amount: String| (amount.clone(), amount);
    let mut set = |name: &str, (capacity, allocatable): (String, String)| {
        for (map, amount) in [(&mut status.capacity, capacity), (&mut status.allocatable, allocatable)] {
            map.get_or_insert_with(BTreeMap::new).insert(name.to_owned(), Quantity(amount));
        }
    };
    set("cpu", both(machine.cpus.to_string()));
    set("memory", (kibibytes(machine.memory), kibibytes(memory)));
    set("pods", both(node.max_pods.to_string()));
    if let Some(disk) = disk {
        set("ephemeral-storage", (kibibytes(disk.capacity), disk_bytes.to_string()));
    }
}

fn system_info(node: &NodeIdentity, machine: &Machine, runtime: String) -> NodeSystemInfo {
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: machine.boot_id.clone(),
        container_runtime_version: runtime,
        kernel_version: machine.kernel_version.clone(),
        // Nothing here knows a kube-proxy; old servers want the field.
        kube_proxy_version: String::new(),
        kubelet_version: node.version.clone(),
        machine_id: machine.machine_id.clone(),
        operating_system: "linux".to_owned(),
        os_image: machine.os_image.clone(),
        swap: machine.swap.map(|bytes| NodeSwapStatus { capacity: i64::try_from(bytes).ok() }),
        system_uuid: machine.system_uuid.clone(),
    }
}

fn image(image: &image_manager::gc::NodeImage) -> ContainerImage {
    let names = (!image.names.is_empty()).then(|| image.names.clone());
    ContainerImage { names, size_bytes: i64::try_from(image.size_bytes).ok() }
}

/// Returns the handlers of the runtime by name, or `None` if the runtime reports none.
fn runtime_handlers(runtime: &RuntimeStatus) -> Option<Vec<NodeRuntimeHandler>> {
    let mut handlers: Vec<_> = runtime.handlers.iter().collect();
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    let one = |handler: &cri_api::RuntimeHandler| NodeRuntimeHandler {
        name: Some(handler.name.clone()),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(handler.features.recursive_read_only_mounts),
            user_namespaces: Some(handler.features.user_namespaces),
        }),
    };
    (!handlers.is_empty()).then(|| handlers.into_iter().map(one).collect())
}

/// Returns the reasons for which the node is not ready, in the kubelet's words.
fn problems(status: &NodeStatus, seen: &Observed) -> Vec<String> {
    let mut problems = Vec::new();
    match &seen.runtime.status {
        None => problems.push("container runtime status check may not have completed yet".to_owned()),
        Some(Err(error)) => problems.push(format!("container runtime is down: {error}")),
        Some(Ok(status)) => {
            for (kind, begin) in [("RuntimeReady", "container runtime"), ("NetworkReady", "container runtime network")]
            {
                let condition = status.conditions.iter().find(|condition| condition.kind == kind);
                match condition {
                    Some(Condition { status: true, .. }) => {}
                    Some(Condition { reason, message, .. }) => {
                        problems.push(format!("{begin} not ready: {kind}=false reason:{reason} message:{message}"));
                    }
                    None => problems.push(format!("{begin} not ready: the runtime does not report {kind}")),
                }
            }
        }
    }
    let has = |name: &&str| status.capacity.as_ref().is_some_and(|amounts| amounts.contains_key(*name));
    let missing: Vec<&str> =
        ["cpu", "memory", "pods", "ephemeral-storage"].into_iter().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        problems.push(format!("missing node capacity for resources: {}", missing.join(", ")));
    }
    problems
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
