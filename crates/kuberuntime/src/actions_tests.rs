//! Actions for pods: a base pod that runs, and one change a row. Rows that mirror a case of upstream say which. Here
//! are normal containers, sandboxes and restart rules; `actions_init_tests.rs` has init and ephemeral containers.

use cri_api::ContainerState;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::plan::ContainerStart;
use super::*;
use crate::labels::{ContainerInfo, PodOwner, container_hash};
use crate::observed::ObservedContainer;
use crate::observed::ObservedSandbox;
use crate::pod::RestartPolicy;
use crate::pod::{Container, ContainerKind};

/// A pod, what is seen of it, and what its probes said.
pub(super) struct Scene {
    pub(super) pod: Pod,
    pub(super) seen: ObservedPod,
    pub(super) probes: ProbeResults,
}

/// A row: its name, what is changed, and what is to be done, as [`short`] writes it.
pub(super) type Row = (&'static str, fn(&mut Scene), &'static str);

pub(super) fn check(base: fn() -> Scene, rows: &[Row]) {
    for (name, change, want) in rows {
        let mut scene = base();
        change(&mut scene);
        let actions = compute_pod_actions(&scene.pod, &scene.seen, &scene.probes);
        assert_eq!(short(&actions), *want, "{name}\n{actions}");
        assert!(!actions.to_string().is_empty());
        assert_eq!(actions.is_empty(), actions.to_string() == "nothing to do", "{name}");
    }
}

/// Actions in one line: `kill create#1 init[0] start[0 2] stop[id2] reset[id1! id2]`.
fn short(actions: &PodActions) -> String {
    let places = |starts: &[ContainerStart]| starts.iter().map(|s| s.index.to_string()).collect::<Vec<_>>().join(" ");
    let mut words = Vec::new();
    if actions.kill_pod.is_some() {
        words.push("kill".to_owned());
    }
    if actions.create_sandbox {
        words.push(format!("create#{}", actions.attempt));
    }
    let lists = [
        ("debug", places(&actions.ephemeral_to_start)),
        ("init", places(&actions.init_to_start)),
        ("start", places(&actions.containers_to_start)),
        ("stop", actions.containers_to_kill.iter().map(|k| k.id.clone()).collect::<Vec<_>>().join(" ")),
        (
            "reset",
            actions
                .containers_to_reset
                .iter()
                .map(|r| format!("{}{}", r.id, if r.kill { "!" } else { "" }))
                .collect::<Vec<_>>()
                .join(" "),
        ),
    ];
    words.extend(lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| format!("{name}[{list}]")));
    words.join(" ")
}

pub(super) fn run_of(container: &Container, id: &str, state: ContainerState) -> ObservedContainer {
    let info = ContainerInfo { hash: Some(container_hash(container)), ..ContainerInfo::default() };
    ObservedContainer {
        id: id.into(),
        name: container.name.clone(),
        state,
        created_at: 100,
        info,
        ..ObservedContainer::default()
    }
}

pub(super) fn ready_sandbox() -> ObservedSandbox {
    ObservedSandbox { id: "s0".into(), ready: true, ips: vec!["10.0.0.1".into()], ..ObservedSandbox::default() }
}

/// A pod of three containers, with further fields.
pub(super) fn pod_of_three(further: Value) -> Pod {
    let containers: Vec<Value> = (1..=3).map(|n| json!({"name": format!("foo{n}"), "image": "busybox"})).collect();
    let mut spec = json!({"containers": containers});
    for (key, value) in further.as_object().expect("a map") {
        spec[key] = value.clone();
    }
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
                          "metadata": {"name": "foo", "namespace": "foo-ns", "uid": "12345678"}});
    let mut pod = Pod::from_json(&manifest).expect("a pod");
    crate::set_defaults(&mut pod);
    pod
}

/// Three containers that run.
pub(super) fn base() -> Scene {
    let pod = pod_of_three(json!({}));
    let runs = pod.spec.containers.iter().zip(["id1", "id2", "id3"]);
    let runs: Vec<_> = runs.map(|(container, id)| run_of(container, id, ContainerState::Running)).collect();
    let seen = ObservedPod::new(PodOwner::default(), [ready_sandbox()], runs);
    Scene { pod, seen, probes: ProbeResults::default() }
}

