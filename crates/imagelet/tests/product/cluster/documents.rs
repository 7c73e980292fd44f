//! Objects of the cluster that pods name: ConfigMaps and Secrets, in variables and in volumes that follow them, tokens that the API server
//! accepts, and pull secrets.

use serde_json::{Value, json};

use crate::support::cluster::{Cluster, Namespace, play};
use crate::support::manifests::docker_config;
use crate::support::node::{FOREVER, container_status};
use crate::support::pods::idle_image;
use crate::support::registry::GuardedRegistry;
use crate::support::{Packing, secrets};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn documents_and_tokens_come_to_pods() {
    let cluster = Cluster::start();
    play(
        &cluster,
        &[
            ("config-map", config_map),
            ("missing", missing),
            ("immutable", immutable),
            ("token", token),
            ("variables", variables),
            ("pull-secret", pull_secret),
        ],
    );
}

fn document(kind: &str, name: &str, data: Value) -> Value {
    let field = if kind == "Secret" { "stringData" } else { "data" };
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, field: data})
}

/// A pod whose container runs on with this volume at `/data`.
fn reader(scene: &Namespace<'_>, volume: Value) -> Value {
    let mut main = scene.cluster.container("main", FOREVER);
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let mut volume = volume;
    volume["name"] = json!("data");
    json!({"terminationGracePeriodSeconds": 1, "containers": [main], "volumes": [volume]})
}

fn config_map(scene: &Namespace<'_>) {
    scene.apply(document("ConfigMap", "settings", json!({"color": "red"})));
    scene.pod("reader", reader(scene, json!({"configMap": {"name": "settings"}})));
    scene.ready("reader");
    let node = &scene.cluster.node;
    let read = || node.in_container("reader/main", "cat /data/color");
    assert_eq!(read(), "red");
    scene.apply(document("ConfigMap", "settings", json!({"color": "blue"})));
    scene.cluster.plane.until("the volume follows", || read() == "blue");
    let reader = scene.get(&["pod", "reader"]);
    assert_eq!(container_status(&reader, "main").expect("a status")["restartCount"], 0);
}

fn missing(scene: &Namespace<'_>) {
    scene.pod("early", reader(scene, json!({"secret": {"secretName": "later"}})));
    scene.cluster.plane.until("an event says what is missing", || {
        scene.events("early", "FailedMount").iter().any(|message| message.contains("later"))
    });
    scene.apply(document("Secret", "later", json!({"key": "came-in-the-end"})));
    scene.ready("early");
    assert_eq!(scene.cluster.node.in_container("early/main", "cat /data/key"), "came-in-the-end");
}

fn immutable(scene: &Namespace<'_>) {
    let mut fixed = document("ConfigMap", "fixed", json!({"key": "value"}));
    fixed["immutable"] = json!(true);
    scene.apply(fixed);
    scene
        .pod("fixed", reader(scene, json!({"configMap": {"name": "fixed", "items": [{"key": "key", "path": "a/b"}]}})));
    scene.ready("fixed");
    assert_eq!(scene.cluster.node.in_container("fixed/main", "cat /data/a/b"), "value");
}

fn token(scene: &Namespace<'_>) {
    let source = json!([{"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]);
    scene.pod("caller", reader(scene, json!({"projected": {"sources": source}})));
    scene.ready("caller");
    let node = &scene.cluster.node;
    let token = node.in_container("caller/main", "cat /data/token");
    secrets::note_bare(&token);
    // The server knows whose it is.
    let plane = &scene.cluster.plane;
    let file = plane.kubeconfig(&format!("caller-of-{}", scene.name), &json!({"token": token}));
    let denied = plane.command_as(&file, &["get", "pods", "-n", &scene.name]).output().expect("start kubectl");
    let denied = String::from_utf8_lossy(&denied.stderr).into_owned();
    let account = format!("system:serviceaccount:{}:default", scene.name);
    assert!(denied.contains(&account), "{denied}");
    scene.kubectl(&[
        "create",
        "rolebinding",
        "view",
        "--clusterrole=view",
        &format!("--serviceaccount={}:default", scene.name),
    ]);
    plane.until("the role is known", || {
        plane
            .command_as(&file, &["get", "pods", "-n", &scene.name])
            .output()
            .is_ok_and(|output| output.status.success())
    });
    // The files that admission adds to every pod: token, authority, namespace.
    let text = node.in_container(
        "caller/main",
        "cd /var/run/secrets/kubernetes.io/serviceaccount; cat namespace; echo; head -1 ca.crt; wc -c < token",
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], [scene.name.as_str(), "-----BEGIN CERTIFICATE-----"], "{text}");
    assert!(lines[2].trim().parse::<u32>().is_ok_and(|length| length > 100), "{text}");
}

fn variables(scene: &Namespace<'_>) {
    scene.apply(document("Secret", "login", json!({"password": "a-long-password-of-a-test"})));
    secrets::note_bare("a-long-password-of-a-test");
    let mut main = scene.cluster.container("main", FOREVER);
    main["env"] = json!([{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}]);
    scene.pod("user", json!({"terminationGracePeriodSeconds": 1, "containers": [main]}));
    scene.ready("user");
    let said = scene
        .cluster
        .node
        .in_container("user/main", "echo $PASSWORD; echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT");
    assert_eq!(said, "a-long-password-of-a-test\n10.0.0.1:443\n");
}

fn pull_secret(scene: &Namespace<'_>) {
    let node = &scene.cluster.node;
    let image = idle_image(&node.scene, &[node.scene.file_layer("private", "private", Packing::Gzip)]);
    node.scene.registry.push(&node.scene.layout, &image, "team/private:1");
    let (user, password) = ("ada", "an-unlikely-password");
    let guarded = GuardedRegistry::start(&node.scene.scratch.join("registry"), &[(user, password)]);
    node.containerd.trust(&guarded.host, &guarded.authority);
    let image = guarded.name("team/private:1");
    let login = docker_config(&[(&guarded.host, user, password)]).to_string();
    scene.apply(json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
                       "metadata": {"name": "login"}, "stringData": {".dockerconfigjson": login}}));
    let container = json!({"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"});
    let spec = |secrets: Value| json!({"terminationGracePeriodSeconds": 1, "containers": [container], "imagePullSecrets": secrets});
    scene.pod("with", spec(json!([{"name": "login"}])));
    scene.ready("with");
    // The image is on the node now, and is not for a pod that shows no secret.
    scene.pod("without", spec(json!([])));
    scene.until(&["pod", "without"], "it may not use the image", |pod| {
        container_status(pod, "main").is_some_and(|status| {
            ["ErrImagePull", "ImagePullBackOff"].iter().any(|reason| status["state"]["waiting"]["reason"] == *reason)
        })
    });
    // Admission gives the pods of an account the secrets that the account has.
    scene.kubectl(&["patch", "serviceaccount", "default", "-p", r#"{"imagePullSecrets": [{"name": "login"}]}"#]);
    scene.pod("by-account", spec(json!([])));
    scene.ready("by-account");
}
