//! Pods and containers are found by the names that people use, and ambiguous names are reported.

use cri_api::testing::FakeRuntimeService;
use cri_api::{ContainerMetadata, PodSandboxMetadata};
use kuberuntime::labels::{CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID};

use super::*;

fn known(namespace: &str, name: &str, uid: &str, node: &str) -> PodIdentity {
    PodIdentity { namespace: namespace.into(), name: name.into(), uid: uid.into(), node: node.into() }
}

#[test]
fn pods_are_found_by_each_of_their_names() {
    let pods = [
        known("default", "web-edge-1", "u1", "Edge-1"),
        known("shop", "web-edge-1", "u2", "Edge-1"),
        known("shop", "db-edge-1", "u3", "Edge-1"),
        known("shop", "db", "u4", ""),
        known("shop", "db", "u5", ""),
    ];
    let cases: [(&str, Option<&str>, Result<usize, &str>); 14] = [
        ("u2", None, Ok(1)),
        ("shop/web", None, Ok(1)),
        ("web", Some("default"), Ok(0)),
        ("pod/web", Some("shop"), Ok(1)),
        ("web-edge-1", Some("shop"), Ok(1)),
        ("db", None, Ok(3)),
        ("db-edge-1", None, Ok(2)),
        ("web", None, Err("pod \"web\" may be any of default/web-edge-1, shop/web-edge-1: say which")),
        ("we", None, Err("pod \"we\" not found; there is default/web-edge-1, shop/web-edge-1")),
        (
            "-edge-1",
            None,
            Err("pod \"-edge-1\" not found; there is default/web-edge-1, shop/db-edge-1, shop/web-edge-1"),
        ),
        ("lost", None, Err("pod \"lost\" not found")),
        ("shop/web", Some("default"), Err("pod \"shop/web\" is not in namespace \"default\"")),
        ("a/b/c", None, Err("pod \"a/b/c\": a name, namespace/name or a uid was expected")),
        ("/x", None, Err("pod \"/x\": a name, namespace/name or a uid was expected")),
    ];
    for (text, namespace, want) in cases {
        let found = PodName::parse(text, namespace).and_then(|name| name.choose(&pods));
        let found = found.as_ref().map(|index| *index).map_err(|failure| failure.lines()[0].as_str());
        assert_eq!(found, want, "{text}");
    }
    let none = PodName::parse("x", None).expect("a name").choose(&[]).expect_err("none");
    assert_eq!(none.lines(), ["pod \"x\" not found; the runtime has no pod"]);
}

fn labels(pod: &str, uid: &str, container: &str) -> BTreeMap<String, String> {
    let pairs = [(POD_NAME, pod), (POD_NAMESPACE, "default"), (POD_UID, uid), (CONTAINER_NAME, container)];
    pairs.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn sandbox(id: &str, uid: &str, ready: bool, created_at: i64, annotations: &[(&str, &str)]) -> PodSandbox {
    PodSandbox {
        id: id.into(),
        metadata: PodSandboxMetadata { name: "web-n".into(), ..PodSandboxMetadata::default() },
        ready,
        created_at,
        labels: labels("web-n", uid, ""),
        annotations: annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..PodSandbox::default()
    }
}

fn run(id: &str, name: &str, kind: &str, state: ContainerState, created_at: i64) -> Container {
    Container {
        id: id.into(),
        metadata: ContainerMetadata { name: name.into(), attempt: 0 },
        state,
        created_at,
        labels: labels("web-n", "u1", name),
        annotations: BTreeMap::from([("io.kubernetes.container.type".to_owned(), kind.to_owned())]),
        ..Container::default()
    }
}

async fn found(annotations: &[(&str, &str)]) -> FoundPod {
    let runtime = FakeRuntimeService::new();
    runtime.put_sandbox(sandbox("old", "u0", false, 9, &[(NODE, "n")]));
    let annotations: Vec<_> = annotations.iter().copied().chain([(NODE, "n"), (CONTAINERS, "b,a,late")]).collect();
    runtime.put_sandbox(sandbox("s1", "u1", true, 5, &annotations));
    runtime.put_container(run("i", "setup", "init", ContainerState::Exited, 6));
    runtime.put_container(run("b0", "b", "container", ContainerState::Exited, 7));
    runtime.put_container(run("b1", "b", "container", ContainerState::Running, 9));
    runtime.put_container(run("a0", "a", "container", ContainerState::Exited, 8));
    let name = PodName::parse("web", None).expect("a name");
    FoundPod::find(&runtime, &name).await.expect("found")
}

#[tokio::test]
async fn containers_are_found_by_name_or_by_being_the_first() {
    let pod = found(&[]).await;
    // The running one, although another of its name is newer.
    assert_eq!((pod.known.uid.as_str(), pod.ready_sandbox().expect("ready").id.as_str()), ("u1", "s1"));
    let chosen = pod.container(None).expect("chosen");
    assert_eq!(chosen.name, "b");
    assert_eq!(chosen.note.as_deref(), Some("Defaulted container \"b\" out of: b, a, late, setup (init)"));
    assert_eq!(pod.container(Some("setup")).expect("chosen").name, "setup");
    assert_eq!(pod.runs("b").iter().map(|run| &*run.id).collect::<Vec<_>>(), ["b1", "b0"]);
    assert_eq!(pod.running("b").expect("runs").id, "b1");
    let line = |failure: Failure| failure.lines()[0].clone();
    assert_eq!(
        line(pod.container(Some("x")).expect_err("not there")),
        "container \"x\" is not in pod default/web-n, which has b, a, late, setup (init)"
    );
    let ended = "container \"a\" of pod default/web-n does not run: it has ended";
    assert_eq!(line(pod.running("a").expect_err("ended")), ended);
    let late = "container \"late\" of pod default/web-n does not run: it was not made yet";
    assert_eq!(line(pod.running("late").expect_err("not made")), late);
    let pod = found(&[(DEFAULT_CONTAINER, "a")]).await;
    let chosen = pod.container(None).expect("chosen");
    assert_eq!((chosen.name.as_str(), chosen.note), ("a", None));
}
