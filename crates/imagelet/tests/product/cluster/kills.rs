//! `kill -9` of imagelet and of the API server at random moments of pods' lives: creation, pull, start, probes, restart, status, deletion.
//! Two observers judge, which ask neither of them: containerd's events say that no container was started twice, etcd that no status went
//! backwards. In the end no pod is lost. `scripts/test-long.sh cluster` runs the long form.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Packing;
use crate::support::cluster::{Cluster, pod};
use crate::support::node::{FOREVER, NODE, container_status, is};
use crate::support::pod_history::PodHistory;
use crate::support::pods::idle_image;
use crate::support::random::{Random, number};
use crate::support::start_log::StartLog;

/// Kills of imagelet, and of the API server, in the quick form.
const KILLS: usize = 4;
/// Every kind of pod is created within this many rounds, and this many pods exist at once.
const PODS: usize = 12;
/// After this many kills everything must have settled.
const SETTLE: usize = 10;
const SEED: u64 = 0x1DEA_2026_1124;
const NAMESPACE: &str = "kills";

/// A kind of pod, with the steps of its life.
struct Kind {
    name: &'static str,
    /// The spec, for a pod of this image.
    spec: fn(&Cluster, &str) -> Value,
    /// Returns true for a pod that has reached its final state.
    has_arrived: fn(&Value) -> bool,
    /// How often its container `main` is started for that.
    starts: RangeInclusive<usize>,
}

static KINDS: [Kind; 6] = [
    Kind { name: "stays", spec: stays, has_arrived: |pod| is(pod, "Ready"), starts: 1..=1 },
    Kind {
        name: "done",
        spec: |c, image| once(c, image, "true"),
        has_arrived: |pod| ended(pod, "Succeeded", 0),
        starts: 1..=1,
    },
    Kind {
        name: "fails",
        spec: |c, image| once(c, image, "sleep 1; exit 3"),
        has_arrived: |pod| ended(pod, "Failed", 3),
        starts: 1..=1,
    },
    Kind { name: "retries", spec: retries, has_arrived: |pod| ended(pod, "Succeeded", 0), starts: 2..=2 },
    Kind { name: "probed", spec: probed, has_arrived: |pod| is(pod, "Ready"), starts: 2..=usize::MAX },
    Kind { name: "steps", spec: steps, has_arrived: |pod| is(pod, "Ready"), starts: 1..=1 },
];

