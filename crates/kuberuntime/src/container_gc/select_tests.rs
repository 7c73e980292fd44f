//! The kubelet's tables of container and sandbox collection, and what holds for every input.

use std::collections::BTreeSet;

use cri_api::{ContainerMetadata, PodSandboxMetadata};
use proptest::prelude::*;

use super::super::logs::{ContainerLink, LogOwner, PodLogDirectory};
use super::*;

/// Pods by how they are: everything else is unknown, and so gone once the sources are ready.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPods {
    pub(crate) sources_ready: bool,
    pub(crate) running: BTreeSet<String>,
    /// Ended, and not deleted.
    pub(crate) terminated: BTreeSet<String>,
}

impl KnownPods {
    pub(crate) fn new(running: &[&str], terminated: &[&str]) -> Self {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Self { sources_ready: true, running: set(running), terminated: set(terminated) }
    }
}

impl PodStates for KnownPods {
    fn sources_ready(&self) -> bool {
        self.sources_ready
    }

    fn content_removable(&self, uid: &str) -> bool {
        !self.running.contains(uid) && !self.terminated.contains(uid)
    }

    fn runtime_removable(&self, uid: &str) -> bool {
        !self.running.contains(uid)
    }
}

const HOUR: i64 = 3_600_000_000_000;
/// The time in all tables.
const NOW: i64 = 1000 * HOUR;

fn now() -> Timestamp {
    timestamp(NOW).expect("a time")
}

/// `POD/NAME` with the time it was made, seconds since the epoch. Its id says all three.
fn container(pod: &str, name: &str, created: i64, state: ContainerState) -> Container {
    Container {
        id: format!("{pod}/{name}/{created}"),
        metadata: ContainerMetadata { name: name.into(), attempt: 0 },
        state,
        created_at: created * 1_000_000_000,
        labels: [(POD_UID.to_owned(), pod.to_owned())].into(),
        ..Container::default()
    }
}

fn exited(pod: &str, name: &str, created: impl IntoIterator<Item = i64>) -> Vec<Container> {
    created.into_iter().map(|at| container(pod, name, at, ContainerState::Exited)).collect()
}

pub(crate) fn sandbox(pod: &str, created: i64, ready: bool) -> PodSandbox {
    PodSandbox {
        id: format!("{pod}/{created}"),
        metadata: PodSandboxMetadata { name: pod.into(), uid: pod.into(), namespace: "ns".into(), attempt: 0 },
        ready,
        created_at: created * 1_000_000_000,
        ..PodSandbox::default()
    }
}

fn kept(rows: &[GcRow]) -> Vec<&str> {
    let mut ids: Vec<&str> = rows.iter().filter(|row| !row.verdict.removes()).map(|row| row.id.as_str()).collect();
    ids.sort_unstable();
    ids
}

struct Case {
    name: &'static str,
    policy: (i64, i64, i64),
    containers: Vec<Container>,
    pods: KnownPods,
    scope: GcScope,
    /// Ids of what stays.
    stays: Vec<&'static str>,
}

/// Age of an hour, two of each, six in all.
const POLICY: (i64, i64, i64) = (3600, 2, 6);