impl Scene {
    pub(super) fn policy(&mut self, policy: RestartPolicy) {
        self.pod.spec.restart_policy = Some(policy);
    }

    fn own_policy(&mut self, container: usize, policy: RestartPolicy) {
        self.pod.spec.containers[container].restart_policy = Some(policy);
    }

    /// The run of the container of this id is now so.
    pub(super) fn run(&mut self, id: &str) -> &mut ObservedContainer {
        self.seen.containers.iter_mut().find(|run| run.id == id).unwrap_or_else(|| panic!("{id} is there"))
    }

    pub(super) fn exited(&mut self, id: &str, exit_code: i32) {
        let run = self.run(id);
        (run.state, run.exit_code) = (ContainerState::Exited, exit_code);
    }

    fn all_exited(&mut self, exit_code: i32) {
        for id in ["id1", "id2", "id3"] {
            self.exited(id, exit_code);
        }
    }

    pub(super) fn sandbox_is_dead(&mut self) {
        self.seen.sandboxes[0].ready = false;
    }

    pub(super) fn probed(&mut self, id: &str, probed: Probed) {
        self.probes.0.insert(id.to_owned(), probed);
    }

    /// The container at this place asks for a restart of all when it ends with 1.
    pub(super) fn restarts_all(&mut self, container: usize) {
        let container = &mut self.pod.spec.containers[container];
        container.restart_policy = Some(RestartPolicy::Always);
        container.restart_policy_rules = vec![rule(crate::pod::RestartAction::RestartAllContainers, &[1])];
    }
}

pub(super) fn rule(action: crate::pod::RestartAction, values: &[i32]) -> crate::pod::ContainerRestartRule {
    rule_with(action, crate::pod::ExitCodeOperator::In, values)
}

fn rule_with(
    action: crate::pod::RestartAction,
    operator: crate::pod::ExitCodeOperator,
    values: &[i32],
) -> crate::pod::ContainerRestartRule {
    let (operator, values) = (operator.as_str().to_owned(), Some(values.to_vec()));
    let exit_codes = Some(crate::pod::ContainerRestartRuleOnExitCodes { operator, values });
    crate::pod::ContainerRestartRule { action: action.as_str().to_owned(), exit_codes }
}

const LIVENESS_FAILED: Probed = Probed { liveness: Some(ProbeResult::Failure), readiness: None, startup: None };
const STARTUP_FAILED: Probed = Probed { liveness: None, readiness: None, startup: Some(ProbeResult::Failure) };

