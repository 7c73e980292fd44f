//! Actions for pods with init containers, sidecars and ephemeral containers. The rows are as in `actions_tests.rs`.

use cri_api::ContainerState;
use serde_json::json;

use super::tests::{Scene, base, check, pod_of_three, ready_sandbox, rule, run_of};
use super::{ProbeResult, ProbeResults, Probed};
use crate::labels::PodOwner;
use crate::observed::ObservedPod;
use crate::pod::{Container, EphemeralContainer, RestartAction, RestartPolicy};

/// Three init containers that are done, and nothing else yet.
fn initialised() -> Scene {
    let init: Vec<_> = (1..=3).map(|n| json!({"name": format!("init{n}"), "image": "bar-image"})).collect();
    let pod = pod_of_three(json!({"initContainers": init}));
    let runs = pod.spec.init_containers.iter().zip(["initid1", "initid2", "initid3"]);
    let runs: Vec<_> = runs.map(|(container, id)| run_of(container, id, ContainerState::Exited)).collect();
    Scene { pod, seen: ObservedPod::new(PodOwner::default(), [ready_sandbox()], runs), probes: ProbeResults::default() }
}

const GOOD: Probed =
    Probed { liveness: Some(ProbeResult::Success), readiness: None, startup: Some(ProbeResult::Success) };

/// Three sidecars that run and whose probes are content, and nothing else yet.
fn with_sidecars() -> Scene {
    let probe = json!({"exec": {"command": ["x"]}});
    let sidecar =
        |n: usize| json!({"name": format!("restartable-init-{n}"), "image": "bar-image", "restartPolicy": "Always"});
    let probed = |n: usize| {
        let mut sidecar = sidecar(n);
        sidecar["livenessProbe"] = probe.clone();
        sidecar["startupProbe"] = probe.clone();
        sidecar
    };
    let pod = pod_of_three(json!({"initContainers": [sidecar(1), probed(2), probed(3)]}));
    let runs = pod.spec.init_containers.iter().zip(["initid1", "initid2", "initid3"]);
    let runs: Vec<_> = runs.map(|(container, id)| run_of(container, id, ContainerState::Running)).collect();
    let probes = ProbeResults([("initid2".to_owned(), GOOD), ("initid3".to_owned(), GOOD)].into());
    Scene { pod, seen: ObservedPod::new(PodOwner::default(), [ready_sandbox()], runs), probes }
}

/// An init container that is done, three containers that run, and one for debugging that does.
fn with_ephemeral() -> Scene {
    let mut scene = base();
    let init = Container { name: "init1".into(), image: "bar-image".into(), ..Container::default() };
    scene.seen.containers.push(run_of(&init, "initid1", ContainerState::Exited));
    scene.pod.spec.init_containers = vec![init];
    scene.seen.containers.push(run_of(&debugger("debug").container, "debug1", ContainerState::Running));
    scene.pod.spec.ephemeral_containers = vec![debugger("debug")];
    scene
}

fn debugger(name: &str) -> EphemeralContainer {
    let container = Container { name: name.into(), image: "busybox".into(), ..Container::default() };
    EphemeralContainer { container, ..EphemeralContainer::default() }
}

impl Scene {
    fn state(&mut self, id: &str, state: ContainerState) {
        self.run(id).state = state;
    }

    /// Removes these runs from the observed containers.
    fn remove_runs(&mut self, ids: &[&str]) {
        self.seen.containers.retain(|run| !ids.contains(&run.id.as_str()));
    }

    fn startup(&mut self, id: &str, startup: Option<ProbeResult>) {
        self.probed(id, Probed { startup, ..GOOD });
    }

    fn liveness(&mut self, id: &str, liveness: Option<ProbeResult>) {
        self.probed(id, Probed { liveness, ..GOOD });
    }

