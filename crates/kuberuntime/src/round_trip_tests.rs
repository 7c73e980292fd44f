//! The pure parts together, over the runtime in memory: a manifest is admitted, what it needs is done as the actions say,
//! and what the runtime then shows is what they look at next. The hands here are the simplest that there can be.

use std::collections::BTreeMap;
use std::time::Duration;

use cri_api::testing::{FakeProcess, FakeRuntimeService};
use cri_api::{ContainerFilter, PodSandboxFilter, RuntimeService as _};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::config::{self, ContainerInput, SandboxInput};
use crate::labels::{Owner, POD_UID};
use crate::pod::{Container, ContainerKind, Pod};
use crate::{
    Documents, ObservedContainer, ObservedPod, ObservedSandbox, Origin, PodActions, PodReason, PodStatus, ProbeResults,
    StatusInput, Surroundings, compute_pod_actions, pod_status, resolve_environment,
};

struct Hands {
    runtime: FakeRuntimeService,
    pod: Pod,
}

fn hands(spec: Value) -> Hands {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec});
    let pod = crate::admit(&manifest, "edge", Origin::File("/etc/pods/web.yaml")).expect("admitted");
    Hands { runtime: FakeRuntimeService::new(), pod }
}

impl Hands {
    async fn observe(&self) -> ObservedPod {
        let labels = BTreeMap::from([(POD_UID.to_owned(), self.pod.metadata.uid.clone())]);
        let filter = PodSandboxFilter { labels: labels.clone(), ..PodSandboxFilter::default() };
        let mut sandboxes = Vec::new();
        for sandbox in self.runtime.list_pod_sandboxes(Some(&filter)).await.expect("listed") {
            let status = self.runtime.pod_sandbox_status(&sandbox.id, false).await.expect("a status");
            sandboxes.push(ObservedSandbox::from(status));
        }
        let mut containers = Vec::new();
        let filter = ContainerFilter { labels, ..ContainerFilter::default() };
        for container in self.runtime.list_containers(Some(&filter)).await.expect("listed") {
            let status = self.runtime.container_status(&container.id, false).await.expect("a status");
            containers.push(ObservedContainer::from(status).in_sandbox(container.pod_sandbox_id));
        }
        let owner = Owner { uid: self.pod.metadata.uid.clone(), ..Owner::default() };
        ObservedPod::new(owner, sandboxes, containers)
    }

    async fn actions(&self) -> PodActions {
        compute_pod_actions(&self.pod, &self.observe().await, &ProbeResults::default())
    }