#[test]
fn normal_containers() {
    use RestartPolicy::{Always, Never, OnFailure};
    check(
        base,
        &[
            ("upstream: podactions/TestComputePodActions/everything is good; do nothing", |_| {}, ""),
            (
                "upstream: podactions/TestComputePodActions/start pod sandbox and all containers for a new pod",
                |s| {
                    s.seen.sandboxes.clear();
                    s.seen.containers.clear();
                },
                "kill create#0 start[0 1 2]",
            ),
            (
                "upstream: podactions/TestComputePodActions/restart exited containers if RestartPolicy == Always",
                |s| {
                    s.exited("id1", 0);
                    s.exited("id2", 111);
                },
                "start[0 1]",
            ),
            (
                "upstream: podactions/TestComputePodActions/restart failed containers if RestartPolicy == OnFailure",
                |s| {
                    s.policy(OnFailure);
                    s.exited("id1", 0);
                    s.exited("id2", 111);
                },
                "start[1]",
            ),
            (
                "upstream: podactions/TestComputePodActions/restart created but not started containers if RestartPolicy == OnFailure",
                |s| {
                    s.policy(OnFailure);
                    s.exited("id1", 0);
                    s.run("id2").state = ContainerState::Created;
                },
                "start[1]",
            ),
            (
                "upstream: podactions/TestComputePodActions/don't restart containers if RestartPolicy == Never",
                |s| {
                    s.policy(Never);
                    s.exited("id1", 0);
                    s.exited("id2", 111);
                },
                "",
            ),
            (
                "upstream: podactions/TestComputePodActions/Kill and recreate the container if the container's spec changed",
                |s| s.run("id2").info.hash = Some(432_423_432),
                "start[1] stop[id2]",
            ),
            (
                "a container that is made of something else is made anew whatever the policy",
                |s| {
                    s.policy(Never);
                    s.pod.spec.containers[1].image = "other".into();
                },
                "start[1] stop[id2]",
            ),
            ("a container that nobody marked is taken as it is", |s| s.run("id2").info.hash = None, ""),
            (
                "upstream: podactions/TestComputePodActions/Kill and recreate the container if the liveness check has failed",
                |s| s.probed("id2", LIVENESS_FAILED),
                "start[1] stop[id2]",
            ),
            (
                "a container that failed its probe ends for good under Never",
                |s| {
                    s.policy(Never);
                    s.probed("id2", LIVENESS_FAILED);
                },
                "stop[id2]",
            ),
            (
                "the last container that failed its probe takes the pod with it under Never",
                |s| {
                    s.policy(Never);
                    s.all_exited(0);
                    s.run("id2").state = ContainerState::Running;
                    s.probed("id2", LIVENESS_FAILED);
                },
                "kill stop[id2]",
            ),
            (
                "upstream: podactions/TestComputePodActions/Kill and recreate the container if the startup check has failed",
                |s| s.probed("id2", STARTUP_FAILED),
                "start[1] stop[id2]",
            ),
            (
                "upstream: podactions/TestComputePodActions/Kill and recreate the container if the container is in unknown state",
                |s| {
                    s.policy(Never);
                    s.run("id2").state = ContainerState::Unknown;
                },
                "start[1] stop[id2]",
            ),
            (
                "upstream: podactions/TestComputePodActions/Restart the container if the container is in created state",
                |s| {
                    s.policy(Never);
                    s.run("id2").state = ContainerState::Created;
                },
                "start[1]",
            ),
            (
                "a run that comes back beside a newer one goes",
                |s| {
                    let older = run_of(&s.pod.spec.containers[1], "old", ContainerState::Running);
                    s.seen.containers.push(older);
                },
                "stop[old]",
            ),
            (
                "the newest run of a container counts",
                |s| {
                    let mut old = s.run("id1").clone();
                    (old.id, old.state, old.exit_code) = ("old".into(), ContainerState::Exited, 1);
                    s.run("id1").info.restart_count = 1;
                    let all = s.seen.containers.clone().into_iter().chain([old]);
                    s.seen = ObservedPod::new(PodOwner::default(), s.seen.sandboxes.clone(), all);
                },
                "",
            ),
            (
                "a pod all of whose containers are done is over",
                |s| {
                    s.policy(OnFailure);
                    s.all_exited(0);
                },
                "kill",
            ),
            (
                "a pod that is being deleted is stopped and nothing else",
                |s| {
                    s.policy(Always);
                    s.all_exited(1);
                    s.pod.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
                },
                "kill",
            ),
        ],
    );
}

