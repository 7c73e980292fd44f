//! A node without Kubernetes: `imagelet run` on a directory of manifests, Debian's containerd with runc and CNI, a registry, all
//! of it in a network of the test's own. Inspects pods as a person does (`imagelet pods`), and independently of imagelet in the
//! runtime itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cri_api::{ContainerState, ExecSyncOutput, RuntimeService as _};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, RemoteRuntimeService, connect_runtime_service};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::containerd::Setup;
use super::disk::LoopFs;
use super::leaks::Baseline;
use super::network::{NODE_IP, carry_to_socket, enter_own_network};
use super::pods::idle_image;
use super::process::{Daemon, eventually, run, signal};
use super::scene::Scene;
use super::{Containerd, Imagelet};

/// The node's name, which is the end of the names of its pods.
pub(crate) const NODE: &str = "edge";
/// The namespace of all pods here.
pub(crate) const NAMESPACE: &str = "shop";
/// The port at which the health service of containerd answers over gRPC, on the node.
pub(crate) const HEALTH_PORT: u16 = 7711;

/// How long a pod may take to reach a state: includes back-offs of ten seconds and a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The node. Fields are dropped in this order: a field before those that it uses.
pub(crate) struct Node {
    agent: Option<Daemon>,
    /// The lines of agents that have ended.
    earlier: RefCell<Vec<String>>,
    pub(crate) imagelet: Imagelet,
    runtime: Runtime,
    service: RemoteRuntimeService,
    pub(crate) containerd: Containerd,
    /// The image of all containers, with busybox in it; it is on the node.
    pub(crate) image: String,
    baseline: Baseline,
    pub(crate) scene: Scene,
}

/// A container, as the runtime has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ran {
    /// `pod/container`, without the node's name.
    pub(crate) of: String,
    pub(crate) attempt: u32,
    pub(crate) id: String,
    pub(crate) running: bool,
}

impl Node {
    /// A node whose agent runs, without pods.
    #[track_caller]
    pub(crate) fn new() -> Self {
        Self::with(&json!({}))
    }

    /// The same with more of a configuration.
    #[track_caller]
    pub(crate) fn with(settings: &Value) -> Self {
        let mut node = Self::idle(settings);
        node.start();
        node
    }

    /// A node on which no agent runs yet.
    #[track_caller]
    pub(crate) fn idle(settings: &Value) -> Self {
        enter_own_network();
        Self::here(settings)
    }

    /// The same in the network of the test's own that this thread is in already.
    #[track_caller]
    pub(crate) fn here(settings: &Value) -> Self {
        Self::on(None, settings)
    }

    /// The same with a disk of its own, on which imagelet and containerd have their roots.
    #[track_caller]
    pub(crate) fn on(disk: Option<LoopFs>, settings: &Value) -> Self {
        Self::set_up(disk, None::<fn(&Scene) -> String>, settings)
    }

    /// A node on which no agent runs yet, and whose containerd creates sandboxes from this image.
    #[track_caller]
    pub(crate) fn idle_with_sandbox_image(name: impl FnOnce(&Scene) -> String) -> Self {
        enter_own_network();
        Self::set_up(None, Some(name), &json!({}))
    }

