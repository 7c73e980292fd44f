//! Pulls, removals, collections, and pods that start and end, over and over, while the agent is watched: its memory, open files,
//! threads and tasks stay constant. `scripts/test-long.sh soak` runs the long form.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::Packing;
use crate::support::images::{Image, write};
use crate::support::node::{FOREVER, Node};
use crate::support::pods::idle_image;
use crate::support::random::{noise_of, number};

/// Images in the registry; each has one layer of its own, and shares one with a third of the images.
const IMAGES: usize = 12;
/// Bytes of a layer.
const LAYER: usize = 400_000;
/// The quick form: rounds and pods.
const QUICK: (usize, usize) = (12, 4);
/// Pods of the long form.
const PODS: usize = 30;
/// Unused images are collected after this many rounds.
const COLLECT: usize = 4;
/// Largest difference of a count that is no leak: connections kept for the next request, and their tasks.
const SLACK: u64 = 4;

/// The agent while nothing is asked of it.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Without files, in bytes.
    memory: u64,
    files: u64,
    threads: u64,
    tasks: u64,
}

impl Sample {
    fn of(node: &Node) -> Self {
        let metrics = node.imagelet.ok(&["metrics"]);
        let metric = |name: &str| {
            let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}:\n{metrics}"))
        };
        let pid = node.agent_pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent runs");
        let kernels = |name: &str| {
            let words = status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
            words.and_then(|word| word.parse::<u64>().ok()).unwrap_or_else(|| panic!("no {name}:\n{status}"))
        };
        Self {
            memory: kernels("RssAnon:") << 10,
            files: metric("process_open_fds"),
            threads: kernels("Threads:"),
            tasks: metric("imagelet_tasks"),
        }
    }

    /// Of each number the one in the middle.
    fn median(samples: &[Self]) -> Self {
        let middle = |number: fn(&Self) -> u64| {
            let mut numbers: Vec<u64> = samples.iter().map(number).collect();
            numbers.sort_unstable();
            numbers[numbers.len() / 2]
        };
        Self {
            memory: middle(|sample| sample.memory),
            files: middle(|sample| sample.files),
            threads: middle(|sample| sample.threads),
            tasks: middle(|sample| sample.tasks),
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory as f64 / f64::from(1 << 20);
        write!(f, "{memory:.1} MiB, {} files, {} threads, {} tasks", self.files, self.threads, self.tasks)
    }
}

fn push(node: &Node, image: usize) -> String {
    let scene = &node.scene;
    let layer = |name: &str| {
        let tree = tempfile::tempdir_in(scene.scratch.path()).expect("a directory");
        write(&tree.path().join(name), noise_of(name, LAYER));
        scene.layout.layer(tree.path(), Packing::Gzip)
    };
    let layers = [layer(&format!("shared-{}", image % 3)), layer(&format!("own-{image}"))];
    let image_of_them: Image = idle_image(scene, &layers);
    scene.registry.push(&scene.layout, &image_of_them, &format!("soak/app:{image}"))
}

/// Puts the pod of this number in place, with an image that may have to be pulled.
fn put(node: &Node, number: usize, image: &str) {
    let mut main = node.container("main", FOREVER);
    main["image"] = json!(image);
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [main]});
    node.write(&format!("soak-{number}.json"), &node.pod(&format!("soak-{number}"), spec));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn memory_files_and_tasks_stay_where_they_were() {
    let minutes = number("IMAGELET_SOAK_MINUTES", 0);
    let (rounds, pods) = if minutes == 0 { QUICK } else { (usize::MAX, PODS) };
    let node = Node::with(&json!({"imageMinimumGCAge": "0s", "statusAddress": "127.0.0.1:0"}));
    let images: Vec<String> = (0..IMAGES).map(|image| push(&node, image)).collect();
    for pod in 0..pods {
        put(&node, pod, &images[pod % 2]);
    }
    for pod in 0..pods {
        node.ready(&format!("soak-{pod}"));
    }
    let end = Instant::now() + Duration::from_secs(60 * minutes as u64);
    let mut samples = Vec::new();
    while samples.len() < rounds && (minutes == 0 || Instant::now() < end) {
        let round = samples.len();
        let image = |step: usize| &images[(round + step) % IMAGES];
        // Three at once: one is for a pod to use, and one is removed.
        let mut pulls: Vec<_> = (0..3).map(|step| node.imagelet.spawn(&["pull", image(step)])).collect();
        let changed = round % pods;
        node.remove(&format!("soak-{changed}.json"));
        for pull in &mut pulls {
            assert!(crate::support::cli::end_of(pull).success(), "a pull of round {round}");
        }
        node.imagelet.ok(&["rmi", image(2)]);
        node.eventually("the pod is gone", || !node.pods().contains_key(&format!("soak-{changed}")));
        put(&node, changed, image(1));
        node.ready(&format!("soak-{changed}"));
        if round % COLLECT == COLLECT - 1 {
            node.imagelet.ok(&["gc", "--older-than", "0s"]);
        }
        samples.push(Sample::of(&node));
    }
    assert_eq!(node.ran().iter().filter(|ran| ran.running).count(), pods, "{:?}", node.ran());

    // Memory that a program takes at first is kept for reuse: the first quarter does not count.
    let quarter = samples.len() / 4;
    assert!(quarter >= 3, "too few rounds: {}", samples.len());
    let before = Sample::median(&samples[quarter..2 * quarter]);
    let after = Sample::median(&samples[samples.len() - quarter..]);
    println!("{} rounds with {pods} pods, {} pulls: {before}, then {after}", samples.len(), 3 * samples.len());
    for (what, before, after) in [
        ("files", before.files, after.files),
        ("threads", before.threads, after.threads),
        ("tasks", before.tasks, after.tasks),
    ] {
        assert!(after <= before + SLACK, "{what}: {before}, then {after}: {samples:?}");
    }
    // Of a few rounds the allocator's own pages are most.
    if minutes > 0 {
        assert!(after.memory <= before.memory + before.memory / 10, "memory: {before}, then {after}: {samples:?}");
    }
    node.clear();
}
