//! Images that cannot be pulled, or must not: the pod's status, and the start once the cause has ended. The other pods of the node
//! are not affected.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::containerd_config;
use crate::support::manifests::docker_config;
use crate::support::node::{FOREVER, NAMESPACE, Node, container_status};
use crate::support::pods::idle_image;
use crate::support::registry::GuardedRegistry;

/// A pod with one container of this image.
fn pod_of(node: &Node, name: &str, image: &str, policy: &str) -> Value {
    let mut container = node.container("main", FOREVER);
    container["image"] = json!(image);
    container["imagePullPolicy"] = json!(policy);
    node.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [container]}))
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn failing_pull_backs_off_and_recovers_with_the_registry() {
    let mut node = Node::new();
    let image = idle_image(&node.scene, &[node.scene.file_layer("late", "late", crate::support::Packing::Gzip)]);
    let name = node.scene.registry.push(&node.scene.layout, &image, "team/late:1");
    node.scene.registry.stop();
    node.write("late.json", &pod_of(&node, "late", &name, "IfNotPresent"));
    node.write("good.json", &pod_of(&node, "good", &node.image, "IfNotPresent"));
    node.write("always.json", &pod_of(&node, "always", &node.image, "Always"));
    node.ready("good");
    let message = node.waits("late", "main", "ImagePullBackOff");
    assert!(message.starts_with(&format!("Back-off pulling image \"{name}\"")), "{message}");
    assert_eq!(node.pods()["late"]["status"]["phase"], "Pending");
    // Present or not: a pod that always pulls waits as well.
    node.waits("always", "main", "ImagePullBackOff");
    let reasons: Vec<String> = node.events("late").into_iter().map(|(reason, _)| reason).collect();
    for reason in ["Pulling", "Failed", "BackOff"] {
        assert!(reasons.iter().any(|r| r == reason), "{reason} is not in {reasons:?}");
    }
    node.scene.registry.start_again();
    let pod = node.ready("late");
    assert_eq!(container_status(&pod, "main").expect("a status")["restartCount"], 0);
    node.ready("always");
    assert!(
        node.events("late").iter().any(|(_, text)| text.starts_with(&format!("Successfully pulled image \"{name}\"")))
    );
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn waiting_reason_is_reported_and_cleared_with_its_cause() {
    let node = Node::new();
    let never = node.scene.registry.name("team/never:1");
    node.write("never.json", &pod_of(&node, "never", &never, "Never"));
    node.write("invalid.json", &pod_of(&node, "invalid", "Not/A//Name", "IfNotPresent"));
    let absent = node.scene.registry.name("team/absent:1");
    node.write("absent.json", &pod_of(&node, "absent", &absent, "IfNotPresent"));
    let container = |container: Value| json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
    let mut wants = node.container("main", FOREVER);
    wants["env"] = json!([{"name": "GREETING",
        "valueFrom": {"configMapKeyRef": {"name": "greetings", "key": "morning"}}}]);
    node.write("wants.json", &node.pod("wants", container(wants)));
    let mut missing = node.container("main", "");
    missing["command"] = json!(["/bin/no-such-program"]);
    node.write("missing.json", &node.pod("missing", container(missing)));
    let mut root = node.container("main", FOREVER);
    root["securityContext"] = json!({"runAsNonRoot": true});
    node.write("root.json", &node.pod("root", container(root)));

    let message = node.waits("never", "main", "ErrImageNeverPull");
    assert_eq!(message, format!("Container image \"{never}\" is not present with pull policy of Never"));
    node.waits("invalid", "main", "InvalidImageName");
    let message = node.waits("wants", "main", "CreateContainerConfigError");
    assert_eq!(message, "configmap \"greetings\" not found");
    let message = node.waits("root", "main", "CreateContainerConfigError");
    assert!(message.starts_with("container has runAsNonRoot and image will run as root (pod: "), "{message}");
    let pod = node.until("missing", "its program is not found", |pod| {
        let status = container_status(pod, "main")?;
        // At first it waits because of this, and then because it has to wait.
        ["state", "lastState"]
            .iter()
            .any(|state| status[state].to_string().contains("no-such-program"))
            .then(|| pod.clone())
    });
    let events = node.events("missing");
    assert!(
        events.iter().any(|(reason, text)| reason == "Failed" && text.contains("no-such-program")),
        "{pod:#} {events:#?}"
    );
    node.waits("absent", "main", "ImagePullBackOff");

    // Each failure is one line of the log, with the runtime's or the registry's words as they are.
    let log = node.log();
    let count = |words: &str| log.iter().filter(|line| line.contains(words)).count();
    for (failures, attempts) in [
        (count("MANIFEST_UNKNOWN"), count(&format!("Pulling image \"{absent}\""))),
        (count("no-such-program"), count("Container created pod=\"shop/missing-edge\"")),
    ] {
        assert!((1..=attempts).contains(&failures), "{failures} lines about {attempts} attempts: {log:#?}");
    }
    assert!(!log.iter().any(|line| line.contains("Error syncing pod")), "{log:#?}");

    // The commands report the same reasons.
    for (pod, why) in [
        ("never", "has not started: ErrImageNeverPull: Container image"),
        ("wants", "has not started: CreateContainerConfigError: configmap \"greetings\" not found"),
        ("missing", "no-such-program"),
    ] {
        let line = node.imagelet.fails(1, &["logs", &format!("{NAMESPACE}/{pod}")]);
        assert!(line.starts_with("error: container \"main\" in pod ") && line.contains(why), "{line}");
    }
    let line = node.imagelet.fails(1, &["exec", &format!("{NAMESPACE}/wants"), "true"]);
    assert!(line.contains("does not run: it was not made yet: CreateContainerConfigError"), "{line}");

    // The missing document is written.
    node.document(
        "greetings.json",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"morning": "hello"},
        "metadata": {"name": "greetings", "namespace": NAMESPACE}}),
    );
    node.scene.registry.push(&node.scene.layout, &idle_image(&node.scene, &[]), "team/absent:1");
    node.ready("wants");
    assert_eq!(node.in_container("wants/main", "echo $GREETING").trim(), "hello");
    node.ready("absent");
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn private_image_is_pulled_with_the_secret_of_the_pod_only() {
    let node = Node::new();
    let image = idle_image(&node.scene, &[node.scene.file_layer("private", "private", crate::support::Packing::Gzip)]);
    node.scene.registry.push(&node.scene.layout, &image, "team/private:1");
    let (user, password) = ("ada", "an-unlikely-password");
    let guarded = GuardedRegistry::start(&node.scene.scratch.join("registry"), &[(user, password)]);
    node.containerd.trust(&guarded.host, &guarded.authority);
    let name = guarded.name("team/private:1");
    let secret = |secret: &str, password: &str| {
        let config = docker_config(&[(&guarded.host, user, password)]).to_string();
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
               "metadata": {"name": secret, "namespace": NAMESPACE},
               "data": {".dockerconfigjson": STANDARD.encode(config)}})
    };
    node.document("right.json", &secret("right", password));
    node.document("wrong.json", &secret("wrong", "another-unlikely-password"));
    let with = |name_of_pod: &str, secrets: Value| {
        let mut pod = pod_of(&node, name_of_pod, &name, "IfNotPresent");
        pod["spec"]["imagePullSecrets"] = secrets;
        pod
    };
    node.write("right.json", &with("right", json!([{"name": "right"}])));
    node.ready("right");
    // The image is on the node now, and is not for those who cannot show that it is theirs.
    node.write("wrong.json", &with("wrong", json!([{"name": "wrong"}])));
    node.write("none.json", &with("none", json!([])));
    node.write("again.json", &with("again", json!([{"name": "right"}])));
    node.ready("again");
    for refused in ["wrong", "none"] {
        let message = node.waits(refused, "main", "ImagePullBackOff");
        assert!(!message.contains("unlikely"), "{message}");
    }
    // The right secret with a wrong password: the pod's author chooses its name and uid. A second pod needs a document that is
    // written later, so its start shows that the node has read both.
    node.document("right.json", &secret("right", "a-guess-at-a-password"));
    node.document(
        "marker.json",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"},
        "metadata": {"name": "marker", "namespace": NAMESPACE}}),
    );
    let mut marker = pod_of(&node, "marker", &node.image, "IfNotPresent");
    marker["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "marker"}}]);
    node.write("marker.json", &marker);
    node.ready("marker");
    node.write("guess.json", &with("guess", json!([{"name": "right"}])));
    let message = node.waits("guess", "main", "ImagePullBackOff");
    assert!(!message.contains("guess-at"), "{message}");
    // No secret stands in anything that people see.
    let everything =
        [node.log().join("\n"), format!("{:?}", node.pods()), node.imagelet.ok(&["describe", "shop/right"])].join("\n");
    for form in crate::support::manifests::forms_of(user, password) {
        assert!(!everything.contains(&form), "a secret is shown");
    }
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_image_volume_is_refused_where_the_runtime_has_none() {
    let node = Node::new();
    let mut container = node.container("main", FOREVER);
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container],
        "volumes": [{"name": "data", "image": {"reference": node.image, "pullPolicy": "IfNotPresent"}}]});
    node.write("data.json", &node.pod("data", spec));
    node.write("good.json", &pod_of(&node, "good", &node.image, "IfNotPresent"));
    node.ready("good");
    if containerd_config::version() >= (2, 1) {
        node.ready("data");
        node.in_container("data/main", "test -x /data/bin/busybox");
        node.clear();
        return;
    }
    // containerd 1.6 passes over what it does not know: without a refusal the container would run with an empty directory.
    let said = node.until("data", "why it does not start", |pod| {
        let waiting = &container_status(pod, "main")?["state"]["waiting"];
        waiting["message"].as_str().filter(|message| message.contains("image volume")).map(str::to_owned)
    });
    let refusal = format!("image volumes are not supported by {}", containerd_config::name());
    assert!(said.starts_with(&refusal), "{said}");
    assert!(node.ran().iter().all(|ran| !ran.of.starts_with("data/")), "{:?}", node.ran());
    node.clear();
}
