//! Everything at once, by seeds: pods come, change and go, calls fail and hang and lose their answers, agents are killed.
//! When it is quiet again, what is there is what is wanted, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cri_api::testing::{CallKind, FakeProcess};
use cri_api::{ContainerState, Error, Kind, RuntimeService as _};
use serde_json::json;

use super::world::{AtWork, World, pod, uid};
use crate::Phase;
use crate::pod::{Pod, RestartPolicy};
use crate::workers::{AgentOptions, PodView, WorkerState};

/// Random numbers of a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // Xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        let bound = u64::try_from(all.len()).expect("a number");
        all[usize::try_from(self.below(bound)).expect("an index")]
    }
}

pub(super) const CALLS: [CallKind; 12] = [
    CallKind::RunPodSandbox,
    CallKind::StopPodSandbox,
    CallKind::RemovePodSandbox,
    CallKind::PodSandboxStatus,
    CallKind::ListPodSandboxes,
    CallKind::CreateContainer,
    CallKind::StartContainer,
    CallKind::StopContainer,
    CallKind::RemoveContainer,
    CallKind::ContainerStatus,
    CallKind::ListContainers,
    CallKind::RuntimeStatus,
];
const IMAGES: [&str; 3] = ["x:1", "x:2", "x:3"];

/// A pod that runs for good, or to its end, with some of what makes that difficult.
fn any_pod(dice: &mut Dice, name: &str) -> Arc<Pod> {
    let image = dice.one(&IMAGES);
    let main = json!({"name": format!("{name}-main"), "image": image});
    let spec = match dice.below(4) {
        0 => json!({"containers": [main]}),
        1 => json!({"containers": [main, {"name": format!("{name}-other"), "image": dice.one(&IMAGES)}]}),
        2 => json!({
            "initContainers": [
                {"name": "init", "image": image},
                {"name": format!("{name}-side"), "image": image, "restartPolicy": "Always"},
            ],
            "containers": [main], "terminationGracePeriodSeconds": dice.below(20),
            "volumes": [{"name": "v", "emptyDir": {}}],
        }),
        _ => json!({"restartPolicy": "Never", "containers": [{"name": "job", "image": image}]}),
    };
    pod(name, &spec)
}

fn is_job(pod: &Pod) -> bool {
    pod.spec.restart_policy() == RestartPolicy::Never
}