fn cases() -> Vec<Case> {
    let alive = || KnownPods::new(&["foo", "foo1", "foo2", "foo3", "foo4", "foo5", "foo6", "foo7"], &[]);
    let base = Case {
        name: "",
        policy: POLICY,
        containers: Vec::new(),
        pods: alive(),
        scope: GcScope::Policy,
        stays: Vec::new(),
    };
    let groups = |names: &[(&str, &str)], created: &[i64]| -> Vec<Container> {
        names.iter().flat_map(|(pod, name)| exited(pod, name, created.iter().copied())).collect()
    };
    let five = [("foo", "bar"), ("foo1", "baz"), ("foo2", "bar"), ("foo3", "baz"), ("foo4", "bar")];
    let young = NOW / 1_000_000_000 - 60;
    let base_with = |name, containers, stays| Case { name, containers, stays, pods: alive(), ..base };
    vec![
        Case {
            policy: (60, 1, 0),
            ..base_with("upstream: containergc/TestContainerGC/total limit 0", exited("foo", "bar", [0]), vec![])
        },
        Case {
            policy: (60, -1, 4),
            ..base_with(
                "upstream: containergc/TestContainerGC/total limit without a limit per container",
                exited("foo", "bar", [4, 3, 2, 1, 0]),
                vec!["foo/bar/1", "foo/bar/2", "foo/bar/3", "foo/bar/4"],
            )
        },
        Case {
            policy: (60, -1, -1),
            ..base_with(
                "upstream: containergc/TestContainerGC/no limits",
                [exited("foo", "bar", [2, 1, 0]), exited("foo1", "bar", [1, 0])].concat(),
                vec!["foo/bar/0", "foo/bar/1", "foo/bar/2", "foo1/bar/0", "foo1/bar/1"],
            )
        },
        base_with(
            "upstream: containergc/TestContainerGC/recently created",
            exited("foo", "bar", [young, young + 1, young + 2]),
            vec!["foo/bar/3599940", "foo/bar/3599941", "foo/bar/3599942"],
        ),
        base_with(
            "upstream: containergc/TestContainerGC/limit per container exceeded",
            exited("foo", "bar", [0, 2, 1]),
            vec!["foo/bar/1", "foo/bar/2"],
        ),
        base_with(
            "upstream: containergc/TestContainerGC/running",
            [exited("foo", "bar", [2, 1]), vec![container("foo", "bar", 0, ContainerState::Running)]].concat(),
            vec!["foo/bar/0", "foo/bar/1", "foo/bar/2"],
        ),
        base_with(
            "upstream: containergc/TestContainerGC/limits not exceeded",
            exited("foo", "bar", [1, 0]),
            vec!["foo/bar/0", "foo/bar/1"],
        ),
        base_with(
            "upstream: containergc/TestContainerGC/limit is per pod and container",
            groups(&[("foo", "bar"), ("foo1", "baz"), ("foo2", "bar")], &[2, 1, 0]),
            vec!["foo/bar/1", "foo/bar/2", "foo1/baz/1", "foo1/baz/2", "foo2/bar/1", "foo2/bar/2"],
        ),
        base_with(
            "upstream: containergc/TestContainerGC/total limit keeps one of each",
            groups(&five, &[1, 0]),
            vec!["foo/bar/1", "foo1/baz/1", "foo2/bar/1", "foo3/baz/1", "foo4/bar/1"],
        ),
        base_with(
            "upstream: containergc/TestContainerGC/total limit below the number of pods",
            [
                exited("foo", "bar", [2, 1]),
                exited("foo1", "baz", [2]),
                exited("foo2", "bar", [1]),
                exited("foo3", "baz", [2]),
                exited("foo4", "bar", [1]),
                exited("foo5", "bar", [2]),
                exited("foo6", "bar", [2]),
                exited("foo7", "bar", [2]),
            ]
            .concat(),
            vec!["foo/bar/2", "foo1/baz/2", "foo3/baz/2", "foo5/bar/2", "foo6/bar/2", "foo7/bar/2"],
        ),
        Case {
            pods: KnownPods::new(&["running"], &["foo", "foo1"]),
            scope: GcScope::Pressure,
            ..base_with(
                "upstream: containergc/TestContainerGC/terminating pods",
                [
                    exited("foo", "bar", [1, 0]),
                    vec![container("foo1", "baz", 1, ContainerState::Running)],
                    exited("running", "bar", [1, 0]),
                ]
                .concat(),
                vec!["foo1/baz/1", "running/bar/0", "running/bar/1"],
            )
        },
        Case {
            pods: KnownPods::new(&["existing"], &[]),
            ..base_with(
                "upstream: containergc/TestContainerGC/deleted pods",
                [
                    exited("existing", "foo", [1, 0]),
                    exited("deleted", "foo", [1, 0]),
                    exited("deleted", "bar", [young]),
                    vec![container("deleted", "baz", 1, ContainerState::Running)],
                ]
                .concat(),
                vec!["deleted/bar/3599940", "deleted/baz/1", "existing/foo/0", "existing/foo/1"],
            )
        },
        Case {
            pods: KnownPods { sources_ready: false, ..KnownPods::new(&["existing"], &[]) },
            ..base_with(
                "upstream: containergc/TestContainerGC/deleted pods, sources not ready",
                exited("deleted", "foo", [1, 0]),
                vec!["deleted/foo/0", "deleted/foo/1"],
            )
        },
    ]
}

