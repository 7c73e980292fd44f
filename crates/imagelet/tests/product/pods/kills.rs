//! `kill -9` of imagelet, of containerd and of both at random moments while a hundred pods are started and some are removed.
//! Afterwards the node matches the manifests: each container runs once, and nothing runs that no manifest asks for. When the
//! manifests are removed, nothing is left.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::node::{FOREVER, Node, is};
use crate::support::random::Random;

const PODS: usize = 100;
/// Pods that are started between two kills.
const BATCH: usize = 10;
const SEED: u64 = 0x1DEA_2026_1122;

fn pod(node: &Node, number: usize) -> Value {
    let mut spec = json!({"terminationGracePeriodSeconds": 1, "containers": [node.container("main", FOREVER)]});
    // A network costs most of the time; every third has one.
    if !number.is_multiple_of(3) {
        spec["hostNetwork"] = json!(true);
    }
    // Some have more than one step.
    if number.is_multiple_of(5) {
        spec["initContainers"] = json!([node.container("init", "true")]);
    }
    node.pod(&format!("pod-{number}"), spec)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_hundred_starts_with_kills_end_as_the_manifests_say() {
    let mut node = Node::new();
    let mut random = Random(SEED);
    let mut wanted = BTreeSet::new();
    for round in 0..PODS / BATCH {
        for number in round * BATCH..(round + 1) * BATCH {
            node.write(&format!("pod-{number}.json"), &pod(&node, number));
            wanted.insert(number);
        }
        // Some of the earlier pods are removed while these start.
        if round % 2 == 1 {
            let gone = (round - 1) * BATCH + round % BATCH;
            node.remove(&format!("pod-{gone}.json"));
            wanted.remove(&gone);
        }
        // A moment at random, not a state: nothing is waited for.
        std::thread::park_timeout(Duration::from_secs(3).mul_f64(random.next()));
        match round % 3 {
            0 => node.kill(),
            1 => node.containerd.kill(),
            _ => node.kill_both(),
        }
        if round % 3 != 0 {
            std::thread::park_timeout(Duration::from_millis(500).mul_f64(random.next()));
            node.containerd.start_again();
        }
        if round % 3 != 1 {
            node.start_only();
        }
    }
    let names: BTreeSet<String> = wanted.iter().map(|number| format!("pod-{number}")).collect();
    node.within(Duration::from_secs(240), &format!("seed {SEED:#x}: every pod is ready"), || {
        let Some(pods) = node.try_pods() else { return false };
        pods.keys().cloned().collect::<BTreeSet<_>>() == names && pods.values().all(|pod| is(pod, "Ready"))
    });
    node.eventually(&format!("seed {SEED:#x}: nothing else runs"), || {
        let running: Vec<String> = node.ran().into_iter().filter(|ran| ran.running).map(|ran| ran.of).collect();
        let want: BTreeSet<String> = names.iter().map(|name| format!("{name}/main")).collect();
        running.len() == want.len() && running.into_iter().collect::<BTreeSet<_>>() == want
    });
    node.eventually("each has one sandbox that is ready", || {
        let ready: Vec<String> =
            node.sandboxes().into_iter().filter(|(_, ready)| *ready).map(|(name, _)| name).collect();
        ready.len() == names.len() && ready.into_iter().collect::<BTreeSet<_>>() == names
    });
    // Killed in the moment in which it starts a container, containerd 1.6 may say that the container has ended while its task
    // has not, and refuses to remove it ("cannot delete running task") until it has been started once more.
    node.containerd.kill();
    node.containerd.start_again();
    node.remove_all();
    // containerd 1.6 forgets the sandbox that it was creating when it was killed, and no call of CRI shows the remains: a cgroup
    // with the first process of a sandbox, a network namespace and its contents. They look like those of another
    // program. Everything that CRI shows, and everything of imagelet's own, is removed.
    const FORGOTTEN: [&str; 7] = [
        "cgroup ",
        "network namespace ",
        "state of a sandbox ",
        "interface ",
        "address ",
        "note of the network ",
        "rule ",
    ];
    node.nothing_is_left_but(|line| {
        FORGOTTEN.iter().any(|what| line.starts_with(what))
            || line.starts_with("mount ") && line.contains("/netns/cni-")
    });
}
