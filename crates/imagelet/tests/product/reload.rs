//! SIGHUP as a service manager sends it: which settings change at once, which need a restart, and that a wrong configuration changes
//! nothing; the watchdog; and `imagelet run` that serves images in addition to running pods.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use cri_api::{ImageService as _, ImageSpec, PullImageRequest, RuntimeService as _};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service, connect_runtime_service};
use registry::testing::{ImageBuilder, TestRegistry};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::gc::decision;
use crate::support::node::{FOREVER, Node};
use crate::support::process::{Daemon, run, signal, tool};
use crate::support::systemd::Systemd;
use crate::support::{Imagelet, Scratch};

fn unix(path: &Path) -> String {
    format!("unix://{}", path.display())
}

/// The endpoint of a socket.
fn endpoint(path: &Path) -> Endpoint {
    Endpoint::parse(&unix(path)).expect("an endpoint")
}

/// An agent that serves images by a configuration's file.
struct Served {
    scratch: Scratch,
    systemd: Systemd,
    imagelet: Imagelet,
    socket: PathBuf,
}

impl Served {
    fn new(systemd: impl FnOnce(Systemd) -> Systemd) -> Self {
        let scratch = Scratch::new();
        let (systemd, socket) = (systemd(Systemd::new(&scratch)), scratch.join("cri.sock"));
        let config = scratch.join("config.yaml").display().to_string();
        Self { systemd, imagelet: Imagelet::bare().global("--config", &config), socket, scratch }
    }

    /// Writes the configuration: `more` in addition to the paths.
    fn configure(&self, more: &Value) {
        let mut config = json!({
            "apiVersion": "imagelet.dev/v1alpha1",
            "kind": "ImageletConfiguration",
            "root": self.scratch.join("root").display().to_string(),
            "listen": unix(&self.socket),
            "imageMinimumGCAge": "0s",
        });
        for (field, value) in more.as_object().expect("settings") {
            config[field] = value.clone();
        }
        fs::write(self.scratch.join("config.yaml"), config.to_string()).expect("written");
    }

    fn start(&self) -> Daemon {
        let agent = self.systemd.tells(&self.imagelet).daemon(&["serve"]);
        assert_eq!(self.systemd.hears(), self.ready());
        agent
    }

    fn ready(&self) -> String {
        format!("READY=1\nSTATUS=serving images on {}", unix(&self.socket))
    }

