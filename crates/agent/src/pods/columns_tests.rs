//! The columns of kubectl, case by case.

use serde_json::{Value, json};

use super::*;

/// `READY STATUS RESTARTS` of a pod with this status, ten minutes after the hour.
fn row(spec: Value, status: Value, metadata: Value) -> String {
    let pod = Pod::of(&json!({"metadata": metadata, "spec": spec, "status": status})).expect("a pod");
    let columns = columns(&pod);
    let now = "2026-01-01T00:10:00Z".parse().expect("a time");
    format!("{} {} {}", columns.ready(), columns.status, columns.restarts(now))
}

fn two() -> Value {
    json!({"containers": [{"name": "a"}, {"name": "b"}]})
}

fn running(name: &str, ready: bool, restarts: u32) -> Value {
    json!({"name": name, "ready": ready, "restartCount": restarts, "started": true,
           "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
}

fn waiting(name: &str, reason: &str, restarts: u32) -> Value {
    json!({"name": name, "restartCount": restarts, "state": {"waiting": {"reason": reason}}})
}

fn ended(name: &str, reason: &str, code: i32) -> Value {
    json!({"name": name, "state": {"terminated": {"exitCode": code, "reason": reason}}})
}

fn with_last(mut status: Value, finished: &str) -> Value {
    status["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": finished}});
    status
}

fn conditions(holding: &[&str]) -> Value {
    holding.iter().map(|kind| json!({"type": kind, "status": "True"})).collect()
}

#[test]
fn normal_containers() {
    let cases = [
        (json!({"phase": "Pending"}), "0/2 Pending 0"),
        (
            json!({"phase": "Running", "containerStatuses": [running("a", true, 0), running("b", true, 0)]}),
            "2/2 Running 0",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [running("a", true, 0), running("b", false, 2)]}),
            "1/2 Running 2",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [running("a", true, 0),
                with_last(waiting("b", "CrashLoopBackOff", 3), "2026-01-01T00:08:30Z")]}),
            "1/2 CrashLoopBackOff 3 (90s ago)",
        ),
        (
            json!({"phase": "Pending", "containerStatuses": [waiting("a", "ContainerCreating", 0), waiting("b", "ErrImagePull", 0)]}),
            "0/2 ContainerCreating 0",
        ),
        (
            json!({"phase": "Pending", "containerStatuses": [waiting("a", "ImagePullBackOff", 0), waiting("b", "ContainerCreating", 0)]}),
            "0/2 ImagePullBackOff 0",
        ),
        (
            json!({"phase": "Succeeded", "containerStatuses": [ended("a", "Completed", 0), ended("b", "Completed", 0)]}),
            "0/2 Completed 0",
        ),
        (
            json!({"phase": "Failed", "containerStatuses": [ended("a", "Error", 1), ended("b", "Completed", 0)]}),
            "0/2 Error 0",
        ),
        (
            json!({"phase": "Failed", "containerStatuses": [ended("a", "OOMKilled", 137), ended("b", "", 0)]}),
            "0/2 OOMKilled 0",
        ),
        (json!({"phase": "Failed", "containerStatuses": [ended("a", "", 7)]}), "0/2 ExitCode:7 0"),
        (
            json!({"phase": "Failed", "containerStatuses":
                [{"name": "a", "state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
            "0/2 Signal:9 0",
        ),
        (json!({"phase": "Failed", "reason": "DeadlineExceeded"}), "0/2 DeadlineExceeded 0"),
        (json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": []}), "0/2 Evicted 0"),
        // One is done, the other one still runs.
        (
            json!({"phase": "Running", "conditions": conditions(&["Ready"]),
                "containerStatuses": [ended("a", "Completed", 0), running("b", true, 0)]}),
            "1/2 Running 0",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [ended("a", "Completed", 0), running("b", true, 0)]}),
            "1/2 NotReady 0",
        ),
        // No state of the containers is known yet.
        (json!({"phase": "Pending", "containerStatuses": [waiting("a", "", 0)]}), "0/2 Pending 0"),
    ];
    for (status, want) in cases {
        assert_eq!(row(two(), status.clone(), json!({})), want, "{status}");
    }
}

#[test]
fn init_containers_come_first() {
    let spec = json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]});
    let later = json!([waiting("a", "PodInitializing", 0)]);
    let cases = [
        (json!([waiting("i", "PodInitializing", 0), waiting("j", "PodInitializing", 0)]), "0/1 Init:0/2 0"),
        (json!([running("i", false, 0), waiting("j", "PodInitializing", 0)]), "0/1 Init:0/2 0"),
        (json!([ended("i", "Completed", 0), running("j", false, 0)]), "0/1 Init:1/2 0"),
        (
            json!([
                with_last(waiting("i", "CrashLoopBackOff", 4), "2026-01-01T00:09:00Z"),
                waiting("j", "PodInitializing", 0)
            ]),
            "0/1 Init:CrashLoopBackOff 4 (60s ago)",
        ),
        (json!([waiting("i", "ErrImagePull", 0)]), "0/1 Init:ErrImagePull 0"),
        (json!([ended("i", "Error", 1)]), "0/1 Init:Error 0"),
        (json!([ended("i", "", 3)]), "0/1 Init:ExitCode:3 0"),
        (json!([{"name": "i", "state": {"terminated": {"exitCode": 143, "signal": 15}}}]), "0/1 Init:Signal:15 0"),
        // All are done.
        (json!([ended("i", "Completed", 0), ended("j", "Completed", 0)]), "0/1 PodInitializing 0"),
    ];
    for (init, want) in cases {
        let status = json!({"phase": "Pending", "initContainerStatuses": init, "containerStatuses": later});
        assert_eq!(row(spec.clone(), status.clone(), json!({})), want, "{status}");
    }
    // Once initialised, restarts of init containers count no more.
    let status = json!({"phase": "Running", "conditions": conditions(&["Initialized", "Ready"]),
        "initContainerStatuses": [with_last(ended("i", "Completed", 0), "2026-01-01T00:09:00Z")],
        "containerStatuses": [running("a", true, 1)]});
    assert_eq!(row(spec, status, json!({})), "1/1 Running 1");
}