    /// The normal containers are in this state.
    fn normal(&mut self, state: ContainerState) {
        let runs: Vec<_> =
            self.pod.spec.containers.iter().map(|c| run_of(c, &format!("id-{}", c.name), state)).collect();
        self.seen.containers.extend(runs);
    }
}

#[test]
fn init_containers() {
    use ContainerState::{Created, Running, Unknown};
    use RestartPolicy::{Never, OnFailure};
    check(
        initialised,
        &[
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/initialization completed; start all containers",
                |_| {},
                "start[0 1 2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/no init containers have been started; start the first one",
                |s| s.seen.containers.clear(),
                "init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/initialization in progress; do nothing",
                |s| s.state("initid3", Running),
                "",
            ),
            ("the next one is started when one is done", |s| s.remove_runs(&["initid2", "initid3"]), "init[1]"),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/Kill pod and restart the first init container if the pod sandbox is dead",
                Scene::sandbox_is_dead,
                "kill create#1 init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/initialization failed; restart the last init container if RestartPolicy == Always",
                |s| s.exited("initid3", 137),
                "init[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/initialization failed; restart the last init container if RestartPolicy == OnFailure",
                |s| {
                    s.policy(OnFailure);
                    s.exited("initid3", 137);
                },
                "init[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/initialization failed; kill pod if RestartPolicy == Never",
                |s| {
                    s.policy(Never);
                    s.exited("initid3", 137);
                },
                "kill",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/init container state unknown; kill and recreate the last init container if RestartPolicy == Always",
                |s| s.state("initid3", Unknown),
                "init[2] stop[initid3]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/init container state unknown; kill and recreate the last init container if RestartPolicy == OnFailure",
                |s| {
                    s.policy(OnFailure);
                    s.state("initid3", Unknown);
                },
                "init[2] stop[initid3]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/init container state unknown; kill pod if RestartPolicy == Never",
                |s| {
                    s.policy(Never);
                    s.state("initid3", Unknown);
                },
                "kill",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/Pod sandbox not ready, init container failed, but RestartPolicy == Never; kill pod only",
                |s| {
                    s.policy(Never);
                    s.sandbox_is_dead();
                },
                "kill",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/Pod sandbox not ready, and RestartPolicy == Never, but no visible init containers;  create a new pod sandbox",
                |s| {
                    s.policy(Never);
                    s.sandbox_is_dead();
                    s.seen.containers.clear();
                },
                "kill create#1 init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/Pod sandbox not ready, init container failed, and RestartPolicy == OnFailure; create a new pod sandbox",
                |s| {
                    s.policy(OnFailure);
                    s.sandbox_is_dead();
                    s.exited("initid3", 137);
                },
                "kill create#1 init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/some of the init container statuses are missing but the last init container is running, don't restart preceding ones",
                |s| {
                    s.state("initid3", Running);
                    s.remove_runs(&["initid1", "initid2"]);
                },
                "",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitContainers/an init container is in the created state due to an unknown error when starting container; restart it",
                |s| s.state("initid3", Created),
                "init[2]",
            ),
            (
                "init containers that the runtime forgot do not run again beside normal ones",
                |s| {
                    s.normal(Running);
                    s.remove_runs(&["initid1", "initid2", "initid3"]);
                },
                "",
            ),
            (
                "a rule restarts an init container that would fail the pod",
                |s| {
                    s.policy(Never);
                    let init = &mut s.pod.spec.init_containers[2];
                    init.restart_policy = Some(Never);
                    init.restart_policy_rules = vec![rule(RestartAction::Restart, &[42])];
                    s.exited("initid3", 42);
                },
                "init[2]",
            ),
            (
                "init containers of an earlier sandbox have done nothing for this one",
                |s| {
                    s.seen.containers.iter_mut().for_each(|run| run.sandbox_id = "earlier".into());
                },
                "init[0]",
            ),
            (
                "nor have normal ones, though they count for the restart policy",
                |s| {
                    s.normal(Created);
                    s.seen.containers.iter_mut().for_each(|run| run.sandbox_id = "earlier".into());
                    s.run("initid1").sandbox_id = "s0".into();
                },
                "init[1]",
            ),
            (
                "a restart of all that was asked for in an earlier sandbox is done with it",
                |s| {
                    s.normal(Running);
                    s.restarts_all(0);
                    s.exited("id-foo1", 1);
                    s.run("id-foo1").sandbox_id = "earlier".into();
                },
                "start[0]",
            ),
            (
                "an init container that failed for good is the end of the pod, also when its sandbox is gone",
                |s| {
                    s.pod.spec.init_containers[2].restart_policy = Some(Never);
                    s.exited("initid3", 1);
                    s.sandbox_is_dead();
                },
                "kill",
            ),
            (
                "a restart of all containers removes init containers as well, and the pod begins with them",
                |s| {
                    s.normal(Running);
                    s.restarts_all(0);
                    s.exited("id-foo1", 1);
                },
                "reset[initid1 initid2 initid3 id-foo2! id-foo3! id-foo1]",
            ),
        ],
    );
}

