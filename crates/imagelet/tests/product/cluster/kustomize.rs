//! The kustomize base of packaging/kustomize, on a real API server: it is accepted unchanged, its DaemonSet runs on every node, and
//! its account has no permissions. `scripts/package-tests.sh` runs its pod.

use std::path::Path;

use serde_json::json;

use crate::support::control_plane::ControlPlane;
use crate::support::network::enter_own_network;

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kustomize_base_runs_on_every_node_without_rights() {
    enter_own_network();
    let plane = ControlPlane::with_managers();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kustomize");
    let base = base.to_str().expect("a path of text");
    plane.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "imagelet"}}));
    let dry = plane.kubectl(&["apply", "--dry-run=server", "-k", base]);
    assert!(dry.contains("daemonset.apps/imagelet created (server dry run)"), "{dry}");

    plane.kubectl(&["apply", "-k", base]);
    // A node without a kubelet, tainted so that nothing else is scheduled to it.
    plane.apply(&json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "one", "labels": {"kubernetes.io/os": "linux"}},
        "spec": {"taints": [{"key": "anything", "effect": "NoExecute"}]},
    }));
    let name = ["-n", "imagelet", "daemonset", "imagelet"];
    plane.until_object(&name, "the node is to have a pod", |set| set["status"]["currentNumberScheduled"] == 1);
    let pods = plane.get(&["-n", "imagelet", "pods"]);
    let pod = &pods["items"][0]["spec"];
    assert_eq!(pod["containers"][0]["image"], "localhost/imagelet:0.3.0", "{pods}");
    assert_eq!(pod["serviceAccountName"], "imagelet", "{pods}");
    let volumes = pod["volumes"].as_array().expect("volumes");
    assert!(
        volumes.iter().all(|volume| volume["secret"].is_null() && volume["projected"].is_null()),
        "no token: {pods}"
    );

    let account = "--as=system:serviceaccount:imagelet:imagelet";
    for asked in [["get", "pods"], ["get", "secrets"], ["list", "nodes"]] {
        let answer = plane.try_kubectl(&["auth", "can-i", asked[0], asked[1], "-n", "imagelet", account]);
        assert_eq!((answer.code, answer.stdout.trim()), (Some(1), "no"), "{asked:?}: {answer:?}");
    }
}
