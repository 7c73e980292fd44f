//! API servers that misbehave: they refuse, answer nonsense, cut watches, forget what a watch asks for, hang, and present another
//! certificate than before; and nodes whose clocks are off. No running container is ended for that, the server is not flooded with
//! requests, and everything recovers by itself.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::support::Scratch;
use crate::support::api_proxy::{ApiProxy, Mood};
use crate::support::clock::Clock;
use crate::support::cluster::{Cluster, Namespace, pod};
use crate::support::node::{FOREVER, NODE, container_status, is};
use crate::support::secrets;

/// A pod that bypasses the scheduler, created or replaced.
fn bound(scene: &Namespace<'_>, name: &str) {
    let containers = json!([scene.cluster.container("main", FOREVER)]);
    let spec = json!({"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": containers});
    scene.apply(pod(name, spec));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_server_that_misbehaves_ends_nothing_and_is_not_overrun() {
    let scratch = Scratch::new();
    let own = scratch.join("own.kubeconfig");
    let mut cluster = Cluster::idle(&json!({"kubeconfig": own}));
    let proxy = ApiProxy::start(&cluster.plane);
    let file = cluster.plane.kubeconfig_of("proxied", &json!({"server": proxy.url()}), &json!({}));
    fs::copy(file, &own).expect("copy a kubeconfig");
    cluster.node.start();
    cluster.is_ready();
    let scene = cluster.namespace("faulty");
    scene.running("stays");
    let before = cluster.node.running("stays/main");

    let moods = [
        ("too many requests", Mood::Refuses(429, Some(1))),
        ("an error of the server", Mood::Refuses(500, None)),
        ("a page of somebody else", Mood::Says("<html><body>Please log in.</body></html>")),
        ("objects without anything", Mood::Says("{}\n")),
        ("a list that is none", Mood::Says(r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}"#)),
        ("watches that end at once", Mood::Cuts(Duration::ZERO)),
    ];
    let is_for_pods = |request: &&String| request.split(' ').nth(1).is_some_and(|uri| uri.starts_with("/api/v1/pods?"));
    for (number, (what, mood)) in moods.into_iter().enumerate() {
        let from = proxy.be(mood);
        // Each loop waits longer and longer: the one for pods is the measure.
        cluster.plane.until(what, || proxy.asked_after(from).iter().filter(is_for_pods).count() >= 3);
        let asked = proxy.asked_after(from);
        assert!(asked.len() <= 60, "{what}: {} requests: {asked:#?}", asked.len());
        assert_eq!(cluster.node.running("stays/main"), before, "{what}");
        proxy.be(Mood::Fine);
        scene.running(&format!("after-{number}"));
    }

    // Watches that bring something in their short lives are watches.
    proxy.be(Mood::Cuts(Duration::from_millis(300)));
    scene.running("in-short-watches");
    assert_eq!(cluster.node.running("stays/main"), before);

    // While the server does not answer, one pod is deleted and another one created, and the server forgets the versions in between.
    proxy.be(Mood::Refuses(503, None));
    scene.kubectl(&["delete", "pod", "after-0", "--force", "--grace-period=0"]);
    bound(&scene, "meanwhile");
    cluster.plane.compact();
    cluster.plane.kill_server();
    cluster.plane.start_server();
    let scene = cluster.namespace_again("faulty");
    let from = proxy.be(Mood::Fine);
    scene.ready("meanwhile");
    cluster.plane.until("what was deleted has ended", || {
        cluster.node.ran().iter().all(|ran| !ran.running || ran.of != "after-0/main")
    });
    let asked = proxy.asked_after(from);
    let lists = |request: &&String| request.starts_with("GET ") || request.contains("sendInitialEvents=true");
    assert!(asked.iter().filter(is_for_pods).any(|request| lists(&request)), "pods were not listed again: {asked:#?}");
    assert_eq!(cluster.node.running("stays/main"), before);
    scene.clear();
    cluster.node.nothing_is_left();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn credentials_that_change_on_disk_are_used_at_once() {
    let scratch = Scratch::new();
    let [own, authority, certificate, key] =
        ["own.kubeconfig", "server-ca.crt", "client.crt", "client.key"].map(|name| scratch.join(name));
    let mut cluster = Cluster::idle(&json!({"kubeconfig": own}));
    let copy = |cluster: &Cluster, from: &str, to: &std::path::Path| {
        let next = to.with_extension("next");
        fs::copy(cluster.plane.file(from), &next).expect("copy a file");
        fs::rename(next, to).expect("put a file in place");
    };
    let node = format!("system-node-{NODE}");
    copy(&cluster, "ca.crt", &authority);
    copy(&cluster, &format!("{node}.crt"), &certificate);
    copy(&cluster, &format!("{node}.key"), &key);
    let server = json!({"server": cluster.plane.url(), "certificate-authority": authority});
    let user = json!({"client-certificate": certificate, "client-key": key});
    let file = cluster.plane.kubeconfig_of("on-disk", &server, &user);
    fs::copy(file, &own).expect("copy a kubeconfig");
    cluster.node.start();
    cluster.is_ready();
    let scene = cluster.namespace("disk");
    scene.running("stays");
    let before = cluster.node.running("stays/main");
    let used = |cluster: &Cluster| {
        let log = cluster.node.log();
        log.iter().filter(|line| line.contains("changed on disk and are used")).count()
    };

    // The certificate of another node: one and the same server, and another name.
    cluster.plane.user("/O=system:nodes/CN=system:node:other");
    copy(&cluster, "system-node-other.crt", &certificate);
    copy(&cluster, "system-node-other.key", &key);
    cluster.node.eventually("the server knows it by the other name", || {
        cluster.node.log().iter().any(|line| line.contains("system:node:other"))
    });
    copy(&cluster, &format!("{node}.crt"), &certificate);
    copy(&cluster, &format!("{node}.key"), &key);
    scene.running("by-its-own-name");

    // The server has a certificate of another authority.
    cluster.plane.change_authority();
    let scene = cluster.namespace_again("disk");
    cluster.node.eventually("the node does not trust it", || {
        cluster.node.log().iter().any(|line| line.contains("invalid peer certificate"))
    });
    let times = used(&cluster);
    copy(&cluster, "ca.crt", &authority);
    cluster.node.eventually("the new authority is used", || used(&cluster) > times);
    // Controllers and scheduler trust the old one.
    bound(&scene, "by-the-new-authority");
    scene.ready("by-the-new-authority");

    // The server hangs, and a container ends meanwhile.
    let restarted = |cluster: &Cluster| {
        cluster.node.ran().into_iter().find(|ran| ran.of == "stays/main" && ran.running && ran.id != before.id)
    };
    assert_eq!(cluster.node.running("stays/main"), before);
    cluster.plane.freeze_server();
    cluster.node.end_container("stays/main");
    cluster.node.eventually("it runs again", || restarted(&cluster).is_some());
    cluster.node.eventually("nobody answers the node", || {
        cluster.node.log().iter().any(|line| line.contains("no answer from the API server"))
    });
    cluster.plane.thaw_server();
    let second = restarted(&cluster).expect("it runs");
    scene.until(&["pod", "stays"], "the server hears of the restart", |pod| {
        let id = json!(format!("containerd://{}", second.id));
        is(pod, "Ready") && container_status(pod, "main").is_some_and(|status| status["containerID"] == id)
    });
    for name in ["stays", "by-its-own-name", "by-the-new-authority"] {
        scene.kubectl(&["delete", "pod", name, "--timeout=60s"]);
    }
    cluster.node.nothing_is_left();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_clock_that_is_an_hour_off_keeps_no_pod_from_running() {
    let scratch = Scratch::new();
    let clock = Clock::new(&scratch);
    let mut cluster = Cluster::idle(&json!({}));
    let words = clock.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    cluster.node.imagelet = cluster.node.imagelet.clone().through(&words);
    clock.set_by(3600);
    cluster.node.start();
    cluster.is_ready();
    let scene = cluster.namespace("clock");
    let caller = |scene: &Namespace<'_>, name: &str| {
        let mut main = scene.cluster.container("main", FOREVER);
        main["volumeMounts"] = json!([{"name": "token", "mountPath": "/data"}]);
        let source = json!([{"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]);
        let volumes = json!([{"name": "token", "projected": {"sources": source}}]);
        scene.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [main], "volumes": volumes}));
        scene.ready(name);
        let token = scene.cluster.node.in_container(&format!("{name}/main"), "cat /data/token");
        secrets::note_bare(&token);
        let plane = &scene.cluster.plane;
        let file = plane.kubeconfig(&format!("caller-{name}"), &json!({"token": token}));
        let denied = plane.command_as(&file, &["get", "nodes"]).output().expect("start kubectl");
        let denied = String::from_utf8_lossy(&denied.stderr).into_owned();
        assert!(denied.contains("system:serviceaccount:clock:default"), "the server knows the token: {denied}");
    };
    caller(&scene, "ahead");
    let before = cluster.node.running("ahead/main");
    // The clock is moved by two hours while the node runs.
    clock.set_by(-3600);
    let renewed = |cluster: &Cluster| {
        let lease = cluster.plane.get(&["lease", NODE, "-n", "kube-node-lease"]);
        lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned()
    };
    let then = renewed(&cluster);
    cluster.plane.until("the Lease is renewed by the new clock", || renewed(&cluster) < then);
    caller(&scene, "behind");
    cluster.restart();
    cluster.is_ready();
    let scene = cluster.namespace_again("clock");
    caller(&scene, "behind-from-the-start");
    assert_eq!(cluster.node.running("ahead/main"), before, "it was not started again");
    scene.clear();
    cluster.node.nothing_is_left();
}
