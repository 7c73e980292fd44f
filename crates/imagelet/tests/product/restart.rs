//! `imagelet serve` and `imagelet run` as a service manager starts and ends them: a runtime that starts later, a restart that no
//! client notices, the messages to systemd, the log, and the output right after a kill.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cri_api::{ImageService as _, ImageSpec, Kind, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, RemoteImageService, connect_image_service};
use registry::testing::{ImageBuilder, TestRegistry};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::gate::Gate;
use crate::support::node::{FOREVER, Node, is};
use crate::support::process::signal;
use crate::support::systemd::{SocketUnit, Systemd};
use crate::support::{Imagelet, Scratch};

fn unix(path: &Path) -> String {
    format!("unix://{}", path.display())
}

async fn client(socket: &Path) -> RemoteImageService {
    let endpoint = Endpoint::parse(&unix(socket)).expect("an endpoint");
    connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect")
}

#[test]
fn a_runtime_that_is_not_up_yet_is_waited_for() {
    for option in ["--image-endpoint", "--runtime-endpoint"] {
        let scratch = Scratch::new();
        let (behind, socket) = (scratch.join("behind.sock"), scratch.join("cri.sock"));
        let systemd = Systemd::new(&scratch);
        let waiting = systemd.tells(&Imagelet::on(&scratch.join("between")).global(option, &unix(&behind)));
        let mut agent = waiting.daemon(&["serve", "--listen", &unix(&socket)]);
        assert_eq!(systemd.hears(), "STATUS=waiting for the container runtime");
        let api = if option == "--image-endpoint" { "image" } else { "runtime" };
        let error = format!(
            "validate CRI v1 {api} API for endpoint {:?}: connect to {}: No such file or directory (os error 2)",
            unix(&behind),
            unix(&behind)
        );
        let line = format!(" WARN waiting for the container runtime error={error:?}");
        agent.wait_for("what it waits for", |said| said.ends_with(&line).then_some(()));
        let _behind = Imagelet::on(&scratch.join("store")).serve(&behind);
        assert_eq!(systemd.hears(), format!("READY=1\nSTATUS=serving images on {}", unix(&socket)));
        assert_eq!(Imagelet::remote(&unix(&socket)).ids(), Vec::<String>::new());
        signal(agent.pid(), Signal::TERM);
        assert_eq!(systemd.hears(), "STOPPING=1\nSTATUS=ending; long calls go on until then");
        assert_eq!(agent.ended().code(), Some(0));
        let waits = agent.lines().iter().filter(|line| line.contains("waiting for")).count();
        assert_eq!(waits, 1, "{:?}", agent.lines());
    }
}