    #[track_caller]
    fn set_up(disk: Option<LoopFs>, sandbox_image: Option<impl FnOnce(&Scene) -> String>, settings: &Value) -> Self {
        let scene = Scene::new();
        let disk = disk.map(|disk| disk.mount(&scene.scratch, "root"));
        let image = scene.registry.push(&scene.layout, &idle_image(&scene, &[]), "infra/busybox:1");
        let root = disk.map(|disk| disk.join("containerd"));
        let sandbox_image = Some(sandbox_image.map_or_else(|| image.clone(), |name| name(&scene)));
        let setup = Setup { root, sandbox_image, pod_network: true, ..Setup::default() };
        let containerd = Containerd::with(scene.registry.host(), setup);
        carry_to_socket(HEALTH_PORT, containerd.socket());
        let endpoint = containerd.endpoint();
        Imagelet::remote(&endpoint).ok(&["pull", &image]);
        for directory in ["manifests", "documents", "log/pods", "log/containers", "out"] {
            scene.scratch.directory(directory);
        }
        let path = |name: &str| scene.scratch.join(name).display().to_string();
        let mut config = json!({
            "apiVersion": "imagelet.dev/v1alpha1",
            "kind": "ImageletConfiguration",
            "root": path("root"),
            "containerRuntimeEndpoint": endpoint,
            "imageServiceEndpoint": endpoint,
            // Those that containerd itself has: either may pull.
            "registryConfigPaths": [containerd.certs().display().to_string()],
            "staticPodPath": path("manifests"),
            "documentsDirectory": path("documents"),
            "podLogsDir": path("log/pods"),
            "podCgroup": containerd.scratch().cgroup(),
            "nodeName": NODE,
            "nodeIP": [NODE_IP],
            // How full the machine's disk is must not matter.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"imagefs.available": "0%", "imagefs.inodesFree": "0%",
                             "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
        });
        for (field, value) in settings.as_object().expect("settings are an object") {
            config[field] = value.clone();
        }
        fs::write(scene.scratch.join("config.yaml"), config.to_string()).expect("write a configuration");
        let imagelet = Imagelet::bare().global("--config", &path("config.yaml"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let endpoint = Endpoint::parse(&endpoint).expect("an endpoint");
        let service = runtime.block_on(connect_runtime_service(&endpoint, ClientOptions::default())).expect("connect");
        let baseline = Baseline::of(&scene.scratch, &containerd);
        Self {
            agent: None,
            earlier: RefCell::default(),
            imagelet,
            runtime,
            service,
            containerd,
            image,
            baseline,
            scene,
        }
    }

    /// Starts the agent, and returns when it answers.
    #[track_caller]
    pub(crate) fn start(&mut self) {
        self.start_only();
        eventually("the agent answers", || self.imagelet.run(&["pods", "-A", "-o", "json"]).code == Some(0));
    }

    /// Starts the agent.
    #[track_caller]
    pub(crate) fn start_only(&mut self) {
        assert!(self.agent.is_none(), "an agent runs already");
        self.agent = Some(self.imagelet.daemon(&["run"]));
    }

    /// Ends the agent as a service manager does.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        let mut agent = self.agent.take().expect("an agent runs");
        let running = || self.ran().into_iter().filter(|ran| ran.running).collect::<Vec<_>>();
        let before = running();
        let by_itself = agent.stop();
        self.earlier.borrow_mut().extend(agent.lines());
        assert!(by_itself, "the agent waits for something");
        assert_eq!(running(), before, "an agent ends, and its pods go on");
    }

    /// Ends the agent as `kill -9` does.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        let agent = self.agent.take().expect("an agent runs");
        self.earlier.borrow_mut().extend(agent.lines());
        agent.kill();
    }

    /// Kills the agent and containerd at the same moment.
    #[track_caller]
    pub(crate) fn kill_both(&mut self) {
        signal(self.agent.as_ref().expect("an agent runs").pid(), Signal::KILL);
        self.containerd.kill();
        self.kill();
    }

    /// Changes settings of the configuration's file. The agent takes them when it reloads.
    #[track_caller]
    pub(crate) fn configure(&self, settings: &Value) {
        let path = self.scene.scratch.join("config.yaml");
        let text = fs::read_to_string(&path).expect("read the configuration");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        for (field, value) in settings.as_object().expect("settings are an object") {
            config[field] = value.clone();
        }
        put(&path, config.to_string().as_bytes());
    }

    /// Has the agent reload its configuration.
    #[track_caller]
    pub(crate) fn reload(&self) {
        signal(self.agent.as_ref().expect("an agent runs").pid(), Signal::HUP);
    }

