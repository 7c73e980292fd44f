//! A cluster of one node: a control plane, containerd, and `imagelet run` as the node, in a network of the test's own. Several scenes
//! may share one, each in a namespace of its own; one that fails does not keep the next ones from running.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use super::disk::LoopFs;
use super::network::enter_own_network;
use super::node::{FOREVER, NODE, Node};

/// The cluster. The node is dropped before the control plane.
pub(crate) struct Cluster {
    pub(crate) node: Node,
    pub(crate) plane: ControlPlane,
}

impl Cluster {
    /// A cluster with controllers and scheduler whose node is Ready.
    #[track_caller]
    pub(crate) fn start() -> Self {
        Self::with(&json!({}))
    }

    /// The same with more of a configuration of imagelet.
    #[track_caller]
    pub(crate) fn with(settings: &Value) -> Self {
        let mut cluster = Self::idle(settings);
        cluster.node.start();
        cluster.is_ready();
        cluster
    }

    /// The same before imagelet is started.
    #[track_caller]
    pub(crate) fn idle(settings: &Value) -> Self {
        Self::idle_on(None, settings)
    }

    /// The same with a disk of the node's own.
    #[track_caller]
    pub(crate) fn idle_on(disk: Option<LoopFs>, settings: &Value) -> Self {
        enter_own_network();
        let plane = ControlPlane::with_managers();
        let mut all = json!({"kubeconfig": plane.node(NODE), "registerWithTaints": [], "clientCAFile": plane.file("ca.crt"), "clusterDomain": "cluster.local"});
        for (field, value) in settings.as_object().expect("settings are an object") {
            all[field] = value.clone();
        }
        if all.get("fleet").is_some() {
            all["fleet"]["kubeconfig"] = json!(plane.node(NODE));
        }
        Self { node: Node::on(disk, &all), plane }
    }

    /// Waits until the node is Ready, and pods can be scheduled to it.
    #[track_caller]
    pub(crate) fn is_ready(&self) {
        self.plane.until("the node has registered", || self.plane.try_kubectl(&["get", "node", NODE]).code == Some(0));
        self.plane.wait(&["--for=condition=Ready", &format!("node/{NODE}")]);
        self.plane.until_object(&["node", NODE], "its controller has seen that it is ready", |node| {
            let taints = node["spec"]["taints"].as_array().into_iter().flatten();
            taints
                .into_iter()
                .all(|taint| !taint["key"].as_str().unwrap_or_default().starts_with("node.kubernetes.io/"))
        });
    }

    /// Kills imagelet as `kill -9` does, and starts it again.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.node.kill();
        self.node.start();
    }

    /// A namespace for a scene, with the account that its pods have.
    #[track_caller]
    pub(crate) fn namespace(&self, name: &str) -> Namespace<'_> {
        self.plane.kubectl(&["create", "namespace", name]);
        let exists = || self.plane.try_kubectl(&["get", "serviceaccount", "default", "-n", name]).code == Some(0);
        self.plane.until("the account of pods is there", exists);
        Namespace { cluster: self, name: name.to_owned() }
    }

    /// Returns an existing namespace.
    pub(crate) fn namespace_again(&self, name: &str) -> Namespace<'_> {
        Namespace { cluster: self, name: name.to_owned() }
    }

    /// A container that runs a shell script.
    pub(crate) fn container(&self, name: &str, script: &str) -> Value {
        self.node.container(name, script)
    }
}

/// A namespace of a cluster, and `kubectl` in it.
pub(crate) struct Namespace<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) name: String,
}

