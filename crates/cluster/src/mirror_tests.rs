//! Mirror pods: the plan, and the objects that a server then has.

use std::fs::{self, File};
use std::sync::Arc;

use base::lock::Mutex;
use tracing::instrument::WithSubscriber as _;

use super::*;
use crate::fake::FakeServer;
use crate::watch::{Selection, follow};

fn local(name: &str, hash: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": hash,
                     "annotations": {"kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file"}},
        "spec": {"nodeName": "edge", "containers": [{"name": "c", "image": "x"}]},
    })
}

fn owner() -> MirrorOwner {
    MirrorOwner { name: "edge".to_owned(), uid: "node-uid".to_owned() }
}

fn objects(pods: &[Value]) -> Objects {
    pods.iter()
        .map(|pod| (pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), Arc::new(pod.clone())))
        .collect()
}

/// The mirror of a pod, as the server has it.
fn there(name: &str, hash: &str) -> Value {
    let mut mirror = mirror_of(&local(name, hash), &owner());
    mirror["metadata"]["uid"] = json!(format!("mirror-{hash}"));
    mirror
}

// upstream: mirror/TestCreateMirrorPod/successfully fetched node
#[test]
fn a_mirror_belongs_to_the_node_and_has_the_hash() {
    let mirror = mirror_of(&local("web", "h1"), &owner());
    let metadata = &mirror["metadata"];
    assert_eq!(metadata["annotations"][MIRROR], "h1");
    assert_eq!(
        metadata["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Node", "name": "edge", "uid": "node-uid", "controller": true}])
    );
    assert!(metadata.get("uid").is_none() && metadata["annotations"].get(LEFT_OUT).is_none());
}

#[test]
fn fields_a_mirror_must_not_have_are_left_out_and_listed() {
    let mut pod = local("web", "h1");
    pod["spec"] = json!({
        "serviceAccountName": "a", "imagePullSecrets": [{"name": "s"}],
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}, {"name": "d", "emptyDir": {"medium": "Memory"}}],
        "containers": [{"name": "c", "image": "x", "envFrom": [{"secretRef": {"name": "s"}}], "env": [
            {"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ]}],
    });
    let mirror = mirror_of(&pod, &owner());
    assert_eq!(
        mirror["metadata"]["annotations"][LEFT_OUT],
        "spec.serviceAccountName,spec.imagePullSecrets,spec.volumes[0].secret,spec.containers[0].envFrom,spec.containers[0].env[B]"
    );
    let spec = &mirror["spec"];
    assert_eq!(spec["volumes"][0], json!({"name": "v", "emptyDir": {}}));
    assert_eq!(
        (&spec["containers"][0]["env"], &spec["automountServiceAccountToken"]),
        (&json!([{"name": "A", "value": "1"}]), &json!(false))
    );
}

/// Name, local pods, objects of the server, actions.
type MirrorCase<'a> = (&'a str, &'a [Value], &'a [Value], &'a [&'a str]);

// upstream: podmanager/TestRemovePods/Remove mirror pod
// upstream: podmanager/TestRemovePods/Remove static pod
// upstream: podmanager/TestRemovePods/Remove normal pod
#[test]
fn each_local_pod_has_one_mirror() {
    let shown = |local: &[Value], there: &[Value]| -> Vec<String> {
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        plan(local, &objects(there), &owner())
            .iter()
            .map(|action| match action {
                MirrorAction::Create(pod) => format!("+{}", name(pod)),
                MirrorAction::Delete(pod, uid) => format!("-{} {uid}", name(pod)),
            })
            .collect()
    };
    let web = [local("web", "h1")];
    let (mut going, mut foreign) = (there("web", "h1"), there("web", "h1"));
    going["metadata"]["deletionTimestamp"] = json!("2026-11-23T10:00:00Z");
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("another-node");
    let mut of_server = local("web", "u");
    of_server["metadata"]["annotations"] = json!({});
    let cases: [MirrorCase<'_>; 8] = [
        ("none yet", &web, &[], &["+web"]),
        ("as it should be", &web, &[there("web", "h1")], &[]),
        ("another manifest", &web, &[there("web", "h0")], &["-web mirror-h0", "+web"]),
        ("its manifest is gone", &[], &[there("web", "h1")], &["-web mirror-h1"]),
        ("somebody deletes it", &web, &[going], &["-web mirror-h1", "+web"]),
        ("of a Node before this one", &web, &[foreign], &["-web mirror-h1", "+web"]),
        ("a pod of the server has its name", &web, &[of_server.clone()], &[]),
        ("pods of the server are no mirrors", &[], &[of_server], &[]),
    ];
    for (name, local, there, want) in cases {
        assert_eq!(shown(local, there), want, "{name}");
    }
}