#[test]
fn containers_stay_and_go_as_in_the_kubelet() {
    for Case { name, policy: (min_age, each, all), mut containers, pods, scope, stays } in cases() {
        let policy = ContainerGcPolicy::new(jiff::SignedDuration::from_secs(min_age), each, all).expect("a policy");
        for _ in 0..2 {
            let inventory = GcInventory { containers: containers.clone(), ..GcInventory::default() };
            let rows = select_containers(&inventory, &policy, &pods, scope, now());
            assert_eq!(kept(&rows), stays, "{name}");
            assert_eq!(rows.len(), inventory.containers.len(), "{name}");
            containers.reverse();
        }
    }
}

#[test]
fn sandboxes_stay_and_go_as_in_the_kubelet() {
    let inhabited = |sandbox: &PodSandbox| {
        let state = ContainerState::Exited;
        Container { pod_sandbox_id: sandbox.id.clone(), state, ..Container::default() }
    };
    let old = sandbox("foo1", 0, false);
    type GcRow<'a> = (&'a str, Vec<PodSandbox>, Vec<Container>, KnownPods, GcScope, &'a [&'a str]);
    let table: [GcRow<'_>; 8] = [
        (
            "upstream: containergc/TestSandboxGC/not ready, no containers, pod deleted",
            vec![sandbox("deleted", 0, false)],
            vec![],
            KnownPods::new(&[], &[]),
            GcScope::Policy,
            &[],
        ),
        (
            "upstream: containergc/TestSandboxGC/ready, no containers, pod deleted",
            vec![sandbox("deleted", 0, true)],
            vec![],
            KnownPods::new(&[], &[]),
            GcScope::Policy,
            &["deleted/0"],
        ),
        (
            "upstream: containergc/TestSandboxGC/existing pods, one sandbox each",
            vec![sandbox("foo1", 0, true), sandbox("foo2", 0, false)],
            vec![],
            KnownPods::new(&["foo1", "foo2"], &[]),
            GcScope::Policy,
            &["foo1/0", "foo2/0"],
        ),
        (
            "upstream: containergc/TestSandboxGC/existing pod, older exited sandbox without containers",
            vec![sandbox("foo1", 0, false), sandbox("foo1", 1, false)],
            vec![],
            KnownPods::new(&["foo1"], &[]),
            GcScope::Policy,
            &["foo1/1"],
        ),
        (
            "upstream: containergc/TestSandboxGC/existing pod, older exited sandbox with a container",
            vec![old.clone(), sandbox("foo1", 1, false)],
            vec![inhabited(&old)],
            KnownPods::new(&["foo1"], &[]),
            GcScope::Policy,
            &["foo1/0", "foo1/1"],
        ),
        (
            "upstream: containergc/TestSandboxGC/terminating pods",
            vec![sandbox("foo1", 0, true), sandbox("foo2", 0, false)],
            vec![],
            KnownPods::new(&[], &["foo1", "foo2"]),
            GcScope::Pressure,
            &["foo1/0"],
        ),
        (
            "upstream: containergc/TestSandboxGC/sandbox with containers",
            vec![old.clone()],
            vec![inhabited(&old)],
            KnownPods::new(&[], &[]),
            GcScope::Policy,
            &["foo1/0"],
        ),
        (
            "upstream: containergc/TestSandboxGC/several sandboxes",
            vec![
                sandbox("running", 1, true),
                sandbox("running", 0, false),
                old.clone(),
                sandbox("foo1", 1, false),
                sandbox("deleted", 0, false),
            ],
            vec![inhabited(&old)],
            KnownPods::new(&["running"], &[]),
            GcScope::Policy,
            &["foo1/0", "running/1"],
        ),
    ];
    for (name, mut sandboxes, containers, pods, scope, stays) in table {
        for _ in 0..2 {
            assert_eq!(kept(&select_sandboxes(&sandboxes, containers.iter(), &pods, scope)), stays, "{name}");
            sandboxes.reverse();
        }
    }
}