#[test]
fn sidecars() {
    use ContainerState::{Created, Exited, Running, Unknown};
    use RestartPolicy::{Never, OnFailure};
    check(
        with_sidecars,
        &[
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/initialization completed; start all containers",
                |_| {},
                "start[0 1 2]",
            ),
            (
                "a run of a sidecar that comes back beside a newer one goes",
                |s| {
                    let older = run_of(&s.pod.spec.init_containers[1], "old", Running);
                    s.seen.containers.push(older);
                },
                "start[0 1 2] stop[old]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/no init containers have been started; start the first one",
                |s| s.seen.containers.clear(),
                "init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/an init container is stuck in the created state; restart it",
                |s| s.state("initid3", Created),
                "init[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/restartable init container has started; start the next",
                |s| s.remove_runs(&["initid2", "initid3"]),
                "init[1]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/livenessProbe has not been run; start the nothing",
                |s| {
                    s.liveness("initid2", None);
                    s.remove_runs(&["initid3"]);
                },
                "init[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/livenessProbe in progress; start the next",
                |s| {
                    s.liveness("initid2", Some(ProbeResult::Unknown));
                    s.remove_runs(&["initid3"]);
                },
                "init[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/livenessProbe has completed; start the next",
                |s| s.remove_runs(&["initid3"]),
                "init[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/kill and recreate the restartable init container if the liveness check has failed",
                |s| s.liveness("initid3", Some(ProbeResult::Failure)),
                "init[2] start[0 1 2] stop[initid3]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/startupProbe has not been run; do nothing",
                |s| {
                    s.startup("initid2", None);
                    s.remove_runs(&["initid3"]);
                },
                "",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/startupProbe in progress; do nothing",
                |s| {
                    s.startup("initid2", Some(ProbeResult::Unknown));
                    s.remove_runs(&["initid3"]);
                },
                "",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/startupProbe has completed; start the next",
                |s| {
                    s.liveness("initid2", None);
                    s.remove_runs(&["initid3"]);
                },
                "init[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/kill and recreate the restartable init container if the startup check has failed",
                |s| s.startup("initid3", Some(ProbeResult::Failure)),
                "init[2] stop[initid3]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/kill and recreate the restartable init container if the container definition changes",
                |s| s.pod.spec.init_containers[2].image = "foo-image".into(),
                "init[2] start[0 1 2] stop[initid3]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/restart terminated restartable init container and next init container",
                |s| {
                    s.exited("initid1", 0);
                    s.exited("initid3", 0);
                },
                "init[0 2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/restart terminated restartable init container and regular containers",
                |s| s.exited("initid1", 0),
                "init[0] start[0 1 2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/Pod sandbox not ready, restartable init container failed, but RestartPolicy == Never; kill pod only",
                |s| {
                    s.policy(Never);
                    s.sandbox_is_dead();
                    s.exited("initid3", 137);
                },
                "kill",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/Pod sandbox not ready, and RestartPolicy == Never, but no visible restartable init containers;  create a new pod sandbox",
                |s| {
                    s.policy(Never);
                    s.sandbox_is_dead();
                    s.seen.containers.clear();
                },
                "kill create#1 init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/Pod sandbox not ready, restartable init container failed, and RestartPolicy == OnFailure; create a new pod sandbox",
                |s| {
                    s.policy(OnFailure);
                    s.sandbox_is_dead();
                    s.exited("initid3", 137);
                },
                "kill create#1 init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/Pod sandbox not ready, restartable init container failed, and RestartPolicy == Always; create a new pod sandbox",
                |s| {
                    s.sandbox_is_dead();
                    s.exited("initid3", 137);
                },
                "kill create#1 init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/initialization failed; restart the last restartable init container even if pod's RestartPolicy == Never",
                |s| {
                    s.policy(Never);
                    s.exited("initid3", 137);
                },
                "init[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/restartable init container state unknown; kill and recreate the last restartable init container even if pod's RestartPolicy == Never",
                |s| {
                    s.policy(Never);
                    s.state("initid3", Unknown);
                },
                "init[2] stop[initid3]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/restart restartable init container if regular containers are running even if pod's RestartPolicy == Never",
                |s| {
                    s.policy(Never);
                    s.exited("initid3", 137);
                    s.normal(Running);
                },
                "init[2]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/kill the pod if all main containers succeeded if pod's RestartPolicy == Never",
                |s| {
                    s.policy(Never);
                    s.normal(Exited);
                },
                "kill",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithRestartableInitContainers/some of the init container statuses are missing but the last init container is running, restart restartable init and regular containers",
                |s| s.remove_runs(&["initid1", "initid2"]),
                "init[0 1] start[0 1 2]",
            ),
        ],
    );
}

