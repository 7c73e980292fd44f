//! ImageSets on a node: `imagelet serve` with its own store and an identity that may do no more than a node's daemon needs. The test
//! plays the controller.

use std::fs;

use serde_json::{Value, json};

use crate::support::control_plane::ControlPlane;
use crate::support::network::enter_own_network;
use crate::support::registry::DockerRegistry;
use crate::support::scene::Scene;

/// Name of the node.
const NODE: &str = "edge";
/// Group and version of the objects.
const API: &str = "imagelet.dev/v1alpha1";

/// Defines the kinds, with the Node and the permissions of its daemon. Schemas are the controller's affair.
#[track_caller]
fn prepare(plane: &ControlPlane) {
    let kind = |kind: &str, plural: &str| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.imagelet.dev")},
            "spec": {
                "group": "imagelet.dev", "scope": "Cluster", "versions": [version],
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            },
        })
    };
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let rules = [
        rule("imagelet.dev", &["imagesets", "fleets"], &["list", "watch"]),
        rule("imagelet.dev", &["nodeimages", "nodeimages/status"], &["create", "patch"]),
        rule("", &["nodes"], &["list", "watch"]),
    ];
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "daemon"}, "rules": rules});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "daemon"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "daemon"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "daemon"}],
    });
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"disk": "ssd"}}});
    let kinds = [kind("ImageSet", "imagesets"), kind("NodeImages", "nodeimages"), kind("Fleet", "fleets")];
    let items: Vec<Value> = kinds.into_iter().chain([role, binding, node]).collect();
    plane.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}));
    for plural in ["imagesets", "nodeimages", "fleets"] {
        plane.wait(&["--for=condition=Established", &format!("crd/{plural}.imagelet.dev")]);
    }
}

/// Makes the set `web` of these images.
#[track_caller]
fn put_set(plane: &ControlPlane, images: &[&str]) {
    let images: Vec<Value> = images.iter().map(|name| json!({"name": name})).collect();
    plane.apply(&json!({
        "apiVersion": API, "kind": "ImageSet", "metadata": {"name": "web"},
        // How full the disk of the machine is does not matter here.
        "spec": {"images": images, "nodeSelector": {"matchLabels": {"disk": "ssd"}}, "releaseAfter": "0s", "minFree": "0%"},
    }));
}

/// Releases the set for the node, as the controller does, with these digests.
#[track_caller]
fn release(plane: &ControlPlane, resolved: &[(&str, String)]) {
    let mut set = plane.get(&["imageset", "web"]);
    let generation = set["metadata"]["generation"].clone();
    let created = plane.get(&["node", NODE])["metadata"]["creationTimestamp"].clone();
    let resolved: Vec<Value> =
        resolved.iter().map(|(name, digest)| json!({"name": name, "digest": digest, "pullPolicy": "Always"})).collect();
    set["status"] = json!({
        "observedGeneration": generation, "rolloutGeneration": generation, "released": "ffffffffffffffff",
        "newestNode": {"creationTime": created, "name": NODE}, "resolved": resolved,
    });
    let file = plane.file("status.json");
    fs::write(&file, set.to_string()).expect("write a status");
    let path = format!("/apis/{API}/imagesets/web/status");
    plane.kubectl(&["replace", "--raw", &path, "-f", &file.display().to_string()]);
}