#[test]
fn sidecars_count_as_containers() {
    let spec = json!({"initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}], "containers": [{"name": "a"}]});
    let status = |init: Value, normal: Value| json!({"phase": "Running", "initContainerStatuses": init, "containerStatuses": normal});
    let starting =
        status(json!([running("s", true, 0), running("i", false, 0)]), json!([waiting("a", "PodInitializing", 0)]));
    assert_eq!(row(spec.clone(), starting, json!({})), "1/2 Init:1/2 0");
    let up = status(
        json!([with_last(running("s", true, 2), "2026-01-01T00:09:30Z"), ended("i", "Completed", 0)]),
        json!([running("a", true, 1)]),
    );
    assert_eq!(row(spec.clone(), up, json!({})), "2/2 Running 3 (30s ago)");
    let not_yet = status(json!([{"name": "s", "started": false, "state": {"running": {}}}]), json!([]));
    assert_eq!(row(spec, not_yet, json!({})), "0/2 Init:0/2 0");
}

#[test]
fn what_is_deleted_ends() {
    let going = json!({"deletionTimestamp": "2026-01-01T00:09:00Z"});
    let status = json!({"phase": "Running", "containerStatuses": [running("a", true, 0), running("b", true, 0)]});
    assert_eq!(row(two(), status, going.clone()), "2/2 Terminating 0");
    let over =
        json!({"phase": "Succeeded", "containerStatuses": [ended("a", "Completed", 0), ended("b", "Completed", 0)]});
    assert_eq!(row(two(), over, going), "0/2 Completed 0");
}
