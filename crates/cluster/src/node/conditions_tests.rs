//! Tests of conditions: the cases of the kubelet's setters.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn condition(kind: &str, status: &str, since: i64) -> NodeCondition {
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        last_heartbeat_time: Some(Time(at(since))),
        last_transition_time: Some(Time(at(since))),
        ..NodeCondition::default()
    }
}

/// Status, reason, message, and since when.
fn row(conditions: &[NodeCondition], kind: &str) -> (String, String, String, i64) {
    let found = conditions.iter().find(|condition| condition.type_ == kind).expect(kind).clone();
    assert_eq!(found.last_heartbeat_time, Some(Time(at(100))), "{kind}");
    let since = found.last_transition_time.expect("a time").0.as_second();
    (found.status, found.reason.expect("a reason"), found.message.expect("a message"), since)
}

// upstream: nodestatus/TestMemoryPressureCondition/new, no pressure
// upstream: nodestatus/TestMemoryPressureCondition/new, pressure
// upstream: nodestatus/TestMemoryPressureCondition/transition to pressure
// upstream: nodestatus/TestMemoryPressureCondition/transition to no pressure
// upstream: nodestatus/TestMemoryPressureCondition/pressure, no transition
// upstream: nodestatus/TestMemoryPressureCondition/no pressure, no transition
// upstream: nodestatus/TestDiskPressureCondition/new, no pressure
// upstream: nodestatus/TestDiskPressureCondition/new, pressure
// upstream: nodestatus/TestDiskPressureCondition/transition to pressure
// upstream: nodestatus/TestDiskPressureCondition/transition to no pressure
// upstream: nodestatus/TestDiskPressureCondition/pressure, no transition
// upstream: nodestatus/TestDiskPressureCondition/no pressure, no transition
// upstream: nodestatus/TestPIDPressureCondition/new, no pressure
// upstream: nodestatus/TestPIDPressureCondition/new, pressure
// upstream: nodestatus/TestPIDPressureCondition/transition to pressure
// upstream: nodestatus/TestPIDPressureCondition/transition to no pressure
// upstream: nodestatus/TestPIDPressureCondition/pressure, no transition
// upstream: nodestatus/TestPIDPressureCondition/no pressure, no transition
#[test]
fn conditions_change_as_in_the_kubelet() {
    let kinds = [
        (
            "MemoryPressure",
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
            "NodeHasInsufficientMemory",
            "NodeHasSufficientMemory",
        ),
        (
            "DiskPressure",
            "KubeletHasDiskPressure",
            "kubelet has disk pressure",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
            "NodeHasDiskPressure",
            "NodeHasNoDiskPressure",
        ),
        (
            "PIDPressure",
            "KubeletHasInsufficientPID",
            "kubelet has insufficient PID available",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
            "NodeHasInsufficientPID",
            "NodeHasSufficientPID",
        ),
    ];
    for (kind, reason, message, no_reason, no_message, event, no_event) in kinds {
        for (name, old, pressure, since, changed) in [
            ("new, no pressure", None, false, 100, true),
            ("new, pressure", None, true, 100, true),
            ("transition to pressure", Some("False"), true, 100, true),
            ("pressure, no transition", Some("True"), true, 7, false),
            ("transition to no pressure", Some("True"), false, 100, true),
            ("no pressure, no transition", Some("False"), false, 7, false),
        ] {
            let old: Vec<NodeCondition> = old.map(|status| condition(kind, status, 7)).into_iter().collect();
            let mut new = old.clone();
            let all = Pressures { memory: Some(pressure), disk: Some(pressure), pids: Some(pressure) };
            set(&mut new, all, &[], at(100));
            let (status, reason, message, event) =
                if pressure { ("True", reason, message, event) } else { ("False", no_reason, no_message, no_event) };
            let want = (status.to_owned(), reason.to_owned(), message.to_owned(), since);
            assert_eq!(row(&new, kind), want, "{kind}: {name}");
            assert_eq!(changes(&old, &new).contains(&event), changed, "{kind}: {name}");
        }
    }
    for (name, old, problems, want, events) in [
        (
            "upstream: nodestatus/TestReadyCondition/new, ready",
            None,
            &[][..],
            ("True", "KubeletReady", "kubelet is posting ready status", 100),
            &["NodeReady"][..],
        ),
        ("new, not ready: one error", None, &["a"], ("False", "KubeletNotReady", "a", 100), &["NodeNotReady"]),
        (
            "upstream: nodestatus/TestReadyCondition/new, not ready: runtime and network errors",
            None,
            &["a", "b"],
            ("False", "KubeletNotReady", "[a, b]", 100),
            &["NodeNotReady"],
        ),
        (
            "upstream: nodestatus/TestReadyCondition/transition to ready",
            Some("False"),
            &[],
            ("True", "KubeletReady", "kubelet is posting ready status", 100),
            &["NodeReady"],
        ),
        (
            "upstream: nodestatus/TestReadyCondition/transition to not ready",
            Some("True"),
            &["a"],
            ("False", "KubeletNotReady", "a", 100),
            &["NodeNotReady"],
        ),
        (
            "upstream: nodestatus/TestReadyCondition/ready, no transition",
            Some("True"),
            &[],
            ("True", "KubeletReady", "kubelet is posting ready status", 7),
            &[],
        ),
        (
            "upstream: nodestatus/TestReadyCondition/not ready, no transition",
            Some("False"),
            &["b"],
            ("False", "KubeletNotReady", "b", 7),
            &[],
        ),
        (
            "given up by the controller",
            Some("Unknown"),
            &[],
            ("True", "KubeletReady", "kubelet is posting ready status", 100),
            &["NodeReady"],
        ),
    ] {
        let old: Vec<NodeCondition> = old.map(|status| condition("Ready", status, 7)).into_iter().collect();
        let mut new = old.clone();
        let problems: Vec<String> = problems.iter().map(|problem: &&str| (*problem).to_owned()).collect();
        set(&mut new, Pressures::default(), &problems, at(100));
        let (status, reason, message, since) = want;
        assert_eq!(row(&new, "Ready"), (status.to_owned(), reason.to_owned(), message.to_owned(), since), "{name}");
        assert_eq!(changes(&old, &new), events, "{name}");
    }
}