#[test]
fn sandboxes() {
    use RestartPolicy::{Never, OnFailure};
    check(
        base,
        &[
            (
                "upstream: podactions/TestComputePodActions/Kill pod and recreate everything if the pod sandbox is dead, and RestartPolicy == Always",
                Scene::sandbox_is_dead,
                "kill create#1 start[0 1 2]",
            ),
            (
                "upstream: podactions/TestComputePodActions/Kill pod and recreate all containers (except for the succeeded one) if the pod sandbox is dead, and RestartPolicy == OnFailure",
                |s| {
                    s.policy(OnFailure);
                    s.sandbox_is_dead();
                    s.exited("id2", 0);
                },
                "kill create#1 start[0 2]",
            ),
            (
                "upstream: podactions/TestComputePodActions/Kill pod and recreate all containers if the PodSandbox does not have an IP",
                |s| s.seen.sandboxes[0].ips.clear(),
                "kill create#1 start[0 1 2]",
            ),
            (
                "upstream: podactions/TestComputePodActions/Verify we do not create a pod sandbox if no ready sandbox for pod with RestartPolicy=Never and all containers exited",
                |s| {
                    s.policy(Never);
                    s.sandbox_is_dead();
                    s.seen.sandboxes[0].attempt = 1;
                    s.all_exited(0);
                },
                "kill",
            ),
            (
                "upstream: podactions/TestComputePodActions/Verify we do not create a pod sandbox if no ready sandbox for pod with RestartPolicy=OnFailure and all containers succeeded",
                |s| {
                    s.policy(OnFailure);
                    s.sandbox_is_dead();
                    s.seen.sandboxes[0].attempt = 1;
                    s.all_exited(0);
                },
                "kill",
            ),
            (
                "upstream: podactions/TestComputePodActions/Verify we create a pod sandbox if no ready sandbox for pod with RestartPolicy=Never and no containers have ever been created",
                |s| {
                    s.policy(Never);
                    s.sandbox_is_dead();
                    s.seen.sandboxes[0].attempt = 2;
                    s.seen.containers.clear();
                },
                "kill create#3 start[0 1 2]",
            ),
            (
                "a sandbox on the node's network needs no address",
                |s| {
                    s.pod.spec.host_network = true;
                    s.seen.sandboxes[0].host_network = true;
                    s.seen.sandboxes[0].ips.clear();
                },
                "",
            ),
            (
                "a pod that changed its network needs another sandbox",
                |s| s.pod.spec.host_network = true,
                "kill create#1 start[0 1 2]",
            ),
            (
                "of two sandboxes that are ready both go",
                |s| {
                    let second = ObservedSandbox { id: "s1".into(), attempt: 1, ..ready_sandbox() };
                    s.seen =
                        ObservedPod::new(PodOwner::default(), [ready_sandbox(), second], s.seen.containers.clone());
                },
                "kill create#2 start[0 1 2]",
            ),
            (
                "an old sandbox that is not ready is no concern",
                |s| {
                    let old = ObservedSandbox { id: "old".into(), ready: false, ..ready_sandbox() };
                    let newest = ObservedSandbox { attempt: 1, ..ready_sandbox() };
                    s.seen = ObservedPod::new(PodOwner::default(), [old, newest], s.seen.containers.clone());
                },
                "",
            ),
        ],
    );
}

#[test]
fn restart_rules() {
    use RestartPolicy::{Always, Never, OnFailure};
    check(
        base,
        &[
            (
                "upstream: podactions/TestComputePodActionsWithContainerRestartRules/restart exited containers if RestartPolicy == Always",
                |s| {
                    s.policy(Never);
                    s.own_policy(0, Always);
                    s.own_policy(1, Always);
                    s.exited("id1", 0);
                    s.exited("id2", 111);
                },
                "start[0 1]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithContainerRestartRules/restart failed containers if RestartPolicy == OnFailure",
                |s| {
                    s.policy(Never);
                    s.own_policy(0, OnFailure);
                    s.own_policy(1, OnFailure);
                    s.exited("id1", 0);
                    s.exited("id2", 111);
                },
                "start[1]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithContainerRestartRules/restart created but not started containers if RestartPolicy == OnFailure",
                |s| {
                    s.policy(Never);
                    s.own_policy(0, OnFailure);
                    s.own_policy(1, OnFailure);
                    s.exited("id1", 0);
                    s.run("id2").state = ContainerState::Created;
                },
                "start[1]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithContainerRestartRules/don't restart containers if RestartPolicy == Never",
                |s| {
                    s.own_policy(0, Never);
                    s.own_policy(1, Never);
                    s.exited("id1", 0);
                    s.exited("id2", 111);
                },
                "",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithContainerRestartRules/Kill pod and recreate all containers (except for the succeeded one) if the pod sandbox is dead",
                |s| {
                    s.own_policy(1, OnFailure);
                    s.sandbox_is_dead();
                    s.exited("id2", 0);
                },
                "kill create#1 start[0 2]",
            ),
            (
                "one that is never restarted does not come back with a new sandbox",
                |s| {
                    s.policy(Never);
                    s.own_policy(0, Always);
                    s.exited("id3", 0);
                    s.sandbox_is_dead();
                },
                "kill create#1 start[0]",
            ),
            (
                "a rule goes before the policy",
                |s| {
                    s.own_policy(0, Never);
                    s.own_policy(1, Never);
                    for container in &mut s.pod.spec.containers[..2] {
                        container.restart_policy_rules = vec![rule(crate::pod::RestartAction::Restart, &[42])];
                    }
                    s.exited("id1", 42);
                    s.exited("id2", 43);
                },
                "start[0]",
            ),
            (
                "NotIn means all other codes",
                |s| {
                    s.own_policy(0, Never);
                    let (restart, not_in) = (crate::pod::RestartAction::Restart, crate::pod::ExitCodeOperator::NotIn);
                    let not = rule_with(restart, not_in, &[0]);
                    s.pod.spec.containers[0].restart_policy_rules = vec![not];
                    s.exited("id1", 7);
                },
                "start[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsForRestartAllContainers/pod not marked for RestartAllContainers",
                |s| {
                    s.restarts_all(2);
                    s.exited("id3", 2);
                },
                "start[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsForRestartAllContainers/pod marked for RestartAllContainers",
                |s| {
                    s.restarts_all(2);
                    s.exited("id3", 1);
                },
                "reset[id1! id2! id3]",
            ),
            (
                "upstream: podactions/TestComputePodActionsForRestartAllContainers/removes past terminated statuses",
                |s| {
                    s.restarts_all(2);
                    s.exited("id3", 1);
                    let past = s.seen.containers.clone().into_iter().map(|mut run| {
                        (run.id, run.state, run.exit_code) = (format!("{}-past", run.id), ContainerState::Exited, 99);
                        run.created_at -= 60;
                        run
                    });
                    let all: Vec<_> = past.chain(s.seen.containers.clone()).collect();
                    s.seen = ObservedPod::new(PodOwner::default(), s.seen.sandboxes.clone(), all);
                },
                "reset[id1! id1-past id2! id2-past id3-past id3]",
            ),
            (
                "upstream: podactions/TestComputePodActionsForRestartAllContainers/all containers removed, start regular container",
                |s| {
                    s.restarts_all(2);
                    s.seen.containers.clear();
                },
                "start[0 1 2]",
            ),
            (
                "the one that asked goes last, also where it stands first",
                |s| {
                    s.restarts_all(0);
                    s.exited("id1", 1);
                },
                "reset[id2! id3! id1]",
            ),
        ],
    );
}

