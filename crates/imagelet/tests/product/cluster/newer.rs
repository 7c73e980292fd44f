//! Scenes about what newer servers have: streaming lists, generations of pods, restartable init containers, admission policies. They ask the
//! server whether it has it, and say what an old one leaves out.

use serde_json::{Value, json};

use crate::support::cluster::{Namespace, left_out};
use crate::support::node::{FOREVER, NODE, container_status, is};

/// The node's pods are received as one streaming list, without a separate list; from older servers, by a list and a watch.
pub(super) fn streaming_lists(scene: &Namespace<'_>) {
    let plane = &scene.cluster.plane;
    scene.running("streamed");
    let field = |request: &Value, name: &str| request["objectRef"][name].as_str().unwrap_or_default().to_owned();
    let requests = plane.requests_of_nodes();
    let of_pods = |verb: &str, part: &str| {
        let fits = |request: &&Value| {
            request["verb"] == verb
                && field(request, "resource") == "pods"
                && request["requestURI"].as_str().is_some_and(|uri| uri.contains(part))
                && request["responseStatus"]["code"] == 200
        };
        requests.iter().filter(fits).count()
    };
    let initial = "sendInitialEvents=true";
    if of_pods("watch", initial) == 0 {
        assert!(plane.version() < (1, 34), "a server of this age streams lists");
        assert_eq!(of_pods("list", ""), 1, "{requests:#?}");
        return left_out(scene, "it streams no lists");
    }
    assert_eq!(of_pods("list", ""), 0, "{requests:#?}");
}

/// A change of a pod is seen in its status.
pub(super) fn generations(scene: &Namespace<'_>) {
    let first = scene.running("changed");
    if first["metadata"]["generation"].is_null() {
        return left_out(scene, "its pods have no generation");
    }
    let observed = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let ours = conditions.filter(|condition| condition["type"] != "PodScheduled");
        let mut all: Vec<Value> = ours.map(|condition| condition["observedGeneration"].clone()).collect();
        all.push(pod["status"]["observedGeneration"].clone());
        all
    };
    let are = |pod: &Value, generation: u64| observed(pod).iter().all(|observed| *observed == generation);
    assert_eq!(first["metadata"]["generation"], 1);
    assert!(are(&first, 1), "{:#}", first["status"]);
    let before = container_status(&first, "main").expect("a status")["containerID"].clone();
    let toleration = json!({"spec": {"tolerations": [{"key": "example.com/changed", "operator": "Exists"}]}});
    scene.kubectl(&["patch", "pod", "changed", "-p", &toleration.to_string()]);
    let second = scene.until(&["pod", "changed"], "its second generation is observed", |pod| are(pod, 2));
    assert_eq!(second["metadata"]["generation"], 2);
    assert_eq!(container_status(&second, "main").expect("a status")["containerID"], before, "it ran on");
}

/// A Job whose pod has a sidecar: it starts before the container, is restarted when it ends, and does not keep the Job from ending.
pub(super) fn sidecars(scene: &Namespace<'_>) {
    if scene.cluster.plane.version() < (1, 28) {
        return left_out(scene, "it drops the restart policy of containers");
    }
    let share = |name: &str, script: &str| {
        let mut container = scene.cluster.container(name, script);
        container["volumeMounts"] = json!([{"name": "work", "mountPath": "/shared"}]);
        container
    };
    let script = format!(
        "test -e /shared/once && touch /shared/twice; touch /shared/once; test -e /shared/twice || exit 1; {FOREVER}"
    );
    let mut side = share("side", &script);
    side["restartPolicy"] = json!("Always");
    let main = share("main", "test -e /shared/once || exit 1; until test -e /shared/twice; do sleep 0.1; done");
    let pod = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "initContainers": [side],
                     "containers": [main], "volumes": [{"name": "work", "emptyDir": {}}]});
    scene.apply(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "helped"},
                       "spec": {"backoffLimit": 0, "template": {"spec": pod}}}));
    scene.wait(&["--for=condition=complete", "job/helped"]);
    let pods = scene.pods("job-name=helped");
    let status = |container: &str| container_status(&pods[0], container).expect("a status").clone();
    assert_eq!(status("side")["restartCount"], 1, "{:#}", pods[0]["status"]);
    assert!(status("side")["state"]["terminated"].is_object(), "it has ended: {:#}", pods[0]["status"]);
    assert_eq!(status("main")["state"]["terminated"]["exitCode"], 0);
    assert_eq!(pods[0]["status"]["phase"], "Succeeded");
}

/// A policy of the cluster that admits no mirror pods here: the local pod runs all the same, the node reports why there is no
/// mirror, and creates one when the policy is deleted.
pub(super) fn admission_policy(scene: &Namespace<'_>) {
    let (plane, node) = (&scene.cluster.plane, &scene.cluster.node);
    let kind = "validatingadmissionpolicies";
    if !plane.serves("admissionregistration.k8s.io/v1", kind) {
        return left_out(scene, "it has no admission policies");
    }
    let name = "no-mirrors.example.com";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"failurePolicy": "Fail",
                 "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
                 "validations": [{"expression": "!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({})) && !object.metadata.name.startsWith('denied')",
                                  "message": "this namespace takes no such pods"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"],
                 "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.name}}}}});
    plane.apply(&policy);
    plane.apply(&binding);
    let image = node.image.as_str();
    plane.until("the policy is in force", || {
        let done = scene.try_kubectl(&["run", "denied", "--image", image, "--dry-run=server"]);
        done.code != Some(0) && done.stderr.contains("this namespace takes no such pods")
    });
    let mut local = node
        .pod("unseen", json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("main", FOREVER)]}));
    local["metadata"]["namespace"] = json!(scene.name);
    node.write("unseen.json", &local);
    node.ready("unseen");
    plane.until("the node says why there is no mirror", || {
        node.log().iter().any(|line| line.contains("this namespace takes no such pods"))
    });
    let mirror = format!("unseen-{NODE}");
    assert_ne!(scene.try_kubectl(&["get", "pod", &mirror]).code, Some(0));
    // A pod of the server that the policy allows is not touched by it.
    scene.running("allowed");
    let before = node.running("unseen/main").id;
    plane.kubectl(&["delete", kind, name]);
    plane.kubectl(&["delete", "validatingadmissionpolicybindings", name]);
    scene.until(&["pod", &mirror], "there is a mirror", |pod| is(pod, "Ready"));
    assert_eq!(node.running("unseen/main").id, before);
    node.remove("unseen.json");
    scene.wait(&["--for=delete", &format!("pod/{mirror}")]);
}