fn directory(namespace: &str, name: &str, uid: &str) -> PodLogDirectory {
    let pod = LogOwner { namespace: namespace.into(), name: name.into(), uid: uid.into() };
    PodLogDirectory { name: format!("{namespace}_{name}_{uid}"), pod: Some(pod) }
}

// upstream: containergc/TestPodLogDirectoryGC
#[test]
fn logs_are_removed_once_their_pod_is_known_to_be_deleted() {
    let foreign = PodLogDirectory { name: "lost+found".into(), pod: None };
    let directories =
        vec![directory("ns", "a", "alive"), directory("ns", "b", "gone"), directory("ns", "c", "seen"), foreign];
    let logs = LogInventory { directories, ..LogInventory::default() };
    let seen = container("seen", "c", 1, ContainerState::Running);
    let rows = |pods: &dyn PodStates| select_logs(&logs, std::slice::from_ref(&seen), pods).0;
    let words = |rows: &[GcRow]| rows.iter().map(|row| (row.id.clone(), row.verdict.word())).collect::<Vec<_>>();
    let want = [
        ("ns_b_gone", "remove"),
        ("lost+found", "foreign"),
        ("ns_a_alive", "pod-may-live"),
        ("ns_c_seen", "pod-may-live"),
    ];
    assert_eq!(words(&rows(&KnownPods::new(&["alive"], &[]))), want.map(|(id, word)| (id.to_owned(), word)));
    for pods in
        [&KnownPods { sources_ready: false, ..KnownPods::default() } as &dyn PodStates, &super::super::NoPodSource]
    {
        assert_eq!(kept(&rows(pods)).len(), 4);
    }
}

#[test]
fn dangling_links_go_unless_the_log_is_only_being_turned() {
    let link = |name: &str, id: &str| ContainerLink { name: name.into(), container_id: id.into() };
    let dangling = vec![
        link("runs.log", "pod/runs/1"),
        link("long-name-that-was-cut.log", "pod/ru"),
        link("ended.log", "pod/ended/1"),
        link("gone.log", "pod/gone/1"),
        link("nameless.log", ""),
    ];
    let containers =
        [container("pod", "runs", 1, ContainerState::Running), container("pod", "ended", 1, ContainerState::Exited)];
    let logs = LogInventory { dangling, ..LogInventory::default() };
    let rows = select_logs(&logs, &containers, &super::super::NoPodSource).1;
    assert_eq!(kept(&rows), ["long-name-that-was-cut.log", "runs.log"]);
}

#[test]
fn a_container_without_labels_is_its_sandboxs() {
    let of_sandbox =
        Container { labels: Default::default(), pod_sandbox_id: "gone/0".into(), ..exited("", "x", [1])[0].clone() };
    let inventory = GcInventory {
        containers: vec![of_sandbox],
        sandboxes: vec![sandbox("gone", 0, false)],
        ..GcInventory::default()
    };
    let plan = select(&inventory, &ContainerGcPolicy::default(), &KnownPods::new(&[], &[]), GcScope::Policy, now());
    let row = &plan.containers[0];
    assert_eq!((row.pod.as_str(), row.pod_uid.as_str()), ("ns/gone", "gone"));
    assert_eq!(row.verdict, GcVerdict::Remove(RemovalReason::PodGone));
    // The sandbox is removed with it, in the same plan.
    assert_eq!((plan.sandboxes[0].verdict, plan.removals()), (GcVerdict::Remove(RemovalReason::PodGone), 2));
}