struct Chaos {
    world: World,
    dice: Dice,
    at_work: Option<AtWork>,
    wanted: BTreeMap<String, Arc<Pod>>,
    gates: Vec<cri_api::testing::Gate>,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut world = World::new();
        let events = seed.is_multiple_of(2);
        world.options = AgentOptions { events, seed, patience: Duration::from_secs(20), ..world.options.clone() };
        world.ends("init", 0);
        world.ends("job", 0);
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { world, dice, at_work: None, wanted: BTreeMap::new(), gates: Vec::new() }
    }

    async fn step(&mut self) {
        let name = format!("p{}", self.dice.below(6));
        match self.dice.below(15) {
            0..=3 => {
                let pod = any_pod(&mut self.dice, &name);
                self.wanted.insert(name, pod);
                self.world.want(self.wanted.values());
            }
            4 | 5 => {
                self.wanted.remove(&name);
                self.world.want(self.wanted.values());
            }
            6 => {
                let times = usize::try_from(self.dice.below(3) + 1).expect("a number");
                let error = Error::new(Kind::Internal, "chaos");
                self.world.runtime.faults().fail_times(self.dice.one(&CALLS), times, error);
            }
            7 => {
                let error = Error::new(Kind::DeadlineExceeded, "chaos ate the answer");
                self.world.runtime.faults().lose_answers(self.dice.one(&CALLS), 1, error);
            }
            8 => self.gates.push(self.world.runtime.faults().hold(self.dice.one(&CALLS))),
            9 => self.world.runtime.faults().be_absent(Error::new(Kind::Unavailable, "chaos took it")),
            10 | 11 => self.calm(),
            12 => {
                if let Some(at_work) = self.at_work.take() {
                    at_work.kill();
                }
                self.at_work = Some(self.world.start());
            }
            13 => {
                let all = self.world.runtime.list_containers(None);
                if let Ok(Ok(all)) = tokio::time::timeout(Duration::ZERO, all).await
                    && !all.is_empty()
                {
                    let ids: Vec<&str> = all.iter().map(|container| container.id.as_str()).collect();
                    self.world.runtime.exit(self.dice.one(&ids), 1);
                }
            }
            _ => {
                let stubborn = FakeProcess { ignores_stop: self.dice.below(2) == 0, ..FakeProcess::default() };
                self.world.behave(&format!("{name}-main"), stubborn);
            }
        }
        tokio::time::sleep(Duration::from_millis(self.dice.below(4000))).await;
    }

    /// No fault from now on.
    fn calm(&mut self) {
        let faults = self.world.runtime.faults();
        faults.return_to_duty();
        for kind in CALLS {
            faults.clear(kind);
        }
        for gate in self.gates.drain(..) {
            gate.open();
        }
    }

    async fn ends_well(mut self, seed: u64) {
        self.calm();
        for kind in CALLS {
            self.world.runtime.faults().lose_answers(kind, 0, Error::new(Kind::Internal, ""));
        }
        let at_work = self.at_work.take().unwrap_or_else(|| self.world.start());
        let as_wanted = |views: &[Arc<PodView>]| {
            views.len() == self.wanted.len()
                && self.wanted.values().all(|pod| {
                    let view = views.iter().find(|view| view.pod.metadata.uid == uid(pod));
                    view.is_some_and(|view| match view.status.phase {
                        Phase::Running => view.status.is("Ready") && view.state == WorkerState::Syncing,
                        Phase::Succeeded => view.state == WorkerState::Terminated,
                        // A job that was ended before its time has failed, and stays so.
                        Phase::Failed => is_job(pod) && view.state == WorkerState::Terminated,
                        Phase::Pending => false,
                    })
                })
        };
        at_work.until(&format!("as wanted, seed {seed}"), as_wanted).await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(as_wanted(&at_work.agent.pods()), "seed {seed}: {:#?}", at_work.agent.pods());
        let mut uids: Vec<String> = self.wanted.values().map(|pod| uid(pod).to_owned()).collect();
        uids.sort();
        assert_eq!(self.world.uids().await, uids, "seed {seed}");
        let directories = self.world.directories();
        assert!(directories.iter().all(|directory| uids.contains(directory)), "seed {seed}: {directories:?}");
        for pod in self.wanted.values() {
            for container in pod.spec.containers.iter().filter(|container| container.name != "job") {
                let all = self.world.containers(&container.name).await;
                let running: Vec<_> = all.iter().filter(|seen| seen.state == ContainerState::Running).collect();
                assert_eq!(running.len(), 1, "seed {seed}: {all:?}");
                assert_eq!(running[0].image.user_specified_image, container.image, "seed {seed}");
            }
        }
        let sandboxes = self.world.runtime.list_pod_sandboxes(None).await.expect("listed");
        for pod in self.wanted.values().filter(|pod| !is_job(pod)) {
            let ready = sandboxes.iter().filter(|seen| seen.ready && seen.metadata.uid == uid(pod)).count();
            assert_eq!(ready, 1, "seed {seed}");
        }
        self.world.want([]);
        at_work.until(&format!("gone, seed {seed}"), <[_]>::is_empty).await;
        self.world.assert_empty().await;
        at_work.stop().await;
    }
}

async fn run(seed: u64) {
    let mut chaos = Chaos::new(seed);
    chaos.at_work = Some(chaos.world.start());
    for _ in 0..60 {
        chaos.step().await;
    }
    chaos.ends_well(seed).await;
}

#[tokio::test(start_paused = true)]
async fn after_any_chaos_there_is_what_is_wanted_and_nothing_else() {
    for seed in 1..=8 {
        run(seed).await;
    }
}
