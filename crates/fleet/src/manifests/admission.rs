//! Admission policies: RBAC gives every node the right to write reports, and these policies limit it to the node's own. They need
//! Kubernetes 1.30 or newer.

use serde_json::{Value, json};

use super::names::{CONTROLLER, NAMESPACE, NODE, cluster_metadata};

const API: &str = "admissionregistration.k8s.io/v1";
const REPORTS: &str = "imagelet-fleet-reports";
const STATUSES: &str = "imagelet-fleet-statuses";

pub(super) fn objects() -> Vec<Value> {
    let node_name = "authentication.kubernetes.io/node-name";
    let own = format!(
        "request.userInfo.username == 'system:node:' + object.metadata.name || \
         (request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{NODE}' && \
         has(request.userInfo.extra) && '{node_name}' in request.userInfo.extra && \
         request.userInfo.extra['{node_name}'] == [object.metadata.name])"
    );
    let controller = format!("request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{CONTROLLER}'");
    let mut objects = policy(
        REPORTS,
        (&["nodeimages", "nodeimages/status"], &["CREATE", "UPDATE"]),
        (&own, "a node writes only the NodeImages of its own name"),
    );
    objects.extend(policy(
        STATUSES,
        (&["imagesets/status", "fleets/status"], &["UPDATE"]),
        (&controller, "only the controller writes the status of an ImageSet or a Fleet"),
    ));
    objects
}

fn policy(name: &str, (resources, operations): (&[&str], &[&str]), (rule, message): (&str, &str)) -> Vec<Value> {
    let rules = json!({
        "apiGroups": ["imagelet.dev"], "apiVersions": ["*"], "operations": operations, "resources": resources,
    });
    vec![
        json!({
            "apiVersion": API, "kind": "ValidatingAdmissionPolicy", "metadata": cluster_metadata(name),
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rules]},
                "validations": [{"expression": rule, "message": message, "reason": "Forbidden"}],
            },
        }),
        json!({
            "apiVersion": API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": cluster_metadata(name),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}