fn container(cluster: &Cluster, image: &str, script: &str) -> Value {
    let mut main = cluster.container("main", script);
    // Every start asks the registry.
    main["image"] = json!(image);
    main["imagePullPolicy"] = json!("Always");
    main["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    main
}

fn spec(policy: &str, main: Value) -> Value {
    json!({"restartPolicy": policy, "terminationGracePeriodSeconds": 1, "containers": [main],
           "volumes": [{"name": "v", "emptyDir": {}}]})
}

fn stays(cluster: &Cluster, image: &str) -> Value {
    let mut main = container(cluster, image, &format!("touch /v/ready; {FOREVER}"));
    main["readinessProbe"] = json!({"exec": {"command": ["test", "-e", "/v/ready"]}, "periodSeconds": 1});
    spec("Always", main)
}

fn once(cluster: &Cluster, image: &str, script: &str) -> Value {
    spec("Never", container(cluster, image, script))
}

/// Fails once.
fn retries(cluster: &Cluster, image: &str) -> Value {
    spec("OnFailure", container(cluster, image, "test -e /v/tried || { touch /v/tried; exit 1; }"))
}

/// Is restarted by its probe once.
fn probed(cluster: &Cluster, image: &str) -> Value {
    let script = format!("test -e /v/tried && touch /tmp/alive; touch /v/tried; {FOREVER}");
    let mut main = container(cluster, image, &script);
    let probe = json!({"exec": {"command": ["test", "-e", "/tmp/alive"]}, "periodSeconds": 1, "failureThreshold": 2});
    (main["livenessProbe"], main["readinessProbe"]) = (probe.clone(), probe);
    spec("Always", main)
}

fn steps(cluster: &Cluster, image: &str) -> Value {
    let mut steps = spec("Always", container(cluster, image, FOREVER));
    let mut init = container(cluster, image, "sleep 0.5");
    init["name"] = json!("init");
    steps["initContainers"] = json!([init]);
    steps
}

/// Returns true for a pod in this phase whose container ended with this code.
fn ended(pod: &Value, phase: &str, code: u64) -> bool {
    let of_main = container_status(pod, "main").map(|status| &status["state"]["terminated"]["exitCode"]);
    pod["status"]["phase"] == phase && of_main == Some(&json!(code))
}

/// Returns true for a pod that is not to be restarted, whose start ended with the connection of an imagelet that was killed: containerd gives
/// it up, and the container counts as one that has failed. A kubelet's pods end in the same way.
fn start_was_given_up(pod: &Value) -> bool {
    let reason = container_status(pod, "main").map(|status| &status["state"]["terminated"]["reason"]);
    pod["spec"]["restartPolicy"] == "Never" && ended(pod, "Failed", 128) && reason == Some(&json!("StartError"))
}

struct Kills {
    random: Random,
    history: PodHistory,
    starts: StartLog,
    /// Pods that must be there, by name, with their kind; none of them is deleted.
    wanted: BTreeMap<String, usize>,
    made: usize,
    deleted: usize,
    /// Pods that had not arrived in the moment of a kill.
    on_their_way: usize,
    /// Pods whose start was given up by containerd.
    given_up: BTreeSet<String>,
    cluster: Cluster,
}

impl Kills {
    fn moment(&mut self, most: f64) {
        // A moment at random, not a state: nothing is waited for.
        std::thread::park_timeout(Duration::from_secs_f64(most * self.random.next()));
    }

    /// Makes three pods and, when there are enough, deletes as many.
    #[track_caller]
    fn change(&mut self, round: usize) {
        let scene = &self.cluster.node.scene;
        // An image that the node does not have.
        let layer = scene.file_layer(&format!("round-{round}"), format!("round {round}"), Packing::Gzip);
        let image = scene.registry.push(&scene.layout, &idle_image(scene, &[layer]), &format!("team/round:{round}"));
        let mut items = Vec::new();
        for _ in 0..3 {
            let kind = self.made % KINDS.len();
            let name = format!("{}-{}", KINDS[kind].name, self.made);
            let mut pod = pod(&name, (KINDS[kind].spec)(&self.cluster, &image));
            pod["metadata"]["namespace"] = json!(NAMESPACE);
            items.push(pod);
            self.wanted.insert(name, kind);
            self.made += 1;
        }
        self.cluster.plane.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}));
        let mut gone = Vec::new();
        while self.wanted.len() > PODS {
            let names: Vec<&String> = self.wanted.keys().collect();
            let chosen = names[self.random.below(names.len())].clone();
            self.wanted.remove(&chosen);
            gone.push(chosen);
        }
        self.delete(&gone);
    }

    #[track_caller]
    fn delete(&mut self, names: &[String]) {
        if names.is_empty() {
            return;
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let args = [&["delete", "pod", "-n", NAMESPACE, "--wait=false", "--ignore-not-found"][..], &names[..]].concat();
        self.cluster.plane.kubectl(&args);
        self.deleted += names.len();
    }

    /// Pods that are not yet where they must be, by name.
    fn missing(&mut self) -> Vec<String> {
        let latest = self.history.latest();
        let by_name: BTreeMap<&str, &Value> = latest
            .values()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .filter_map(|pod| Some((pod["metadata"]["name"].as_str()?, pod)))
            .collect();
        let has_arrived = |name: &str, kind: usize| {
            by_name.get(name).is_some_and(|pod| (KINDS[kind].has_arrived)(pod) || start_was_given_up(pod))
        };
        self.wanted.iter().filter(|(name, kind)| !has_arrived(name, **kind)).map(|(name, _)| name.clone()).collect()
    }

    /// A kill of imagelet and a kill of the API server, in either order, and the starts of both.
    #[track_caller]
    fn round(&mut self, round: usize) {
        self.change(round);
        self.moment(4.0);
        self.on_their_way += self.missing().len();
        if self.random.next() < 0.5 {
            self.cluster.node.kill();
            self.moment(1.0);
            if self.random.next() < 0.5 {
                // The API server is killed while this agent runs.
                self.cluster.node.start_only();
                self.moment(3.0);
                self.cluster.plane.kill_server();
                self.moment(1.0);
                self.cluster.plane.start_server();
            } else {
                self.cluster.plane.kill_server();
                self.cluster.node.start_only();
                self.moment(1.0);
                self.cluster.plane.start_server();
            }
        } else {
            self.cluster.plane.kill_server();
            self.moment(2.0);
            self.cluster.node.kill();
            self.cluster.plane.start_server();
            self.cluster.node.start_only();
        }
    }

    /// Waits until every pod is in its final state, and every deleted one is removed.
    #[track_caller]
    fn settle(&mut self, context: &str) {
        let until = std::time::Instant::now() + Duration::from_secs(150);
        loop {
            let missing = self.missing();
            let there = self.there();
            if missing.is_empty() && there.len() == self.wanted.len() {
                break;
            }
            assert!(
                std::time::Instant::now() < until,
                "{context}: these pods are lost: {missing:?}; the server has {there:?}, wanted are {:?}",
                self.wanted.keys().collect::<Vec<_>>()
            );
            std::thread::park_timeout(Duration::from_millis(200));
        }
        self.judge(context);
    }

    /// Names of the pods that the server has.
    fn there(&self) -> Vec<String> {
        let list = self.cluster.plane.try_get(&["pods", "-n", NAMESPACE]).unwrap_or_default();
        let names = list["items"].as_array().into_iter().flatten();
        names.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
    }

    /// Asserts that nothing was started twice and no status went backwards.
    #[track_caller]
    fn judge(&mut self, context: &str) {
        self.history.is_sound(context);
        let counts = self.starts.is_sound(context);
        let latest = self.history.latest();
        self.given_up.extend(latest.iter().filter(|(_, pod)| start_was_given_up(pod)).map(|(uid, _)| uid.to_string()));
        let wrong: Vec<String> = latest
            .iter()
            .filter_map(|(uid, pod)| {
                let name = pod["metadata"]["name"].as_str()?;
                let kind = &KINDS[*self.wanted.get(name)?];
                let main = counts.get(&(uid.clone(), "main".to_owned())).copied().unwrap_or(0);
                let init = counts.get(&(uid.clone(), "init".to_owned())).copied();
                let is_right = (kind.starts.contains(&main) || main == 0 && start_was_given_up(pod))
                    && init == (kind.name == "steps").then_some(1);
                (!is_right).then(|| format!("{name}: main was started {main} times, init {init:?}"))
            })
            .collect();
        assert!(wrong.is_empty(), "{context}: {wrong:#?}");
        let panics: Vec<String> =
            self.cluster.node.log().into_iter().filter(|line| line.contains("panicked")).collect();
        assert!(panics.is_empty(), "{context}: {panics:#?}");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn kills_of_imagelet_and_of_the_api_server_lose_no_pod() {
    let rounds = number("IMAGELET_CLUSTER_KILLS", KILLS);
    let seed = SEED + number("IMAGELET_SEED", 0) as u64;
    let cluster = Cluster::start();
    let (history, starts) = (PodHistory::follow(&cluster.plane), StartLog::follow(&cluster.node.containerd));
    cluster.namespace(NAMESPACE);
    let mut kills = Kills {
        random: Random(seed),
        history,
        starts,
        wanted: BTreeMap::new(),
        made: 0,
        deleted: 0,
        on_their_way: 0,
        given_up: BTreeSet::new(),
        cluster,
    };
    for round in 0..rounds {
        kills.round(round);
        if round % SETTLE == SETTLE - 1 {
            kills.settle(&format!("seed {seed:#x}, round {round}"));
        }
    }
    let context = format!("seed {seed:#x}, after all {rounds} rounds");
    kills.settle(&context);
    kills.cluster.plane.wait(&["--for=condition=Ready", &format!("node/{NODE}")]);
    let names: Vec<String> = std::mem::take(&mut kills.wanted).into_keys().collect();
    kills.delete(&names);
    kills.settle(&context);
    kills.cluster.node.nothing_is_left();
    assert!(kills.on_their_way >= rounds, "only {} pods were on their way", kills.on_their_way);
    report(&kills, seed, rounds);
}

#[expect(clippy::print_stdout, reason = "the figures that the long form is run for")]
fn report(kills: &Kills, seed: u64, rounds: usize) {
    println!(
        "seed {seed:#x}: {rounds} kills of imagelet and {rounds} kills of the API server while {} of {} pods were on their way, {} deleted; \
         {} revisions of pods; {} starts given up by containerd; 0 containers started twice, 0 pods lost, 0 statuses backwards, nothing left",
        kills.on_their_way,
        kills.made,
        kills.deleted,
        kills.history.revisions,
        kills.given_up.len()
    );
}
