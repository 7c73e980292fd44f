//! Anything at any time: calls fail, lose their answers or hang until the program is killed, containers and sandboxes die.
//! When that is over, exactly the containers of the pod run, each once.

use cri_api::testing::CallKind;
use cri_api::{ContainerState, Error, Kind};
use serde_json::json;

use super::bench::Bench;

const CALLS: [CallKind; 14] = [
    CallKind::RuntimeStatus,
    CallKind::ListPodSandboxes,
    CallKind::ListContainers,
    CallKind::RunPodSandbox,
    CallKind::StopPodSandbox,
    CallKind::PodSandboxStatus,
    CallKind::CreateContainer,
    CallKind::StartContainer,
    CallKind::StopContainer,
    CallKind::RemoveContainer,
    CallKind::ContainerStatus,
    CallKind::RemovePodSandbox,
    CallKind::ImageStatus,
    CallKind::PullImage,
];

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }
}

async fn trouble(bench: &mut Bench, dice: &mut Dice) {
    let kind = CALLS[dice.roll(CALLS.len())];
    let error = Error::new(Kind::Unavailable, "the connection is gone");
    let observed = bench.pod_runtime.observe(&bench.pod.metadata.uid).await;
    match dice.roll(6) {
        0 => {
            bench.runtime.faults().fail_times(kind, 1 + dice.roll(3), error.clone());
            bench.images.faults().fail_times(kind, 1 + dice.roll(3), error);
        }
        1 => bench.runtime.faults().lose_answers(kind, 1 + dice.roll(2), error),
        2 => {
            // The program is killed while a call hangs, or when the call after it begins.
            let gate = bench.runtime.faults().hold(kind);
            let before = dice.roll(3);
            gate.let_through(before);
            tokio::select! {
                _ = bench.try_sync() => {}
                () = gate.until_arrived(before + 1) => {}
            }
            bench.kill_9();
            bench.runtime.faults().clear(kind);
        }
        3 => {
            let containers = observed.map(|observed| observed.containers).unwrap_or_default();
            if !containers.is_empty() {
                let code = i32::try_from(dice.roll(2)).expect("small");
                bench.runtime.exit(&containers[dice.roll(containers.len())].id, code);
            }
        }
        4 if dice.roll(3) == 0 => {
            let sandboxes = observed.map(|observed| observed.sandboxes).unwrap_or_default();
            if let Some(sandbox) = sandboxes.first() {
                bench.runtime.kill_sandbox(&sandbox.id);
            }
        }
        _ => bench.kill_9(),
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_happened_the_pod_is_what_it_should_be() {
    for seed in 0..24 {
        let mut bench = Bench::new(&json!({
            "initContainers": [
                {"name": "first", "image": "x:1"}, {"name": "side", "image": "x:2", "restartPolicy": "Always"},
                {"name": "second", "image": "x:1"},
            ],
            "containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:2"}],
        }));
        bench.ends("first", 0);
        bench.ends("second", 0);
        let mut dice = Dice(seed);
        for _ in 0..12 {
            trouble(&mut bench, &mut dice).await;
            for _ in 0..dice.roll(3) {
                let _ = bench.try_sync().await;
                bench.rest(20).await;
            }
        }
        for kind in CALLS {
            bench.runtime.faults().clear(kind);
            bench.images.faults().clear(kind);
        }
        bench.rest(700).await;
        bench.recover().await;
        let (all, _) = bench.everything().await;
        let of = |wanted: ContainerState| {
            all.iter().filter(|(_, state)| *state == wanted).map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of(ContainerState::Running), ["a", "b", "side"], "seed {seed}: {all:?}");
        assert_eq!(of(ContainerState::Created), [""; 0], "seed {seed}");
        assert_eq!(of(ContainerState::Unknown), [""; 0], "seed {seed}");
        let observed = bench.observe().await;
        assert_eq!(observed.sandboxes.iter().filter(|sandbox| sandbox.ready).count(), 1, "seed {seed}");
        bench.end(Some(1)).await.expect("ended");
        bench.pod_runtime.remove_pod(&bench.observe().await).await.expect("removed");
        assert_eq!(bench.everything().await, (vec![], 0), "seed {seed}");
    }
}
