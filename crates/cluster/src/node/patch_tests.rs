//! Tests of patches of a Node's status, and of what counts as a change.

use serde_json::from_value;

use super::*;

fn status(value: Value) -> NodeStatus {
    from_value(value).expect("a status")
}

fn base() -> Value {
    json!({
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "capacity": {"cpu": "2", "gone": "1"},
        "images": [{"names": ["a"], "sizeBytes": 1}],
        "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
            {"type": "Foreign", "status": "False"},
        ],
    })
}

#[test]
fn heartbeats_and_order_are_no_change() {
    let old = status(base());
    let mut beat = base();
    beat["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
    let mut order = base();
    order["conditions"].as_array_mut().expect("a list").reverse();
    let mut reason = base();
    reason["conditions"][0]["reason"] = json!("New");
    let mut differs = base();
    differs["conditions"][0]["status"] = json!("False");
    let mut since = base();
    since["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:05:00Z");
    let mut added = base();
    added["conditions"].as_array_mut().expect("a list").push(json!({"type": "More", "status": "False"}));
    let mut phase = base();
    phase["phase"] = json!("Running");
    for (name, new, want) in [
        ("upstream: nodestatus/TestNodeStatusHasChanged/Node status does not change", base(), false),
        (
            "upstream: nodestatus/TestNodeStatusHasChanged/Node status does not change even if heartbeat time changes.",
            beat,
            false,
        ),
        (
            "upstream: nodestatus/TestNodeStatusHasChanged/Node status does not change even if the orders of conditions are different.",
            order,
            false,
        ),
        (
            "upstream: nodestatus/TestNodeStatusHasChanged/Node status changes if condition status differs.",
            differs,
            true,
        ),
        ("upstream: nodestatus/TestNodeStatusHasChanged/Node status changes if transition time changes.", since, true),
        (
            "upstream: nodestatus/TestNodeStatusHasChanged/Node status changes with different number of conditions.",
            added,
            true,
        ),
        ("upstream: nodestatus/TestNodeStatusHasChanged/Node status changes with different phase.", phase, true),
        ("another reason", reason, true),
        ("all gone", json!({}), true),
    ] {
        assert_eq!(has_changed(&old, &status(new)), want, "{name}");
    }
    for (name, old, new, want) in [
        (
            "upstream: nodestatus/TestNodeStatusHasChanged/Node status does not change with default status.",
            json!({}),
            json!({}),
            false,
        ),
        (
            "upstream: nodestatus/TestNodeStatusHasChanged/Node status changes with nil and status.",
            json!({}),
            base(),
            true,
        ),
        (
            "upstream: nodestatus/TestNodeStatusHasChanged/Node status does not change with empty conditions.",
            json!({"conditions": []}),
            json!({"conditions": []}),
            false,
        ),
    ] {
        assert_eq!(has_changed(&status(old), &status(new)), want, "{name}");
    }
}

// upstream: nodestatus/TestUpdateNodeAddresses
#[test]
fn a_patch_has_what_changed() {
    let old = status(base());
    assert_eq!(status_patch("u", &old, &old), None);
    let mut new = base();
    new["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
    new["capacity"] = json!({"cpu": "4", "memory": "1Ki"});
    new["images"] = json!([{"names": ["b"], "sizeBytes": 2}]);
    new["addresses"] = json!([{"type": "InternalIP", "address": "10.0.0.2"}]);
    let want = json!({
        "metadata": {"uid": "u"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}, {"$patch": "replace"}],
            "capacity": {"cpu": "4", "memory": "1Ki", "gone": null},
            "images": [{"names": ["b"], "sizeBytes": 2}],
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Foreign"}],
            "conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}],
        },
    });
    assert_eq!(status_patch("u", &old, &status(new)), Some(want));
    let mut no_images = base();
    no_images.as_object_mut().expect("a map").remove("images");
    let patch = status_patch("u", &old, &status(no_images)).expect("a change");
    assert_eq!(patch["status"], json!({"images": null}));
}

#[test]
fn fields_that_a_server_does_not_know_are_left_out() {
    let whole = status(json!({
        "features": {"supplementalGroupsPolicy": true},
        "runtimeHandlers": [{"name": ""}],
        "phase": "Running",
    }));
    assert_eq!(without_newer_fields(&whole), status(json!({"phase": "Running"})));
    for (message, want) in [
        (r#"unable to find api field in struct NodeStatus for the json field "runtimeHandlers""#, true),
        (r#"unable to find api field in struct NodeSystemInfo for the json field "swap""#, true),
        (r#"unable to find api field in struct NodeStatus for the json field "spelt""#, false),
        ("runtimeHandlers: forbidden", false),
    ] {
        assert_eq!(is_unknown_field(message), want, "{message}");
    }
}
