//! The rules of statuses, as tables.

use super::*;

fn view(phase: &str, may_run: bool) -> NodeView {
    NodeView {
        status: json!({"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}),
        may_run,
        has_ended: false,
        generation: None,
        readiness_gates: Vec::new(),
        restart_policy: "Never",
    }
}

fn ready(status: &str) -> Value {
    json!({"type": "Ready", "status": status})
}

#[test]
fn phases_and_conditions_as_in_the_kubelet() {
    let gate = |status: &str| json!({"type": "example.com/gate", "status": status});
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"});
    let running = |conditions: Value| json!({"phase": "Running", "conditions": conditions});
    let failed = |conditions: Value| json!({"phase": "Failed", "conditions": conditions});
    let over = |conditions: Value, may_run| NodeView { status: failed(conditions), ..view("Failed", may_run) };
    let cases = [
        (
            "upstream: status/TestMergePodStatus/no change",
            running(json!([ready("True")])),
            view("Running", true),
            "Running",
            0,
            "True",
        ),
        (
            "upstream: status/TestMergePodStatus/readiness changes",
            running(json!([ready("True")])),
            NodeView { status: running(json!([ready("False")])), ..view("Running", true) },
            "Running",
            0,
            "False",
        ),
        (
            "upstream: status/TestMergePodStatus/additional pod condition",
            running(json!([ready("True"), gate("True")])),
            view("Running", true),
            "Running",
            1,
            "True",
        ),
        (
            "upstream: status/TestMergePodStatus/additional pod condition changes",
            running(json!([ready("True"), gate("False")])),
            NodeView { status: running(json!([ready("True")])), ..view("Running", true) },
            "Running",
            1,
            "True",
        ),
        (
            "upstream: status/TestMergePodStatus/additional pod condition and readiness changes",
            running(json!([ready("True"), gate("True")])),
            NodeView { status: running(json!([ready("False")])), ..view("Running", true) },
            "Running",
            1,
            "False",
        ),
        (
            "upstream: status/TestMergePodStatus/phase is transitioning to failed and no containers running",
            running(json!([ready("True"), gate("True")])),
            over(json!([ready("False")]), false),
            "Failed",
            1,
            "False",
        ),
        (
            "upstream: status/TestMergePodStatus/phase is transitioning to failed and containers running",
            running(json!([ready("True"), gate("True")])),
            over(json!([ready("False")]), true),
            "Running",
            1,
            "False",
        ),
        (
            "upstream: status/TestMergePodStatus/preserve DisruptionTarget condition",
            running(json!([ready("True"), target.clone()])),
            view("Running", true),
            "Running",
            1,
            "True",
        ),
    ];
    for (name, old, view, phase, others, is_ready) in cases {
        let new = merged(&old, &view).expect(name);
        assert_eq!(new["phase"], phase, "{name}");
        let condition = list(&new, "conditions").iter().find(|condition| condition["type"] == "Ready").expect(name);
        assert_eq!(condition["status"], is_ready, "{name}");
        // Conditions of other writers stay: they are not in the patch.
        let patch = super::super::patch::patch("u", &old, &new).unwrap_or_default();
        let told = foreign(&patch["status"]).len();
        assert_eq!((foreign(&old).len(), told), (others, 0), "{name}");
    }
}

#[test]
fn a_status_never_moves_backwards() {
    let container = |state: Value| json!({"phase": "Running", "containerStatuses": [{"name": "c", "state": state}]});
    let waiting = || json!({"waiting": {"reason": "ContainerCreating"}});
    let done = |code: i32| json!({"terminated": {"exitCode": code}});
    let cases = [
        ("running to terminated", "Always", container(json!({"running": {}})), container(done(0)), true),
        ("terminated to running, always", "Always", container(done(0)), container(json!({"running": {}})), true),
        ("failed to running, on failure", "OnFailure", container(done(1)), container(json!({"running": {}})), true),
        ("succeeded to running, on failure", "OnFailure", container(done(0)), container(json!({"running": {}})), false),
        ("terminated to running, never", "Never", container(done(1)), container(json!({"running": {}})), false),
        ("terminated to waiting, never", "Never", container(done(0)), container(waiting()), false),
    ];
    for (name, policy, old, new, allowed) in cases {
        let view = NodeView { status: new, restart_policy: policy, ..view("Running", true) };
        assert_eq!(merged(&old, &view).is_ok(), allowed, "{name}");
    }
    for phase in ["Succeeded", "Failed"] {
        let error = merged(&json!({"phase": phase}), &view("Running", true)).expect_err("refused");
        assert_eq!(error, Backwards::Phase(phase.to_owned(), "Running".to_owned()));
    }
}

// upstream: status/TestTerminatePod/
// upstream: status/TestTerminatePodWaiting/
#[test]
fn a_pod_that_has_ended_is_in_a_terminal_phase() {
    let waiting = || json!({"waiting": {"reason": "PodInitializing"}});
    let ran = |state: Value| json!([{"name": "c", "state": state}]);
    let is_unknown = |container: &Value| container["state"]["terminated"]["reason"] == "ContainerStatusUnknown";
    let of = |status: Value| {
        let view = NodeView { status, has_ended: true, ..view("", false) };
        merged(&json!({"phase": "Pending"}), &view).expect("merged")
    };
    for (name, phase, want) in [
        ("upstream: status/TestTerminatePod_EnsurePodPhaseIsTerminal/Pending pod", "Pending", "Failed"),
        ("upstream: status/TestTerminatePod_EnsurePodPhaseIsTerminal/Running pod", "Running", "Failed"),
        ("upstream: status/TestTerminatePod_EnsurePodPhaseIsTerminal/Succeeded pod", "Succeeded", "Succeeded"),
        ("upstream: status/TestTerminatePod_EnsurePodPhaseIsTerminal/Failed pod", "Failed", "Failed"),
        ("upstream: status/TestTerminatePod_EnsurePodPhaseIsTerminal/Unknown pod", "Unknown", "Failed"),
        ("upstream: status/TestTerminatePod_EnsurePodPhaseIsTerminal/Unknown phase pod", "SomeUnknownPhase", "Failed"),
    ] {
        assert_eq!(of(json!({"phase": phase}))["phase"], want, "{name}");
    }
    // The exit of a container that was to run is unknown.
    let status = of(json!({"phase": "Running", "containerStatuses": ran(json!({"waiting": {"reason": "Odd"}}))}));
    assert!(is_unknown(&status["containerStatuses"][0]));
    let kept = of(json!({"phase": "Failed", "containerStatuses": ran(json!({"terminated": {"exitCode": 3}}))}));
    assert_eq!(kept["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    // A pod that was still being initialised keeps what never had its turn.
    let status = of(json!({
        "phase": "Pending",
        "initContainerStatuses": [
            {"name": "i0", "state": {"running": {}}}, {"name": "i1", "state": waiting()},
        ],
        "containerStatuses": ran(waiting()),
    }));
    let init = &status["initContainerStatuses"];
    assert!(is_unknown(&init[0]) && init[1]["state"].get("waiting").is_some());
    assert!(status["containerStatuses"][0]["state"].get("waiting").is_some());
}

#[test]
fn containers_of_a_pod_that_has_ended_as_in_the_kubelet() {
    let end = |code: i32| json!({"state": {"terminated": {"exitCode": code}}});
    let waits = || json!({"state": {"waiting": {}}});
    let ran = |code: i32| json!({"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": code}}});
    let runs = || json!({"state": {"running": {}}});
    // Init and normal containers; then their exit codes: 137 for one whose exit is unknown, -1 for one that still waits.
    let cases = [
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/last termination state set",
            vec![],
            ran(2),
            vec![137],
        ),
        ("upstream: status/TestTerminatePod_DefaultUnknownStatus/no previous state", vec![], waits(), vec![137]),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/uninitialized pod defaults the first init container",
            vec![waits()],
            waits(),
            vec![137, -1],
        ),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/uninitialized pod defaults only the first init container",
            vec![waits(), waits()],
            waits(),
            vec![137, -1, -1],
        ),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/uninitialized pod defaults gaps",
            vec![waits(), waits(), end(1), waits()],
            waits(),
            vec![137, 137, 1, -1, -1],
        ),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/failed last container is uninitialized",
            vec![waits(), waits(), end(1)],
            waits(),
            vec![137, 137, 1, -1],
        ),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/successful last container is initialized",
            vec![waits(), waits(), end(0)],
            waits(),
            vec![137, 137, 0, 137],
        ),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/successful last previous container is initialized, and container state is overwritten",
            vec![waits(), waits(), ran(0)],
            waits(),
            vec![137, 137, 137, 137],
        ),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/running container proves initialization",
            vec![waits()],
            runs(),
            vec![137, 137],
        ),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/evidence of terminated container proves initialization",
            vec![waits()],
            end(0),
            vec![137, 0],
        ),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/evidence of previously terminated container proves initialization",
            vec![waits()],
            json!({"lastState": {"terminated": {"exitCode": 0}}}),
            vec![137, 137],
        ),
        (
            "a sidecar that has started is the last of the init containers",
            vec![json!({"state": {"running": {}}, "started": true, "ready": true})],
            waits(),
            vec![137, 137],
        ),
        (
            "an init container that runs",
            vec![json!({"state": {"running": {}}, "started": true, "ready": false}), waits()],
            waits(),
            vec![137, -1, -1],
        ),
    ];
    for (name, init, normal, want) in cases {
        let status = json!({"phase": "Running", "initContainerStatuses": init, "containerStatuses": [normal]});
        let view = NodeView { status, has_ended: true, ..view("", false) };
        let status = merged(&json!({}), &view).expect(name);
        let all = list(&status, "initContainerStatuses").iter().chain(list(&status, "containerStatuses"));
        let ends: Vec<i64> =
            all.map(|container| container["state"]["terminated"]["exitCode"].as_i64().unwrap_or(-1)).collect();
        assert_eq!(ends, want, "{name}");
        assert_eq!(status["phase"], "Failed", "{name}");
    }
    // A final phase stays, and the last state of its containers is reported with it.
    for (name, phase, last) in [
        ("upstream: status/TestTerminatePod_DefaultUnknownStatus/a failed pod stays failed", "Failed", json!([])),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/a running pod fails",
            "Running",
            json!([{"name": "0", "state": {"waiting": {}}}]),
        ),
        (
            "upstream: status/TestTerminatePod_DefaultUnknownStatus/a running pod whose container failed fails",
            "Running",
            json!([{"name": "0", "state": {"terminated": {"exitCode": 2, "reason": "Test"}}}]),
        ),
    ] {
        let status = json!({"phase": phase, "containerStatuses": last});
        let ended = merged(&json!({}), &NodeView { status, has_ended: true, ..view("", false) }).expect(name);
        assert_eq!(ended["phase"], "Failed", "{name}");
    }
}