#[test]
fn a_wait_for_a_runtime_ends_with_a_signal() {
    let scratch = Scratch::new();
    let imagelet = Imagelet::on(&scratch.join("between")).global("--image-endpoint", &unix(&scratch.join("none")));
    let mut agent = imagelet.daemon(&["serve", "--listen", &unix(&scratch.join("cri.sock"))]);
    agent.wait_for("what it waits for", |line| line.contains("waiting for").then_some(()));
    signal(agent.pid(), Signal::TERM);
    assert_eq!(agent.ended().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_one_call_fails_through_restarts() {
    let scratch = Scratch::new();
    let registry = TestRegistry::open().await;
    let gate = Gate::start(registry.host().to_string()).await;
    registry.push("app", "1", &ImageBuilder::tiny("app"));
    let unit = SocketUnit::new(&scratch.join("cri.sock"));
    let imagelet = unit.starts(&Imagelet::on(&scratch.join("store")));
    let mut agent = imagelet.daemon(&["serve", "--listen", &unix(&unit.path)]);
    let shared = client(&unit.path).await;
    let (done, tasks) = (CancellationToken::new(), TaskTracker::new());
    let name = format!("{}/app:1", registry.host());
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (shared, path, name, done) = (shared.clone(), unit.path.clone(), name.clone(), done.clone());
            tasks.spawn(async move {
                let mut calls = 0;
                while !done.is_cancelled() {
                    for client in [&shared, &client(&path).await] {
                        client.pull_image(PullImageRequest::new(&name)).await.expect("a pull");
                        let status = client.image_status(&ImageSpec::new(&name), false).await.expect("a status");
                        assert!(status.image.is_some());
                        assert!(!client.list_images(None).await.expect("a list").is_empty());
                        client.image_fs_info().await.expect("usage");
                    }
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for round in 0..3 {
        // A pull that is still running when the process is asked to end.
        registry.push("slow", &round.to_string(), &ImageBuilder::tiny(&format!("slow {round}")));
        gate.shut();
        let (puller, slow) = (shared.clone(), format!("{}/slow:{round}", gate.host()));
        let pull = tasks.spawn(async move { puller.pull_image(PullImageRequest::new(slow)).await });
        tokio::time::timeout(Duration::from_secs(30), gate.reached()).await.expect("the pull asks the registry");
        signal(agent.pid(), Signal::TERM);
        agent.wait_for("that it ends", |line| line.contains("INFO shutting down").then_some(()));
        gate.open();
        assert_eq!(agent.ended().code(), Some(0));
        // No --listen: the socket that is passed says where.
        agent = imagelet.daemon(&["serve"]);
        pull.await.expect("it ends").expect("it was let to end, or made again");
    }
    done.cancel();
    for client in clients {
        assert!(client.await.expect("no call failed") > 0);
    }
    signal(agent.pid(), Signal::INT);
    agent.ended();
    assert!(unit.path.exists(), "the file is the unit's");
    drop(unit);
}

#[test]
fn sockets_that_do_not_fit_are_refused() {
    let scratch = Scratch::new();
    let unit = SocketUnit::new(&scratch.join("cri.sock"));
    let other = scratch.join("other.sock");
    let said = unit
        .starts(&Imagelet::on(&scratch.join("store")))
        .daemon(&["serve", "--listen", &unix(&other)])
        .wait_for("why", |line| line.strip_prefix("error: ").map(str::to_owned));
    let (other, path) = (unix(&other), unit.path.display());
    assert_eq!(said, format!("socket of systemd: {other} is not among the inherited sockets: {path}"));
    let said = Imagelet::on(&scratch.join("store")).fails(2, &["serve"]);
    let want = "error: --listen ENDPOINT is needed: systemd passes no socket ($LISTEN_FDS), and there is no default";
    assert_eq!(said, want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_socket_unit_the_file_stays_for_the_next_process() {
    let scratch = Scratch::new();
    let (imagelet, socket) = (Imagelet::on(&scratch.join("store")), scratch.join("cri.sock"));
    let mut agent = imagelet.serve(&socket);
    let before = client(&socket).await;
    signal(agent.pid(), Signal::TERM);
    assert_eq!(agent.ended().code(), Some(0));
    let refused = UnixStream::connect(&socket).expect_err("nobody listens").kind();
    assert_eq!(refused, std::io::ErrorKind::ConnectionRefused, "not: no such file");
    let error = before.list_images(None).await.expect_err("nobody listens");
    let want = format!("connect to {}: Connection refused (os error 111)", unix(&socket));
    assert_eq!((error.kind(), error.message()), (Kind::Unavailable, want.as_str()));
    let mut next = imagelet.serve(&socket);
    client(&socket).await.list_images(None).await.expect("the next process took it over");
    signal(next.pid(), Signal::INT);
    next.ended();
    assert!(!socket.exists(), "a person ended it: nobody comes next");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_failures_and_removals_are_lines_with_fields() {
    let scratch = Scratch::new();
    let registry = TestRegistry::open().await;
    registry.push("app", "1", &ImageBuilder::tiny("app"));
    let (name, missing) = (format!("{}/app:1", registry.host()), format!("{}/app:2", registry.host()));
    let socket = scratch.join("cri.sock");
    let agent = Imagelet::on(&scratch.join("store")).global("--log-format", "json").serve(&socket);
    let service = client(&socket).await;
    let id = service.pull_image(PullImageRequest::new(&name)).await.expect("a pull");
    let size = service.list_images(None).await.expect("a list")[0].size;
    service.pull_image(PullImageRequest::new(&missing)).await.expect_err("no such tag");
    service.remove_image(&ImageSpec::new(&id)).await.expect("a removal");
    service.remove_image(&ImageSpec::new(&id)).await.expect("nothing to remove");
    let lines = agent.wait_until("the removal", |lines| {
        let lines: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let about = |line: &&Value| line["image"].is_string();
        lines
            .iter()
            .any(|line| line["message"] == "image removed")
            .then(|| lines.iter().filter(about).cloned().collect::<Vec<_>>())
    });
    let shown: Vec<Value> = lines
        .into_iter()
        .map(|mut line| {
            assert!(line["duration"].as_str().is_some_and(|time| time.ends_with('s')), "{line}");
            assert!(line["timestamp"].is_string(), "{line}");
            for field in ["duration", "timestamp", "error"] {
                line.as_object_mut().expect("an object").remove(field);
            }
            line
        })
        .collect();
    let want = [
        json!({"level": "INFO", "message": "image pulled", "image": name, "size": size}),
        json!({"level": "INFO", "message": "pull failed", "image": missing, "reason": "not_found"}),
        json!({"level": "INFO", "message": "image removed", "image": id, "size": size, "reason": "requested"}),
    ];
    assert_eq!(shown, want);
}

#[test]
fn a_store_that_no_runtime_sees_is_no_store_for_a_kubelet() {
    let scratch = Scratch::new();
    let (root, socket) = (scratch.join("store"), scratch.join("cri.sock"));
    let imagelet = Imagelet::on(&root);
    let agent = imagelet.serve(&socket);
    let said =
        agent.wait_for("what a kubelet cannot do", |line| line.split_once(" WARN ").map(|(_, said)| said.to_owned()));
    let want = format!(
        "{} serves the images of {}: no container runtime is behind it, so a kubelet in front cannot start containers. For a \
         kubelet, serve the images of its runtime: -i and -r with the runtime's endpoint",
        unix(&socket),
        root.display()
    );
    assert_eq!(said, want);
    let done = imagelet.run(&["explain", "registry.test/app:1"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let want = format!(
        " INFO `imagelet serve` has these images where no container runtime sees them: a kubelet in front of it cannot start \
         containers root={}\n",
        root.display()
    );
    assert!(done.stderr.ends_with(&want), "{}", done.stderr);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_and_images_of_a_socket_unit_go_on_through_a_reload_and_a_restart() {
    let node = Node::idle(&json!({}));
    let socket = node.scene.scratch.join("cri.sock");
    let systemd = Systemd::new(&node.scene.scratch).with_socket(&socket);
    let imagelet = systemd.tells(&node.imagelet);
    let ready = format!("READY=1\nSTATUS=running pods, and serving images on {}", unix(&socket));
    let tasks = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    // A call waits for the process as long as only the unit is active.
    let call = || {
        let socket = socket.clone();
        tasks.spawn(async move { client(&socket).await.list_images(None).await.expect("a list") })
    };
    let first = call();
    let mut agent = imagelet.daemon(&["run"]);
    assert_eq!(systemd.hears(), ready);
    assert!(!tasks.block_on(first).expect("it ends").is_empty(), "the image of the pods is on the node");
    node.write("web.json", &node.pod("web", json!({"containers": [node.container("main", FOREVER)]})));
    node.ready("web");
    let container = node.running("web/main");

    node.configure(&json!({"imageGCLowThresholdPercent": 71}));
    signal(agent.pid(), Signal::HUP);
    assert!(systemd.hears().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(systemd.hears(), ready);
    let change = "INFO configuration: imageGCLowThresholdPercent: 80 → 71";
    agent.wait_for("the difference", |line| line.contains(change).then_some(()));

    signal(agent.pid(), Signal::TERM);
    assert_eq!(systemd.hears(), "STOPPING=1\nSTATUS=ending; containers go on");
    assert_eq!(agent.ended().code(), Some(0));
    let between = call();
    let mut agent = imagelet.daemon(&["run"]);
    assert_eq!(systemd.hears(), ready);
    assert!(!tasks.block_on(between).expect("it ends").is_empty());
    node.ready("web");
    assert_eq!(node.running("web/main"), container, "nothing was started again");
    node.clear();
    signal(agent.pid(), Signal::INT);
    assert_eq!(systemd.hears(), "STOPPING=1\nSTATUS=ending; containers go on");
    agent.ended();
    assert!(socket.exists(), "the file is the unit's");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn right_after_a_kill_another_run_takes_over_and_no_list_is_empty() {
    let mut node = Node::new();
    let spec = json!({"hostNetwork": true, "containers": [node.container("main", FOREVER)]});
    node.write("web.json", &node.pod("web", spec));
    node.eventually("it is ready", || {
        node.try_pods().is_some_and(|pods| pods.get("web").is_some_and(|pod| is(pod, "Ready")))
    });
    for round in 0..12 {
        node.kill();
        // Immediately after the kill: a lock of the killed process may still be held.
        node.start_only();
        node.eventually(&format!("round {round}: a list"), || {
            let done = node.imagelet.run(&["pods", "-A", "-o", "name"]);
            match done.code {
                Some(0) => {
                    assert_eq!(done.stdout, "pod/web-edge\n", "round {round}: {}", done.stderr);
                    true
                }
                // The agent does not answer yet, or the running containers are not known yet.
                Some(1 | 69) => false,
                _ => panic!("round {round}: {done:?}"),
            }
        });
    }
    let log = node.log().join("\n");
    assert!(!log.contains("runs the pods of"), "{log}");
    assert_eq!(node.ran().iter().filter(|ran| ran.running).count(), 1, "nothing was started twice");
}
