//! The workloads: a Deployment of two controllers, and a DaemonSet next to the kubelets of the nodes.

use serde_json::{Value, json};

use super::names::{CONTROLLER, IMAGE, NODE, metadata};

/// Label of a node whose agent is a service of the machine: two agents would write one report.
const NO_DAEMONSET: &str = "imagelet.dev/no-daemonset";

fn probe(path: &str) -> Value {
    json!({"httpGet": {"path": path, "port": "metrics"}})
}

pub(super) fn controller() -> Vec<Value> {
    let name = json!({"app.kubernetes.io/name": CONTROLLER});
    let container = json!({
        "name": "controller",
        "image": IMAGE,
        "args": ["fleet", "controller", "--identity=$(POD_NAME)", "--metrics-address=0.0.0.0:9095"],
        "ports": [{"name": "metrics", "containerPort": 9095}],
        "readinessProbe": probe("/readyz"),
        "livenessProbe": probe("/livez"),
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    vec![json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(CONTROLLER),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": name},
            "template": {
                "metadata": {"labels": name},
                "spec": {
                    "serviceAccountName": CONTROLLER,
                    "priorityClassName": "system-cluster-critical",
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "containers": [container],
                },
            },
        },
    })]
}

pub(super) fn node() -> Vec<Value> {
    let name = json!({"app.kubernetes.io/name": NODE});
    let container = json!({
        "name": "imagelet",
        "image": IMAGE,
        "args": [
            "serve",
            "--config=/etc/imagelet/config.yaml",
            "--listen=unix:///run/imagelet/imagelet.sock",
            "--node-name=$(NODE_NAME)",
        ],
        "ports": [{"name": "metrics", "containerPort": 9095}],
        "readinessProbe": probe("/readyz"),
        "livenessProbe": probe("/livez"),
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            // The socket of the runtime is root's. No capability is needed.
            "runAsUser": 0, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/imagelet"},
            {"name": "runtime", "mountPath": "/run/containerd"},
            {"name": "images", "mountPath": "/var/lib/containerd", "readOnly": true},
            {"name": "state", "mountPath": "/var/lib/imagelet-fleet"},
            {"name": "socket", "mountPath": "/run/imagelet"},
        ],
    });
    vec![
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(NODE),
            "data": {"config.yaml": CONFIG},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata(NODE),
            "spec": {
                "selector": {"matchLabels": name},
                "template": {
                    "metadata": {"labels": name},
                    "spec": {
                        "serviceAccountName": NODE,
                        "priorityClassName": "system-node-critical",
                        "nodeSelector": {"kubernetes.io/os": "linux"},
                        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": NO_DAEMONSET, "operator": "DoesNotExist"}]}],
                        }}},
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [container],
                        "volumes": [
                            {"name": "config", "configMap": {"name": NODE}},
                            {"name": "runtime", "hostPath": {"path": "/run/containerd", "type": "Directory"}},
                            {"name": "images", "hostPath": {"path": "/var/lib/containerd", "type": "Directory"}},
                            {"name": "state", "hostPath": {"path": "/var/lib/imagelet-fleet", "type": "DirectoryOrCreate"}},
                            {"name": "socket", "emptyDir": {}},
                        ],
                    },
                },
            },
        }),
    ]
}

/// Configuration of the daemon of a node over the node's containerd, which pulls. The token of the service account names the node. The root
/// has the path that it has on the node, which another imagelet of the node does not use: pins in containerd have the root in their label.
const CONFIG: &str = "\
apiVersion: imagelet.dev/v1alpha1
kind: ImageletConfiguration
root: /var/lib/imagelet-fleet
imageServiceEndpoint: unix:///run/containerd/containerd.sock
pullEngine: runtime
metricsAddress: 0.0.0.0:9095
fleet:
  inCluster: true
  namespace: imagelet-fleet
";