    /// The process of the agent.
    #[track_caller]
    pub(crate) fn agent_pid(&self) -> u32 {
        self.agent.as_ref().expect("an agent runs").pid()
    }

    /// The lines that the agents have written so far.
    pub(crate) fn log(&self) -> Vec<String> {
        let now = self.agent.as_ref().map(Daemon::lines).unwrap_or_default();
        self.earlier.borrow().iter().cloned().chain(now).collect()
    }

    /// A directory of the machine that pods may be given: `/…/out`.
    pub(crate) fn out(&self) -> PathBuf {
        self.scene.scratch.join("out")
    }

    /// The lines that a pod has written to a file in [`Node::out`]; empty if there is no file.
    pub(crate) fn written(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.out().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Puts a manifest in place, in one step.
    #[track_caller]
    pub(crate) fn write(&self, file: &str, manifest: &Value) {
        self.write_bytes(file, manifest.to_string().as_bytes());
    }

    /// Puts bytes in the place of a manifest, in one step.
    #[track_caller]
    pub(crate) fn write_bytes(&self, file: &str, bytes: &[u8]) {
        put(&self.scene.scratch.join("manifests").join(file), bytes);
    }

    /// Puts a document for pods in place, in one step.
    #[track_caller]
    pub(crate) fn document(&self, file: &str, document: &Value) {
        put(&self.scene.scratch.join("documents").join(file), document.to_string().as_bytes());
    }

    /// Takes a manifest away.
    #[track_caller]
    pub(crate) fn remove(&self, file: &str) {
        fs::remove_file(self.scene.scratch.join("manifests").join(file)).expect("remove a manifest");
    }

    /// Takes all manifests away.
    #[track_caller]
    pub(crate) fn remove_all(&self) {
        for entry in fs::read_dir(self.scene.scratch.join("manifests")).expect("a directory") {
            fs::remove_file(entry.expect("an entry").path()).expect("remove a manifest");
        }
    }

    /// A pod's manifest in which this is the spec.
    pub(crate) fn pod(&self, name: &str, spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    }

    /// A container that runs a script.
    pub(crate) fn container(&self, name: &str, script: &str) -> Value {
        json!({"name": name, "image": self.image, "imagePullPolicy": "IfNotPresent", "command": ["/bin/sh", "-c", script]})
    }

    /// All pods, by their names without the node's.
    #[track_caller]
    pub(crate) fn pods(&self) -> BTreeMap<String, Value> {
        self.read_pods(&self.imagelet.ok(&["pods", "-A", "-o", "json"]))
    }

    /// The same; `None` while no agent answers.
    #[track_caller]
    pub(crate) fn try_pods(&self) -> Option<BTreeMap<String, Value>> {
        let done = self.imagelet.run(&["pods", "-A", "-o", "json"]);
        (done.code == Some(0)).then(|| self.read_pods(&done.stdout))
    }

    #[track_caller]
    fn read_pods(&self, text: &str) -> BTreeMap<String, Value> {
        let list: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("pods -o json: {e}:\n{text}"));
        let items = list["items"].as_array().unwrap_or_else(|| panic!("pods -o json has no list of items:\n{text}"));
        items.iter().map(|pod| (short(pod["metadata"]["name"].as_str().unwrap_or_default()), pod.clone())).collect()
    }