#[test]
fn reasons_are_sentences() {
    let mut scene = base();
    scene.exited("id1", 3);
    scene.probed("id2", LIVENESS_FAILED);
    let actions = compute_pod_actions(&scene.pod, &scene.seen, &scene.probes);
    assert_eq!(
        actions.to_string(),
        "stop container foo2 (id2): Container foo2 failed liveness probe, will be restarted\n\
         start container foo1: it ended with exit code 3, and its restart policy is Always\n\
         start container foo2: it failed its liveness probe"
    );
    assert_eq!(actions.containers_to_kill[0].reason, KillReason::LivenessProbe);
    scene.sandbox_is_dead();
    let actions = compute_pod_actions(&scene.pod, &scene.seen, &scene.probes).to_string();
    assert!(
        actions.starts_with("stop the pod: its sandbox is not ready\ncreate a sandbox, attempt 1\nstart"),
        "{actions}"
    );
}

/// A container of a pod as it is observed: kind, policy, state, exit code, hash, probes.
type Part = (bool, Option<u8>, Option<u8>, i32, bool, Option<bool>, Option<bool>);

fn any_part() -> impl Strategy<Value = Part> {
    let probe = || prop::option::of(any::<bool>());
    (any::<bool>(), prop::option::of(0_u8..3), prop::option::of(0_u8..4), -1..3_i32, any::<bool>(), probe(), probe())
}

fn policy(number: u8) -> RestartPolicy {
    [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never][usize::from(number)]
}