impl Namespace<'_> {
    /// The arguments, in this namespace.
    fn here<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        // Before `--`, behind which the words are a container's.
        let end = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        [&args[..end], &["-n", &self.name], &args[end..]].concat()
    }

    /// Runs `kubectl` to a good end. The answer is its standard output.
    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.cluster.plane.kubectl(&self.here(args))
    }

    /// Runs `kubectl` to its end, whatever that is.
    #[track_caller]
    pub(crate) fn try_kubectl(&self, args: &[&str]) -> super::cli::Done {
        self.cluster.plane.try_kubectl(&self.here(args))
    }

    /// `kubectl wait`.
    #[track_caller]
    pub(crate) fn wait(&self, args: &[&str]) {
        self.cluster.plane.wait(&self.here(args));
    }

    /// `kubectl get … -o json`.
    #[track_caller]
    pub(crate) fn get(&self, args: &[&str]) -> Value {
        self.cluster.plane.get(&self.here(args))
    }

    /// Waits until an object is such, and answers it.
    #[track_caller]
    pub(crate) fn until(&self, args: &[&str], what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.cluster.plane.until_object(&self.here(args), what, wanted)
    }

    /// Makes or changes an object in this namespace.
    #[track_caller]
    pub(crate) fn apply(&self, object: Value) {
        let mut object = object;
        object["metadata"]["namespace"] = json!(self.name);
        self.cluster.plane.apply(&object);
    }

    /// Makes a pod.
    #[track_caller]
    pub(crate) fn pod(&self, name: &str, spec: Value) {
        self.apply(pod(name, spec));
    }

    /// Makes a pod of one container that runs on, and waits until it is ready. The answer is the pod.
    #[track_caller]
    pub(crate) fn running(&self, name: &str) -> Value {
        let container = self.cluster.container("main", FOREVER);
        self.pod(name, json!({"terminationGracePeriodSeconds": 1, "containers": [container]}));
        self.ready(name)
    }

    /// Waits until a pod is ready, and answers it.
    #[track_caller]
    pub(crate) fn ready(&self, pod: &str) -> Value {
        self.wait(&["--for=condition=Ready", &format!("pod/{pod}")]);
        self.get(&["pod", pod])
    }

    /// Waits until a pod is in a phase, and answers it.
    #[track_caller]
    pub(crate) fn phase(&self, pod: &str, phase: &str) -> Value {
        self.until(&["pod", pod], &format!("it is {phase}"), |pod| pod["status"]["phase"] == phase)
    }

    /// Names of the pods with this label.
    #[track_caller]
    pub(crate) fn pods(&self, label: &str) -> Vec<Value> {
        self.get(&["pods", "-l", label])["items"].as_array().cloned().unwrap_or_default()
    }

    /// Messages of the events of an object which have this reason.
    #[track_caller]
    pub(crate) fn events(&self, object: &str, reason: &str) -> Vec<String> {
        let selector = format!("involvedObject.name={object},reason={reason}");
        let list = self.get(&["events", "--field-selector", &selector]);
        let messages = list["items"].as_array().into_iter().flatten();
        messages.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Deletes the namespace with everything in it, and waits until it is removed.
    #[track_caller]
    pub(crate) fn clear(self) {
        self.cluster.plane.kubectl(&["delete", "namespace", &self.name, "--timeout=120s"]);
    }
}

/// Says that the server does not have what a scene is about. `.config/nextest.toml` shows it.
#[expect(clippy::print_stderr, reason = "what is left out is said, though the test passes")]
pub(crate) fn left_out(scene: &Namespace<'_>, why: &str) {
    let (major, minor) = scene.cluster.plane.version();
    eprintln!("{} is left out with Kubernetes {major}.{minor}: {why}", scene.name);
}

/// A pod of this name.
pub(crate) fn pod(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

/// A scene with its name, which its namespace has, too.
pub(crate) type Played = (&'static str, fn(&Namespace<'_>));

/// Plays scenes one after the other, each in a namespace of its name, and fails at the end if any has.
#[track_caller]
#[expect(clippy::print_stderr, reason = "a test that fails says which of its scenes did")]
pub(crate) fn play(cluster: &Cluster, scenes: &[Played]) {
    let mut failed = Vec::new();
    for (name, scene) in scenes {
        let played = catch_unwind(AssertUnwindSafe(|| {
            let namespace = cluster.namespace(name);
            scene(&namespace);
            // Its controller takes seconds for each, in which the next scenes are played.
            cluster.plane.kubectl(&["delete", "namespace", name, "--wait=false"]);
        }));
        if played.is_err() {
            let said = cluster.plane.try_kubectl(&["get", "all,events", "-o", "wide", "-n", name]);
            let log = cluster.node.log();
            let log = log[log.len().saturating_sub(30)..].join("\n");
            eprintln!("the scene {name} failed:\n{}{}\nimagelet said:\n{log}", said.stdout, said.stderr);
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "of {} scenes these failed: {}", scenes.len(), failed.join(", "));
    let names: Vec<&str> = scenes.iter().map(|(name, _)| *name).collect();
    cluster.plane.kubectl(&[&["delete", "namespace", "--ignore-not-found", "--timeout=120s"], &names[..]].concat());
    cluster.node.nothing_is_left();
}