    /// Has the agent reload, and waits until it has.
    #[track_caller]
    fn reload(&self, agent: &Daemon) {
        signal(agent.pid(), Signal::HUP);
        let word = self.systemd.hears();
        let micros = word.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|micros| micros.parse::<u64>().ok());
        assert!(micros.is_some_and(|micros| micros > 0), "{word}");
        assert_eq!(self.systemd.hears(), self.ready());
    }

    /// The images that the agent would remove. The command does not read the agent's file.
    fn plan(&self) -> Value {
        Imagelet::on(&self.scratch.join("root")).plan(&["--all-unused"])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_change_at_once_and_a_wrong_configuration_changes_nothing() {
    let served = Served::new(|systemd| systemd);
    let registry = TestRegistry::open().await;
    registry.push("base/os", "1", &ImageBuilder::tiny("base"));
    registry.push("team/app", "1", &ImageBuilder::tiny("app"));
    served.configure(&json!({}));
    let agent = served.start();
    for name in ["base/os:1", "team/app:1"] {
        served.imagelet.ok(&["pull", &format!("{}/{name}", registry.host())]);
    }
    let plan = served.plan();
    assert_eq!((decision(&plan, "base/os:1"), decision(&plan, "team/app:1")), ("remove", "remove"));
    assert_eq!(plan["highThresholdPercent"], 85);

    let elsewhere = served.scratch.join("elsewhere").display().to_string();
    let keep = format!("{}/base/*", registry.host());
    let changed = json!({
        "imageGCHighThresholdPercent": 70,
        "imageGCLowThresholdPercent": 60,
        "imageGC": {"keep": [keep]},
        "maxPullBandwidth": "1Mi",
        "pullMemory": "16Mi",
        "adminSocket": elsewhere,
    });
    served.configure(&changed);
    served.reload(&agent);
    let plan = served.plan();
    assert_eq!((decision(&plan, "base/os:1"), decision(&plan, "team/app:1")), ("rule", "remove"));
    assert_eq!(plan["highThresholdPercent"], 70);
    let said = |line: &str| agent.lines().iter().any(|said| said.contains(line));
    for line in [
        "INFO configuration: imageGCHighThresholdPercent: 85 → 70".to_owned(),
        format!("INFO configuration: imageGC.keep: none → {keep}"),
        "INFO configuration: maxPullBandwidth: 0 → 1Mi".to_owned(),
        "WARN configuration: pullMemory: 32Mi → 16Mi needs a restart".to_owned(),
        format!("WARN configuration: adminSocket: none → {elsewhere} needs a restart"),
        "INFO configuration reloaded changed=4 pending=2".to_owned(),
    ] {
        assert!(said(&line), "no {line}:\n{}", agent.lines().join("\n"));
    }

    // Every error is reported, and none of the settings is applied.
    served
        .configure(&json!({"imageGCHighThresholdPercent": 30, "imageGCLowThresholdPercent": 40, "durability": "fast"}));
    served.reload(&agent);
    let plan = served.plan();
    assert_eq!((decision(&plan, "base/os:1"), &plan["highThresholdPercent"]), ("rule", &json!(70)));
    let refusals = agent.lines().iter().filter(|line| line.contains("is not reloaded")).count();
    assert_eq!(refusals, 2, "{}", agent.lines().join("\n"));
    assert!(said("config.yaml:1: durability: \\\"fast\\\" is not allowed"), "{}", agent.lines().join("\n"));

    // The previous configuration again: only settings that differ from those in force are reported.
    served.configure(&json!({"imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 60}));
    served.reload(&agent);
    assert_eq!(decision(&served.plan(), "base/os:1"), "remove");
    assert!(said("INFO configuration reloaded changed=2 pending=0"), "{}", agent.lines().join("\n"));
}

#[test]
fn the_configuration_in_force_is_shown_without_its_secrets() {
    let served = Served::new(|systemd| systemd);
    let secrets = json!({
        "staticPodURL": "https://me:s3cret@config.example/pods",
    });
    served.configure(&secrets);
    let agent = served.start();
    let socket = served.scratch.join("root/admin.sock").display().to_string();
    let configz = || run(tool("curl").args(["-sS", "--fail", "--unix-socket", &socket, "http://imagelet/configz"]));
    let in_force = |text: &str| serde_json::from_str::<Value>(text).expect("JSON")["imageletconfig"].clone();
    let text = configz();
    assert!(!text.contains("s3cret"), "{text}");
    let shown = in_force(&text);
    assert_eq!((&shown["kind"], &shown["listen"]), (&json!("ImageletConfiguration"), &json!(unix(&served.socket))));
    assert_eq!(shown["staticPodURL"], "https://me:xxxxx@config.example/pods");
    assert_eq!((&shown["imageGCHighThresholdPercent"], &shown["pullMemory"]), (&json!(85), &json!("32Mi")));

    // After a reload: what is in force, not what the file says.
    let mut changed = secrets;
    changed["imageGCHighThresholdPercent"] = json!(82);
    changed["pullMemory"] = json!("16Mi");
    served.configure(&changed);
    served.reload(&agent);
    let shown = in_force(&configz());
    assert_eq!((&shown["imageGCHighThresholdPercent"], &shown["pullMemory"]), (&json!(82), &json!("32Mi")));
}

#[test]
fn the_watchdog_hears_from_an_agent_until_it_ends() {
    let served = Served::new(|systemd| systemd.with_watchdog(300_000));
    served.configure(&json!({}));
    let mut agent = served.start();
    for _ in 0..3 {
        assert_eq!(served.systemd.hears(), "WATCHDOG=1");
    }
    signal(agent.pid(), Signal::TERM);
    let mut word = served.systemd.hears();
    while word == "WATCHDOG=1" {
        word = served.systemd.hears();
    }
    assert_eq!(word, "STOPPING=1\nSTATUS=ending; long calls go on until then");
    assert_eq!(agent.ended().code(), Some(0));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_that_waits_takes_the_reloaded_limit() {
    let node = Node::with(&json!({"maxParallelImagePulls": 1}));
    let pod = |name: &str, image: &str| {
        let mut container = node.container("main", FOREVER);
        container["image"] = json!(image);
        container["imagePullPolicy"] = json!("Always");
        node.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [container]}))
    };
    // A registry that takes connections and answers nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let host = silent.local_addr().expect("an address");
    node.write("stuck.json", &pod("stuck", &format!("{host}/team/stuck:1")));
    let _connection = silent.accept().expect("its pull is under way");
    node.write("waits.json", &pod("waits", &node.image));
    let metric = |name: &str| {
        let text = node.imagelet.ok(&["metrics"]);
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.and_then(|number| number.trim().parse::<f64>().ok())
    };
    node.eventually("a pull waits", || metric("imagelet_pull_queue_length") == Some(1.0));
    node.configure(&json!({"maxParallelImagePulls": 2}));
    node.reload();
    node.ready("waits");
    assert_eq!(metric("imagelet_pull_queue_length"), Some(0.0));
    let change = "INFO configuration: maxParallelImagePulls: 1 → 2";
    assert!(node.log().iter().any(|line| line.contains(change)), "{}", node.log().join("\n"));
    node.clear();
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_run_and_images_are_served_by_one_agent() {
    let mut node = Node::idle(&json!({}));
    let socket = node.scene.scratch.join("cri.sock");
    node.configure(&json!({"listen": unix(&socket)}));
    let (name, image) = node.scene.push_file("team/served:1", "a", "served");
    node.start();
    node.write("web.json", &node.pod("web", json!({"containers": [node.container("main", FOREVER)]})));
    node.ready("web");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = connect_image_service(&endpoint(&socket), ClientOptions::default()).await.expect("connect");
        let id = client.pull_image(PullImageRequest::new(&name)).await.expect("a pull");
        assert!(client.image_status(&ImageSpec::new(&id), false).await.expect("a status").image.is_some());
        // Calls for pods pass to the runtime on which they run.
        let pods = connect_runtime_service(&endpoint(&socket), ClientOptions::default()).await.expect("connect");
        let containers = pods.list_containers(None).await.expect("a list");
        assert!(containers.iter().any(|container| container.metadata.name == "main"), "{containers:?}");
    });
    // One collection and one admin socket know of both: the pod's image is in use, the served one is not.
    let ids = node.imagelet.ids();
    assert!(ids.contains(&image.id), "{ids:?}");
    let plan = node.imagelet.clone().hasty().plan(&["--all-unused", "--min-age", "0s"]);
    assert_eq!(decision(&plan, "infra/busybox:1"), "in-use", "{plan:#}");
    let served = format!("INFO image pulled image={name:?}");
    assert!(node.log().iter().any(|line| line.contains(&served)), "{}", node.log().join("\n"));
    let metrics = node.imagelet.ok(&["metrics"]);
    assert!(metrics.contains("kubelet_runtime_operations_total{operation_type=\"pull_image\"}"), "{metrics}");
    node.stop();
    assert!(node.log().iter().any(|line| line.contains("stopped serving")), "{}", node.log().join("\n"));
    node.start();
    node.ready("web");
    node.clear();
}