#[test]
fn ephemeral_containers() {
    use ContainerState::{Running, Unknown};
    use RestartPolicy::{Never, OnFailure};
    check(
        with_ephemeral,
        &[
            (
                "upstream: podactions/TestComputePodActionsWithInitAndEphemeralContainers/steady state; do nothing; ignore ephemeral container",
                |_| {},
                "",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitAndEphemeralContainers/No ephemeral containers running; start one",
                |s| s.remove_runs(&["debug1"]),
                "debug[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitAndEphemeralContainers/Start second ephemeral container",
                |s| s.pod.spec.ephemeral_containers.push(debugger("debug2")),
                "debug[1]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitAndEphemeralContainers/Ephemeral container exited; do not restart",
                |s| s.exited("debug1", 0),
                "",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitAndEphemeralContainers/initialization in progress; start ephemeral container",
                |s| {
                    s.state("initid1", Running);
                    s.remove_runs(&["debug1"]);
                },
                "debug[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitAndEphemeralContainers/Create a new pod sandbox if the pod sandbox is dead, init container failed and RestartPolicy == OnFailure",
                |s| {
                    s.policy(OnFailure);
                    s.sandbox_is_dead();
                    s.exited("initid1", 137);
                    s.remove_runs(&["id1", "id2", "id3"]);
                },
                "kill create#1 init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitAndEphemeralContainers/Kill pod and do not restart ephemeral container if the pod sandbox is dead",
                Scene::sandbox_is_dead,
                "kill create#1 init[0]",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitAndEphemeralContainers/Kill pod if all containers exited except ephemeral container",
                |s| {
                    s.policy(Never);
                    for id in ["id1", "id2", "id3"] {
                        s.exited(id, 0);
                    }
                },
                "kill",
            ),
            (
                "upstream: podactions/TestComputePodActionsWithInitAndEphemeralContainers/Ephemeral container is in unknown state; leave it alone",
                |s| {
                    s.policy(Never);
                    s.state("debug1", Unknown);
                },
                "",
            ),
        ],
    );
}