#[test]
fn a_plan_is_readable() {
    let containers = [exited("a", "x", [1, 2]), exited("b", "x", [NOW / 1_000_000_000 - 60])].concat();
    let inventory = GcInventory { containers, sandboxes: vec![sandbox("a", 0, true)], ..GcInventory::default() };
    let policy = ContainerGcPolicy { min_age: Duration::from_secs(600), ..ContainerGcPolicy::default() };
    let plan = select(&inventory, &policy, &super::super::NoPodSource, GcScope::Policy, now());
    let lines: Vec<String> = plan.rows().map(|(kind, row)| format!("{kind} {}: {}", row.id, row.verdict)).collect();
    assert_eq!(
        lines,
        [
            "container a/x/1: of one container of a pod 1 that ended stay, and newer ones are there",
            "container b/x/3599940: made 1m ago, and containers stay for 10m at least",
            "container a/x/2: so many may stay",
            "sandbox a/0: it is ready",
        ]
    );
    let json = serde_json::to_value(&plan.containers[0]).expect("serialises");
    assert_eq!(json["decision"], "remove");
    assert_eq!(json["createdAt"], "1970-01-01T00:00:01Z");
    assert_eq!(json["podUid"], "a");
}

fn any_container() -> impl Strategy<Value = Container> {
    let state = prop::sample::select(vec![
        ContainerState::Created,
        ContainerState::Running,
        ContainerState::Exited,
        ContainerState::Unknown,
    ]);
    (0..4_u8, 0..3_u8, 0..(NOW / 1_000_000_000 + 5), state)
        .prop_map(|(pod, name, created, state)| container(&format!("p{pod}"), &format!("c{name}"), created, state))
}

proptest! {
    /// Never what runs, never what is too young; the limits hold; of each the newest stay; and the order of the input does
    /// not matter.
    #[test]
    fn what_holds_for_every_input(
        mut containers in prop::collection::vec(any_container(), 0..40), min_age in 0_i64..7200, each in -1_i64..4,
        all in -1_i64..12, sources_ready: bool, pressure: bool, seed: u64,
    ) {
        // Ids are unique.
        containers.sort_by(|a, b| a.id.cmp(&b.id));
        containers.dedup_by(|a, b| a.id == b.id);
        let policy = ContainerGcPolicy::new(jiff::SignedDuration::from_secs(min_age), each, all).expect("a policy");
        let pods = KnownPods { sources_ready, ..KnownPods::new(&["p0", "p1"], &["p2"]) };
        let scope = if pressure { GcScope::Pressure } else { GcScope::Policy };
        let sandboxes = vec![sandbox("p0", 1, false), sandbox("p0", 2, false), sandbox("p3", 1, false)];
        let inventory = GcInventory { containers, sandboxes, ..GcInventory::default() };
        let plan = select(&inventory, &policy, &pods, scope, now());

        let mut turned = inventory.clone();
        let turns = usize::try_from(seed % 40).expect("small");
        let turns = turns.min(turned.containers.len());
        turned.containers.rotate_left(turns);
        turned.sandboxes.reverse();
        let again = select(&turned, &policy, &pods, scope, now());
        let ids = |plan: &ContainerPlan| plan.rows().map(|(_, row)| (row.id.clone(), row.verdict)).collect::<Vec<_>>();
        prop_assert_eq!(ids(&plan), ids(&again));

        let ended = |row: &&GcRow| {
            let container = &inventory.containers[row.index];
            let old = age(container.created_at, now()).is_some_and(|age| age >= policy.min_age);
            container.state != ContainerState::Running && old
        };
        let mut left = 0;
        let mut newest_removed: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for row in &plan.containers {
            let key = (row.pod_uid.as_str(), row.name.as_str());
            let created = inventory.containers[row.index].created_at;
            if row.verdict.removes() {
                prop_assert!(ended(&row), "{} went", row.id);
                let newest = newest_removed.entry(key).or_insert(created);
                *newest = created.max(*newest);
            } else if ended(&row) {
                left += 1;
                *counts.entry(key).or_default() += 1;
            }
        }
        for row in plan.containers.iter().filter(|row| !row.verdict.removes()).filter(ended) {
            let removed = newest_removed.get(&(row.pod_uid.as_str(), row.name.as_str()));
            prop_assert!(removed.is_none_or(|at| *at <= inventory.containers[row.index].created_at));
        }
        prop_assert!(policy.max_containers.is_none_or(|limit| left <= limit));
        let each = policy.max_per_pod_container;
        prop_assert!(each.is_none_or(|limit| counts.values().all(|count| *count <= limit)));
        prop_assert!(plan.sandboxes.iter().all(|row| !row.verdict.removes() || row.id != "p0/2"), "the newest of a live pod");
    }
}