// upstream: mirror/TestCreateMirrorPod/cannot get node
// upstream: mirror/TestCreateMirrorPod/node missing UID
#[tokio::test(start_paused = true)]
async fn mirrors_come_and_go_with_manifests() {
    let server = FakeServer::new(true);
    let (tell, node) = (watch::Sender::new(Selected::default()), watch::Sender::new(Selected::default()));
    node.send_replace(Selected {
        ready: true,
        objects: [("node-uid".to_owned(), Arc::new(json!({"metadata": {"name": "edge"}})))].into(),
    });
    let wanted: Arc<Mutex<Option<Vec<Value>>>> = Arc::default();
    let changed = watch::Sender::new(0_u64);
    let mirrors = Mirrors::new(server.client(), tell.subscribe(), node.subscribe());
    let (client, table, changes, stop) =
        (server.client(), Arc::clone(&wanted), changed.subscribe(), CancellationToken::new());
    let ended = stop.clone();
    let tasks = tokio_util::task::TaskTracker::new();
    tasks.spawn(async move {
        let selection = Selection::pods_of("edge");
        tokio::join!(
            follow(&client, &selection, &tell, &ended),
            mirrors.run(move || table.lock().clone(), changes, &ended)
        );
    });
    let path = "/api/v1/namespaces/shop/pods/web";
    // The owner of a mirror is unknown until the Node exists.
    let known = node.send_replace(Selected::default());
    *wanted.lock() = Some(vec![local("web", "h0")]);
    changed.send_modify(|count| *count += 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(server.get(path).is_none());
    node.send_replace(known);
    for (want, hash) in [
        (Some(vec![local("web", "h1")]), Some("h1")),
        (Some(vec![local("web", "h2")]), Some("h2")),
        // A source that has not reported ends nothing.
        (None, Some("h2")),
        (Some(vec![]), None),
    ] {
        *wanted.lock() = want;
        changed.send_modify(|count| *count += 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let there = server.get(path).map(|pod| pod["metadata"]["annotations"][MIRROR].clone());
        assert_eq!(there, hash.map(|hash| json!(hash)));
    }
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_is_refused_is_warned_of_once_for_each_reason() {
    let server = FakeServer::new(true);
    let selected = |objects| watch::Sender::new(Selected { ready: true, objects });
    let (pods, node) = (
        selected(Objects::default()),
        selected([("node-uid".to_owned(), Arc::new(json!({"metadata": {"name": "edge"}})))].into()),
    );
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let file = Arc::new(File::create(&path).expect("made"));
    let log = tracing_subscriber::fmt().with_writer(file).without_time().with_ansi(false);
    let logged = || fs::read_to_string(&path).expect("a log");
    let local = [local("web", "h1"), local("zoo", "h2")];
    let mut mirrors = Mirrors::new(server.client(), pods.subscribe(), node.subscribe());
    let rounds = async {
        // Answers to the creation of web's mirror, in each round, and the warnings so far.
        for (round, (refusal, want)) in [
            (Some("no such class"), 1),
            (Some("no such class"), 1),
            (Some("too many pods"), 2),
            (Some("too many pods"), 2),
            (None, 2),
            (Some("too many pods"), 3),
        ]
        .into_iter()
        .enumerate()
        {
            server.remove("/api/v1/namespaces/shop/pods/web");
            if let Some(message) = refusal {
                server.refuse("POST pods", 403, message);
            }
            let before = server.count("POST pods");
            mirrors.once(&local).await;
            // The server's pods are not watched here: each round tries to make both.
            assert_eq!(server.count("POST pods") - before, 2, "round {round}: every round tries again");
            let text = logged();
            assert_eq!(text.matches("cannot change a mirror pod").count(), want, "round {round}: {text}");
        }
    };
    rounds.with_subscriber(log.finish()).await;
    let text = logged();
    assert!(text.contains("pod=\"web\" error=\"no such class\"") && text.contains("too many pods"), "{text}");
}