fn scene_of(pod_policy: u8, sandbox: Option<bool>, init: &[Part], normal: &[Part], ephemeral: Option<u8>) -> Scene {
    let states = [ContainerState::Created, ContainerState::Running, ContainerState::Exited, ContainerState::Unknown];
    let mut pod = pod_of_three(json!({}));
    pod.spec.restart_policy = Some(policy(pod_policy));
    pod.spec.containers.clear();
    let mut runs = Vec::new();
    let mut probes = ProbeResults::default();
    for (place, part) in init.iter().map(|part| (true, part)).chain(normal.iter().map(|part| (false, part))) {
        let (rules, own, state, exit_code, same, liveness, startup) = part;
        let list = if place { &mut pod.spec.init_containers } else { &mut pod.spec.containers };
        let name = format!("{}{}", if place { "i" } else { "c" }, list.len());
        let probe = Some(crate::pod::Probe::default());
        let mut container = Container {
            image: "x".into(),
            restart_policy: own.map(policy),
            liveness_probe: liveness.and(probe.clone()),
            startup_probe: startup.and(probe),
            name,
            ..Container::default()
        };
        if *rules && own.is_some() && !container.is_sidecar() {
            container.restart_policy_rules = vec![rule(crate::pod::RestartAction::Restart, &[2])];
        }
        if let Some(state) = state {
            let mut run = run_of(&container, &format!("id-{}", container.name), states[usize::from(*state)]);
            run.exit_code = *exit_code;
            run.info.hash = run.info.hash.map(|hash| hash + u64::from(!same));
            let result = |good: bool| if good { ProbeResult::Success } else { ProbeResult::Failure };
            let probed = Probed { liveness: liveness.map(result), readiness: None, startup: startup.map(result) };
            probes.0.insert(run.id.clone(), probed);
            runs.push(run);
        }
        list.push(container);
    }
    if let Some(state) = ephemeral {
        let container = Container { name: "debug".into(), image: "x".into(), ..Container::default() };
        if state < 4 {
            runs.push(run_of(&container, "id-debug", states[usize::from(state)]));
        }
        pod.spec.ephemeral_containers = vec![crate::pod::EphemeralContainer { container, ..Default::default() }];
    }
    let sandboxes = sandbox.map(|ready| ObservedSandbox { ready, ..ready_sandbox() });
    Scene { pod, seen: ObservedPod::new(PodOwner::default(), sandboxes, runs), probes }
}

fn any_scene() -> impl Strategy<Value = Scene> {
    let parts = |range| prop::collection::vec(any_part(), range);
    (0_u8..3, prop::option::of(any::<bool>()), parts(0..4), parts(1..4), prop::option::of(0_u8..5))
        .prop_map(|(policy, sandbox, init, normal, ephemeral)| scene_of(policy, sandbox, &init, &normal, ephemeral))
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "pod policy {:?}", self.pod.spec.restart_policy)?;
        for (kind, c) in self.pod.all_containers() {
            let run = self.seen.latest(&c.name).map(|run| (run.state, run.exit_code, run.info.hash));
            writeln!(f, "{kind} {} {:?} {:?} {run:?}", c.name, c.restart_policy, c.restart_policy_rules)?;
        }
        write!(f, "{:?} {:?}", self.seen.sandboxes, self.probes)
    }
}