    /// Waits until `wanted` makes something of a pod.
    #[track_caller]
    pub(crate) fn until<T>(&self, pod: &str, what: &str, wanted: impl Fn(&Value) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            let found = self.try_pods().and_then(|mut pods| pods.remove(pod));
            if let Some(done) = found.as_ref().and_then(&wanted) {
                return done;
            }
            assert!(
                Instant::now() < until,
                "pod {pod} never comes to this: {what}; it is {:#}",
                found.unwrap_or(Value::Null)
            );
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// Waits until a pod is ready, and answers it.
    #[track_caller]
    pub(crate) fn ready(&self, pod: &str) -> Value {
        self.until(pod, "it is ready", |pod| is(pod, "Ready").then(|| pod.clone()))
    }

    /// Waits until a container waits for this reason, and answers the message.
    #[track_caller]
    pub(crate) fn waits(&self, pod: &str, container: &str, reason: &str) -> String {
        self.until(pod, &format!("{container} waits because of {reason}"), |pod| {
            let waiting = &container_status(pod, container)?["state"]["waiting"];
            (waiting["reason"] == reason).then(|| waiting["message"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// Waits until a pod is in a phase for good, and answers it.
    #[track_caller]
    pub(crate) fn phase(&self, pod: &str, phase: &str) -> Value {
        self.until(pod, &format!("it is {phase}"), |pod| (pod["status"]["phase"] == phase).then(|| pod.clone()))
    }

    /// Waits until something is so that is not said of one pod.
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, is_so: impl FnMut() -> bool) {
        self.within(PATIENCE, what, is_so);
    }

    /// The same with another patience.
    #[track_caller]
    pub(crate) fn within(&self, patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + patience;
        while !is_so() {
            assert!(Instant::now() < until, "it never comes to this: {what}; the runtime has {:#?}", self.ran());
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// Waits until imagelet knows no pod, and nothing of any is left anywhere.
    #[track_caller]
    pub(crate) fn nothing_is_left(&self) {
        self.nothing_is_left_but(|_| false);
    }

    /// The same, but for what is not imagelet's to take away.
    #[track_caller]
    pub(crate) fn nothing_is_left_but(&self, excused: impl Fn(&str) -> bool) {
        self.eventually("no pod is known", || self.pods().is_empty());
        let mut left = Vec::new();
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            left = self.left();
            left.retain(|line| !excused(line));
            if left.is_empty() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        panic!("this is left of pods that are gone:\n{}", left.join("\n"));
    }

    /// Takes all manifests away, and waits until nothing is left.
    #[track_caller]
    pub(crate) fn clear(&self) {
        self.remove_all();
        self.nothing_is_left();
    }

    /// Every container that the runtime has.
    #[track_caller]
    pub(crate) fn ran(&self) -> Vec<Ran> {
        let listed = self.listed("list containers", async || self.service.list_containers(None).await);
        let label = |c: &cri_api::Container, name| c.labels.get(name).cloned().unwrap_or_default();
        let mut all: Vec<Ran> = listed
            .iter()
            .map(|container| Ran {
                of: format!(
                    "{}/{}",
                    short(&label(container, "io.kubernetes.pod.name")),
                    label(container, "io.kubernetes.container.name")
                ),
                attempt: container.metadata.attempt,
                running: container.state == ContainerState::Running,
                id: container.id.clone(),
            })
            .collect();
        all.sort();
        all
    }

    /// Asks the runtime, which may be starting just now.
    #[track_caller]
    fn listed<T>(&self, what: &str, list: impl AsyncFn() -> cri_api::Result<Vec<T>>) -> Vec<T> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.runtime.block_on(list()) {
                Ok(listed) => return listed,
                Err(error) => assert!(Instant::now() < until, "{what}: {error}"),
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Names of the pods of all sandboxes that the runtime has, and whether they are ready.
    #[track_caller]
    pub(crate) fn sandboxes(&self) -> Vec<(String, bool)> {
        let listed = self.listed("list sandboxes", async || self.service.list_pod_sandboxes(None).await);
        let mut all: Vec<(String, bool)> =
            listed.into_iter().map(|sandbox| (short(&sandbox.metadata.name), sandbox.ready)).collect();
        all.sort();
        all
    }

    /// The running container of a pod, `pod/container`.
    #[track_caller]
    pub(crate) fn running(&self, of: &str) -> Ran {
        let mut running: Vec<Ran> = self.ran().into_iter().filter(|ran| ran.running && ran.of == of).collect();
        assert_eq!(running.len(), 1, "containers of {of} that run: {running:?}");
        running.remove(0)
    }

    /// Runs a script in a running container, past imagelet.
    #[track_caller]
    pub(crate) fn in_container(&self, of: &str, script: &str) -> String {
        let id = self.running(of).id;
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        let ran = self.runtime.block_on(self.service.exec_sync(&id, &command, Duration::from_secs(20)));
        let ExecSyncOutput { stdout, stderr, exit_code, .. } = ran.unwrap_or_else(|e| panic!("run {script:?}: {e}"));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(stdout), text(stderr));
        assert_eq!(exit_code, 0, "{script:?} in {of}: {stdout}{stderr}");
        stdout
    }

    /// Ends a running container past imagelet.
    #[track_caller]
    pub(crate) fn end_container(&self, of: &str) {
        let id = self.running(of).id;
        let stopped = self.runtime.block_on(self.service.stop_container(&id, Duration::ZERO));
        stopped.unwrap_or_else(|e| panic!("end {of}: {e}"));
    }

    /// Reasons and messages of a pod's events, oldest first.
    #[track_caller]
    pub(crate) fn events(&self, pod: &str) -> Vec<(String, String)> {
        let text = self.imagelet.ok(&["events", "-o", "json"]);
        let list: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("events -o json: {e}:\n{text}"));
        let items = list["items"].as_array().unwrap_or_else(|| panic!("events -o json has no list of items:\n{text}"));
        let full = full(pod);
        let word = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        items
            .iter()
            .filter(|event| event["involvedObject"]["name"] == full.as_str())
            .map(|event| (word(event, "reason"), word(event, "message")))
            .collect()
    }

    /// Everything that is left of pods on the machine.
    #[track_caller]
    pub(crate) fn left(&self) -> Vec<String> {
        self.baseline.left(self)
    }

    /// Calls the runtime past imagelet.
    pub(crate) fn call<'a, T>(&'a self, call: impl FnOnce(&'a RemoteRuntimeService) -> T) -> T::Output
    where
        T: Future,
    {
        self.runtime.block_on(call(&self.service))
    }

    /// `ctr` of the runtime, for what CRI does not show.
    #[track_caller]
    pub(crate) fn ctr(&self, args: &[&str]) -> String {
        run(self.containerd.ctr().args(args))
    }
}

#[expect(clippy::print_stderr, reason = "a test that fails says what its daemons said")]
impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            eprintln!("the agent's last words:\n{}", log[log.len().saturating_sub(80)..].join("\n"));
            let lines = self.containerd.lines();
            let worse: Vec<&String> = lines.iter().filter(|l| !l.contains("level=info")).collect();
            let from = worse.len().saturating_sub(10);
            eprintln!("containerd's:\n{}", worse[from..].iter().map(|l| l.as_str()).collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Puts a file in place in one step, so that readers see all of it.
#[track_caller]
fn put(path: &std::path::Path, bytes: &[u8]) {
    let name = path.file_name().expect("a file has a name").to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    fs::write(&new, bytes).expect("write a file");
    fs::rename(&new, path).expect("put a file in place");
}

/// The name of a pod without the node's.
fn short(name: &str) -> String {
    name.strip_suffix(&format!("-{NODE}")).unwrap_or(name).to_owned()
}

/// The name of a pod with the node's.
pub(crate) fn full(name: &str) -> String {
    format!("{name}-{NODE}")
}

/// Returns true if a condition of a pod is True.
pub(crate) fn is(pod: &Value, condition: &str) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

/// The status of a container of a pod, of whichever kind.
pub(crate) fn container_status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .iter()
        .filter_map(|kind| pod["status"][kind].as_array())
        .flatten()
        .find(|status| status["name"] == container)
}

/// How often a container was restarted.
#[track_caller]
pub(crate) fn restarts(pod: &Value, container: &str) -> u64 {
    let status = container_status(pod, container).unwrap_or_else(|| panic!("no container {container} in {pod:#}"));
    status["restartCount"].as_u64().expect("a number")
}

/// A script that runs until it is asked to end.
pub(crate) const FOREVER: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";