    async fn status(&self) -> PodStatus {
        pod_status(&StatusInput {
            pod: &self.pod,
            observed: &self.observe().await,
            probes: &ProbeResults::default(),
            waiting: &BTreeMap::new(),
            ended: None,
            host_ips: &[],
            runtime_name: "fake",
            previous: None,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    /// One look, and what it asks for.
    async fn sync(&self) -> PodActions {
        let observed = self.observe().await;
        let actions = compute_pod_actions(&self.pod, &observed, &ProbeResults::default());
        if actions.kill_pod.is_some() {
            for sandbox in &observed.sandboxes {
                self.runtime.stop_pod_sandbox(&sandbox.id).await.expect("stopped");
            }
        }
        for kill in &actions.containers_to_kill {
            self.runtime.stop_container(&kill.id, Duration::from_secs(2)).await.expect("stopped");
        }
        for reset in &actions.containers_to_reset {
            self.runtime.remove_container(&reset.id).await.expect("removed");
        }
        let input = SandboxInput {
            attempt: actions.attempt,
            log_directory: config::pod_log_directory("/var/log/pods", &self.pod),
            ..SandboxInput::default()
        };
        let sandbox_config = config::sandbox_config(&self.pod, input);
        let sandbox = match (actions.create_sandbox, &actions.sandbox_id) {
            (true, _) => self.runtime.run_pod_sandbox(&sandbox_config, "").await.expect("a sandbox"),
            (false, Some(id)) => id.clone(),
            (false, None) => return actions,
        };
        let spec = &self.pod.spec;
        let init = actions.init_to_start.iter().map(|s| (ContainerKind::Init, &spec.init_containers[s.index]));
        let normal = actions.containers_to_start.iter().map(|s| (ContainerKind::Normal, &spec.containers[s.index]));
        for (kind, container) in init.chain(normal) {
            self.start(kind, container, &observed, &sandbox, &sandbox_config).await;
        }
        actions
    }

    async fn start(
        &self,
        kind: ContainerKind,
        container: &Container,
        observed: &ObservedPod,
        sandbox: &str,
        sandbox_config: &cri_api::PodSandboxConfig,
    ) {
        let environment = resolve_environment(&self.pod, container, &Documents::default(), &Surroundings::default())
            .expect("resolved");
        let input = ContainerInput {
            restart_count: observed.latest(&container.name).map_or(0, |run| run.restart_count() + 1),
            image_ref: "sha256:1".into(),
            environment,
            ..ContainerInput::default()
        };
        let config = config::container_config(&self.pod, kind, container, input);
        let id = self.runtime.create_container(sandbox, &config, sandbox_config).await.expect("created");
        self.runtime.start_container(&id).await.expect("started");
    }

    /// Looks until there is nothing to do, and tells what each look asked for.
    async fn settle(&self) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..10 {
            let actions = self.sync().await;
            let over = actions.kill_pod.is_some() && !actions.create_sandbox;
            if actions.is_empty() || over {
                return told;
            }
            let starts = actions.init_to_start.iter().chain(&actions.containers_to_start);
            told.push(starts.map(|start| start.name.as_str()).collect::<Vec<_>>().join(" "));
        }
        panic!("it does not settle: {told:?}")
    }

    fn ends(&self, container: &str, code: i32) {
        self.runtime.behave(container, FakeProcess { ends: Some(code), ..FakeProcess::default() });
    }

    async fn id_of(&self, container: &str) -> String {
        self.observe().await.latest(container).expect("there").id.clone()
    }

    async fn counts(&self) -> Vec<u32> {
        self.status().await.container_statuses.iter().map(|container| container.restart_count).collect()
    }
}

#[tokio::test]
async fn a_pod_comes_up_in_order_and_then_rests() {
    let hands = hands(json!({
        "initContainers": [
            {"name": "first", "image": "x"}, {"name": "side", "image": "x", "restartPolicy": "Always"},
            {"name": "second", "image": "x"},
        ],
        "containers": [{"name": "a", "image": "x", "env": [{"name": "N", "value": "1"}]}, {"name": "b", "image": "x"}],
    }));
    hands.ends("first", 0);
    hands.ends("second", 0);
    assert_eq!(hands.settle().await, ["first", "side", "second", "a b"]);
    let status = hands.status().await;
    assert_eq!(status.phase.as_str(), "Running");
    assert!(status.is("Ready") && status.is("Initialized") && status.is("PodReadyToStartContainers"));
    assert_eq!(status.init_container_statuses.iter().filter(|c| c.ready).count(), 3);
    assert!(!status.pod_ip.is_empty());
    // A restart of this program looks at the same things, and finds nothing to do.
    assert!(hands.actions().await.is_empty());
}

#[tokio::test]
async fn what_ends_comes_back_alone_and_is_counted() {
    let hands = hands(json!({
        "initContainers": [{"name": "side", "image": "x", "restartPolicy": "Always"}],
        "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}],
    }));
    hands.settle().await;
    let (kept, sidecar) = (hands.id_of("a").await, hands.id_of("side").await);
    hands.runtime.exit(&hands.id_of("b").await, 3);
    hands.runtime.exit(&sidecar, 1);
    assert_eq!(hands.settle().await, ["side b"]);
    assert_eq!((hands.id_of("a").await, hands.counts().await), (kept, vec![0, 1]));
    let status = hands.status().await;
    assert_eq!(status.container_statuses[1].last_state.as_ref().map(|end| end.exit_code), Some(3));
    assert_eq!(status.phase.as_str(), "Running");
}

#[tokio::test]
async fn a_dead_sandbox_is_replaced_with_everything_in_it() {
    let init = json!([{"name": "i", "image": "x"}, {"name": "j", "image": "x"}]);
    let hands = hands(json!({"initContainers": init, "containers": [{"name": "a", "image": "x"}]}));
    hands.ends("i", 0);
    hands.ends("j", 0);
    hands.settle().await;
    let first = hands.observe().await.sandboxes[0].id.clone();
    hands.runtime.kill_sandbox(&first);
    let actions = hands.actions().await;
    assert_eq!((actions.kill_pod.clone(), actions.attempt), (Some(PodReason::NotReady), 1), "{actions}");
    // What the earlier sandbox had is still shown, and nobody takes it for done in the new one.
    assert_eq!(hands.settle().await, ["i", "j", "a"]);
    let observed = hands.observe().await;
    assert_eq!((observed.sandboxes.len(), observed.sandboxes[0].attempt, observed.sandboxes[0].ready), (2, 1, true));
    assert_eq!(hands.counts().await, [1]);
}

#[tokio::test]
async fn a_new_image_replaces_its_container_only() {
    let mut hands = hands(json!({"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:1"}]}));
    hands.settle().await;
    let (a, b) = (hands.id_of("a").await, hands.id_of("b").await);
    hands.pod.spec.containers[0].image = "x:2".into();
    assert_eq!(hands.settle().await, ["a"]);
    assert_ne!(hands.id_of("a").await, a);
    assert_eq!(hands.id_of("b").await, b);
}

#[tokio::test]
async fn a_job_that_failed_is_told_so_and_stays_ended() {
    for (code, phase) in [(0, "Succeeded"), (4, "Failed")] {
        let hands = hands(json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}));
        hands.ends("a", code);
        assert_eq!(hands.settle().await, ["a"]);
        assert_eq!(hands.status().await.phase.as_str(), phase);
        for _ in 0..3 {
            let actions = hands.sync().await;
            assert!(actions.kill_pod.is_some() && !actions.create_sandbox && actions.containers_to_start.is_empty());
        }
    }
}

#[tokio::test]
async fn a_rule_makes_the_whole_pod_begin_anew_in_its_sandbox() {
    let rule = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let hands = hands(json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "i", "image": "x"}],
        "containers": [
            {"name": "a", "image": "x", "restartPolicy": "Never", "restartPolicyRules": rule}, {"name": "b", "image": "x"},
        ],
    }));
    hands.ends("i", 0);
    hands.settle().await;
    let (sandbox, b) = (hands.observe().await.sandboxes[0].id.clone(), hands.id_of("b").await);
    hands.runtime.exit(&hands.id_of("a").await, 42);
    assert_eq!(hands.settle().await, ["", "i", "a b"]);
    let observed = hands.observe().await;
    assert_eq!((observed.sandboxes.len(), &observed.sandboxes[0].id), (1, &sandbox));
    assert_ne!(hands.id_of("b").await, b);
    assert_eq!(hands.status().await.phase.as_str(), "Running");
}