/// Brings the scene to the state in which all actions were done and nothing ended.
fn settled(scene: &mut Scene, actions: &PodActions) {
    let spec = &scene.pod.spec;
    let of = |kind: &str, start: &ContainerStart| match kind {
        "init" => spec.init_containers[start.index].clone(),
        "normal" => spec.containers[start.index].clone(),
        _ => spec.ephemeral_containers[start.index].container.clone(),
    };
    let mut runs = scene.seen.containers.clone();
    if actions.kill_pod.is_some() {
        runs.iter_mut().filter(|run| run.state != ContainerState::Exited).for_each(|run| {
            (run.state, run.exit_code) = (ContainerState::Exited, 137);
        });
        scene.seen.sandboxes.iter_mut().for_each(|sandbox| sandbox.ready = false);
        if actions.create_sandbox {
            // Init containers of an earlier sandbox are removed.
            runs.retain(|run| !spec.init_containers.iter().any(|c| c.name == run.name));
        }
    }
    for kill in &actions.containers_to_kill {
        let run = runs.iter_mut().find(|run| run.id == kill.id).expect("what is stopped is there");
        (run.state, run.exit_code) = (ContainerState::Exited, 137);
    }
    let starts = [
        ("init", &actions.init_to_start),
        ("normal", &actions.containers_to_start),
        ("debug", &actions.ephemeral_to_start),
    ];
    for (kind, start) in starts.into_iter().flat_map(|(kind, starts)| starts.iter().map(move |s| (kind, s))) {
        let container = of(kind, start);
        let count = runs.iter().filter(|run| run.name == container.name).map(|run| run.restart_count() + 1).max();
        let mut run = run_of(&container, &format!("{}-{count:?}", container.name), ContainerState::Running);
        run.info.restart_count = count.unwrap_or(0);
        if kind == "init" && !container.is_sidecar() {
            (run.state, run.exit_code) = (ContainerState::Exited, 0);
        }
        let good = Some(ProbeResult::Success);
        scene.probes.0.insert(run.id.clone(), Probed { liveness: good, readiness: good, startup: good });
        runs.push(run);
    }
    if actions.create_sandbox {
        let id = format!("s{}", actions.attempt);
        scene.seen.sandboxes.push(ObservedSandbox { id, attempt: actions.attempt, ..ready_sandbox() });
    }
    scene.seen = ObservedPod::new(PodOwner::default(), scene.seen.sandboxes.clone(), runs);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn whatever_is_seen_the_actions_hold_together(scene in any_scene()) {
        let Scene { pod, seen, probes } = &scene;
        let actions = compute_pod_actions(pod, seen, probes);
        prop_assert_eq!(&actions, &compute_pod_actions(pod, seen, probes));

        // No container is started or stopped twice, and a running one is stopped before it is started again.
        let starts = || actions.init_to_start.iter().chain(&actions.containers_to_start).chain(&actions.ephemeral_to_start);
        for start in starts() {
            prop_assert_eq!(starts().filter(|other| other.name == start.name).count(), 1, "{}", start.name);
            let state = seen.latest(&start.name).map(|run| run.state);
            let stopped = actions.kill_pod.is_some() || actions.containers_to_kill.iter().any(|kill| kill.name == start.name);
            if matches!(state, Some(ContainerState::Running | ContainerState::Unknown)) {
                prop_assert!(stopped, "{} runs and is started", start.name);
            }
        }
        for kill in &actions.containers_to_kill {
            prop_assert_eq!(actions.containers_to_kill.iter().filter(|other| other.id == kill.id).count(), 1);
            let state = seen.latest(&kill.name).map(|run| run.state);
            prop_assert!(matches!(state, Some(ContainerState::Running | ContainerState::Unknown)));
            let again = starts().any(|start| start.name == kill.name);
            let says_so = kill.message.ends_with(", will be restarted") || kill.message.ends_with("before restart");
            prop_assert!(kill.kind == ContainerKind::Init || again == says_so, "{}", kill.message);
        }

        // No normal container before the init containers are done, nor any that must not be restarted.
        let last = pod.spec.init_containers.last();
        let normal_was_there = pod.spec.containers.iter().any(|c| {
            matches!(seen.latest(&c.name).map(|r| r.state), Some(ContainerState::Running | ContainerState::Created))
        });
        if let Some(last) = last && !actions.containers_to_start.is_empty() && !normal_was_there {
            let run = seen.latest(&last.name).expect("the last init container was there");
            let done = if last.is_sidecar() { run.state == ContainerState::Running } else { run.succeeded() };
            prop_assert!(done, "{:?}", run);
        }
        for start in &actions.containers_to_start {
            if let Some(run) = seen.latest(&start.name).filter(|run| run.state == ContainerState::Exited) {
                let container = &pod.spec.containers[start.index];
                prop_assert!(matches!(restart::ended(pod, container, run.exit_code), RestartVerdict::Start(_)));
            }
        }

        // A sandbox is created only when containers are to be started in it, and with a higher attempt number.
        if actions.create_sandbox {
            prop_assert!(actions.kill_pod.is_some() && starts().count() > 0);
            prop_assert!(seen.sandboxes.iter().all(|sandbox| sandbox.attempt < actions.attempt));
        }
    }

    #[test]
    fn a_pod_settles(mut scene in any_scene()) {
        // At most: a new sandbox, each init container in turn, the normal ones, and a restart after a failed probe.
        for _ in 0..10 {
            let actions = compute_pod_actions(&scene.pod, &scene.seen, &scene.probes);
            let over = actions.kill_pod.is_some() && !actions.create_sandbox;
            if over {
                // A pod that is over stays over: what is left to say is that it is.
                settled(&mut scene, &actions);
                let again = compute_pod_actions(&scene.pod, &scene.seen, &scene.probes);
                prop_assert!(again.kill_pod.is_some() && again.containers_to_start.is_empty() && !again.create_sandbox, "{}", again);
                return Ok(());
            }
            if actions.is_empty() {
                return Ok(());
            }
            settled(&mut scene, &actions);
        }
        let left = compute_pod_actions(&scene.pod, &scene.seen, &scene.probes);
        prop_assert!(left.is_empty(), "{}", left);
    }
}
