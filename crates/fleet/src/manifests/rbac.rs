//! Rights: the controller writes statuses of sets and the fleet, nodes write reports. No account may write a secret.

use serde_json::{Value, json};

use super::names::{CONTROLLER, NAMESPACE, NODE, cluster_metadata, metadata};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const GROUP: &str = "imagelet.dev";

pub(super) fn objects() -> Vec<Value> {
    // The workload of a node mounts directories of the node.
    let privileged = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": privileged}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(CONTROLLER)}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NODE)}),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRole", "metadata": cluster_metadata(CONTROLLER),
            "rules": [
                rule(GROUP, &["imagesets"], &["get", "list", "watch", "delete"]),
                rule(GROUP, &["fleets", "nodeimages"], &["get", "list", "watch"]),
                rule(GROUP, &["imagesets/status", "fleets/status"], &["patch"]),
                // The startup taint.
                rule("", &["nodes"], &["get", "list", "watch", "patch"]),
                rule("events.k8s.io", &["events"], &["create", "patch"]),
            ],
        }),
        binding("ClusterRoleBinding", "ClusterRole", CONTROLLER, vec![account(CONTROLLER)]),
        json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": metadata(CONTROLLER),
            "rules": [
                rule("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
                rule("", &["secrets"], &["get"]),
            ],
        }),
        binding("RoleBinding", "Role", CONTROLLER, vec![account(CONTROLLER)]),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRole", "metadata": cluster_metadata(NODE),
            "rules": [
                rule(GROUP, &["imagesets", "fleets"], &["get", "list", "watch"]),
                rule(GROUP, &["nodeimages"], &["get", "create", "patch"]),
                rule(GROUP, &["nodeimages/status"], &["patch"]),
                rule("", &["nodes"], &["get", "list", "watch"]),
            ],
        }),
        binding("ClusterRoleBinding", "ClusterRole", NODE, vec![account(NODE), group()]),
        json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": metadata(NODE),
            "rules": [rule("", &["secrets"], &["get"])],
        }),
        binding("RoleBinding", "Role", NODE, vec![account(NODE), group()]),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn binding(kind: &str, role: &str, name: &str, subjects: Vec<Value>) -> Value {
    let metadata = if kind == "RoleBinding" { metadata(name) } else { cluster_metadata(name) };
    json!({
        "apiVersion": RBAC, "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": subjects,
    })
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE})
}

/// Nodes that imagelet runs itself have the identity of a kubelet.
fn group() -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"})
}
