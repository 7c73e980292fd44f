//! Credential providers with service account tokens (KEP-4412): a provider receives a token of the pod's account that the API server
//! has issued, for the provider's audience and the pod alone, and the annotations that it wants; its answer is for all pods of the
//! account.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::node::container_status;
use crate::support::pods::idle_image;
use crate::support::registry::GuardedRegistry;
use crate::support::{Packing, Scratch, secrets};

const AUDIENCE: &str = "registry.test";
const ANNOTATION: &str = "registry.test/role";

/// A provider that keeps what it is given, and the configuration that names it.
fn install(directory: &Path, registry: &GuardedRegistry, (user, password): (&str, &str)) {
    let response = json!({
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry", "auth": {registry.host.clone(): {"username": user, "password": password}},
    });
    let program = directory.join("echo");
    let here = directory.display();
    let script = format!("#!/bin/sh\ncat > {here}/request\necho >> {here}/runs\ncat <<'END'\n{response}\nEND\n");
    fs::write(&program, script).expect("write a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("make it executable");
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "echo", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "matchImages": [registry.host],
            "defaultCacheDuration": "10m",
            "tokenAttributes": {
                "serviceAccountTokenAudience": AUDIENCE, "cacheType": "ServiceAccount", "requireServiceAccount": true,
                "requiredServiceAccountAnnotationKeys": [ANNOTATION],
                "optionalServiceAccountAnnotationKeys": ["registry.test/absent"],
            },
        }],
    });
    fs::write(directory.join("config.json"), config.to_string()).expect("write a configuration");
}

/// Nodes may read accounts, and ask for tokens of this audience: newer servers ask for the second, older ones for the first.
fn allow(cluster: &Cluster) {
    let rules = json!([
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": [AUDIENCE], "verbs": ["request-serviceaccounts-token-audience"]},
    ]);
    let (group, name) = ("rbac.authorization.k8s.io", "provider-tokens");
    let version = format!("{group}/v1");
    cluster
        .plane
        .apply(&json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}));
    cluster.plane.apply(&json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
    }));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_provider_gets_a_token_of_the_pods_account() {
    let programs = Scratch::new();
    let file = |name: &str| programs.join(name).display().to_string();
    let mut cluster = Cluster::idle(&json!({
        "imageCredentialProviderConfig": file("config.json"),
        "imageCredentialProviderBinDir": programs.path().display().to_string(),
    }));
    let login = ("ada", "an-unlikely-password");
    let scene = &cluster.node.scene;
    let image = idle_image(scene, &[scene.file_layer("private", "private", Packing::Gzip)]);
    scene.registry.push(&scene.layout, &image, "team/private:1");
    let registry = GuardedRegistry::start(&scene.scratch.join("registry"), &[login]);
    cluster.node.containerd.trust(&registry.host, &registry.authority);
    install(programs.path(), &registry, login);
    allow(&cluster);
    cluster.node.start();
    cluster.is_ready();

    let shop = cluster.namespace("shop");
    for (account, annotations) in [("puller", json!({ANNOTATION: "reader", "other": "x"})), ("stranger", json!({}))] {
        let metadata = json!({"name": account, "annotations": annotations});
        shop.apply(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
    }
    let spec = |account: &str| {
        let main = json!({"name": "main", "image": registry.name("team/private:1"), "imagePullPolicy": "Always"});
        json!({"serviceAccountName": account, "terminationGracePeriodSeconds": 1, "containers": [main]})
    };
    let runs = || fs::read_to_string(programs.join("runs")).unwrap_or_default().lines().count();
    shop.pod("first", spec("puller"));
    let first = shop.ready("first");
    let request = fs::read_to_string(programs.join("request")).expect("the provider was asked");
    let request: Value = serde_json::from_str(&request).expect("JSON");
    assert_eq!(request["image"], registry.name("team/private"));
    assert_eq!(request["serviceAccountAnnotations"], json!({ANNOTATION: "reader"}));
    let token = request["serviceAccountToken"].as_str().expect("a token");
    secrets::note_bare(token);

    // The API server knows the token, for this audience and no other, and whose it is.
    let review = |audiences: &[&str]| -> Value {
        let path = file("review.json");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                          "spec": {"token": token, "audiences": audiences}});
        fs::write(&path, body.to_string()).expect("write a review");
        let status = cluster.plane.kubectl(&["create", "-f", &path, "-o", "jsonpath={.status}"]);
        serde_json::from_str(&status).expect("JSON")
    };
    let status = review(&[AUDIENCE]);
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!([AUDIENCE])), "{status:#}");
    let user = &status["user"];
    assert_eq!(user["username"], "system:serviceaccount:shop:puller");
    assert_eq!(user["uid"], shop.get(&["serviceaccount", "puller"])["metadata"]["uid"]);
    let extra = |key: &str| user["extra"][format!("authentication.kubernetes.io/{key}")].clone();
    assert_eq!(extra("pod-name"), json!(["first"]));
    assert_eq!(extra("pod-uid"), json!([first["metadata"]["uid"]]));
    assert_ne!(review(&[])["authenticated"], true, "it is not for the API server");

    // The answer is for the account: another pod of it costs no run, and one of an account without the annotation has none.
    assert_eq!(runs(), 1);
    shop.pod("second", spec("puller"));
    shop.ready("second");
    shop.pod("third", spec("stranger"));
    shop.until(&["pod", "third"], "it has no credential", |pod| {
        container_status(pod, "main").is_some_and(|status| {
            ["ErrImagePull", "ImagePullBackOff"].iter().any(|reason| status["state"]["waiting"]["reason"] == *reason)
        })
    });
    assert_eq!(runs(), 1);
    // An annotation that changes counts at once.
    shop.kubectl(&["annotate", "--overwrite", "serviceaccount", "puller", &format!("{ANNOTATION}=writer")]);
    shop.pod("fourth", spec("puller"));
    shop.ready("fourth");
    assert_eq!(runs(), 2);

    // The token ends with its pod.
    shop.kubectl(&["delete", "pod", "first"]);
    cluster.plane.until("the token is void", || review(&[AUDIENCE])["authenticated"] != true);
    shop.clear();
    cluster.node.nothing_is_left();
}