#[test]
fn a_disruption_is_reported_with_the_end_of_its_pod() {
    let target = |reason: &str| json!({"type": "DisruptionTarget", "status": "True", "reason": reason});
    let of = |phase: &str, disruption: Option<Value>| {
        let conditions: Vec<Value> = [ready("False")].into_iter().chain(disruption).collect();
        json!({"phase": phase, "conditions": conditions})
    };
    let (ours, theirs) = (target("TerminationByKubelet"), target("EvictionByEvictionAPI"));
    for (name, old, new, may_run, phase, sent) in [
        (
            "upstream: status/TestMergePodStatus/add DisruptionTarget condition when transitioning into failed phase",
            of("Running", None),
            of("Failed", Some(ours.clone())),
            false,
            "Failed",
            Some("TerminationByKubelet"),
        ),
        (
            "upstream: status/TestMergePodStatus/don't add DisruptionTarget condition when transitioning into failed phase, but there might still be running containers",
            of("Running", None),
            of("Failed", Some(ours.clone())),
            true,
            "Running",
            None,
        ),
        (
            "upstream: status/TestMergePodStatus/override DisruptionTarget condition",
            of("Running", Some(theirs.clone())),
            of("Failed", Some(ours.clone())),
            false,
            "Failed",
            Some("TerminationByKubelet"),
        ),
        (
            "upstream: status/TestMergePodStatus/don't override DisruptionTarget condition when remaining in running phase",
            of("Running", Some(theirs.clone())),
            of("Running", Some(ours.clone())),
            true,
            "Running",
            None,
        ),
        (
            "upstream: status/TestMergePodStatus/don't override DisruptionTarget condition when transitioning to failed phase but there might still be running containers",
            of("Running", Some(theirs)),
            of("Failed", Some(ours.clone())),
            true,
            "Running",
            None,
        ),
        (
            "it stays once it was told",
            of("Failed", Some(ours.clone())),
            of("Failed", Some(ours)),
            false,
            "Failed",
            None,
        ),
    ] {
        let new = merged(&old, &NodeView { status: new, ..view("", may_run) }).expect(name);
        assert_eq!(new["phase"], phase, "{name}");
        let patch = super::super::patch::patch("u", &old, &new).unwrap_or_default();
        let told: Vec<&Value> = foreign(&patch["status"]).iter().map(|condition| &condition["reason"]).collect();
        assert_eq!(told, sent.into_iter().collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn readiness_waits_for_every_gate() {
    let gates = |status: Value, gates: &[&str]| {
        let gates = gates.iter().map(|gate| (*gate).to_owned()).collect();
        let new = merged(&status, &NodeView { readiness_gates: gates, ..view("Running", true) }).expect("merged");
        let ready = new["conditions"][0].clone();
        (ready["status"].clone(), ready["reason"].clone(), ready["message"].as_str().unwrap_or_default().to_owned())
    };
    let open = json!({"phase": "Running", "conditions": [{"type": "a/b", "status": "True"}]});
    let closed = json!({"phase": "Running", "conditions": [{"type": "a/b", "status": "False"}]});
    assert_eq!(gates(open, &["a/b"]).0, "True");
    let (status, reason, message) = gates(closed, &["a/b", "c/d"]);
    assert_eq!((status, reason), (json!("False"), json!("ReadinessGatesNotReady")));
    assert_eq!(
        message,
        "[the status of pod readiness gate \"a/b\" is not \"True\", but False, corresponding condition of pod readiness gate \
         \"c/d\" does not exist.]"
    );
}

// upstream: status/TestNewStatusPreservesPodStartTime/
// upstream: status/TestUnchangedStatusPreservesLastTransitionTime/
// upstream: status/TestChangedStatusUpdatesLastTransitionTime/
// upstream: status/TestChangedStatusKeepsStartTime/
// upstream: status/TestUpdateLastTransitionTime/should do nothing if no corresponding condition
// upstream: status/TestUpdateLastTransitionTime/should update last transition time if no old condition
// upstream: status/TestUpdateLastTransitionTime/should update last transition time if condition is changed
// upstream: status/TestUpdateLastTransitionTime/should keep last transition time if condition is not changed
#[test]
fn times_and_generation() {
    let at = |status: &str, time: &str| json!({"type": "Ready", "status": status, "lastTransitionTime": time});
    let old = json!({"phase": "Running", "startTime": "t0", "conditions": [at("True", "t1")]});
    let new = |status: &str| {
        let status = json!({"phase": "Running", "startTime": "t9", "conditions": [at(status, "t8")]});
        merged(&old, &NodeView { status, generation: Some(4), ..view("Running", true) }).expect("merged")
    };
    let same = new("True");
    assert_eq!((&same["startTime"], &same["conditions"][0]["lastTransitionTime"]), (&json!("t0"), &json!("t1")));
    assert_eq!((&same["observedGeneration"], &same["conditions"][0]["observedGeneration"]), (&json!(4), &json!(4)));
    assert_eq!(new("False")["conditions"][0]["lastTransitionTime"], "t8");
    let other = json!({"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "t2"}]});
    let first = merged(&other, &NodeView { status: json!({"conditions": [at("True", "t8")]}), ..view("", true) });
    assert_eq!(
        first.expect("merged")["conditions"],
        json!([at("True", "t8")]),
        "no old condition, and none that is not told"
    );
}