/// Waits until the report of the node is such, and returns its status.
#[track_caller]
fn reported(plane: &ControlPlane, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    plane.until("the node reports", || plane.try_get(&["nodeimages", NODE]).is_some());
    plane.until_object(&["nodeimages", NODE], what, |object| wanted(&object["status"]))["status"].clone()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn image_of_a_set_is_pulled_pinned_and_released_with_the_set() {
    enter_own_network();
    let mut plane = ControlPlane::start();
    prepare(&plane);
    let s = Scene::new();
    let (app, image) = s.push_file("fleet/app:1", "etc/app", "app");
    let (other, _) = s.push_file("fleet/other:1", "etc/other", "other");
    // A mirror has the first image as well.
    let mirror = DockerRegistry::start(&s.scratch.join("mirror"));
    mirror.push(&s.layout, &image, "fleet/app:1");
    let (server, at) = (s.registry.host(), mirror.host());
    let hosts = s.scratch.directory(&format!("certs.d/{server}"));
    let text = format!("server = \"http://{server}\"\n[host.\"http://{at}\"]\n");
    fs::write(hosts.join("hosts.toml"), text).expect("written");
    let kubeconfig = plane.user("/O=daemons/CN=daemon").display().to_string();
    let imagelet = s.imagelet.clone().global("--fleet-kubeconfig", &kubeconfig).global("--node-name", NODE);
    let imagelet = imagelet.global("--registry-config-path", &s.scratch.join("certs.d").display().to_string());
    let socket = s.scratch.join("cri.sock");
    let agent = imagelet.serve(&socket);

    // The set waits for its release.
    put_set(&plane, &[&app]);
    let waiting = reported(&plane, "the set waits", |status| status["sets"][0]["phase"] == "Waiting");
    assert_eq!(waiting["images"][0]["phase"], "Waiting", "{waiting:#}");
    assert_eq!(waiting["images"][0]["pinned"], true, "{waiting:#}");
    assert!(s.imagelet.images().is_empty());
    release(&plane, &[(&app, image.manifest.digest.to_string())]);
    let ready = reported(&plane, "the set is ready", |status| status["sets"][0]["phase"] == "Ready");
    assert_eq!(ready["images"][0]["digest"], image.manifest.digest.to_string(), "{ready:#}");
    assert_eq!(ready["conditions"][0]["reason"], "Complete", "{ready:#}");
    let bytes = &ready["sets"][0]["bytes"];
    assert!(bytes["fromMirrors"].as_u64() > Some(0), "{ready:#}");
    assert_eq!(bytes["fromRegistry"], 0, "{ready:#}");
    assert!(ready["disk"]["capacityBytes"].as_u64().is_some_and(|bytes| bytes > 0), "{ready:#}");
    let owner = &plane.get(&["nodeimages", NODE])["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], plane.get(&["node", NODE])["metadata"]["uid"]);

    // A collection of everything unused leaves it, and takes the other image.
    s.imagelet.ok(&["pull", &other]);
    s.imagelet.ok(&["gc", "--all-unused", "--now"]);
    let names = |images: &[Value]| images.iter().map(|image| image["repoTags"][0].clone()).collect::<Vec<_>>();
    assert_eq!(names(&s.imagelet.images()), [json!(app)]);
    let explained = s.imagelet.ok(&["gc", "explain", &app]);
    assert!(explained.contains("pinned by an image set of the cluster"), "{explained}");

    // Also while neither the agent nor the API server runs.
    plane.kill_server();
    drop(agent);
    s.imagelet.ok(&["gc", "--all-unused", "--now"]);
    assert_eq!(names(&s.imagelet.images()), [json!(app)]);
    // The agent starts without the server, and restores an image that was removed by hand.
    s.imagelet.ok(&["rmi", &app]);
    let agent = imagelet.serve(&socket);
    plane.until("the image is back", || names(&s.imagelet.images()) == [json!(app)]);
    // An agent that follows no sets keeps no pins of them.
    drop(agent);
    let agent = s.imagelet.serve(&socket);
    let explained = s.imagelet.ok(&["gc", "explain", &app]);
    assert!(!explained.contains("pinned"), "{explained}");
    drop(agent);
    let _agent = imagelet.serve(&socket);
    plane.start_server();

    // The set is deleted: the image is like any other.
    plane.kubectl(&["delete", "imageset", "web"]);
    let empty = reported(&plane, "no set is left", |status| status["sets"].is_null());
    assert_eq!(empty["conditions"][0]["reason"], "NoImageSets", "{empty:#}");
    s.imagelet.ok(&["gc", "--all-unused", "--now"]);
    assert!(s.imagelet.images().is_empty());
}
