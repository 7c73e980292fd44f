//! Traces: the spans that a collector receives, their parents, also across processes, and that a slow collector delays nothing.

use serde_json::json;

use crate::support::collector::{Collector, Span};
use crate::support::network::enter_own_network;
use crate::support::node::{FOREVER, Node};
use crate::support::pods::idle_image;
use crate::support::process::eventually;
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet, Packing};

/// The flags with which every trace is recorded.
fn all_traces(imagelet: Imagelet, address: &str) -> Imagelet {
    imagelet.global("--tracing-endpoint", address).global("--tracing-sampling-rate-per-million", "1000000")
}

/// The names of a span's parents, the nearest first.
fn parents<'a>(spans: &'a [Span], span: &Span) -> Vec<&'a str> {
    let mut names = Vec::new();
    let mut id = &span.parent;
    while let Some(parent) = spans.iter().find(|other| other.id == *id) {
        names.push(parent.name.as_str());
        id = &parent.parent;
    }
    names
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_start_of_a_pod_is_one_trace() {
    enter_own_network();
    let collector = Collector::start();
    let mut node = Node::here(&json!({
        "tracing": {"endpoint": collector.address(), "samplingRatePerMillion": 1_000_000},
        "pullEngine": "embedded",
    }));
    let layer = node.scene.file_layer("own", "of this test alone", Packing::Gzip);
    let image = idle_image(&node.scene, &[layer]);
    let name = node.scene.registry.push(&node.scene.layout, &image, "traced/web:1");
    node.start();
    let mut container = node.container("main", FOREVER);
    container["image"] = json!(name);
    node.write("web.json", &node.pod("web", json!({"terminationGracePeriodSeconds": 1, "containers": [container]})));
    let pod = node.ready("web");
    let uid = pod["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let is_first = |span: &Span| {
        span.name == "syncPod"
            && span.attributes.get("k8s.pod.uid") == Some(&uid)
            && span.attributes.get("k8s.pod.update_type").is_some_and(|kind| kind == "create")
    };
    eventually("the first sync of the pod is exported", || collector.spans().iter().any(is_first));
    let all = collector.spans();
    let root = all.iter().find(|span| is_first(span)).expect("came");
    assert_eq!(root.parent, "", "a sync begins a trace");
    let spans: Vec<Span> = all.iter().filter(|span| span.trace == root.trace).cloned().collect();
    let find = |name: &str| {
        let found = spans.iter().find(|span| span.name == name);
        found.unwrap_or_else(|| panic!("no span {name} in {:#?}", spans.iter().map(|s| &s.name).collect::<Vec<_>>()))
    };

    for call in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
        let span = find(&format!("runtime.v1.RuntimeService/{call}"));
        assert_eq!(parents(&spans, span).last(), Some(&"syncPod"), "{span:?}");
        assert_eq!(span.attributes["rpc.method"], call);
        assert!(!span.failed, "{span:?}");
    }
    // The image of sandboxes is ensured before that of the container.
    let ensured = |image: &str| {
        let is_it = |span: &&Span| span.name == "EnsureImageExists" && span.attributes["image"] == image;
        spans.iter().find(is_it).unwrap_or_else(|| panic!("{image} was not ensured"))
    };
    assert_eq!(parents(&spans, ensured(&name)), ["syncPod"]);
    let pull = find("PullImage");
    assert_eq!(parents(&spans, pull), ["pull_image", "image_pull", "EnsureImageExists", "syncPod"]);
    let layers: Vec<&Span> = spans.iter().filter(|span| span.name == "layer").collect();
    assert!(!layers.is_empty(), "the layer of this image was nowhere: {spans:#?}");
    for layer in &layers {
        assert_eq!(parents(&spans, layer)[0], "PullImage", "{layer:?}");
    }
    let blob = spans.iter().find(|span| {
        span.name == "GET"
            && span.attributes["url.path"].contains("/blobs/")
            && span.attributes["http.response.status_code"] == "200"
    });
    assert!(parents(&spans, blob.expect("a blob was fetched")).contains(&"PullImage"));
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn trace_passes_through_an_image_service() {
    let s = Scene::new();
    let (name, _) = s.push_file("traced/one:1", "a", "one");
    let containerd = Containerd::start(s.registry.host());
    let socket = s.scratch.join("between.sock");
    let endpoint = containerd.endpoint();
    let collector = Collector::start();
    // It begins no trace by itself: its spans exist because of the client's.
    let between = Imagelet::remote(&endpoint).global("--runtime-endpoint", &endpoint);
    let between = between.global("--tracing-endpoint", collector.address());
    let mut serving = between.serve(&socket);
    let client = all_traces(Imagelet::remote(&format!("unix://{}", socket.display())), collector.address());
    client.ok(&["pull", &name]);
    let missing = s.registry.name("traced/missing:1");
    client.fails(1, &["pull", &missing]);
    // The remaining spans are exported before the end.
    serving.stop();
    let call = "runtime.v1.ImageService/PullImage";
    let served = |span: &Span| span.name == call && !span.parent.is_empty();
    eventually("the spans of both processes are there", || collector.spans().iter().filter(|s| served(s)).count() >= 4);
    let spans = collector.spans();
    let pulls: Vec<&Span> = spans.iter().filter(|span| span.name == call && !span.failed).collect();
    // The client's call for the present image: it has a span here, and is served in the trace of its caller.
    let joined = pulls.iter().any(|span| {
        let parent = spans.iter().find(|other| other.id == span.parent);
        parent.is_some_and(|parent| parent.name == call && parent.trace == span.trace)
    });
    assert!(joined, "no served call hangs below the client's: {spans:#?}");
    let refused =
        spans.iter().any(|span| span.name == call && span.failed && span.attributes["rpc.grpc.status_code"] == "5");
    assert!(refused, "the pull that failed is not told as such: {spans:#?}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn unreachable_trace_collector_delays_nothing() {
    let s = Scene::new();
    let (name, _) = s.push_file("traced/two:1", "a", "two");
    // A port that was free a moment ago, without a listener.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("listen on loopback");
    let address = free.local_addr().expect("it listens").to_string();
    drop(free);
    let imagelet = all_traces(s.imagelet.clone(), &address);
    let serving = imagelet.serve(&s.scratch.join("cri.sock"));
    let done = imagelet.run(&["pull", &name]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let warned = |line: &str| line.contains("traces are not exported").then(|| line.contains(&address));
    assert!(serving.wait_for("a warning", warned), "it names the collector");
    eventually("failed spans are counted", || {
        let metrics = imagelet.ok(&["metrics"]);
        metrics.lines().any(|line| line.starts_with("imagelet_trace_spans_total{outcome=\"failed\"}"))
    });
    let warnings = serving.lines().iter().filter(|line| line.contains("traces are not exported")).count();
    assert_eq!(warnings, 1, "one line, however often it is tried");
    for wrong in ["https://localhost:4317", "localhost", "unix:///run/otel.sock"] {
        let line = s.imagelet.fails(2, &["--tracing-endpoint", wrong, "images"]);
        assert!(line.contains("--tracing-endpoint") && line.contains("without TLS"), "{line}");
    }
}