#[test]
fn others_conditions_stay_where_they_are() {
    let foreign = condition("KernelDeadlock", "False", 3);
    let mut conditions = vec![condition("Ready", "True", 7), foreign.clone()];
    set(&mut conditions, Pressures::default(), &[], at(100));
    let kinds: Vec<&str> = conditions.iter().map(|condition| &*condition.type_).collect();
    assert_eq!(kinds, ["Ready", "KernelDeadlock", "MemoryPressure", "DiskPressure", "PIDPressure"]);
    assert_eq!(conditions[1], foreign);
    assert_eq!(row(&conditions, "DiskPressure").0, "Unknown", "nobody measured");
}

#[test]
fn pressures_last_for_a_while() {
    let minute = Duration::from_secs(60);
    let mut monitor = PressureMonitor::default();
    let mut seen = |available: u64, pids: (u64, u64), second: i64| {
        let load = Load { memory_available: Some(available), pids: Some(pids) };
        let Pressures { memory, pids, disk } = monitor.observe(load, &Observed::default(), at(second), minute);
        assert_eq!(disk, None);
        (memory.expect("measured"), pids.expect("measured"))
    };
    let (few, most) = ((10, 1000), (951, 1000));
    assert_eq!(seen(MIN_FREE_MEMORY, few, 0), (false, false));
    assert_eq!(seen(MIN_FREE_MEMORY - 1, (950, 1000), 10), (true, false), "five of a hundred are enough");
    assert_eq!(seen(MIN_FREE_MEMORY, most, 20), (true, true));
    assert_eq!(seen(MIN_FREE_MEMORY, few, 70), (true, true));
    assert_eq!(seen(MIN_FREE_MEMORY, few, 71), (false, true));
    assert_eq!(seen(MIN_FREE_MEMORY, few, 81), (false, false));
    let unknown = monitor.observe(Load::default(), &Observed::default(), at(90), minute);
    assert_eq!(unknown, Pressures::default());
}
